/*
 * The keeper of holder 0: a thread with a trainer of the whole model. It gets snapshots of all
 * parameters and of the optimizer's state, evaluates at the end of epochs and saves checkpoints,
 * while training goes on.
 */
#ifndef CLT_TRAIN_ASYNC_KEEPER_H
#define CLT_TRAIN_ASYNC_KEEPER_H

#include <pthread.h>

#include "train/async/layout.h"
#include <cltrain/fit.h>

/* A version of the model, and what is to be done with it. */
typedef struct clt_snapshot {
    struct clt_snapshot *next;
    int64_t ticket, version;
    int waiting;   /* holders whose range has not come */
    float *values; /* of all parameters */
    float *kept;   /* tensor by tensor of the optimizer, of all parameters */
    float *states; /* of all states */
    char *deals;   /* the section of the checkpoint */
    clt_position position;
    int64_t epoch;     /* the epoch that ended, from 0; -1: none */
    double epoch_loss; /* sum over its samples */
    int64_t epoch_samples, discarded;
    bool save, last;
} clt_snapshot;

typedef struct clt_keeper {
    clt_trainer *whole;
    clt_dataset *test;
    const clt_fit_options *fit;
    const clt_async_layout *layout;
    int kept;
    int64_t seed, total_steps;
    double began;
    pthread_mutex_t report; /* held during the caller's callbacks */
    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t work;
    clt_snapshot *first, *last;
    bool stop, busy, started;
    clt_status status; /* of the last save, or of an evaluation that failed */
    char message[1024];
    pthread_t thread;
} clt_keeper;

/* Copies the whole model out of the trainer, for the holders. */
clt_status clt_keeper_read(const clt_async_layout *layout, clt_trainer *whole, float *values,
                           float *kept, float *states);

clt_snapshot *clt_snapshot_create(const clt_async_layout *layout, int kept);
void clt_snapshot_destroy(clt_snapshot *snapshot);

/* Starts the thread. The members above `report` are set. */
clt_status clt_keeper_start(clt_keeper *keeper);

/* Hands over a complete snapshot. */
void clt_keeper_give(clt_keeper *keeper, clt_snapshot *snapshot);

/* Returns how many snapshots wait or are worked on. */
int clt_keeper_waiting(clt_keeper *keeper);

/* Whether something failed that ends the run; clt_keeper_end tells what. */
bool clt_keeper_has_failed(clt_keeper *keeper);

/* Waits until all snapshots are done, ends the thread, and returns the keeper's failure. */
clt_status clt_keeper_end(clt_keeper *keeper);

#endif
