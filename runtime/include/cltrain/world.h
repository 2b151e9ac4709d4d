/*
 * The processes ("ranks") that train one model together, each on its own devices and its own part
 * of every batch. A world tells the trainer who they are and how to reach them; <cltrain/mpi.h>
 * makes one of an MPI communicator.
 *
 * With clt_trainer_options.world set, these are collective: all ranks call them, in the same order,
 * and where one fails the others fail with a message that names it. clt_trainer_create, _destroy,
 * _step, _forward, _reduce, _apply, _evaluate and _broadcast; clt_fit and clt_evaluate. Reading
 * results, predicting and, where all devices are of one kind, saving are not.
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

typedef struct clt_world {
    size_t struct_size; /* set by clt_world_init */
    int rank, ranks;
    /* This rank's number among those of its node, and how many they are. Number 0 compiles and
     * measures kernels first; the others then find them in the cache. */
    int node_rank, node_ranks;
    /* All ranks' `bytes` bytes from `mine`, in the order of the ranks, to `all`. Collective; called
     * on the thread that called the library. Waits without keeping a core busy. */
    clt_status (*gather)(void *user, const void *mine, int64_t bytes, void *all);
    /* As clt_comm_create_between for these ranks. Collective. */
    clt_status (*connect)(void *user, const struct clt_comm_device *devices, int count,
                          const struct clt_comm_options *options, struct clt_comm **comm);
    /* Frees what the maker of the world allocated; NULL: nothing. */
    void (*release)(void *user);
    void *user;
} clt_world;

/* A world of one rank. */
CLT_API void clt_world_init(clt_world *world);

/* Calls `release`, once, and makes it a world of one rank. Takes NULL. No trainer uses it any more.
 */
CLT_API void clt_world_close(clt_world *world);

/*
 * The number of devices of all ranks, where this one has so many, and the place of its first one
 * among them: what weights of a division are counted by. Collective; `world` NULL is one rank.
 */
CLT_API clt_status clt_world_count(const clt_world *world, int devices, int *first, int *total);

CLT_END_DECLS

#endif
