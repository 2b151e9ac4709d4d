/* What the planner keeps of the plans of devices. Meshes that differ along dp alone, in zero 1 or
 * in the wire have the same plans, so each plan is made once. The plans themselves are not kept:
 * thousands of devices have hundreds of meshes. */
#ifndef CLT_TRAIN_MESHES_PLANS_H
#define CLT_TRAIN_MESHES_PLANS_H

#include "train/setup/capacity.h"
#include "train/setup/explain.h"

/* A node of a plan for the estimate of its time; all 0 for views and collectives. */
typedef struct clt_mesh_node {
    double flops, bytes;
    int launches;
} clt_mesh_node;

typedef struct clt_mesh_plan {
    clt_status status; /* OK, or why there is no plan */
    char *reason;
    uint64_t hash;
    clt_plan_options options; /* without the mesh */
    int n_nodes, n_forward;
    clt_mesh_node *nodes;
    int n_pieces;  /* between the cuts that the model had before some were chosen; 0: unknown */
    int *piece_of; /* by node, if n_pieces > 0 */
    clt_buckets layout; /* of the device's parts */
    clt_outline outline;
    clt_step_traits traits;
    int64_t added;          /* bytes of gradients of further micro-batches that no node adds */
    int64_t inputs, arena;  /* bytes of training and evaluation, see clt_memory_count_plans */
    clt_capacity_need need; /* for the check of memory */
    /* Seconds of a micro-batch on a simulated device, which works alone: of forward, and with
     * backward. */
    bool measured;
    double forward, whole;
    double *pieces; /* see clt_mesh_place */
} clt_mesh_plan;

/* What the plan of a device depends on. Unused bytes are 0, so that keys can be compared as bytes.
 */
typedef struct clt_mesh_key {
    int32_t size[CLT_AXES], at[CLT_AXES]; /* of the mesh; the device's place, which is 0 on dp */
    int32_t sequence, zero, wire, accumulate;
    int64_t samples; /* of a micro-batch */
    int64_t shards;  /* virtual shards of the device */
    uint64_t caps, layout, cuts;
} clt_mesh_key;

/* The plans of a search, and of later ones with other numbers of simulated devices. */
typedef struct clt_mesh_plans clt_mesh_plans;

/* Makes an empty set with one user. `shared` false: nothing is found again, for tests. */
clt_status clt_mesh_plans_create(bool shared, clt_mesh_plans **plans);

/* Adds a user, and returns the plans. */
clt_mesh_plans *clt_mesh_plans_share(clt_mesh_plans *plans);

/* Ends a use. The last one frees the plans. Takes NULL. */
void clt_mesh_plans_release(clt_mesh_plans *plans);

/* Returns how many plans were made. */
int clt_mesh_plans_count(const clt_mesh_plans *plans);

/* Returns the plan with this key, or NULL. */
clt_mesh_plan *clt_mesh_plans_find(const clt_mesh_plans *plans, const clt_mesh_key *key);

/* Makes the plans of a device of the store. The check of memory looks at plans without measured
 * kernels, as a trainer's does, unless the device is simulated. If the device cannot have them,
 * (*plan)->status says so. The set keeps the plan. Errors: OUT_OF_MEMORY. */
clt_status clt_mesh_plans_make(clt_mesh_plans *plans, const clt_mesh_key *key,
                               const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int parts, int device,
                               const clt_tuning_record *tuning, bool simulated,
                               clt_mesh_plan **plan);

/* Returns whether the plan was measured, or one of the same hash and samples, whose times it then
 * gets. */
bool clt_mesh_plans_measured(const clt_mesh_plans *plans, clt_mesh_plan *plan);

/* Finds the piece of each node of a plan. Free *piece_of with clt_free. *n_pieces is 0, and
 * *piece_of NULL, if there was no choice of cuts (clt_graph_keep_cuts). */
clt_status clt_mesh_pieces_of(const clt_plan *plan, int **piece_of, int *n_pieces);

/* Copies the times of pieces, where `from` has any, between plans of the same hash: equal nodes may
 * lie in other pieces. */
void clt_mesh_pieces_copy(const clt_mesh_plan *from_plan, const double *from,
                          const clt_mesh_plan *to_plan, double *to);

/* Gives a copy of the graph with the cuts that balance the arithmetic of so many stages. The set
 * keeps the copy. */
clt_status clt_mesh_plans_cut(clt_mesh_plans *plans, const clt_graph *graph, int stages,
                              const clt_graph **cut);

#endif
