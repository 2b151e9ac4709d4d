/* The trainer consists of parts, most of which have a header of their own. A function that needs
 * one part only takes that part. */
#ifndef CLT_TRAIN_CORE_TRAINER_H
#define CLT_TRAIN_CORE_TRAINER_H

#include <stdatomic.h>

#include "base/in_use.h"
#include "train/core/call.h"
#include "train/core/device_threads.h"
#include "train/core/exchange.h"
#include "train/core/updates.h"
#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>
#include <cltrain/gradients.h>

/* The parts of a step that have run. */
typedef enum clt_phase {
    CLT_PHASE_NONE,
    CLT_PHASE_FORWARD,
    CLT_PHASE_BACKWARD,
    CLT_PHASE_REDUCED
} clt_phase;

/* A section of checkpoints that belongs to the host program. `key` is its name there. */
typedef struct clt_host_section {
    char *key, *text;
} clt_host_section;

struct clt_trainer {
    clt_store *store;
    clt_trainer_options options;
    clt_graph *graph; /* a copy */
    clt_session *training, *evaluation;
    clt_session *prediction; /* NULL until first used */
    int64_t predictions;
    int queued; /* steps that may be queued; more than 2 only within clt_fit (fit/queue.c) */
    int64_t bad_step, bad_sample; /* the finding of the last clt_trainer_diagnose; -1: no sample */
    clt_updates *devices;         /* by device: its optimizer */
    clt_participants all;         /* ranks/world.c */
    clt_shares shares;            /* ranks/shares.c */
    clt_exchange exchange;        /* core/exchange.c */
    /* Devices of different kinds round differently: if each updated its own replica, the replicas
     * would drift apart. Then, and if the options say so, each device updates its shard of each
     * bucket, and all gather the shards. */
    bool unlike, sharded;
    struct clt_whole_slots *whole; /* step/shards.c: optimizer slots on the host */
    /* If set, updates of a bucket begin when its reduction ends. Otherwise updates wait for the
     * step status, which guard, clipping and repeating a step need. */
    bool streams;
    struct clt_states *states;             /* step/states.c */
    struct clt_verification *verification; /* step/verify.c; NULL: one participant */
    struct clt_programs *programs;         /* step/programs.c */
    struct clt_choices *choices;           /* setup/choices.c */
    clt_device_threads *threads;
    char reads[256];        /* name of the data of clt_fit, for checkpoints; "": unknown */
    char *use;              /* see clt_trainer_set_use */
    clt_host_section *host; /* saved/host_sections.c */
    int n_host, room_host;
    char *policies;    /* fit/policies.c: state of a run's policies, for checkpoints; NULL: none */
    int64_t best_step; /* of the best checkpoint; 0: none */
    clt_dataset *reservoir;  /* whose samples are in checkpoints; NULL: none */
    int64_t reservoir_ranks; /* how many saved samples with the last checkpoint that was restored */
    void *drawn;             /* fit/step_reservoir.c: batches of clt_step_reservoir */
    void (*drawn_free)(void *drawn);
    int64_t builds;     /* how often this was built */
    int64_t restores;   /* how often it was restored from a checkpoint */
    bool averages_used; /* step/averages.c: averages are in the place of the parameters */
    bool averages;      /* this trainer has the averages of its store */
    /* For checkpoints of asynchronous runs: JSON of the batches that are still out; borrowed. NULL:
     * none. */
    const char *deals;
    int64_t steps;
    int64_t schedule_step; /* where the schedule is; -1: at `steps`. clt_fit sets it */
    bool is_replica;       /* of a clt_local */
    int64_t fresh; /* steps before the optimizer's state began; 0 but after replicas (local/) */
    clt_call call; /* step/step.c: for the device threads */
    clt_results results;               /* fit/results.c */
    struct clt_split_history *history; /* planner/balance.h; NULL: no change yet */
    atomic_int lost;                   /* the device that failed; -1: none */
    bool may_idle;   /* clt_fit runs, in which ranks that lose their last device wait */
    clt_phase phase; /* of a step in parts */
    /* Gradients of inputs are those of the last batch; and its update is enqueued. */
    bool kept, kept_updated;
    bool has_gradients; /* a backward has run since this was built or restored */
    bool reporting;     /* clt_fit reports to its caller, who may evaluate but make no steps */
    const char *within; /* the callback that runs, in which no step may begin; NULL: none */
    bool measured;      /* after reduce: no gradient was set since, so their norm is known */
    char *given;        /* given.c: what all ranks have set; NULL until needed */
    float **parked;     /* step/wire.h */
    bool ends;          /* the trainer is being freed */
    clt_in_use in_use;  /* by calls whose callbacks may destroy the trainer */
    bool keeps;         /* this trainer is counted in store->keepers */
    bool feeds_back;    /* this trainer is counted in store->feeders */
};

/* build.c: build and free every part that depends on the store's devices. After
 * clt_trainer_unbuild the trainer has only its graph, options and number of steps. */
clt_status clt_trainer_build(clt_trainer *trainer);
void clt_trainer_unbuild(clt_trainer *trainer);

/* lost.c: records the device as lost if the status says that the failure was the device's own.
 * Returns the status. */
clt_status clt_lost_note(clt_trainer *trainer, int device, clt_status status);

/* lost.c: stops the collectives of all ranks after a failure of this process, with the message of
 * the calling thread. DEVICE_LOST tells the other ranks that clt_trainer_recover is to follow. If a
 * device was lost and training cannot go on, the other ranks learn why. */
void clt_lost_stop(const clt_trainer *trainer, clt_status status);

/* lost.c: sets `failure` again with its message. If training cannot continue without the failed
 * device although others are left, the message says why. */
clt_status clt_lost_explain(const clt_trainer *trainer, clt_status failure, const char *message);

/* lost.c: as clt_trainer_recover. With t->may_idle a rank may lose its last device: it keeps
 * nothing that needs one, and the trainer's world becomes that of the other ranks (store/rest.h).
 * `due` has a number for a step that is redone, and one for a step that counts as done. *largest
 * becomes the largest of the number that fits over all ranks, idle ones too. */
clt_status clt_lost_recover(clt_trainer *trainer, const int64_t due[2], int64_t *largest,
                            int *redo);

/* lost.c: returns true if clt_trainer_recover can continue after a device of this or another rank
 * failed. */
bool clt_lost_one_of_several(const clt_trainer *trainer);

/* replicas.c: copies the replica of a participant to all others. If tensors are split along tp,
 * each device copies to those that have the same place of tp. Collective. With shards, optimizer
 * slots stay. `participant` -1: does nothing. */
clt_status clt_trainer_copy_replica(clt_trainer *trainer, int participant);

/* The section of state.json that replicas of local SGD write (local/local_save.c), and its member
 * with the samples that are left of an epoch in the middle. */
#define CLT_SECTION_LOCAL "local"
#define CLT_LOCAL_LEFT "\"left\""

/* The section of averages: {"of": how they are made, "steps": their number}. */
#define CLT_SECTION_AVERAGE "average"

/* The section with clt_trainer.policies: {"policies": {NAME: state}, "best": step, and the sums of
 * the epoch's training loss}. */
#define CLT_SECTION_POLICIES "policies"

/* The section with clt_trainer.fresh, if it is not 0. */
#define CLT_SECTION_FRESH "optimizer_since"

/* What a checkpoint has beside a trainer's own state. */
typedef struct clt_saved_more {
    const clt_tensor *tensors; /* of the optimizer's file, without data */
    int count;
    clt_tensor_fetch_fn fetch;
    void *user;
    const char *section; /* JSON */
} clt_saved_more;

/* persist.c: as clt_trainer_save for a trainer of one rank, with more in the checkpoint. */
clt_status clt_trainer_save_more(clt_trainer *trainer, const char *dir, clt_position position,
                                 int64_t batch, int64_t seed, int64_t keep, const char *model,
                                 const clt_saved_more *more);

/* persist.c: as clt_trainer_save. `apart`: not all ranks may be in this call, so they do not agree
 * whether all have saved their reservoirs. */
clt_status clt_trainer_save_in_run(clt_trainer *trainer, const char *dir, clt_position position,
                                   int64_t batch, int64_t seed, int64_t keep, const char *model,
                                   bool apart);

/* persist.c: as clt_trainer_restore. `together`: all ranks call it, rank 0 reads the files, and one
 * tensor at a time is in the memory of a host. */
clt_status clt_trainer_restore_with(clt_trainer *trainer, bool together, const char *path,
                                    clt_position *position, int64_t *seed);

/* step.c: fails with STATE within a report of clt_fit, or if the number of steps is not possible.
 */
clt_status clt_step_may_begin(const clt_trainer *trainer);

/* step.c: fails with STATE within a callback of clt_fit in the middle of a step. */
clt_status clt_step_allowed(const clt_trainer *trainer);

/* step.c: returns true if the guard stopped at the ring entry's step. The step status must have
 * been read. */
bool clt_step_stopped(const clt_trainer *trainer, int entry);

/* step.c: waits for the end of a step, which must be one of the last CLT_RESULT_RING. */
clt_status clt_step_wait(clt_trainer *trainer, int64_t step);

/* step.c: checks a batch, divides it over the devices and makes it the batch of the next call. */
clt_status clt_step_prepare(clt_trainer *trainer, clt_session *session,
                            const clt_step_batch *batch);

/* step.c: fails if the caller wants an event of several devices. */
clt_status clt_step_check_event(const clt_trainer *trainer, struct _cl_event *const *event);

/* step.c: waits for the call and fills its fetches that are not written in place, if it has any. */
clt_status clt_step_fetched(clt_trainer *trainer, clt_session *session);

/* step.c: stores a new reference to the event that ends the ring entry in *event. `event` may be
 * NULL. */
clt_status clt_step_event(const clt_session *session, int entry, struct _cl_event **event);

/* gradients.c: fails with STATE if gradients cannot be set now; notes that the caller has set the
 * gradient of a tensor; and forgets what was noted. */
clt_status clt_gradients_may_set(const clt_trainer *trainer);
void clt_gradients_note(clt_trainer *trainer, const clt_slot *tensor);
void clt_gradients_forget(clt_trainer *trainer);

/* gradients.c: finds the loss scale by which the gradients on a device are multiplied, of a step
 * whose update is enqueued or not. */
clt_status clt_gradients_scale(const clt_trainer *trainer, int device, bool updated, float *scale);

/* given.c: fails with MISMATCH, on all ranks, if only some have set the gradient of a parameter
 * that no loss depends on. Collective. */
clt_status clt_gradients_agree(clt_trainer *trainer);

/* trainer.c: sets the state of loss scaling on all of this rank's devices. */
clt_status clt_trainer_set_scaling(clt_trainer *trainer, const clt_scaling *scaling);

/* programs.c: repeats a step with a non-finite value node by node, or the step before if the guard
 * stopped there. Fails with NONFINITE, naming the step, the first non-finite tensor and its first
 * non-finite sample if other samples are finite. trainer->bad_step and ->bad_sample become this
 * step and sample. */
clt_status clt_trainer_diagnose(clt_trainer *trainer, int64_t step);

#endif
