/* The cases of `cltrain bench op`. */
#ifndef CLTRAIN_COMMAND_BENCH_BENCH_OP_H
#define CLTRAIN_COMMAND_BENCH_BENCH_OP_H

#include "bench/bench.h"

enum { ROWS = 16384, COLUMNS = 1024 }; /* 64 MiB of f32 */

typedef struct case_row {
    const char *name;
    const char *op, *attributes;       /* of the schema; attributes NULL: the defaults */
    const char *shapes;                /* of the operands; NULL: by the schema's letters */
    int training;                      /* gradients are measured too */
    int relu;                          /* a ReLU follows */
    clt_value *(*build)(clt_graph *g); /* several operators; `op` is NULL then */
    clt_optimizer optimizer; /* of a case without `op` and `build`, which measures an update */
} case_row;

/* Builds the operator of a case. Returns the result, or NULL if it declared a loss or failed. */
clt_value *bench_op_build(clt_graph *g, const case_row *row);

extern const case_row bench_op_cases[];
extern const int bench_op_case_count;

#endif
