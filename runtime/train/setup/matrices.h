/* Which parameters the optimizer muon updates as matrices. */
#ifndef CLT_TRAIN_SETUP_MATRICES_H
#define CLT_TRAIN_SETUP_MATRICES_H

#include "train/store/store.h"
#include <cltrain/train.h>

/*
 * Finds the matrices, by slot of the store; *matrices is NULL for other optimizers. `unlike`:
 * devices of several kinds divide the samples. Free with clt_free. Errors: UNSUPPORTED (a matrix is
 * not whole on each device, devices are unlike), INVALID_ARGUMENT (the patterns match no
 * parameter).
 */
clt_status clt_matrices_find(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, bool unlike, bool **matrices);

#endif
