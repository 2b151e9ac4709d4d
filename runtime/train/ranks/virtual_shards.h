/*
 * Virtual shards: a batch is cut into a fixed number of shards, whose sums are formed in the order
 * of a binary tree, wherever each shard is computed. A device has an aligned block of shards, so
 * that its sum is a node of the tree. So have the devices of a rank together, and the ranks of a
 * node.
 */
#ifndef CLT_TRAIN_RANKS_VIRTUAL_SHARDS_H
#define CLT_TRAIN_RANKS_VIRTUAL_SHARDS_H

#include "train/ranks/world.h"
#include "train/store/store.h"

/* As many as an operation of <cltrain/comm.h> has leaves. */
enum { CLT_MOST_VIRTUAL_SHARDS = 1 << 16 };

/* Divides `shards` over the devices of ranks [0, ranks), of which rank r has those from begins[r]
 * to begins[r + 1]. nodes[r] is the number of its node, from 0 on. Device d gets the shards
 * [bounds[d], bounds[d + 1]). Blocks differ in size only where numbers of devices are no powers of
 * two. Errors: INVALID_ARGUMENT (fewer shards than devices, or too few for the division; ranks of a
 * node that do not follow each other). */
clt_status clt_virtual_shards_divide(int64_t shards, const int *begins, const int *nodes, int ranks,
                                     int64_t *bounds);

/* The place of a rank on its node. */
typedef struct clt_node_place {
    int32_t rank, ranks;
} clt_node_place;

/* Numbers the nodes of ranks [0, ranks), from 0 on. Errors: INVALID_ARGUMENT (ranks of a node that
 * do not follow each other in their order on the node). */
clt_status clt_virtual_shards_nodes(const clt_node_place *places, int ranks, int *nodes);

/* The same as clt_virtual_shards_divide for the participants. Collective over the ranks. Free
 * *bounds with clt_free. */
clt_status clt_virtual_shards_bounds(int64_t shards, const clt_participants *all, int64_t **bounds);

/* Fails with UNSUPPORTED if the graph has collectives, which would add up what one device's shards
 * have together; if the mesh has other `axes` than dp; if devices are `owners` of the optimizer's
 * state; or if they are not `alike`. */
clt_status clt_virtual_shards_check(const clt_graph *graph, bool axes, bool owners, bool alike);

/* The same as clt_virtual_shards_bounds for a plan, which cannot ask other ranks: on a mesh with
 * the store's ranks, else as if all ranks had as many devices as this one, and all nodes as many
 * ranks. This rank's devices begin with *first. *bounds is NULL if `total` says that ranks have
 * unlike numbers of devices. Free *bounds with clt_free. */
clt_status clt_virtual_shards_plan(int64_t shards, const clt_store *store, const clt_world *world,
                                   int total, int64_t **bounds, int *first);

#endif
