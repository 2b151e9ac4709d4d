/* mse: the sum of squared differences, and its gradient. */
#include "base/error.h"
#include "ops/elementwise/elementwise_cpu.h"
#include "ops/core/group_gpu.h"
#include "ops/loss/loss.h"
#include "ops/core/ops.h"

static clt_status check_operands(const clt_node *node)
{
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_f32(node, 1));
    if (!clt_type_equal(&node->in[0]->type, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "%s: %s and %s differ in shape%s", node->op->name,
                        clt_operand_text(node, 0, tx), clt_operand_text(node, 1, ty),
                        clt_flatten_hint(&node->in[0]->type, &node->in[1]->type));
    return CLT_OK;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(check_operands(node));
    out[0] = out[1] = clt_scalar_type();
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    for (int i = 0; i < 2; i++)
        if (wanted[i] && dy[0])
            dx[i] = clt_emit1(&clt_op_mse_grad, NULL, 3, node->in[i], node->in[1 - i], dy[0]);
    return clt_graph_status(node->graph);
}

static double flops(const clt_node *node, int64_t n)
{
    return 3.0 * (double)clt_type_elements(&node->in[0]->type, n);
}

/* Elements of a sample; the weight is known without the data. */
static double weight(const clt_node *node)
{
    const clt_type *type = &node->in[0]->type;
    return clt_type_has_batch(type) ? (double)clt_type_coefficient(type) : 0;
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    const int64_t parts = clt_loss_parts(target, elements);
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_launch_begin(program, "loss/portable/loss.cl", "mse", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             CLT_LONG(elements), CLT_FIXED(parts));
    clt_range_items(program, target, clt_fixed(parts));
    clt_loss_total(program, target, sums, counts, parts);
}

/* float4 fits values without a batch, which begin at multiples of 16 bytes. It also fits samples of
 * a multiple of four elements. */
static int vector_of(const clt_node *node)
{
    return clt_type_coefficient(&node->in[0]->type) % 4 ? 1 : 4;
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    enum { LOADS = 4, MOST = 1024 };
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    const int v = vector_of(node);
    const int64_t each = (int64_t)CLT_GPU_GROUP * v * LOADS;
    int64_t parts = (clt_extent_at(elements, target->max_batch) + each - 1) / each;
    parts = parts < 1 ? 1 : parts < MOST ? parts : MOST;
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_launch_begin(program, "loss/gpu/total.cl", "mse", "-DGROUP=%d -DV=%d", CLT_GPU_GROUP, v);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             CLT_LONG(elements), CLT_FIXED(parts));
    clt_range1(program, clt_fixed(parts * CLT_GPU_GROUP), CLT_GPU_GROUP);
    clt_loss_total_gpu(program, sums, counts, parts);
}

static bool accepts_cpu(const clt_node *node, const clt_target *target, char *why)
{
    const int width = target->caps->vector_width;
    const int64_t elements =
        clt_extent_at(clt_extent_elements(&node->in[0]->type), target->max_batch);
    return clt_accepts_vectors(target, why) &&
           (elements >= width || clt_decline(why, "%lld elements", (long long)elements));
}

/* Partial sums of 16 Ki elements. There are enough for all compute units, but so few that adding
 * them is cheap. */
static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    enum { ELEMENTS = 16384, LEAST = 2048, MOST = 1024 };
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    const int64_t all = clt_extent_at(elements, target->max_batch);
    const int64_t wanted = 8 * (int64_t)target->caps->compute_units;
    int64_t parts = all / ELEMENTS > wanted ? all / ELEMENTS : wanted;
    parts = parts < all / LEAST ? parts : all / LEAST;
    parts = parts < 1 ? 1 : parts < MOST ? parts : MOST;
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_launch_begin(program, "reduce/cpu/reduce.cl", "mse", "-DVW=%d -DREDUCE=0",
                     target->caps->vector_width);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             CLT_LONG(elements), CLT_FIXED(parts));
    clt_range1(program, clt_fixed(parts), 1);
    clt_loss_total(program, target, sums, counts, parts);
}

const clt_op clt_op_mse = {
    .name = "mse",
    .doc = "Sum of (x - target)^2; weight: the number of elements.",
    .operands = "x *, target *",
    .results = "sum 1, weight 1",
    .callable = true,
    .infer = infer,
    .gradient = gradient,
    .flops = flops,
    .weight = weight,
    CLT_VARIANTS({"vectors_cpu", accepts_cpu, emit_cpu},
                 {"tree_gpu", clt_gpu_group_accepts, emit_gpu}, {"portable", NULL, emit_portable}),
};

clt_status clt_mse(clt_value *x, clt_value *target, clt_value **sum, clt_value **weight)
{
    return clt_loss_emit(&clt_op_mse, NULL, x, target, sum, weight);
}

/* --- mse_grad ------------------------------------------------------------------------------- */

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    char text[CLT_TYPE_TEXT];
    const clt_type scalar = clt_scalar_type();
    CLT_TRY(check_operands(node));
    if (!clt_type_equal(&node->in[2]->type, &scalar))
        return clt_fail(CLT_SHAPE, "mse_grad: the upstream gradient is %s, not f32[1]",
                        clt_operand_text(node, 2, text));
    out[0] = node->in[0]->type;
    return CLT_OK;
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    clt_launch_begin(program, "loss/portable/loss.cl", "mse_grad", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0), CLT_LONG(elements));
    clt_range_items(program, target, elements);
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    const int v = vector_of(node);
    (void)target;
    clt_launch_begin(program, "loss/gpu/total.cl", "mse_grad", "-DGROUP=%d -DV=%d", CLT_GPU_GROUP,
                     v);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0), CLT_LONG(elements));
    clt_range_gpu(program, elements, v);
}

static void emit_grad_cpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_elementwise_cpu_emit(node, target, program, "OUT(2.0f*c*(a-b))");
}

const clt_op clt_op_mse_grad = {
    .name = "mse_grad",
    .doc = "The gradient of mse.",
    .operands = "x *, target *, upstream 1",
    .results = "dx *",
    .infer = infer_grad,
    .flops = flops,
    .in_place = 1u,
    CLT_VARIANTS({"vectors_cpu", clt_elementwise_cpu_accepts, emit_grad_cpu},
                 {"vectors_gpu", clt_gpu_group_accepts, emit_grad_gpu},
                 {"portable", NULL, emit_grad_portable}),
};
