/*
 * Recurrent layers over whole sequences. See ops.h for the conventions.
 *
 * Sequences are x [B, T, I], where T is constant, and results are y [B, T, H]. Weights, the order
 * of gates, and formulas are those of torch.nn.LSTM and torch.nn.GRU (batch_first) with one layer
 * and one direction. For more layers, give y to the next one. For two directions, concatenate the
 * results of a layer and of a reversed layer along axis 2. clt_layer_lstm and clt_layer_gru of
 * <cltrain/models.h> do both.
 */
#ifndef CLTRAIN_OPS_RECURRENT_H
#define CLTRAIN_OPS_RECURRENT_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* Options of clt_lstm and clt_gru. Options NULL: the defaults, which stand at the members. A value
 * that is NULL has its default. */
typedef struct clt_recurrent_options {
    size_t struct_size;
    int reverse;        /* 0; not 0: from the last step to the first */
    clt_value *h0;      /* [B, H], the hidden state before the first step; zeros */
    clt_value *c0;      /* [B, H], the cell; clt_lstm only; zeros */
    clt_value *lengths; /* i32 [B]; all T */
} clt_recurrent_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_recurrent_options_init(clt_recurrent_options *options);

/*
 * Computes a long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates, Gers et
 * al. 2000). weight_ih is [4 H, I], weight_hh [4 H, H], bias_ih and bias_hh [4 H] or NULL. Gates
 * have the order input, forget, cell, output:
 *
 *     i, f, o = sigmoid(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), g = tanh(..)
 *     c_t = f c_(t-1) + i g,  h_t = o tanh(c_t)
 *
 * *y [B, T, H] has all h_t. *h_n and *c_n [B, H] are the state after the last step. The pointers
 * h_n and c_n may be NULL.
 *
 * With options->lengths, sample b has the steps 0 .. lengths[b] - 1 only; lengths are limited to 0
 * .. T. At other steps y is 0 and x has no influence. *h_n and *c_n are the state after the
 * sample's own last step. A reversed layer begins there, as with PyTorch's packed sequences.
 *
 * Errors: SHAPE if ranks or dimensions do not fit (names both operands); INVALID_ARGUMENT for types
 * other than f32, and i32 for lengths; UNSUPPORTED if dimensions after the first depend on the
 * batch. On failure the results are NULL, and the graph keeps the failure.
 */
CLT_API clt_status clt_lstm(clt_value *x, clt_value *weight_ih, clt_value *weight_hh,
                            clt_value *bias_ih, clt_value *bias_hh,
                            const clt_recurrent_options *options, clt_value **y, clt_value **h_n,
                            clt_value **c_n);

/*
 * Computes a gated recurrent unit (Cho et al. 2014), with the reset gate after the product, as
 * PyTorch and cuDNN do. weight_ih is [3 H, I], weight_hh [3 H, H], bias_ih and bias_hh [3 H] or
 * NULL. Gates have the order reset, update, new:
 *
 *     r, z = sigmoid(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)
 *     n = tanh(W_in x_t + b_in + r (W_hn h_(t-1) + b_hn)),  h_t = (1 - z) n + z h_(t-1)
 *
 * Everything else is as for clt_lstm. options->c0 must be NULL.
 */
CLT_API clt_status clt_gru(clt_value *x, clt_value *weight_ih, clt_value *weight_hh,
                           clt_value *bias_ih, clt_value *bias_hh,
                           const clt_recurrent_options *options, clt_value **y, clt_value **h_n);

/*
 * Carry state from step to step for each sample, for truncated back-propagation through time:
 * sample i of a batch goes on where sample i of the step before ended.
 *
 *     const int64_t dims[] = {N, H};           N: the largest batch
 *     clt_value *all = clt_state(graph, "h", CLT_F32, 2, dims, zeros);
 *     options.h0 = clt_batch_rows(all);
 *     clt_lstm(x, .., &options, &y, &h_n, &c_n);
 *     clt_assign(graph, all, clt_batch_rows_put(all, clt_detach(h_n)));
 *
 * clt_batch_rows takes the rows of this batch's samples from `all` f32 [N, ..], by their position
 * in the global batch: [B, ..]. Rows beyond N are NaN. It has no gradient, so `all` is a state or
 * an input. clt_batch_rows_put replaces these rows of `all` by rows [B, ..].
 *
 * - Evaluation reads the state that training left.
 * - With several devices, ranks or micro-batches, each row comes from the place of its sample.
 * After the step all devices have all rows. So the division of the batch may change, and
 * checkpoints with the state of the whole batch resume on any number of devices. Each step
 * exchanges the bytes of the states once.
 * - Samples of ranks must not overlap (clt_step_batch.total).
 * - With several devices the assigned value must be the result of one clt_batch_rows_put, or
 * clt_detach of it, whose first operand does not depend on the batch. A trainer refuses others
 * (UNSUPPORTED).
 * - clt_fit fails with INVALID_ARGUMENT if batches have more than N samples.
 *
 * Errors: SHAPE.
 */
CLT_API clt_value *clt_batch_rows(clt_value *all);
CLT_API clt_value *clt_batch_rows_put(clt_value *all, clt_value *rows);

CLT_END_DECLS

#endif
