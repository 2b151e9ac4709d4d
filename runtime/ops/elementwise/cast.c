/* Conversion between element types. It converts stored elements one by one, so any layout works. */
#include "base/array.h"
#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/core/ops.h"
#include "ops/shape/move.h"
#include <cltrain/ops.h>

typedef struct cast_attr {
    clt_dtype to;
} cast_attr;

static bool is_float(clt_dtype dtype)
{
    return dtype != CLT_I32 && dtype != CLT_U8;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const cast_attr *attr = node->attr;
    *out = node->in[0]->type;
    if (!clt_dtype_of_tensor(attr->to))
        return clt_fail(CLT_INVALID_ARGUMENT, "cast: %d is no element type", (int)attr->to);
    out->dtype = attr->to;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_dtype from = node->in[0]->type.dtype, to = node->out[0]->type.dtype;
    (void)wanted;
    if (is_float(from) && is_float(to))
        dx[0] = clt_cast(dy[0], from);
    return CLT_OK;
}

static bool accepts(const clt_node *node, const clt_target *target, char *why)
{
    const bool f64 = node->in[0]->type.dtype == CLT_F64 || node->out[0]->type.dtype == CLT_F64;
    return !f64 || target->caps->fp64 || clt_decline(why, "the device has no f64");
}

static const char *const names[] = {[CLT_F32] = "F32", [CLT_F16] = "F16", [CLT_BF16] = "BF16",
                                    [CLT_I32] = "I32", [CLT_U8] = "U8",   [CLT_F64] = "F64"};

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_gpu_group_accepts(node, target, why) && accepts(node, target, why);
}

static bool accepts_cpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_vectors(target, why) && accepts(node, target, why);
}

/* Gives a work-item about 16 Ki elements, or fewer if compute units would otherwise have no
 * work. */
static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { LEAST = 256, MOST = 16384, ITEMS_A_UNIT = 4 };
    const clt_extent count = clt_extent_stored(node->in[0], target->lanes);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t share = clt_extent_at(count, target->max_batch) / items / LEAST * LEAST;
    share = share < LEAST ? LEAST : share < MOST ? share : MOST;
    clt_launch_begin(p, "elementwise/cpu/cast.cl", "cast", "-DVW=%d -DFROM_%s -DTO_%s",
                     target->caps->vector_width, names[node->in[0]->type.dtype],
                     names[node->out[0]->type.dtype]);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_LONG(count), CLT_LONG(clt_fixed(share)));
    clt_range1(p, clt_extent_ceil(count, share, 1), 1);
}

/* The unsigned integer type through which kernels read and write elements of the type. */
static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_type *from = &node->in[0]->type;
    const clt_dtype to = node->out[0]->type.dtype;
    const clt_extent count = clt_extent_stored(node->in[0], target->lanes);
    /* A sample within an input begins at a multiple of the sample's size, which must fit the
     * vectors. */
    int v = from->dtype == CLT_F64 ? 2 : 4;
    if (clt_type_has_batch(from) && clt_type_coefficient(from) % v)
        v = 1;
    const char *const width = v == 4 ? "4" : v == 2 ? "2" : "";
    clt_launch_begin(p, "elementwise/gpu/cast.cl", "cast",
                     "-DFROM_%s -DTO_%s -DV=%d -DFROM=%s%s -DTO=%s%s", names[from->dtype],
                     names[to], v, clt_move_unit(from->dtype), width, clt_move_unit(to), width);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_LONG(count));
    clt_range_gpu(p, count, v);
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_extent count = clt_extent_stored(node->in[0], target->lanes);
    clt_launch_begin(p, "elementwise/portable/cast.cl", "cast", "-DFROM_%s -DTO_%s",
                     names[node->in[0]->type.dtype], names[node->out[0]->type.dtype]);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_LONG(count));
    clt_range1(p, clt_extent_ceil(count, 16 * 16, 16), 16);
}

static const char *const types[] = {"f32", "f16", "bf16", "i32", "u8", "f64", NULL};

const clt_op clt_op_cast = {
    .name = "cast",
    .doc = "x converted to another element type.",
    .operands = "x * any",
    .results = "y * any",
    .callable = true,
    CLT_ATTRIBUTES(cast_attr, {CLT_ATTRIBUTE(CHOICE, "to", cast_attr, to, "The element type."),
                               .choices = types, .required = 1}),
    .infer = infer,
    .gradient = gradient,
    .flops = clt_no_flops,
    CLT_VARIANTS({"vectors_cpu", accepts_cpu, emit_cpu}, {"vectors_gpu", accepts_gpu, emit_gpu},
                 {"portable", accepts, emit})};

clt_value *clt_cast(clt_value *x, clt_dtype to)
{
    const cast_attr attr = {to};
    return x && x->type.dtype == to ? x : clt_emit1(&clt_op_cast, &attr, 1, x);
}
