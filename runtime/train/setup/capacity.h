/* Predicts the memory that a batch needs on a store's devices, without allocating it. */
#ifndef CLT_TRAIN_SETUP_CAPACITY_H
#define CLT_TRAIN_SETUP_CAPACITY_H

#include "train/setup/device_memory.h"

/* Computes the samples of one run of a plan: the largest device's part of the batch, divided by the
 * micro-batches. `participants` here and below is the number of parts of a batch: of places of dp,
 * which without a mesh are the devices of all ranks. options->weights are those of the parts. */
clt_status clt_capacity_share(int participants, const clt_trainer_options *options, int64_t batch,
                              int64_t *share);

/* Returns the most micro-batches of a device's share of a step. */
int clt_capacity_micro_batches(const clt_trainer_options *options);

/* Returns the options of the trainer's plans for one device. */
clt_plan_options clt_capacity_options(const clt_trainer_options *options, clt_plan_mode mode,
                                      int64_t share);

/* Sets plan->arena_limit to the memory that options.memory leaves for intermediates on a device of
 * the store. Fails with OUT_OF_DEVICE_MEMORY if no memory is left. */
clt_status clt_capacity_limit(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int device,
                              clt_plan_options *plan);

/* Counts the memory of a device of the store with the plans that a trainer would make. */
clt_status clt_capacity_memory(const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int participants, int device,
                               clt_memory *memory);

/* Makes the plan of training or evaluation that a device of the store would have. `tuning` may be
 * NULL. */
clt_status clt_capacity_plan(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants, int device,
                             clt_plan_mode mode, const clt_tuning_record *tuning, clt_plan **plan);

/* What decides, beside the store and the options, whether a device's memory suffices. */
typedef struct clt_capacity_need {
    bool within;     /* the plan keeps to options.memory, if that is set */
    int64_t samples; /* of a run of the plan */
    int64_t largest; /* bytes of the largest slab of training */
    int64_t arena;   /* bytes */
    int64_t inputs;  /* bytes; -1: those of the whole graph count, see clt_memory_count */
} clt_capacity_need;

/* Takes the need from plans that keep to options.memory and were made without measured kernels. */
void clt_capacity_need_of(const clt_store *store, const clt_trainer_options *options,
                          const clt_plan *training, const clt_plan *evaluation,
                          clt_capacity_need *need);

/* Makes these plans and takes the need from them. */
clt_status clt_capacity_need_find(const clt_graph *graph, const clt_store *store,
                                  const clt_trainer_options *options, int participants, int device,
                                  clt_capacity_need *need);

/* Checks one device of this rank like clt_capacity_check_device, without making plans. */
clt_status clt_capacity_fits(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants, int64_t batch,
                             int device, const clt_capacity_need *need);

/* Fails with OUT_OF_DEVICE_MEMORY, naming needed and available memory, if training with the batch
 * does not fit. Also fails as clt_plan_create does. */
clt_status clt_capacity_check(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int64_t batch);

/* The same for one device of this rank. */
clt_status clt_capacity_check_device(const clt_graph *graph, const clt_store *store,
                                     const clt_trainer_options *options, int participants,
                                     int64_t batch, int device);

/* Returns the largest batch that fits, to three digits; 0 if none fits. Overwrites the error
 * message. */
int64_t clt_capacity_largest(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants);

/* Adds the largest batch that fits to the message of an OUT_OF_DEVICE_MEMORY. Returns `status`. */
clt_status clt_capacity_explain(clt_status status, const clt_graph *graph, const clt_store *store,
                                const clt_trainer_options *options, int participants);

/* check_store.c: fails with UNSUPPORTED if gradients in 16 bits do not go with the mesh of so many
 * devices, and if the options do not go with the graph and this rank's devices. */
clt_status clt_capacity_check_wire(const clt_mesh *mesh, int devices, clt_dtype wire);
clt_status clt_capacity_check_store(const clt_graph *graph, const clt_store *store,
                                    const clt_trainer_options *options);

/* trainer.c: fails with INVALID_ARGUMENT, naming the wrong option. */
clt_status clt_trainer_check_options(const clt_trainer_options *options);

/* build.c: returns true if updates of several devices stream under these options. */
bool clt_trainer_streams(const clt_trainer_options *options);

#endif
