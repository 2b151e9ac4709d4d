/*
 * Updates states in training steps. Replicas must stay equal, but devices have different samples.
 * Each kind of state has its own rule:
 *   - A state that does not depend on the batch costs nothing: all devices compute it.
 *   - A state that depends on a device's own samples takes the mean over devices.
 *   - A state that depends on samples only through all-reduces takes the value of the first
 *     participant. The other devices' values differ only by the rounding of other kernels.
 *   - A state that takes rows of the batch's samples (clt_batch_rows_put) takes each row from the
 *     device and micro-batch that has the sample. All devices then have the rows of all samples, so
 *     the division of a batch may change, a device may be lost, and any replica can be saved.
 * All kinds but the first are summed in one all-reduce a step.
 */
#ifndef CLT_TRAIN_STEP_STATES_H
#define CLT_TRAIN_STEP_STATES_H

#include "train/step/bound.h"

/* Finds the kind of each state of the graph, and allocates memory on the store's devices. Borrows
 * all arguments. Fails with UNSUPPORTED, naming the state, if several devices cannot agree on it.
 */
clt_status clt_states_create(const clt_graph *graph, const clt_store *store,
                             const clt_participants *all, const clt_shares *shares,
                             struct clt_states **states);
/* Counts the bytes of the buffer that clt_states_create makes on each device of a mesh. */
clt_status clt_states_bytes(const clt_graph *graph, const clt_mesh *mesh, int max_micro_batches,
                            int64_t *bytes);

void clt_states_destroy(struct clt_states *states);

/* Fails if a state that takes rows has fewer rows than a batch has samples. */
clt_status clt_states_check_batch(const struct clt_states *states, int64_t batch);

/* Fails if a batch's place in the global batch does not suit a state that takes rows. Called once
 * the place is known. */
clt_status clt_states_check(const struct clt_states *states, const clt_step_batch *batch);

/* Whether a state's mean over several micro-batches needs the samples that all devices have in each
 * of them (clt_shares_count). Equal on all ranks and stages. */
bool clt_states_need_counts(const struct clt_states *states);

/* Returns true if some states are means over devices or micro-batches. */
bool clt_states_have_means(const struct clt_states *states);

/* The same for a graph. `one_run`: a step has one device and one micro-batch. Returns false if
 * memory runs out. */
bool clt_states_need_means(const clt_graph *graph, bool one_run);

/* Adds a micro-batch's part to the means, after its forward. */
clt_status clt_states_add(const clt_bound *bound, int micro, const clt_run *run);

/* Returns the all-reduce that sums the means of all devices. */
clt_collective clt_states_means(const struct clt_states *states, int device);

/* Assigns the new values to the states, in the commit. `run` is that of the last micro-batch. */
clt_status clt_states_assign(const clt_bound *bound, const clt_run *run);

#endif
