/* Gradients of inputs (clt_input_gradient), which each backward pass copies out of the arena: other
 * plans, further micro-batches and a second backward write there. */
#ifndef CLT_TRAIN_CORE_KEPT_H
#define CLT_TRAIN_CORE_KEPT_H

#include "train/core/session.h"
#include "train/core/updates.h"

/* Makes the memory for the gradients that the device's plan computes. A device without any gets
 * none. */
clt_status clt_kept_create(clt_session_device *device);

void clt_kept_free(clt_session_device *device);

/* Copies the gradients of a micro-batch. Those of inputs without a batch dimension are added up. */
clt_status clt_kept_add(clt_session_device *device, const clt_run *run, clt_part part,
                        clt_update *update);

/* Notes where the samples of each device lie in the batch of this rank. */
void clt_kept_note(clt_session *session, const clt_shares *shares);

#endif
