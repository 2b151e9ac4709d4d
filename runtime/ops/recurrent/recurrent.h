/*
 * LSTM and GRU over whole sequences: declarations that their files share. The public builders are
 * in <cltrain/ops/recurrent.h>.
 *
 * lstm, gru(x [B, T, G H], w [G H, H], bias [G H], h0 [B, H], c0 [B, H], lengths i32 [B])
 *     -> y [B, T, H], h_n [B, H], c_n [B, H], saved [B, T, S H]
 * x is the product of the input and its weight, plus the biases. Operands from bias on may be NULL.
 * An LSTM (G 4, S 5) has no operand bias. A GRU (G 3, S 4) has no c0, and its c_n has one element
 * that no kernel writes.
 *
 * lstm_grad, gru_grad(w, saved, y, dy, dh_n, dc_n, h0, c0, lengths) -> dx, dh0, a third output, and
 *     the hidden states before each step [B, T, H].
 * The third output of lstm_grad is dc0 [B, H]. The third output of gru_grad is dgates [B, T, G H],
 * the gradient of the gates' inputs from the hidden states; for an LSTM this gradient is dx.
 * Operands from dy on may be NULL.
 */
#ifndef CLT_OPS_RECURRENT_RECURRENT_H
#define CLT_OPS_RECURRENT_RECURRENT_H

#include "graph/graph.h"
#include "ops/core/launch.h"

typedef struct clt_recurrent_attr {
    bool reverse;
} clt_recurrent_attr;

/* Indices of operands and outputs. */
enum {
    CLT_RNN_X = 0,
    CLT_RNN_W = 1,
    CLT_RNN_BIAS = 2,
    CLT_RNN_H0 = 3,
    CLT_RNN_C0 = 4,
    CLT_RNN_LENGTHS = 5,
    CLT_RNN_Y = 0,
    CLT_RNN_H_N = 1,
    CLT_RNN_C_N = 2,
    CLT_RNN_SAVED = 3
};
enum {
    CLT_RNN_GRAD_W = 0,
    CLT_RNN_GRAD_SAVED = 1,
    CLT_RNN_GRAD_Y = 2,
    CLT_RNN_GRAD_DY = 3,
    CLT_RNN_GRAD_DH_N = 4,
    CLT_RNN_GRAD_DC_N = 5,
    CLT_RNN_GRAD_H0 = 6,
    CLT_RNN_GRAD_C0 = 7,
    CLT_RNN_GRAD_LENGTHS = 8,
    CLT_RNN_GRAD_DX = 0,
    CLT_RNN_GRAD_DH0 = 1,
    CLT_RNN_GRAD_DC0 = 2,    /* lstm_grad */
    CLT_RNN_GRAD_DGATES = 2, /* gru_grad */
    CLT_RNN_GRAD_BEFORE = 3
};

typedef struct clt_recurrent_shape {
    int64_t batch; /* as in clt_type.dims: a negative number is a multiple of the batch size */
    int gates;     /* 4: LSTM, 3: GRU */
    int steps, hidden;
    bool reverse;
    int flags; /* flags of clkernels/recurrent/recurrent.clh */
} clt_recurrent_shape;

/* Returns the sizes of an LSTM or GRU node or of one of their gradients. */
clt_recurrent_shape clt_recurrent_shape_of(const clt_node *node);

/* Adds an operand as argument. For an absent operand it adds operand 0, which kernels do not read
 * then. */
void clt_recurrent_arg_in(const clt_node *node, int operand, clt_program *p);

/* The variants for CPUs, in recurrent_cpu.c. */
bool clt_recurrent_cpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_recurrent_cpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_recurrent_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p);

#endif
