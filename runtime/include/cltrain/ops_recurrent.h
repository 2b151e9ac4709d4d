/*
 * Recurrent layers over whole sequences. See ops.h for the conventions.
 *
 * Sequences are x [B, T, I], T constant, and the results y [B, T, H]. Weights, their gates' order
 * and the formulas are those of torch.nn.LSTM and torch.nn.GRU (batch_first) of one layer and one
 * direction. For more layers, give y to the next; for two directions, concatenate the results of a
 * layer and of a reversed one along axis 2 (clt_layer_lstm and clt_layer_gru of models/ do).
 */
#ifndef CLTRAIN_OPS_RECURRENT_H
#define CLTRAIN_OPS_RECURRENT_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* Options of clt_lstm and clt_gru; NULL stands for what the init function sets. Missing values are
 * NULL. */
typedef struct clt_recurrent_options {
    size_t struct_size;
    int reverse;        /* 0; not 0: from the last step to the first */
    clt_value *h0;      /* [B, H], the hidden state before the first step; zeros */
    clt_value *c0;      /* [B, H], the cell; clt_lstm only; zeros */
    clt_value *lengths; /* i32 [B]; all T */
} clt_recurrent_options;

CLT_API void clt_recurrent_options_init(clt_recurrent_options *options);

/*
 * Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates, Gers et al. 2000).
 * weight_ih [4 H, I], weight_hh [4 H, H], bias_ih and bias_hh [4 H], each or NULL; in the order
 * input, forget, cell, output:
 *
 *     i, f, o = sigmoid(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), g = tanh(..)
 *     c_t = f c_(t-1) + i g,  h_t = o tanh(c_t)
 *
 * *y [B, T, H]: all h_t. *h_n, *c_n [B, H]: the state after the last step; each may be a NULL
 * pointer if it is not wanted.
 *
 * With options->lengths, sample b has steps 0 .. lengths[b] - 1 only (values are held to 0 .. T):
 * y is 0 at the others, x there has no influence, *h_n and *c_n are the state after the sample's
 * own last step, and a reversed layer begins there, as with PyTorch's packed sequences.
 *
 * Errors: SHAPE where ranks or dimensions do not fit, naming both operands; INVALID_ARGUMENT for
 * other types than f32, and i32 for lengths; UNSUPPORTED where dimensions beyond the first depend
 * on the batch. On failure the results are NULL, and the graph keeps the failure.
 */
CLT_API clt_status clt_lstm(clt_value *x, clt_value *weight_ih, clt_value *weight_hh,
                            clt_value *bias_ih, clt_value *bias_hh,
                            const clt_recurrent_options *options, clt_value **y, clt_value **h_n,
                            clt_value **c_n);

/*
 * Gated recurrent unit (Cho et al. 2014), with the reset gate behind the product, as PyTorch and
 * cuDNN have it. weight_ih [3 H, I], weight_hh [3 H, H], bias_ih and bias_hh [3 H], each or NULL;
 * in the order reset, update, new:
 *
 *     r, z = sigmoid(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh)
 *     n = tanh(W_in x_t + b_in + r (W_hn h_(t-1) + b_hn)),  h_t = (1 - z) n + z h_(t-1)
 *
 * Else as clt_lstm; options->c0 must be NULL.
 */
CLT_API clt_status clt_gru(clt_value *x, clt_value *weight_ih, clt_value *weight_hh,
                           clt_value *bias_ih, clt_value *bias_hh,
                           const clt_recurrent_options *options, clt_value **y, clt_value **h_n);

/*
 * State that is carried from step to step for each sample, as truncated back-propagation through
 * time needs it: the batch's sample i goes on where sample i of the step before ended.
 *
 *     const int64_t dims[] = {N, H};           N: the largest batch
 *     clt_value *all = clt_state(graph, "h", CLT_F32, 2, dims, zeros);
 *     options.h0 = clt_batch_rows(all);
 *     clt_lstm(x, .., &options, &y, &h_n, &c_n);
 *     clt_assign(graph, all, clt_batch_rows_put(all, clt_detach(h_n)));
 *
 * clt_batch_rows: of `all` f32 [N, ..] the rows of this batch's samples, by their position in the
 * global batch: [B, ..]; rows beyond N are NaN. It has no gradient: `all` is a state or an input.
 * clt_batch_rows_put: `all` with those rows replaced by rows [B, ..].
 *
 * Evaluation reads the state as training left it. On several devices or ranks and in micro-batches
 * each row comes from where its sample was, and after the step all devices have all rows: how the
 * batch is divided may change, checkpoints have the state of the whole batch and go on on any
 * number of devices, and the sum of a state's bytes is exchanged once a step. Ranks that say where
 * their samples lie (clt_step_batch.total) must not overlap. There, what is assigned is the result
 * of one clt_batch_rows_put (or clt_detach of it), whose first operand does not depend on the
 * batch; a trainer refuses others with UNSUPPORTED. clt_fit fails with INVALID_ARGUMENT where
 * batches have more than N samples.
 * Errors: SHAPE.
 */
CLT_API clt_value *clt_batch_rows(clt_value *all);
CLT_API clt_value *clt_batch_rows_put(clt_value *all, clt_value *rows);

CLT_END_DECLS

#endif
