/*
 * Attention and rotary position embedding. See ops.h for the conventions, and ops/nn.h for options.
 *
 * All forms of attention compute, for every sample b, head h and row t of the queries,
 *
 *     s[j] = scale * <q[t], k[j]> + mask[t][j],    out[t] = sum over j of softmax(s)[j] * v[j]
 *
 * No T x S matrix is stored. Scores are computed tile by tile, with a running maximum and sum. The
 * gradient computes them again, from the logarithm of each row's sum (Dao et al., "FlashAttention",
 * 2022; Dao, "FlashAttention-2", 2023). Sums have a fixed order. The forms differ in the layout of
 * the operands:
 *
 *     clt_scaled_dot_product_attention   q [B, H, T, D], k and v [B, G, S, D] -> [B, H, T, D]
 *     clt_attention                      q [B, T, H * D], k and v [B, S, G * D] -> [B, T, H * D]
 *     clt_attention_packed               qkv [B, T, (H + 2 * G) * D] -> [B, T, H * D]
 *
 * G divides H: query head h uses head h / (H / G) of k and v (grouped queries). The last two forms
 * fit between linear layers without transposes. In the packed form a row has all heads of q, then
 * those of k, then those of v (GPT-2's c_attn, PyTorch's in_proj), and has one gradient. B is the
 * batch or a number. All other dimensions are constant.
 */
#ifndef CLTRAIN_OPS_ATTENTION_H
#define CLTRAIN_OPS_ATTENTION_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

typedef struct clt_attention_options {
    size_t struct_size;
    double scale; /* 0: 1 / sqrt(D) */

    /* Not 0: row t sees keys 0 .. past + t and does not read the others. PyTorch's is_causal has
     * past 0, the upper left corner. */
    int is_causal;
    int64_t past; /* 0: keys before the first row, as in a cache */

    /* NULL: `past`. Else an i32 of one element that the device reads instead, with is_causal only.
     * So one plan serves a cache of a fixed size that fills up. */
    clt_value *past_value;

    /* NULL: none. Else up to four dimensions that broadcast to [B, H, T, S].
     *
     * - f32: added to the scores; -infinity excludes a key. It has a gradient, for learnt position
     *   biases, which is summed in f32 and a fixed order where the mask repeats.
     * - u8: 0 excludes a key.
     *
     * A row without any key is 0. */
    clt_value *attn_mask;

    /* 0; PyTorch's dropout_p, 0 to 1. In training, softmax(s)[j] is 0 with this probability, else
     * multiplied by 1 / (1 - dropout). Evaluation and prediction have no dropout. As for
     * clt_dropout, the zeros depend on the trainer's seed, the step, the node, the sample's
     * position in the global batch, head, t and j only. */
    double dropout;
} clt_attention_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_attention_options_init(clt_attention_options *options);

/* Computes PyTorch's scaled_dot_product_attention, with enable_gqa. Errors: SHAPE for ranks other
 * than 4, differing B, D or S, and a G that does not divide H. */
CLT_API clt_value *clt_scaled_dot_product_attention(clt_value *q, clt_value *k, clt_value *v,
                                                    const clt_attention_options *options);

/* Computes attention on the results of linear layers. `heads` is H; G follows from the width of
 * k. */
CLT_API clt_value *clt_attention(clt_value *q, clt_value *k, clt_value *v, int heads,
                                 const clt_attention_options *options);

/* Computes attention on packed rows. `heads` is H, `kv_heads` is G (0: H). */
CLT_API clt_value *clt_attention_packed(clt_value *qkv, int heads, int kv_heads,
                                        const clt_attention_options *options);

typedef struct clt_rotary_options {
    size_t struct_size;
    double base;    /* 10000 */
    int64_t offset; /* 0: position of row 0 */
    clt_value
        *offset_value; /* NULL: `offset`. An i32 of one element that the device reads instead */
    int halves;        /* 0: pairs are neighbours (RoFormer); else D / 2 apart (GPT-NeoX, LLaMA) */
    int64_t size;      /* D, which is even; 0: the last dimension */
    int64_t heads;     /* how many parts of D elements are turned, from the first on; 0: all */
} clt_rotary_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_rotary_options_init(clt_rotary_options *options);

/*
 * Computes rotary position embedding (Su et al., "RoFormer", 2021) of x [.., T, W], where W is a
 * multiple of D. Pair i of each part of D elements in row t is turned by the angle (offset + t) *
 * base^(-2 i / D), from (a, b) to (a cos - b sin, a sin + b cos). x may be [B, H, T, D], [B, T, H *
 * D], or the packed rows of clt_attention_packed: `size` D and `heads` H + G leave v as it is. T
 * and W are constant.
 */
CLT_API clt_value *clt_rotary(clt_value *x, const clt_rotary_options *options);

CLT_END_DECLS

#endif
