/* Conversion between element types. It converts stored elements one by one, so any layout works. */
#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/core/ops.h"
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
    if (!clt_dtype_size(attr->to))
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

static double no_flops(const clt_node *node, int64_t n)
{
    (void)node;
    (void)n;
    return 0;
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
    const int width = target->caps->vector_width;
    if (!clt_caps_is_cpu(target->caps))
        return clt_decline(why, "made for CPUs");
    if (width != 4 && width != 8 && width != 16)
        return clt_decline(why, "vectors of %d floats", width);
    return accepts(node, target, why);
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
    clt_arg_in(p, 0);
    clt_arg_out(p, 0);
    clt_arg_long(p, count);
    clt_arg_long(p, clt_fixed(share));
    clt_range1(p, clt_extent_ceil(count, share, 1), 1);
}

/* The unsigned integer type through which kernels read and write elements of the type. */
static const char *unit(clt_dtype dtype)
{
    switch (clt_dtype_size(dtype)) {
    case 1:
        return "uchar";
    case 2:
        return "ushort";
    case 8:
        return "ulong";
    default:
        return "uint";
    }
}

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
                     names[to], v, unit(from->dtype), width, unit(to), width);
    clt_arg_in(p, 0);
    clt_arg_out(p, 0);
    clt_arg_long(p, count);
    clt_range1(p, clt_extent_ceil(count, (int64_t)CLT_GPU_GROUP * v, CLT_GPU_GROUP), CLT_GPU_GROUP);
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_extent count = clt_extent_stored(node->in[0], target->lanes);
    clt_launch_begin(p, "elementwise/portable/cast.cl", "cast", "-DFROM_%s -DTO_%s",
                     names[node->in[0]->type.dtype], names[node->out[0]->type.dtype]);
    clt_arg_in(p, 0);
    clt_arg_out(p, 0);
    clt_arg_long(p, count);
    clt_range1(p, clt_extent_ceil(count, 16 * 16, 16), 16);
}

static const clt_variant variants[] = {
    {"vectors_cpu", accepts_cpu, emit_cpu},
    {"vectors_gpu", accepts_gpu, emit_gpu},
    {"portable", accepts, emit},
    {0},
};

static const char *const types[] = {"f32", "f16", "bf16", "i32", "u8", "f64", NULL};

const clt_op clt_op_cast = {
    .name = "cast",
    .doc = "x converted to another element type.",
    .operands = "x * any",
    .results = "y * any",
    .callable = true,
    .attributes =
        (const clt_attribute[]){
            {CLT_ATTRIBUTE(CHOICE, "to", cast_attr, to, "The element type."), .choices = types,
             .required = 1},
            {0},
        },
    .attr_bytes = sizeof(cast_attr),
    .infer = infer,
    .gradient = gradient,
    .flops = no_flops,
    .variants = variants};

clt_value *clt_cast(clt_value *x, clt_dtype to)
{
    const cast_attr attr = {to};
    return x && x->type.dtype == to ? x : clt_emit1(&clt_op_cast, &attr, 1, x);
}
