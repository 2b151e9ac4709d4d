/*
 * What training steps do to states. Replicas must stay equal, but devices have different images: a
 * state whose value depends on a device's own images takes the mean of the devices' values, and one
 * whose value depends on images only through all-reduces takes that of the first participant, which
 * the others have but for the rounding of other kernels. One that takes rows of the batch's samples
 * (clt_batch_rows_put) takes each from the device and micro-batch that has the sample: all devices
 * have the rows of all samples, so that the division of a batch may change, a device may be lost,
 * and any replica can be saved. All are added up in one all-reduce a step. A state that does not
 * depend on the batch costs nothing: all devices compute it.
 */
#ifndef CLT_TRAIN_STEP_STATES_H
#define CLT_TRAIN_STEP_STATES_H

#include "train/step/bound.h"

/* When the trainer is made: which states of the graph there are of each kind, and what the store's
 * devices need for them. Borrows all arguments. UNSUPPORTED, naming the state, if several devices
 * cannot agree on it. */
clt_status clt_states_create(const clt_graph *graph, const clt_store *store,
                             const clt_participants *all, const clt_shares *shares,
                             struct clt_states **states);
void clt_states_destroy(struct clt_states *states);

/* Fails where a state that takes rows has fewer than a batch has samples. */
clt_status clt_states_check_batch(const struct clt_states *states, int64_t batch);

/* Once a batch's place among the ranks' is known: fails where it cannot be. */
clt_status clt_states_check(const struct clt_states *states, const clt_step_batch *batch);

/* Whether some states take means over devices or micro-batches. */
bool clt_states_have_means(const struct clt_states *states);

/* The same of a graph; `one_run`: one device and one micro-batch a step. False without memory. */
bool clt_states_need_means(const clt_graph *graph, bool one_run);

/* Behind forward of a micro-batch: its part in the means. */
clt_status clt_states_add(const clt_bound *bound, int micro, const clt_run *run);

/* The all-reduce that adds the means of all devices up. */
clt_collective clt_states_means(const struct clt_states *states, int device);

/* In the commit: the states' assignments. `run`: of the last micro-batch. */
clt_status clt_states_assign(const clt_bound *bound, const clt_run *run);

#endif
