/* Counts the memory of a device in training, before anything is allocated. */
#ifndef CLT_TRAIN_SETUP_DEVICE_MEMORY_H
#define CLT_TRAIN_SETUP_DEVICE_MEMORY_H

#include "plan/plan.h"
#include "train/store/store.h"
#include <cltrain/train.h>

/* Bytes of the buffers that a device has once it has trained two steps and evaluated. Devices with
 * memory of their own may need further buffers to exchange data. */
typedef struct clt_memory {
    int64_t store;   /* parameters, states, gradients, optimizer */
    int64_t slots;   /* of these the buffers of the optimizer's state */
    int64_t inputs;  /* inputs of two steps and of an evaluation, and constants */
    int64_t other;   /* results, partial sums, means of states, checksums, staging */
    int64_t arena;   /* intermediates */
    int64_t numbers; /* the optimizer's state in `slots`, without the rest of its buffers */
} clt_memory;

int64_t clt_memory_total(const clt_memory *memory);

/* Finds the mesh of the store, and the number of all devices. Without a mesh the `participants`
 * devices are all on the axis dp. */
clt_status clt_memory_mesh(const clt_store *store, int participants, clt_mesh *mesh, int *total);

/* Returns true if devices of this rank that need equal replicas are of different kinds. */
bool clt_memory_unlike(const clt_store *store, const clt_mesh *mesh);

/* Returns true if the plan's nodes add up the gradients of micro-batches, as they do in f32. */
bool clt_memory_accumulates(const clt_trainer_options *options);

/* Returns how many terms the gradients of a device's virtual shards have: the shards, or pairs of
 * shards whose gradients nodes add up. */
int64_t clt_memory_terms(const clt_trainer_options *options, int64_t shards);

/* Returns true if each device updates its shard of the buckets only. */
bool clt_memory_sharded(const clt_store *store, const clt_trainer_options *options,
                        const clt_mesh *mesh);

/* Counts what does not depend on plans, for a device of the store. Its part of a micro-batch has at
 * most `samples` samples. The inputs are those of the whole graph. */
clt_status clt_memory_count(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants, int device,
                            int64_t samples, clt_memory *memory);

/* Counts intermediates and inputs of the device's plans for training and evaluation. */
void clt_memory_count_plans(const clt_store *store, const clt_plan *training,
                            const clt_plan *evaluation, int max_micro_batches, clt_memory *memory);

/* Returns the bytes of the counted memory that the store has already allocated on the device. */
int64_t clt_memory_held(const clt_replica *replica, const clt_trainer_options *options);

#endif
