/* The trainer's inside: trainer.c makes it, step.c runs it, diagnose.c finds what went wrong. */
#ifndef CLT_TRAIN_CORE_TRAINER_H
#define CLT_TRAIN_CORE_TRAINER_H

#include <stdatomic.h>

#include "train/core/call.h"
#include "train/core/device_threads.h"
#include "train/core/exchange.h"
#include "train/core/updates.h"

struct clt_trainer {
    clt_store *store;
    clt_trainer_options options;
    clt_graph *graph; /* a copy */
    clt_session *training, *evaluation;
    clt_session *prediction; /* NULL until first used */
    int64_t predictions;
    int64_t bad_step, bad_sample; /* what clt_trainer_diagnose found last; no sample: -1 */
    clt_updates *devices;         /* by device: the optimizer */
    clt_participants all;         /* ranks/world.c */
    clt_shares shares;            /* ranks/shares.c */
    clt_exchange exchange;        /* core/exchange.c */
    /* By bucket: the participant that updates it and gives its parameters to the others. NULL: all
     * devices are of one kind, and each updates its own replica to the same bits. */
    int *owners;
    /* Updates begin as their bucket's reduction ends. Else (commit) they wait for the step's word,
     * which guard and clipping need, and so does giving a step again. */
    bool streams;
    struct clt_states *states;             /* step/states.c */
    struct clt_verification *verification; /* step/verify.c; NULL: one participant */
    struct clt_programs *programs;         /* step/programs.c */
    struct clt_choices *choices;           /* setup/choices.c */
    clt_crew *crew;
    char reads[256]; /* what clt_fit trains on, for checkpoints; "": unknown */
    char *use;       /* see clt_trainer_set_use */
    int64_t steps;
    clt_call call;                     /* step/step.c: for the device threads */
    clt_results results;               /* fit/results.c */
    struct clt_split_history *history; /* planner/balance.h; NULL: no change yet */
    atomic_int lost;                   /* the device that failed; -1: none */
    int phase;  /* parts: 1 after forward, 2 after backward, 3 after reduce */
    bool keeps; /* one of store->keepers */
};

/* build.c: all that depends on which devices the store has; and the opposite, after which the
 * trainer has its graph, options and number of steps alone. */
clt_status clt_trainer_build(clt_trainer *trainer);
void clt_trainer_unbuild(clt_trainer *trainer);

/* lost.c: notes that this device's failure was its own, where the status says so; returns it. */
clt_status clt_lost_note(clt_trainer *trainer, int device, clt_status status);

/* lost.c: with which status to stop the other ranks after a failure: DEVICE_LOST where
 * clt_trainer_recover is to follow. */
clt_status clt_lost_reason(const clt_trainer *trainer, clt_status status);

/* lost.c: gives `failure` again with its message and, where a device has failed without which
 * training cannot go on although there are others, why. */
clt_status clt_lost_explain(const clt_trainer *trainer, clt_status failure, const char *message);

/* lost.c: whether clt_trainer_recover can go on, after a device of this or another rank failed. */
bool clt_lost_one_of_several(const clt_trainer *trainer);

/* replicas.c: all replicas become that of a participant (-1: parameters and states stay),
 * but the optimizer's slots of bucket b that of slot_roots[b], where that is not NULL. Collective.
 */
clt_status clt_trainer_copy_replica(clt_trainer *trainer, int participant, const int *slot_roots);

/* Whether the guard stopped at the ring entry's step, whose word is there. */
bool clt_step_stopped(const clt_trainer *trainer, int entry);

/* Splits the batch and finds the weights of the losses, where the host can. */
clt_status clt_step_prepare(clt_trainer *trainer, clt_session *session,
                            const clt_step_batch *batch);

/* replicas.c: all devices' optimizer slots become their owners', for reading. Collective;
 * nothing without owners. */
clt_status clt_trainer_share_slots(clt_trainer *trainer);

/* Fails if the caller wants an event of several devices. */
clt_status clt_step_check_event(const clt_trainer *trainer, struct _cl_event *const *event);

/* *event (may be NULL) becomes another reference to the event that ends the ring entry. */
clt_status clt_step_event(const clt_session *session, int entry, struct _cl_event **event);

/* Sets where loss scaling stands, on all of this rank's devices. */
clt_status clt_trainer_set_scaling(clt_trainer *trainer, const clt_scaling *scaling);

/* Fails with NONFINITE naming the step, the first tensor that is not finite and, where it has some
 * of its samples not finite, the first of them, by running the ring entry's step again node by
 * node. That sample is then trainer->bad_sample, of the step trainer->bad_step. */
clt_status clt_trainer_diagnose(clt_trainer *trainer, int64_t step);

#endif
