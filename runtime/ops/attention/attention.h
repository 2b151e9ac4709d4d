/* Attributes and shapes of attention and its gradients, for the files of its kernel variants. The
 * public builders are in <cltrain/ops_attention.h>. */
#ifndef CLT_OPS_ATTENTION_ATTENTION_H
#define CLT_OPS_ATTENTION_ATTENTION_H

#include "ops/core/launch.h"
#include <cltrain/ops_attention.h>

/* How heads lie: [B, H, T, D], [B, T, H * D], or q, k and v side by side in rows. */
typedef enum clt_attention_form {
    CLT_ATTENTION_HEADS,
    CLT_ATTENTION_ROWS,
    CLT_ATTENTION_PACKED
} clt_attention_form;

/*
 * attention(q, k, v, mask, past) -> out, log_sum [B, H, T]
 * attention_grad(dout, out, log_sum, q, k, v, mask, past) -> dq, dk, dv
 * attention_packed_grad, with the same operands -> dqkv
 * attention_mask_grad, with the same operands -> dmask
 * k and v are NULL in the packed form, q is all three; mask and past may be NULL. A row's log_sum
 * is the logarithm of its sum of exp(s); +infinity, if no key takes part in it.
 */
typedef struct clt_attention_attr {
    double scale;
    int64_t past;
    int form;
    int heads, kv_heads; /* 0: as the shapes say */
    int is_causal;
    double dropout; /* a weight's probability to be dropped */
    int64_t stream; /* with dropout: the node's number among the graph's random nodes */
} clt_attention_attr;

/* A tensor of rows of D elements: elements from the operand's first to (b, head, row). */
typedef struct clt_attention_view {
    int operand; /* or output */
    int64_t at, batch, head, row;
} clt_attention_view;

typedef struct clt_attention_shape {
    int64_t batch; /* as in clt_type.dims: negative: times the batch */
    int64_t heads, kv_heads, rows, keys, size;
    double scale;
    clt_attention_view q, k, v; /* the operands, and likewise their gradients among the outputs */
    clt_attention_view out;     /* in the gradients: dout, and likewise out */
    clt_attention_view dq, dk, dv;
    int mask, past;          /* operands, -1: none */
    int64_t mask_strides[4]; /* 0: the dimension repeats */
    int64_t mask_dims[4];    /* 1 where it does; the first as in clt_type.dims */
    int log_sum;             /* attention: output; else operand */
} clt_attention_shape;

extern const clt_op clt_op_attention, clt_op_attention_grad, clt_op_attention_packed_grad,
    clt_op_attention_mask_grad;

/* The node is one of the four; it has been inferred. */
clt_attention_shape clt_attention_shape_of(const clt_node *node);

/* Options of clkernels/attention/attention.clh: what is not f32, and dropout. */
enum { CLT_ATTENTION_OPTIONS = 96 };
const char *clt_attention_types(const clt_node *node, const clt_attention_shape *s, char *text);

/* Pairs of a row and a key that it may see, of one head of one image. */
double clt_attention_pairs(const clt_node *node);

/* Arguments of clkernels/attention/attention.clh: a tensor that is read or written, the mask with
 * `past`. */
void clt_arg_attention_in(clt_program *p, const clt_attention_view *view);
void clt_arg_attention_out(clt_program *p, const clt_attention_view *view);
void clt_arg_attention_mask(clt_program *p, const clt_node *node, const clt_attention_shape *s);

/* The arguments DROP, last of all: none without dropout. */
void clt_arg_attention_drop(clt_program *p, const clt_node *node, const clt_attention_shape *s);

/* B times `mul`. */
clt_extent clt_attention_images(const clt_attention_shape *s, int64_t mul);

/* clkernels/attention/portable/attention.cl. */
void clt_attention_portable(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_portable(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/cpu/attention.cl. */
bool clt_attention_cpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_attention_cpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/gpu/attention.cl. */
bool clt_attention_gpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_attention_gpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/{portable,cpu,gpu}/attention_mask.cl. */
extern const clt_variant clt_attention_mask_variants[];

/* Launches attention_delta, which the gradients begin with, to the scratch block that is returned.
 */
int clt_attention_delta_portable(const clt_node *node, const clt_target *target, clt_program *p);
int clt_attention_delta_cpu(const clt_node *node, const clt_target *target, clt_program *p);
int clt_attention_delta_gpu(const clt_node *node, const clt_target *target, clt_program *p);

/* Build options of the tiles of attention/cpu/attention_weights.clh and
 * attention/gpu/attention_tile.clh, of gradients, and the rows and keys that a tile has. */
typedef struct clt_attention_tile {
    char options[160];
    int64_t rows, keys, threads;
} clt_attention_tile;

clt_attention_tile clt_attention_tile_cpu(const clt_node *node, const clt_target *target);
clt_attention_tile clt_attention_tile_gpu(const clt_node *node, const clt_target *target);

/* The arguments q, k, v and MASK; sizes: heads, group, T, S, scale. */
void clt_arg_attention_operands(clt_program *p, const clt_node *node, const clt_attention_shape *s);
void clt_arg_attention_sizes(clt_program *p, const clt_attention_shape *s);

/* Portable kernels': heads (that items are of), group, T, S, D, scale. */
void clt_arg_attention_lengths(clt_program *p, const clt_attention_shape *s, int64_t heads);

#endif
