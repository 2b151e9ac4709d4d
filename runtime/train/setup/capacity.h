/* What a batch needs on a store's devices, without allocating it. */
#ifndef CLT_TRAIN_SETUP_CAPACITY_H
#define CLT_TRAIN_SETUP_CAPACITY_H

#include "plan/plan.h"
#include "train/store/store.h"
#include <cltrain/train.h>

/* The samples that one plan's run holds: the largest device's part of the batch, over the
 * micro-batches; `participants` are the devices of all ranks. */
clt_status clt_capacity_share(int participants, const clt_trainer_options *options, int64_t batch,
                              int64_t *share);

/* The most micro-batches that a device's share of a step is made of. */
int clt_capacity_micros(const clt_trainer_options *options);

/* The options of the trainer's plans, for a device alone. */
clt_plan_options clt_capacity_options(const clt_trainer_options *options, clt_plan_mode mode,
                                      int64_t share);

/* Sets plan->arena_limit to what options.memory leaves for intermediates; OUT_OF_DEVICE_MEMORY if
 * that is nothing. */
clt_status clt_capacity_limit(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants,
                              clt_plan_options *plan);

/* OUT_OF_DEVICE_MEMORY, with what is needed and what there is, if training with the batch does not
 * fit; whatever clt_plan_create fails with. */
clt_status clt_capacity_check(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int64_t batch);

/* The largest batch that fits, to three digits; 0: none. Overwrites the error message. */
int64_t clt_capacity_largest(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants);

/* Adds that batch to the message of an OUT_OF_DEVICE_MEMORY; returns `status`. */
clt_status clt_capacity_explain(clt_status status, const clt_graph *graph, const clt_store *store,
                                const clt_trainer_options *options, int participants);

/* trainer.c: INVALID_ARGUMENT, naming the option. */
clt_status clt_trainer_check_options(const clt_trainer_options *options);

/* build.c: whether several devices' updates stream, under these options. */
bool clt_trainer_streams(const clt_trainer_options *options);

#endif
