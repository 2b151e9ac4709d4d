/* Selects the variants that a case's plans ask for, so that all are compared. For harness.h. */
#ifndef TESTS_OPS_VARIANTS_H
#define TESTS_OPS_VARIANTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"

/* How a plan is made. */
typedef struct op_mode {
    bool as_gpu, portable;
    clt_dtype precision; /* 0 or F32; F16 or BF16: precision of values between input and output */
    char variants[1024]; /* OP=NAME,... or "" */
    clt_matrix_kind matrix; /* GPU in 16 bits: the matrix unit that kernels emulate */
    int tile;               /* number of the tuner's tile, from 1 on; 0: none */
    const char *options;    /* options of a record instead; NULL: none */
} op_mode;

static const op_mode op_as_device = {.as_gpu = false};

enum { OP_MAX_ASKED = 128 };

/* The variants of the operators in a case's plans, and which of them were compared. */
typedef struct op_walk {
    struct op_asked {
        const clt_op *op;
        const clt_variant *variant;
        bool as_gpu, done, now, alone;
    } asked[OP_MAX_ASKED];
    int count;
} op_walk;

/* Adds the variants that accept a node of the plan when they are asked for. The variant that the
 * plan uses is done. Several operators may share a table of variants. */
void op_list_variants(const clt_plan *plan, op_walk *w);

/* Makes a mode that asks by name for one variant of each operator that is not done. Returns false
 * if all are done. */
bool op_ask(op_walk *w, op_mode *mode);

/* Marks variants that the plan has as done. If the plan lacks one, another variant asked for is in
 * its way because of its layouts. Then it is asked for without others. */
void op_asked_for(op_walk *w, const clt_plan *plan);

#endif
