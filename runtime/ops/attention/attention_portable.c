/* Arguments of attention's kernels, and launches of clkernels/attention/portable/attention.cl. */
#include <math.h>

#include "ops/attention/attention.h"
#include "ops/core/nn.h"

/* Adds the mask with `past`. */
static void arg_attention_mask(clt_program *p, const clt_node *node, const clt_attention_shape *s)
{
    const clt_attention_attr *attr = node->attr;
    const bool bytes = s->mask >= 0 && node->in[s->mask]->type.dtype == CLT_U8;
    CLT_ARGS(p, CLT_IN(s->mask >= 0 ? s->mask : s->q.operand),
             CLT_FIXED(s->mask < 0 ? 0
                       : bytes     ? 2
                                   : 1));
    for (int i = 0; i < 4; i++)
        CLT_ARGS(p, CLT_LONG(clt_fixed(s->mask_strides[i])));
    CLT_ARGS(p, CLT_IN(s->past >= 0 ? s->past : s->q.operand), CLT_FIXED(s->past >= 0),
             CLT_FIXED(attr->past), CLT_FIXED(attr->is_causal));
}

void clt_arg_attention_operands(clt_program *p, const clt_node *node, const clt_attention_shape *s)
{
    CLT_ARGS(p, CLT_ATTENTION_IN(&s->q), CLT_ATTENTION_IN(&s->k), CLT_ATTENTION_IN(&s->v));
    arg_attention_mask(p, node, s);
}

void clt_arg_attention_drop(clt_program *p, const clt_node *node, const clt_attention_shape *s)
{
    const clt_attention_attr *attr = node->attr;
    if (attr->dropout <= 0)
        return;
    /* Random numbers are 24-bit integers. This is the least number that is not dropped. */
    CLT_ARGS(p, CLT_FIXED((int64_t)ceil((double)(float)attr->dropout * (1 << 24))),
             CLT_FLOAT(attr->dropout < 1 ? 1 / (1 - attr->dropout) : 0), CLT_FIXED(attr->stream),
             CLT_FIXED(attr->all_heads ? attr->all_heads : s->heads), CLT_FIXED(attr->first_head),
             CLT_FIXED(attr->all_rows ? attr->all_rows : s->rows), CLT_FIXED(attr->first_row));
    /* A tensor without a batch gets the same random numbers on every device. */
    CLT_ARGS(p, CLT_LONG(clt_fixed(s->batch < 0 ? -s->batch : 0)), CLT_RUN(CLT_RUN_SEED),
             CLT_RUN(CLT_RUN_STEP), CLT_RUN(CLT_RUN_SAMPLE));
}

clt_extent clt_attention_images(const clt_attention_shape *s, int64_t mul)
{
    return s->batch < 0 ? clt_times_batch(-s->batch * mul) : clt_fixed(s->batch * mul);
}

/* Where portable kernels sum output `view` in floats: in the output itself, or in a scratch block
 * with contiguous rows. */
static void arg_sums(clt_program *p, const clt_node *node, const clt_attention_shape *s,
                     const clt_attention_view *view, int64_t heads, int64_t rows)
{
    if (!clt_is_half(node->out[view->operand]->type.dtype)) {
        CLT_ARGS(p, CLT_ATTENTION_OUT(view));
        return;
    }
    const clt_attention_view sums = {
        .batch = heads * rows * s->size, .head = rows * s->size, .row = s->size};
    CLT_ARGS(p, CLT_SCRATCH(clt_scratch_add(p, clt_attention_images(s, sums.batch * 4))),
             CLT_ATTENTION_STEPS(&sums));
}

void clt_attention_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_extent items = clt_attention_images(&s, s.heads * s.rows);
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/portable/attention.cl", "attention", "%s",
                     clt_attention_types(node, &s, types));
    clt_arg_attention_operands(p, node, &s);
    CLT_ARGS(p, CLT_ATTENTION_OUT(&s.out));
    arg_sums(p, node, &s, &s.out, s.heads, s.rows);
    CLT_ARGS(p, CLT_OUT(s.log_sum), CLT_LONG(items), CLT_ATTENTION_LENGTHS(&s, s.heads));
    clt_arg_attention_drop(p, node, &s);
    clt_range_items(p, target, items);
}

int clt_attention_delta_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_extent rows = clt_attention_images(&s, s.heads * s.rows);
    clt_attention_view out = s.out;
    out.operand = 1;
    const int delta = clt_scratch_add(p, clt_attention_images(&s, s.heads * s.rows * 4));
    char types[CLT_ATTENTION_OPTIONS];
    clt_launch_begin(p, "attention/portable/attention.cl", "attention_delta", "%s",
                     clt_attention_types(node, &s, types));
    CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_ATTENTION_IN(&out), CLT_SCRATCH(delta),
             CLT_LONG(rows), CLT_FIXED(s.heads), CLT_FIXED(s.rows), CLT_FIXED(s.size));
    clt_range_items(p, target, rows);
    return delta;
}

void clt_attention_grad_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const clt_extent rows = clt_attention_images(&s, s.heads * s.rows);
    const clt_extent keys = clt_attention_images(&s, s.kv_heads * s.keys);
    const int delta = clt_attention_delta_portable(node, target, p);
    char types[CLT_ATTENTION_OPTIONS];
    clt_attention_types(node, &s, types);
    for (int of_keys = 0; of_keys < 2; of_keys++) {
        clt_launch_begin(p, "attention/portable/attention.cl",
                         of_keys ? "attention_dkv" : "attention_dq", "%s", types);
        clt_arg_attention_operands(p, node, &s);
        CLT_ARGS(p, CLT_ATTENTION_IN(&s.out), CLT_IN(s.log_sum), CLT_SCRATCH(delta),
                 CLT_ATTENTION_OUT(of_keys ? &s.dk : &s.dq));
        if (of_keys) {
            CLT_ARGS(p, CLT_ATTENTION_OUT(&s.dv));
            arg_sums(p, node, &s, &s.dk, s.kv_heads, s.keys);
            arg_sums(p, node, &s, &s.dv, s.kv_heads, s.keys);
        } else {
            arg_sums(p, node, &s, &s.dq, s.heads, s.rows);
        }
        CLT_ARGS(p, CLT_LONG(of_keys ? keys : rows),
                 CLT_ATTENTION_LENGTHS(&s, of_keys ? s.kv_heads : s.heads));
        clt_arg_attention_drop(p, node, &s);
        clt_range_items(p, target, of_keys ? keys : rows);
    }
}
