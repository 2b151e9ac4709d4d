/* Data that ranks exchange outside steps. With one rank no data is exchanged. With several ranks,
 * every rank must call the same functions in the same order. */
#ifndef CLT_TRAIN_RANKS_WORLD_H
#define CLT_TRAIN_RANKS_WORLD_H

#include "train/store/store.h"
#include <cltrain/train.h>
#include <cltrain/world.h>

/* --- before there is a trainer; a NULL world has one rank ----------------------------------- */

/* Gathers `bytes` bytes of each rank into *all, in rank order. Free *all with clt_free. */
clt_status clt_ranks_gather(const clt_world *world, const void *mine, size_t bytes, void **all);

/* Returns OK if `status` is OK on all ranks. Otherwise returns this rank's own failure, or ABORTED
 * with the message of the first rank that failed. *told becomes rank 0's; `told` may be NULL. Acts
 * as a barrier. */
clt_status clt_ranks_agree(const clt_world *world, clt_status status, int64_t *told);

/* Fails with MISMATCH, naming the first rank whose `hash` differs from rank 0's. `what` names the
 * hashed thing, such as "the model". */
clt_status clt_ranks_compare(const clt_world *world, uint64_t hash, const char *what);

/* Runs `local` on the first rank of each node, then on the others. The first compiles, and the
 * others find the results in the cache. Fails on all ranks if `local` fails on one. */
clt_status clt_ranks_in_turns(const clt_world *world, clt_status (*local)(void *arg), void *arg);

/* --- with a trainer ------------------------------------------------------------------------- */

/* The devices of all ranks, in rank order. */
typedef struct clt_participants {
    const clt_world *world; /* NULL: one rank */
    int rank, ranks;
    int own;          /* number of devices of this process */
    int first, total; /* this process' first participant, and the number of all participants */
    int *begins;      /* first participants by rank, and the end */
    char *identities; /* with several ranks: CLT_SPLIT_IDENTITY bytes each (planner/frozen.h) */
    int64_t lanes;    /* the widest vector of a device */
    clt_mesh mesh;    /* of the store; if it has none, all devices are on the axis dp */
    /* A batch has a part for each place of dp. These are the parts of this process' devices. */
    int first_part, own_parts;
} clt_participants;

/* Returns the number of parts of a batch of all ranks. */
static inline int clt_participants_parts(const clt_participants *all)
{
    return all->mesh.size[CLT_AXIS_DATA];
}

/* Whether results are summed over ranks: each has other samples, or the losses of other stages. */
static inline bool clt_participants_share(const clt_participants *all)
{
    return all->ranks > 1 && (clt_mesh_places(&all->mesh, CLT_AXIS_SAMPLES) > 1 ||
                              all->mesh.size[CLT_AXIS_PIPELINE] > 1);
}

/* Whether a participant is the first along all axes but pp and those that divide samples.
 * Participants for which it is true have all parameters and losses of a part of the samples once.
 */
bool clt_participants_count(const clt_participants *all, int participant);

/* Returns the first of the participants that have a part of the batch. */
static inline int clt_participants_of(const clt_participants *all, int part)
{
    return clt_mesh_neighbour(&all->mesh, CLT_AXIS_DATA, 0, part);
}

/* Returns the number of participants that have the same parameters, and divide the samples. */
static inline int clt_participants_replicas(const clt_participants *all)
{
    return clt_mesh_places(&all->mesh, CLT_AXIS_SAMPLES);
}

/* Returns a participant's place among those. */
static inline int clt_participants_replica(const clt_participants *all, int participant)
{
    return clt_mesh_coordinate(&all->mesh, CLT_AXIS_SAMPLES, participant);
}

/* Returns true for one of the participants that share samples over space and time. */
static inline bool clt_participants_speaks(const clt_participants *all, int participant)
{
    return clt_mesh_coordinate(&all->mesh, CLT_AXIS_SPACE, participant) == 0 &&
           clt_mesh_coordinate(&all->mesh, CLT_AXIS_TIME, participant) == 0;
}

/* Returns true if the mesh has other axes than dp. */
static inline bool clt_participants_have_axes(const clt_participants *all)
{
    return all->mesh.size[CLT_AXIS_DATA] != all->total;
}

/* Finds the participants from `world`, `rank`, `ranks` and `own`. *alike: all devices are of one
 * kind, so the same program gives the same bits on all. If `status` is a failure on one rank, the
 * call fails on all ranks. */
clt_status clt_participants_meet(clt_participants *all, const clt_store *store, clt_status status,
                                 bool *alike);

/* Frees the arrays. The world and the number of this process' devices stay. */
void clt_participants_part(clt_participants *all);

/* As clt_ranks_agree. */
clt_status clt_world_agree(const clt_participants *all, clt_status status);

/* After a device was lost, gathers the numbers of the ranks' own devices that were lost, in rank
 * order; -1: none. Fails on all ranks if one of them is in clt_ranks_agree instead. */
clt_status clt_world_rescue(const clt_participants *all, int lost, int *lost_of_ranks);

/* Sets *number to the largest of the ranks' numbers. */
clt_status clt_world_largest(const clt_participants *all, int64_t *number);

/* Copies `bytes` bytes of rank `root` to all ranks. */
clt_status clt_world_tell(const clt_participants *all, int root, void *data, int64_t bytes);

/* Fails with MISMATCH if the ranks' models or training options differ. */
clt_status clt_world_compare_plans(const clt_participants *all, const clt_graph *graph,
                                   const clt_store *store, const clt_trainer_options *options);

#endif
