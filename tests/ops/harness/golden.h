/* Cases of an operator from PyTorch's goldens, for harness.h. */
#ifndef TESTS_OPS_GOLDEN_H
#define TESTS_OPS_GOLDEN_H

#include <jansson.h>

#include "goldens/goldens.h"
#include "ops/harness/harness.h"

/* A case that is being read. */
typedef struct op_golden {
    clt_tensors *tensors;
    char prefix[16], text[OP_TEXT];
    json_t *attributes;
    op_case c;
    double *labels;
} op_golden;

static inline bool op_golden_has(const op_golden *g, const char *name)
{
    return golden_try(g->tensors, g->prefix, name) != NULL;
}

/* Adds an operand. With `batch`, its first dimension is the batch. */
void op_golden_operand(op_golden *g, const char *name, bool batch);

/* Reads the results, after the operands. */
void op_golden_results(op_golden *g);

double op_golden_number(const op_golden *g, const char *name);

void op_golden_pair(const op_golden *g, const char *name, int pair[2]);

/* Calls `one` with every case of the operator. */
void op_goldens(const char *op, void (*one)(op_golden *g));

#endif
