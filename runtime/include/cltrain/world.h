/*
 * The processes ("ranks") that train one model together. Each rank has its own devices and trains
 * on its own part of every batch. A world tells the trainer who the ranks are and how to reach
 * them. <cltrain/mpi.h> makes a world of an MPI communicator.
 *
 * If clt_trainer_options.world is set, these functions are collective: clt_trainer_create,
 * _destroy, _step, _forward, _reduce, _reduced, _apply, _evaluate and _broadcast, clt_fit and
 * clt_evaluate. All ranks call them in the same order. If a rank fails, the others fail with a
 * message that names it. Reading results and predicting are not collective. Saving is, if devices
 * are of several kinds, if ranks have residuals (clt_trainer_options.wire), or if parameters
 * (clt_shard) or the optimizer's state (clt_trainer_options.zero, clt_store_options.offload) are
 * divided over ranks. Restoring is, if parameters are divided or ranks have residuals.
 */
#ifndef CLTRAIN_WORLD_H
#define CLTRAIN_WORLD_H

#include <cltrain/status.h>
#include <stddef.h>
#include <stdint.h>

CLT_BEGIN_DECLS

struct clt_comm; /* of <cltrain/comm.h>, which needs OpenCL's header */
struct clt_comm_device;
struct clt_comm_options;

/* A world. */
typedef struct clt_world {
    size_t struct_size; /* set by clt_world_init */
    int rank, ranks;
    /* The number of this rank on its node, and of the ranks there. Number 0 compiles and measures
     * kernels first. The others then find them in the cache. */
    int node_rank, node_ranks;
    /* Gathers `bytes` bytes from `mine` of each rank to `all`, in the order of the ranks.
     * Collective; called on the thread that called the library. Waits without keeping a core busy.
     */
    clt_status (*gather)(void *user, const void *mine, int64_t bytes, void *all);
    /* Creates a communicator of the ranks that give the same `color`, in their order, as
     * clt_comm_create_between. With a negative color the rank is in none, and *comm is NULL.
     * Collective over all ranks. Messages name ranks by their numbers in the world. */
    clt_status (*connect)(void *user, int color, const struct clt_comm_device *devices, int count,
                          const struct clt_comm_options *options, struct clt_comm **comm);
    /* Frees what the maker of the world allocated; may be NULL. */
    void (*release)(void *user);
    void *user;
} clt_world;

/* Makes a world of one rank. */
CLT_API void clt_world_init(clt_world *world);

/* Calls `release` once and makes the world one of one rank. Takes NULL. Destroy its trainers
 * first. */
CLT_API void clt_world_close(clt_world *world);

/*
 * Counts the devices of all ranks. This rank has `devices` of them. *total is the number of all,
 * and *first the number of this rank's first device among all. Weights of a division are in this
 * order. Collective; `world` NULL: one rank.
 */
CLT_API clt_status clt_world_count(const clt_world *world, int devices, int *first, int *total);

CLT_END_DECLS

#endif
