/* How 16 bits change the numbers of a case. For harness.h. */
#ifndef TESTS_OPS_HALF_H
#define TESTS_OPS_HALF_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/harness/variants.h"
#include "plan/plan.h"
#include <cltrain/ops.h>

static const op_mode op_half_modes[] = {{.precision = CLT_BF16},
                                        {.as_gpu = true, .precision = CLT_F16},
                                        {.portable = true, .precision = CLT_BF16},
                                        {.precision = CLT_F16},
                                        {.as_gpu = true, .precision = CLT_BF16},
                                        {.portable = true, .precision = CLT_F16}};

typedef struct op_half {
    clt_dtype precision; /* 0: all values are f32 */
} op_half;

static inline bool op_is_half(const clt_value *value)
{
    return value && (value->type.dtype == CLT_F16 || value->type.dtype == CLT_BF16);
}

/* Inserts a value that the precision pass may round, because inputs and outputs stay f32. */
static inline clt_value *op_between(clt_value *value, clt_dtype precision)
{
    return value && precision && value->type.dtype == CLT_F32 ? clt_scale(value, 1) : value;
}

/* Rounds to the nearest number of the 16-bit type; ties to even. f16 has no number below 2^-24. */
double op_half_nearest(clt_dtype dtype, double v);

/* Whether the plan rounds input `name``index` before it is used: the graph does, or a variant that
 * reads it (CLT_NARROWS). */
bool op_half_rounds(const op_half *h, const clt_plan *plan, const char *name, int index);

/* Rounds the numbers of an input that the plan rounds. */
void op_half_round(const op_half *h, const clt_plan *plan, const char *name, int index,
                   int64_t count, double *numbers);

/* Returns the allowed error beyond f32's: the result's own rounding, and the rounding of
 * intermediate values, each a share of the terms. */
double op_half_error(const op_half *h, const clt_value *value, double want, double bound);

#endif
