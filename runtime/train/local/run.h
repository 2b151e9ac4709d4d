/* A run of clt_local_fit. */
#ifndef CLT_TRAIN_LOCAL_RUN_H
#define CLT_TRAIN_LOCAL_RUN_H

#include <stdatomic.h>

#include "train/fit/batch_source.h"
#include "train/local/local.h"
#include "train/local/pool.h"

/* A replica of this rank between two synchronisations. Its thread alone uses it then. */
typedef struct clt_local_replica {
    struct clt_local_run *run;
    int index;              /* among the replicas of this rank */
    clt_participants parts; /* of the batches of all replicas */
    clt_source *source;
    int slot;              /* of the step that is enqueued and not finished; -1: none */
    int64_t step, pending; /* its number and samples */
    double finished;       /* when a step was finished last */
    double pace;           /* seconds that it took */
    /* since the last synchronisation: */
    int64_t samples, batches;
    int64_t counted; /* samples whose loss was finite */
    double loss;     /* the sum over these */
    /* by steps: where the next batch begins, and the epoch that ended last; -1: none */
    clt_position position;
    int64_t ended;
    double *sums; /* of an evaluation: sums, then weights */
} clt_local_replica;

/* What ranks tell each other of a replica. */
typedef struct clt_local_told {
    int64_t samples, batches, counted;
    double loss;
    clt_pool_held held;
} clt_local_told;

typedef struct clt_local_run {
    clt_local *local;
    clt_dataset *train, *test;
    const clt_fit_options *options;
    clt_local_replica *replicas;      /* of this rank */
    clt_local_told *told;             /* of all replicas */
    double *weights, *numbers;        /* by replica of all ranks */
    int64_t *counts;                  /* the same, twice */
    int64_t batch, seed;              /* batch: of all replicas */
    int64_t part;                     /* by time: of one replica */
    int64_t step, total_steps, steps; /* steps: those of the period under way */
    int64_t batches;                  /* by time: of all replicas since the begin of the run */
    clt_position position;
    bool resumed;
    double began, reported, deadline;
    int64_t sync; /* synchronisations of the run */
    int64_t due;  /* the epoch whose end is to be reported; -1: none */
    double epoch_loss;
    int64_t epoch_samples, epoch_counted;
    double lr, loss_scale; /* of replica 0's last step */
    int64_t skipped;
    double waited;
    clt_pool pool;      /* by time */
    clt_spans left;     /* by time: what nobody has claimed, after a synchronisation */
    double *speeds;     /* by rank: samples a second */
    int64_t *taken;     /* by rank */
    atomic_bool failed; /* a replica of this rank has failed */
    clt_folder_lock *lock;
} clt_local_run;

/* Whether replicas are synchronised by time. */
static inline bool clt_local_by_time(const clt_local_run *run)
{
    return run->local->options.every_seconds > 0;
}

/* --- local_replica.c
 * ------------------------------------------------------------------------------- */

/* Creates a replica's source of batches from run->position on. */
clt_status clt_local_open_source(clt_local_replica *replica);

/* Trains replica i of this rank until the next synchronisation; see clt_local_each. `arg` is the
 * run. Replicas by time need run->deadline, others run->steps. */
clt_status clt_local_period(void *arg, int i);

/* Evaluates a replica's part of the test set into its `sums`. `arg` is the run. */
clt_status clt_local_evaluate(void *arg, int i);

/* --- local_save.c
 * ---------------------------------------------------------------------------------- */

/* Saves a checkpoint at the position of the run. Collective. */
clt_status clt_local_save(clt_local_run *run);

/* Copies bytes of rank `root` to all ranks. */
clt_status clt_local_tell(const clt_local *local, int root, void *data, int64_t bytes);

/* --- local_resume.c
 * -------------------------------------------------------------------------------- */

/* Resumes if the options ask for it and there is a checkpoint, and gives all replicas equal
 * parameters. Collective. */
clt_status clt_local_resume(clt_local_run *run);

#endif
