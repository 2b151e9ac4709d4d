/* All operators. */
#ifndef CLT_OPS_CORE_OPS_H
#define CLT_OPS_CORE_OPS_H

/* For the ranges of attributes. */
#include <float.h>
#include <limits.h>
#include <math.h>

#include "graph/graph.h"
#include "base/error.h"
#include "ops/core/dims.h"
#include "ops/core/launch.h"

#define CLT_OP(name) extern const clt_op clt_op_##name;
#define CLT_CALL(name) extern const clt_op clt_call_##name;
#include "ops/core/ops.def"
#undef CLT_OP
#undef CLT_CALL

/* Define callable operator NAME. BUILD sets c->out from the operands c->in and the attributes `a`,
 * a TYPE, or options of TYPE; the other members follow. */
#define CLT_CALLABLE(NAME, TYPE, BUILD, ...)                                                       \
    static void call_##NAME(const clt_op_call *c)                                                  \
    {                                                                                              \
        const TYPE *a = c->attr;                                                                   \
        BUILD;                                                                                     \
    }                                                                                              \
    const clt_op clt_call_##NAME = {                                                               \
        .name = #NAME, .callable = true, .build = call_##NAME, __VA_ARGS__}
#define CLT_CALLABLE_SHARED(NAME, TYPE, BUILD, ...)                                                \
    static void call_##NAME(const clt_op_call *c)                                                  \
    {                                                                                              \
        TYPE own = *(const TYPE *)c->attr, *a = &own;                                              \
        own.struct_size = sizeof own;                                                              \
        BUILD;                                                                                     \
    }                                                                                              \
    const clt_op clt_call_##NAME = {                                                               \
        .name = #NAME, .callable = true, .build = call_##NAME, __VA_ARGS__}

/* The same, and TYPE_init for options that no other operator has. */
#define CLT_CALLABLE_OPTIONS(NAME, TYPE, BUILD, ...)                                               \
    void TYPE##_init(TYPE *options)                                                                \
    {                                                                                              \
        clt_options_init(&clt_call_##NAME, options);                                               \
    }                                                                                              \
    CLT_CALLABLE_SHARED(NAME, TYPE, BUILD, __VA_ARGS__)

/* Returns the operators of ops.def that are nodes, in its order; *count is their number. */
const clt_op *const *clt_ops(int *count);

/* Does the same as clt_apply_text for any operator: for tests of operators that only gradient rules
 * and passes add. */
clt_status clt_apply_op(clt_graph *graph, const clt_op *op, clt_value *const *in, int n_in,
                        const char *attributes, clt_value **results);

#endif
