/* How 16 bits change the numbers of a case. For harness.h. */
#ifndef TESTS_OPS_HALF_H
#define TESTS_OPS_HALF_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/variants.h"
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
static inline double op_half_nearest(clt_dtype dtype, double v)
{
    const int bits = dtype == CLT_F16 ? 11 : 8, least = dtype == CLT_F16 ? -24 : -133;
    int exponent;
    if (v == 0 || !isfinite(v))
        return v;
    frexp(v, &exponent);
    const int last = exponent - bits > least ? exponent - bits : least;
    const double rounded = ldexp(nearbyint(ldexp(v, -last)), last);
    return dtype == CLT_F16 && fabs(rounded) > 65504 ? copysign(INFINITY, v) : rounded;
}

/* Whether the plan's graph rounds input `name``index` before it is used. */
static inline bool op_half_rounds(const op_half *h, const clt_graph *graph, const char *name,
                                  int index)
{
    char text[32];
    snprintf(text, sizeof text, "%s%d", name, index);
    for (int i = 0; h->precision && i < graph->n_nodes; i++) {
        const clt_node *node = graph->nodes[i];
        if (!strcmp(node->op->name, "scale") && node->in[0]->name &&
            !strcmp(node->in[0]->name, text) && op_is_half(node->out[0]))
            return true;
    }
    return false;
}

/* Rounds the numbers of an input that the graph rounds. */
static inline void op_half_round(const op_half *h, const clt_graph *graph, const char *name,
                                 int index, int64_t count, double *numbers)
{
    if (op_half_rounds(h, graph, name, index))
        for (int64_t k = 0; k < count; k++)
            numbers[k] = op_half_nearest(h->precision, numbers[k]);
}

/* Returns the allowed error beyond f32's: the result's own rounding, and the rounding of
 * intermediate values, each a share of the terms. */
static inline double op_half_error(const op_half *h, const clt_value *value, double want,
                                   double bound)
{
    if (!h->precision)
        return 0;
    const double eps = h->precision == CLT_F16 ? 0x1p-11 : 0x1p-8;
    const double least = h->precision == CLT_F16 ? 0x1p-24 : 0;
    (void)value;
    return eps * fabs(want) + 4 * eps * bound + 4 * least;
}

#endif
