/* Arrays of a batch that a run cannot use where they lie: memory of the host with gaps, or of a
 * type that is converted. They are copied to memory of the session before the run, or from there
 * behind it. */
#ifndef CLT_TRAIN_CORE_PACKED_H
#define CLT_TRAIN_CORE_PACKED_H

#include "train/core/session.h"

/* Replaces such feeds and fetches of the batch of a run with ring entry `entry`, which must have
 * been checked (clt_session_divide). Batches without them stay as they are. */
clt_status clt_packed_begin(clt_session *session, const clt_shares *shares, int entry,
                            clt_step_batch *batch);

/* The same for gradients of outputs. */
clt_status clt_packed_gradients(clt_session *session, const clt_shares *shares, int entry,
                                const clt_feed **feeds, int n_feeds);

/* Waits for the devices and copies such fetches of the run, if it has any. If a device fails,
 * session->failed is its number. */
clt_status clt_packed_end(clt_session *session, int entry);

void clt_packed_free(clt_packed *packed);

#endif
