/* What the checks of a batch and its feeding share. */
#ifndef CLT_TRAIN_CORE_FEED_H
#define CLT_TRAIN_CORE_FEED_H

#include "train/core/session.h"

/* Returns the feed of an input for a device, or for all devices; NULL if there is none. */
const clt_feed *clt_feed_find(const clt_feed *feeds, int n_feeds, const char *name, int device);

/* Checks memory for so many samples of a value, which device `on` reads (feed), or commands write.
 * `label` names it in messages. */
clt_status clt_session_check_array(const clt_session *session, const clt_value *value,
                                   const char *label, const clt_array *array, int64_t samples,
                                   int on, bool feed);

/* Counts the labels of a device's samples that the loss does not ignore. In feeds for all devices
 * the samples begin with `first`. Device -1: there must be such a feed. Returns false if the host
 * does not have the labels. */
bool clt_feed_count_labels(const clt_mean *loss, const clt_step_batch *batch, int device,
                           int64_t first, int64_t samples, double *weight);

/* Returns true if a node of the plan or the caller reads the input. */
bool clt_feed_used(const clt_plan *plan, const clt_value *input);

/* Returns true if an input of the plan has the upstream gradient of a loss. */
bool clt_feed_is_upstream(const clt_session_device *device, int n_losses, int input);

#endif
