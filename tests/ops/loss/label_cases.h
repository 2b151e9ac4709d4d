/* Cases of cross_entropy and correct. */
#ifndef TESTS_OPS_LABEL_CASES_H
#define TESTS_OPS_LABEL_CASES_H

#include "ops/harness/reference_nn.h"

/* Makes a case with logits [B, C, d..] and labels [B, d..] from the logits' dimensions. */
static inline op_case label_case(int rank, const int64_t *dims, int64_t batch, int ignored)
{
    op_case c = {.n_in = 2,
                 .in = {{.dtype = CLT_F32, .rank = rank},
                        {.dtype = CLT_I32, .rank = rank - 1, .fill = OP_LABELS}},
                 .batch = batch,
                 .classes = (int)dims[1],
                 .ignored = ignored};
    for (int i = 0; i < rank; i++)
        c.in[0].dims[i] = dims[i];
    for (int i = 0; i < rank - 1; i++)
        c.in[1].dims[i] = dims[i ? i + 1 : 0];
    return c;
}

#endif
