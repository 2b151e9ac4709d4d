#include "ops/matmul/linear_batch_blocked.h"

#include "ops/matmul/gemm.h"
#include "ops/core/batch_blocked.h"
#include "ops/core/nn.h"

static bool matrix_of_images(const clt_value *value)
{
    return value->type.rank == 2 && clt_value_leads_with_batch(value);
}

int clt_linear_batch_blocked(const clt_node *node)
{
    const clt_linear_attr *attr = node->attr;
    return matrix_of_images(node->in[0]) && attr->epilogue.activation <= CLT_ACTIVATION_RELU
               ? CLT_BATCH_BLOCKED_FOLLOW
               : CLT_BATCH_BLOCKED_NO;
}

int clt_linear_weight_grad_batch_blocked(const clt_node *node)
{
    return matrix_of_images(node->in[0]) && matrix_of_images(node->in[1]) ? CLT_BATCH_BLOCKED_FOLLOW
                                                                          : CLT_BATCH_BLOCKED_NO;
}

int clt_matmul_batch_blocked(const clt_node *node)
{
    const clt_matmul_attr *attr = node->attr;
    return matrix_of_images(node->in[0]) && !attr->trans_a && node->in[1]->type.rank == 2 &&
                   !clt_type_has_batch(&node->in[1]->type)
               ? CLT_BATCH_BLOCKED_FOLLOW
               : CLT_BATCH_BLOCKED_NO;
}

/* Register tile; it uses channels * blocks + channels + 1 registers. */
typedef struct tile {
    int channels, blocks;
} tile;

static tile tile_for(const clt_target *target)
{
    return target->caps->vector_registers >= 32 ? (tile){4, 6} : (tile){3, 4};
}

static void range(clt_program *p, const clt_target *target, tile t, int64_t channels)
{
    clt_range3(p, clt_fixed((channels + t.channels - 1) / t.channels),
               (clt_extent){1, 1, (int64_t)target->lanes * t.blocks, 0}, clt_fixed(1), 1, 1, 1);
}

/* Writes the options A_T, B_T and C_T of matmul/batch_blocked/linear.cl for operands a and b and
 * output `out`; -1: none. */
static const char *types_of(const clt_node *node, int a, int b, int out, char *text)
{
    const clt_gemm types = {.a_type = node->in[a]->type.dtype,
                            .b_type = b < 0 ? CLT_F32 : node->in[b]->type.dtype,
                            .out_type = out < 0 ? CLT_F32 : node->out[out]->type.dtype};
    return clt_gemm_options(&types, true, text);
}

/* y = x w^T + bias, w [out, in]. */
static void emit_forward(clt_program *p, const clt_target *target, const char *types, int bias,
                         int activation, int64_t in, int64_t out)
{
    const tile t = tile_for(target);
    clt_launch_begin(p, "matmul/batch_blocked/linear.cl", "clt_batch_blocked_linear",
                     "-DLANES=%d -DBIAS=%d -DACT=%d -DTC=%d -DTB=%d%s", target->lanes, bias >= 0,
                     activation, t.channels, t.blocks, types);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_IN(bias >= 0 ? bias : 1), CLT_OUT(0),
             CLT_RUN(CLT_RUN_COUNT), CLT_FIXED(in), CLT_FIXED(out));
    range(p, target, t, out);
}

/* dx = g w, w [out, in]. */
static void emit_data_grad(clt_program *p, const clt_target *target, const char *types, int64_t in,
                           int64_t out)
{
    const tile t = tile_for(target);
    clt_launch_begin(p, "matmul/batch_blocked/linear.cl", "clt_batch_blocked_linear_data_grad",
                     "-DLANES=%d -DTC=%d -DTB=%d%s", target->lanes, t.channels, t.blocks, types);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(0)); /* placeholder for the result of a ReLU, not read */
    CLT_ARGS(p, CLT_IN(1), CLT_OUT(0), CLT_RUN(CLT_RUN_COUNT), CLT_FIXED(in), CLT_FIXED(out));
    range(p, target, t, in);
}

void clt_linear_emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_linear_attr *attr = node->attr;
    const clt_type *w = &node->in[1]->type;
    char types[CLT_GEMM_OPTIONS];
    emit_forward(p, target, types_of(node, 0, -1, 0, types), node->n_in > 2 && node->in[2] ? 2 : -1,
                 (int)attr->epilogue.activation, w->dims[1], w->dims[0]);
}

void clt_matmul_emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_matmul_attr *attr = node->attr;
    const clt_type *b = &node->in[1]->type;
    char types[CLT_GEMM_OPTIONS];
    types_of(node, 0, -1, 0, types);
    if (attr->trans_b)
        emit_forward(p, target, types, -1, CLT_ACTIVATION_NONE, b->dims[1], b->dims[0]);
    else
        emit_data_grad(p, target, types, b->dims[1], b->dims[0]);
}

void clt_linear_weight_grad_emit_batch_blocked(const clt_node *node, const clt_target *target,
                                               clt_program *p)
{
    enum { IN_BLOCK = 96, OUT_BLOCK = 32 };
    const clt_linear_weight_grad_attr *attr = node->attr;
    const int64_t in = node->in[0]->type.dims[1], out = node->in[1]->type.dims[1];
    const int64_t in_groups = (in + IN_BLOCK - 1) / IN_BLOCK;
    const int64_t out_groups = (out + OUT_BLOCK - 1) / OUT_BLOCK;
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    const int64_t chunk = clt_batch_blocked_chunk(target, in_groups * out_groups);
    const int64_t chunks = (blocks + chunk - 1) / chunk, float_bytes = (int64_t)sizeof(float);
    const tile t = tile_for(target);
    int sums = -1, bias_sums = -1;
    char types[CLT_GEMM_OPTIONS];
    if (chunks > 1) {
        sums = clt_scratch_add(p, clt_fixed(chunks * in * out * float_bytes));
        bias_sums = clt_scratch_add(p, clt_fixed(chunks * out * float_bytes));
    }
    clt_launch_begin(p, "matmul/batch_blocked/linear.cl", "clt_batch_blocked_linear_weight_grad",
                     "-DLANES=%d -DBIAS=%d -DTC=%d -DTB=%d -DIN_BLOCK=%d -DOUT_BLOCK=%d%s",
                     target->lanes, attr->bias, t.channels, t.blocks, IN_BLOCK, OUT_BLOCK,
                     types_of(node, 0, 1, -1, types));
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1),
             CLT_IN(1)); /* placeholder for the result of a ReLU, not read */
    if (chunks > 1) {
        CLT_ARGS(p, CLT_SCRATCH(sums), CLT_SCRATCH(bias_sums));
    } else {
        CLT_ARGS(p, CLT_OUT(0), CLT_OUT(1));
    }
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT), CLT_FIXED(in), CLT_FIXED(out), CLT_FIXED(chunk));
    clt_range3(p, clt_fixed(in_groups), clt_fixed(out_groups), clt_fixed(chunks), 1, 1, 1);
    if (chunks > 1) {
        clt_batch_blocked_sum_chunks(p, target, sums, 0, in * out, chunk);
        if (attr->bias)
            clt_batch_blocked_sum_chunks(p, target, bias_sums, 1, out, chunk);
    }
}
