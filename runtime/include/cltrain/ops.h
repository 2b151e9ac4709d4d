/*
 * The operators. Each builder checks shapes at the call and returns the new value, or NULL (the
 * graph keeps the failure: see graph.h). Operands and results are f32 unless stated. Names, layouts
 * and attributes mean what they mean in PyTorch. "B" is the batch, a first dimension of CLT_BATCH.
 */
#ifndef CLTRAIN_OPS_H
#define CLTRAIN_OPS_H

#include <cltrain/ops_conv.h>
#include <cltrain/ops_collective.h>
#include <cltrain/ops_index.h>
#include <cltrain/ops_loss.h>
#include <cltrain/ops_attention.h>
#include <cltrain/ops_nn.h>
#include <cltrain/ops_norm.h>
#include <cltrain/ops_recurrent.h>
#include <cltrain/ops_tensor.h>

#endif
