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

#include "train/core/trainer.h"

/* When the trainer is made: which states there are of each kind, and what a device needs for them.
 * UNSUPPORTED, naming the state, if several devices cannot agree on it. */
clt_status clt_states_create(clt_trainer *trainer);
void clt_states_destroy(clt_trainer *trainer);

/* Fails where a state that takes rows has fewer than a batch has samples. */
clt_status clt_states_check_batch(const clt_trainer *trainer, int64_t batch);

/* Once a batch's place among the ranks' is known: fails where it cannot be. */
clt_status clt_states_check(const clt_trainer *trainer);

/* Whether some states take means over devices or micro-batches. */
bool clt_states_have_means(const clt_trainer *trainer);

/* The same of a graph; `one_run`: one device and one micro-batch a step. False without memory. */
bool clt_states_need_means(const clt_graph *graph, bool one_run);

/* Behind forward of a micro-batch: its part in the means. */
clt_status clt_states_add(clt_trainer *trainer, int device, int micro, const clt_run *run);

/* The all-reduce that adds the means of all devices up; and the profile's note of it. */
clt_collective clt_states_means(const clt_trainer *trainer, int device);
void clt_states_reduced(clt_trainer *trainer, int device, const clt_collective_result *result);

/* In the commit: the states' assignments. `run`: of the last micro-batch. */
clt_status clt_states_assign(clt_trainer *trainer, int device, const clt_run *run);

#endif
