/* What ranks that train together tell each other outside steps. All of it does nothing with one
 * rank; where there are several, every rank calls the same functions in the same order. */
#ifndef CLT_TRAIN_RANKS_WORLD_H
#define CLT_TRAIN_RANKS_WORLD_H

#include "train/store/store.h"
#include <cltrain/train.h>
#include <cltrain/world.h>

/* --- before there is a trainer; a world NULL is one of one rank ------------------------------ */

/* What all ranks have, `bytes` bytes each, in their order; free with clt_free. */
clt_status clt_ranks_gather(const clt_world *world, const void *mine, size_t bytes, void **all);

/* OK if all ranks give OK; else this rank's failure, or the message of the first that failed. *told
 * (may be NULL) becomes rank 0's. Nobody goes on before all are here. */
clt_status clt_ranks_agree(const clt_world *world, clt_status status, int64_t *told);

/* MISMATCH naming the first rank whose `hash` differs from rank 0's; `what` as "the model". */
clt_status clt_ranks_compare(const clt_world *world, uint64_t hash, const char *what);

/* Runs `local` on the first rank of each node, then on the others, so that one compiles and the
 * others find the results in the cache. All fail if one does. */
clt_status clt_ranks_in_turns(const clt_world *world, clt_status (*local)(void *arg), void *arg);

/* --- a trainer's ----------------------------------------------------------------------------- */

/* The devices of all ranks. Those of rank 0 come first. */
typedef struct clt_participants {
    const clt_world *world; /* NULL: one rank */
    int rank, ranks;
    int own;          /* devices of this process */
    int first, total; /* this process' first, and all */
    int *begins;      /* by rank, and one more: its first participant */
    char *identities; /* several ranks: CLT_SPLIT_IDENTITY bytes each (planner/frozen.h) */
    int64_t lanes;    /* the most of a device */
} clt_participants;

/* Finds the participants, and whether all are of one kind, so that the same program gives the same
 * bits on all. `world`, `rank`, `ranks` and `own` are there. `status` says whether this rank failed
 * before: then all fail. */
clt_status clt_participants_meet(clt_participants *all, const clt_store *store, clt_status status,
                                 bool *alike);

/* Keeps the world and this process' number of devices. */
void clt_participants_part(clt_participants *all);

/* As clt_ranks_agree. */
clt_status clt_world_agree(const clt_participants *all, clt_status status);

/* What a rank says after a device was lost, of its own. */
typedef struct clt_rescue {
    int32_t lost;   /* -1: none */
    int32_t device; /* number among those that are left, of one of which `done` holds */
    /* Steps that those that are left have enqueued: all of them, the furthest; and that one of them
     * has begun to apply. */
    int64_t least, done, begun;
} clt_rescue;

/* All ranks' reports, in their order, to `reports`, of which there are as many. One rank gets its
 * own. Fails on all where one does something else, as in clt_ranks_agree. */
clt_status clt_world_rescue(const clt_participants *all, const clt_rescue *mine,
                            clt_rescue *reports);

/* The largest of the ranks' numbers. */
clt_status clt_world_largest(const clt_participants *all, int64_t *number);

/* Rank `root`'s `bytes` bytes replace those of the others. */
clt_status clt_world_tell(const clt_participants *all, int root, void *data, int64_t bytes);

/* MISMATCH if the ranks' models or training options differ. */
clt_status clt_world_compare_plans(const clt_participants *all, const clt_graph *graph,
                                   const clt_store *store, const clt_trainer_options *options);

#endif
