/* Attributes and shapes of attention and its gradients, for the files of kernel variants. The
 * public builders are in <cltrain/ops/attention.h>. */
#ifndef CLT_OPS_ATTENTION_ATTENTION_H
#define CLT_OPS_ATTENTION_ATTENTION_H

#include "ops/core/launch.h"
#include <cltrain/ops/attention.h>

/* How heads are stored: [B, H, T, D]; [B, T, H * D]; or rows with q, k and v next to each other. */
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
 * In the packed form, q holds q, k and v, and the operands k and v are NULL. mask and past may be
 * NULL. A row's log_sum is the logarithm of its sum of exp(s), or +infinity if the row attends to
 * no key.
 */
typedef struct clt_attention_attr {
    double scale;
    int64_t past;
    int form;
    int heads, kv_heads; /* 0: from the operands' shapes */
    int is_causal;
    double dropout; /* probability that a weight is dropped */
    int64_t stream; /* with dropout: the node's number among the graph's random nodes */
    /* On one of several devices that share the heads: the number of its first head, and of all
     * heads (0: this node has them all). */
    int first_head, all_heads;
    int first_row, all_rows; /* likewise the rows of q, if devices share them */
} clt_attention_attr;

/* Strides of a tensor of rows of D elements: the offset of (b, head, row) from the operand's first
 * element. */
typedef struct clt_attention_view {
    int operand; /* index of an operand or output */
    int64_t at, batch, head, row;
} clt_attention_view;

typedef struct clt_attention_shape {
    int64_t batch; /* as in clt_type.dims: a negative number is a multiple of the batch size */
    int64_t heads, kv_heads, rows, keys, size;
    double scale;
    clt_attention_view q, k, v; /* operands; for gradients, also outputs of their gradients */
    clt_attention_view out;     /* for gradients: dout and out */
    clt_attention_view dq, dk, dv;
    int mask, past;          /* indices of operands; -1: absent */
    int64_t mask_strides[4]; /* 0: broadcast along the dimension */
    int64_t mask_dims[4];    /* 1 if it is broadcast; the first as in clt_type.dims */
    int log_sum;             /* attention: index of the output; gradients: of the operand */
} clt_attention_shape;

extern const clt_op clt_op_attention, clt_op_attention_grad, clt_op_attention_packed_grad,
    clt_op_attention_mask_grad;

/* Returns the sizes of an inferred node of attention or one of its gradients. */
clt_attention_shape clt_attention_shape_of(const clt_node *node);

/* For clt_op.dims and clt_op.localise, in attention_dims.c. */
struct clt_node_dims;
struct clt_node_part;
void clt_attention_dims(const clt_node *node, struct clt_node_dims *dims);
clt_status clt_attention_localise(const clt_node *node, const struct clt_node_part *part,
                                  void *attr);

/* Adds the attention of rows [begin, end) of an attention node: in[0] is q of these rows, k, v and
 * the mask are whole, not packed. Kernels skip keys that none of the rows sees. */
clt_value *clt_attention_rows(const clt_node *node, clt_value *const in[4], int64_t begin,
                              int64_t end);

/* Writes the options of clkernels/attention/attention.clh: the types other than f32, and
 * dropout. */
enum { CLT_ATTENTION_OPTIONS = 96 };
const char *clt_attention_types(const clt_node *node, const clt_attention_shape *s, char *text);

/* Arguments of clkernels/attention/attention.clh for CLT_ARGS: a tensor that is read, a tensor that
 * is written; the sizes heads, group, T, S, scale; and those of portable kernels: heads (one
 * work-item's), group, T, S, D, scale. */
#define CLT_ATTENTION_STEPS(view)                                                                  \
    CLT_LONG(clt_fixed((view)->at)), CLT_LONG(clt_fixed((view)->batch)),                           \
        CLT_LONG(clt_fixed((view)->head)), CLT_LONG(clt_fixed((view)->row))
#define CLT_ATTENTION_IN(view) CLT_IN((view)->operand), CLT_ATTENTION_STEPS(view)
#define CLT_ATTENTION_OUT(view) CLT_OUT((view)->operand), CLT_ATTENTION_STEPS(view)
#define CLT_ATTENTION_SIZES(s)                                                                     \
    CLT_FIXED((s)->heads), CLT_FIXED((s)->heads / (s)->kv_heads), CLT_FIXED((s)->rows),            \
        CLT_FIXED((s)->keys), CLT_FLOAT((s)->scale)
#define CLT_ATTENTION_LENGTHS(s, own_heads)                                                        \
    CLT_FIXED(own_heads), CLT_FIXED((s)->heads / (s)->kv_heads), CLT_FIXED((s)->rows),             \
        CLT_FIXED((s)->keys), CLT_FIXED((s)->size), CLT_FLOAT((s)->scale)

/* Adds the arguments DROP, which come last; adds none without dropout. */
void clt_arg_attention_drop(clt_program *p, const clt_node *node, const clt_attention_shape *s);

/* Returns `mul` times the number of samples. */
clt_extent clt_attention_images(const clt_attention_shape *s, int64_t mul);

/* clkernels/attention/portable/attention.cl. */
void clt_attention_portable(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_portable(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/cpu/attention_few.cl, for few rows. */
bool clt_attention_few_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_attention_few(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/cpu/attention.cl. */
bool clt_attention_cpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_attention_cpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/gpu/attention.cl. */
bool clt_attention_gpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_attention_gpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/gpu/attention_matrix.cl, for GPUs with matrix units and operands in 16 bits.
 */
bool clt_attention_matrix_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_attention_matrix(const clt_node *node, const clt_target *target, clt_program *p);
void clt_attention_grad_matrix(const clt_node *node, const clt_target *target, clt_program *p);

/* clkernels/attention/{portable,cpu,gpu}/attention_mask.cl. */
extern const clt_variant clt_attention_mask_variants[];

/* Launch attention_delta, the first kernel of every gradient. Return the index of the scratch block
 * with its result. */
int clt_attention_delta_portable(const clt_node *node, const clt_target *target, clt_program *p);
int clt_attention_delta_cpu(const clt_node *node, const clt_target *target, clt_program *p);
int clt_attention_delta_gpu(const clt_node *node, const clt_target *target, clt_program *p);

/* Build options for the tiles of attention/cpu/attention_weights.clh and
 * attention/gpu/attention_tile.clh in gradients, and a tile's rows and keys. */
typedef struct clt_attention_tile {
    char options[160];
    int64_t rows, keys, threads;
} clt_attention_tile;

clt_attention_tile clt_attention_tile_cpu(const clt_node *node, const clt_target *target);
clt_attention_tile clt_attention_tile_gpu(const clt_node *node, const clt_target *target);

/* Adds the arguments q, k, v and MASK. */
void clt_arg_attention_operands(clt_program *p, const clt_node *node, const clt_attention_shape *s);

#endif
