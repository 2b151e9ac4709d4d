/* The inside of a store, which the trainer reads. */
#ifndef CLT_TRAIN_STORE_STORE_H
#define CLT_TRAIN_STORE_STORE_H

#include "exec/arena.h"
#include "exec/commands.h"
#include "exec/replica.h"
#include "graph/mesh.h"
#include "plan/plan.h"
#include <cltrain/store.h>
#include <cltrain/world.h>

struct clt_store {
    /* The whole tensors: names, order, types. Devices have the layout of their replica: this one,
     * or `parts` if tensors are split. Slots and buckets have the same numbers in both. */
    clt_buckets layout;
    clt_buckets parts;
    clt_buckets *stages; /* by stage of axis pp; NULL: there is no pipeline */
    int64_t bucket_bytes;
    clt_mesh mesh; /* all sizes 0: no mesh was given, so all devices are data parallel */
    /* With a mesh: the participant of device 0, and their number; the world; and the first
     * participants by rank, and the end. */
    int first, total;
    clt_world world;
    int *begins;
    int owners; /* the last devices of each rank, which have no samples; see clt_store_owns */
    /* The ranks that have devices, after others lost all theirs; NULL: all have. A rank without
     * devices has n_devices 0. */
    struct clt_rest *rest;
    int n_devices;
    clt_replica *replicas;
    clt_arena *arenas;                /* scratch shared by all plans of a device */
    char *file_prefix, *file_ignored; /* see clt_file_names; NULL: nothing */
    int *order;                       /* slots in the order of the graph: parameters, then states */
    /* Number of trainers whose optimizer keeps tensors (slots). The tensors are released with the
     * last of these trainers. */
    int keepers;
    bool averaged; /* a trainer keeps averages */
    int feeders;   /* trainers with error feedback: the last one releases the residuals */
    /* An optimizer of these trainers, which all keep the same tensors; NULL: no tensors are kept.
     */
    const struct clt_optimizer_row *keeps;
    bool *matrices; /* by slot: muon updates it (setup/matrices.c), so that the optimizer keeps one
                       tensor of it; NULL: none */
};

/* Whether the optimizer keeps its tensor number `kind` of the slot. */
static inline bool clt_store_keeps(const clt_store *store, const clt_slot *slot, int kind)
{
    return kind == 0 || !store->matrices || !store->matrices[slot - store->layout.slots];
}

/* Whether a participant only keeps and updates the optimizer's state of the buckets whose `owner`
 * it is (clt_store_options.offload). */
bool clt_store_owns(const clt_store *store, int participant);

/* Sets the weights of owners in the division of a batch to 0; those of other participants stay, or
 * become 1 if none are `given`. Does nothing without owners. */
void clt_store_weigh(const clt_store *store, bool given, double *weights);

/* Makes a store without memory and without values, for plans. Collective like
 * clt_store_create_with. */
clt_status clt_store_outline(const clt_graph *graph, clt_device *const *devices, int count,
                             const clt_store_options *options, clt_store **store);

/* Fails with STATE if this rank has lost its last device. */
clt_status clt_store_check_devices(const clt_store *store);

/* Finds a slot of the whole layout by name. Fails with NOT_FOUND, whose message suggests the
 * nearest name. */
clt_status clt_store_slot(const clt_store *store, const char *name, const clt_slot **slot);

/* Finds a slot whose tensor has so many bytes. Errors also: INVALID_ARGUMENT. */
clt_status clt_store_sized(const clt_store *store, const char *name, size_t bytes,
                           const clt_slot **slot);

/* Fails with INVALID_ARGUMENT if the caller gave no memory for a tensor. */
clt_status clt_slot_check_data(const clt_slot *slot, const void *data);

/* Returns the number of stages of a pipeline, and a device's stage. */
int clt_store_stages(const clt_store *store);
int clt_store_stage(const clt_store *store, int device);

/* Sets the place in the mesh for which a device's plan is made, and in a pipeline the number of
 * micro-batches in flight, unless it is set. The plan of an owner has room for one sample. */
void clt_store_place(const clt_store *store, int device, clt_plan_options *options);

/* Whether two devices of this rank differ at most in their place along an axis. Without a mesh the
 * axis of all devices is dp. */
bool clt_store_neighbours(const clt_store *store, clt_axis axis, int a, int b);

/* Whether two devices of the store may share a plan: they are alike and differ at most in their
 * place along dp. */
bool clt_store_same_plan(const clt_store *store, int a, int b);

/* Describes the effects of clt_freeze and clt_param_group: one line for each parameter that they
 * changed, in the graph's order. */
void clt_store_groups_text(const clt_store *store, clt_str *text);

/* Reads `count` elements of F32, F16 or BF16 from a device's buffer and converts them to floats.
 * Waits for the result. */
clt_status clt_replica_read_floats(const clt_replica *replica, clt_view from, clt_dtype dtype,
                                   int64_t count, float *data);

#endif
