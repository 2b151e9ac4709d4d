/*
 * The operators. A builder checks shapes at the call and returns the new value. On failure it
 * returns NULL, and the graph keeps the failure (see graph.h). Operands and results are f32 unless
 * stated. Names, layouts and attributes are PyTorch's. "B" is the batch, a first dimension of
 * CLT_BATCH. The graph owns all values. One thread at a time uses a graph.
 */
#ifndef CLTRAIN_OPS_H
#define CLTRAIN_OPS_H

#include <cltrain/ops/conv.h>
#include <cltrain/ops/collective.h>
#include <cltrain/ops/index.h>
#include <cltrain/ops/loss.h>
#include <cltrain/ops/attention.h>
#include <cltrain/ops/nn.h>
#include <cltrain/ops/norm.h>
#include <cltrain/ops/recurrent.h>
#include <cltrain/ops/tensor.h>

#endif
