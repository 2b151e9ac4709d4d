/* Weights of losses that labels on several ranks decide. */
#ifndef CLT_TRAIN_CORE_LABEL_WEIGHTS_H
#define CLT_TRAIN_CORE_LABEL_WEIGHTS_H

#include "train/core/session.h"
#include "train/ranks/shares.h"

/* The same as clt_session_label_weights for the batch of all ranks: each rank counts its own
 * labels, and all add them up. Sets *known to false, on all ranks, if a rank cannot count its
 * labels, or if other axes than dp divide the work. Collective over the ranks. */
clt_status clt_label_weights(const clt_session *session, const clt_participants *all,
                             const clt_shares *shares, const clt_collectives *collectives,
                             const clt_step_batch *batch, double *weights, bool *known);

#endif
