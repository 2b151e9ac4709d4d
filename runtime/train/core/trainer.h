/* The trainer: parts, most of which have a header of their own. Functions that need one part take
 * that part. */
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
    clt_device_threads *threads;
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

/* replicas.c: the replica of a participant (-1: parameters and states stay) becomes that of all,
 * except for the optimizer's slots: those of bucket b come from participant slot_roots[b] if that
 * is not NULL. Collective. */
clt_status clt_trainer_copy_replica(clt_trainer *trainer, int participant, const int *slot_roots);

/* replicas.c: all devices' optimizer slots become their owners', for reading. Does nothing without
 * owners. Collective. */
clt_status clt_trainer_share_slots(clt_trainer *trainer);

/* step.c: whether the guard stopped at the ring entry's step, whose word is there. */
bool clt_step_stopped(const clt_trainer *trainer, int entry);

/* step.c: checks a batch and divides it over the devices. It is the next call's. */
clt_status clt_step_prepare(clt_trainer *trainer, clt_session *session,
                            const clt_step_batch *batch);

/* step.c: fails if the caller wants an event of several devices. */
clt_status clt_step_check_event(const clt_trainer *trainer, struct _cl_event *const *event);

/* step.c: *event (may be NULL) becomes another reference to the event that ends the ring entry. */
clt_status clt_step_event(const clt_session *session, int entry, struct _cl_event **event);

/* trainer.c: sets where loss scaling stands, on all of this rank's devices. */
clt_status clt_trainer_set_scaling(clt_trainer *trainer, const clt_scaling *scaling);

/* programs.c: runs a step that was not finite again, node by node. Fails with NONFINITE, naming the
 * step, the first tensor that is not finite and the first of its samples that is not, if others
 * are. trainer->bad_step and ->bad_sample are then the step and that sample. */
clt_status clt_trainer_diagnose(clt_trainer *trainer, int64_t step);

#endif
