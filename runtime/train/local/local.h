/* The replicas of <cltrain/local.h> as the files of this folder share them. */
#ifndef CLT_TRAIN_LOCAL_LOCAL_H
#define CLT_TRAIN_LOCAL_LOCAL_H

#include <cltrain/local.h>

#include "train/core/trainer.h"

/* A part of a bucket that synchronisations exchange. */
typedef struct clt_outer_span {
    int bucket;
    int64_t offset, bytes; /* in the bucket */
    int64_t at;            /* in the arrays of clt_outer_state: floats or bytes */
} clt_outer_span;

/* Of parameters that travel in 16 bits (outer_wire.h). */
typedef struct clt_outer_wire {
    double scale;                   /* what differences are multiplied by: 1, or for f16 2^10 */
    uint16_t **sent;                /* by replica of this rank: what it sends, then the sum */
    float **residuals;              /* the same: what it has rounded away, divided by the scale */
    clt_collective_residual **sums; /* by bucket of parameters: what this rank rounds of sums */
    int32_t *roundings; /* by rank: a bit for each kind of sum whose residual it has alone */
} clt_outer_wire;

/* What a rank keeps for synchronisations. Arrays of floats have the buckets of trained parameters
 * one after the other, then the states of f32. */
typedef struct clt_outer_state {
    clt_outer_span *floats, *others;      /* of f32, and of other types */
    int n_floats, n_others, n_parameters; /* the first n_parameters of `floats` are parameters */
    int64_t parameters, count;            /* elements of parameters, and of all floats */
    int64_t other_bytes;
    float *anchor, *velocity; /* NULL: average */
    float **hosts;            /* by replica of this rank: copies of its floats */
    char **whole;             /* the same for the other types */
    char **frozen;            /* by replica: the frozen parameter that is being adopted */
    const clt_slot *frozen_slot;
    clt_collectives collectives; /* one participant for each replica */
    char *states_label;          /* of the sum of states, for profiles; NULL: no states */
    clt_outer_wire wire;
} clt_outer_state;

struct clt_local {
    clt_local_options options;
    clt_trainer **trainers;
    int own, first, total;
    int most;                    /* replicas of the rank that has most of them */
    int *begins;                 /* by rank: its first replica, and the end */
    clt_participants all;        /* for calls that only need the ranks */
    clt_device_threads *threads; /* one for each replica */
    clt_outer_state outer;
    bool tree; /* sums have the order of a tree, so that their bits do not depend on which rank has
                  a replica */
    const double *weights; /* of a synchronisation under way, by replica of all ranks */
    int64_t syncs;
    clt_in_use in_use; /* by clt_local_fit, whose callbacks may destroy it */
};

/* Between these two, a callback that destroys the object, one of its trainers or a data set only
 * marks it. clt_local_use_end then frees it. Returns `status`, and keeps the message. */
void clt_local_use_begin(clt_local *local, clt_dataset *train, clt_dataset *test);
clt_status clt_local_use_end(clt_local *local, clt_dataset *train, clt_dataset *test,
                             clt_status status);

/* --- outer.c --------------------------------------------------------------------------------- */

/* Allocates the outer state and connects the replicas. Collective over the ranks. */
clt_status clt_outer_open(clt_local *local);
void clt_outer_close(clt_local *local);

/* Gives all replicas the parameters and states of replica 0, which become the anchor, and its
 * frozen parameters. Collective. */
clt_status clt_outer_adopt(clt_local *local);

/* Returns the place of a parameter in the arrays of floats. */
int64_t clt_outer_place(const clt_outer_state *outer, const clt_slot *slot);

/* Synchronises with weights by replica of all ranks, whose sum is 1. Collective. */
clt_status clt_outer_exchange(clt_local *local, const double *weights);

/* --- local.c --------------------------------------------------------------------------------- */

/* Runs fn(arg, i) for each replica i of this rank, each on a thread of its own, and waits. */
clt_status clt_local_each(clt_local *local, clt_device_threads_fn fn, void *arg);

/* Turns samples of all replicas into weights whose sum is 1. Returns false if all are 0. */
bool clt_local_weigh(const clt_local *local, const double *samples, double *weights);

#endif
