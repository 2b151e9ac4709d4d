/* A run of clt_fit: its state, its beginning, and what it reports and saves. */
#ifndef CLT_TRAIN_FIT_FIT_H
#define CLT_TRAIN_FIT_FIT_H

#include <cltrain/fit.h>

#include "train/planner/balance.h"
#include "train/fit/batch_source.h"
#include "train/core/trainer.h"

/* A step that was enqueued. */
typedef struct clt_fit_pending {
    int slot; /* of the loader; -1: none */
    int64_t step, epoch;
    int64_t samples;
    clt_position start;
    bool split; /* it has another division of the batch than the step before */
} clt_fit_pending;

/* A run of clt_fit. */
typedef struct clt_fit_run {
    clt_trainer *trainer;
    clt_dataset *train, *test;
    const clt_fit_options *options;
    clt_source *source;
    int64_t batch, seed;
    int64_t total_steps, first_step; /* the trainer's steps at the end and at the beginning */
    bool resumed;                    /* from a checkpoint */
    clt_position position;           /* where the next batch starts */
    double began, reported;
    double loss_scale; /* of the last step that was reported */
    int64_t skipped;
    clt_fit_pending last;  /* enqueued and not reported yet */
    clt_fit_pending tried; /* the last one that was begun */
    clt_position after;    /* where the batch after it starts */
    int64_t tried_due;     /* epoch_due, once it is done */
    int64_t epoch_due;     /* the epoch whose end is to be reported; -1: none */
    bool epoch_again;      /* this rank has reported it before a device was lost */
    bool between;          /* two steps: what fails there leaves the last one's weights whole */
    bool evaluating;       /* between two steps */
    bool dropped;          /* a rank could not read its samples: all ranks are between two steps */
    double epoch_loss;
    int64_t epoch_samples;
    clt_balance *balance;  /* NULL: the division stays, or changes as options->splits say */
    bool rebalance;        /* its weights are the next step's */
    int next_split;        /* of those */
    bool split;            /* the next step has another division than the one before */
    double waited;         /* for sources that are gone, and in evaluations */
    clt_folder_lock *lock; /* NULL: the caller's, or nothing is saved here */
} clt_fit_run;

/* Where the first batch starts and how many steps there are; all ranks agree. */
clt_status clt_fit_begin(clt_fit_run *f, clt_dataset *train);

/* Batches from f->position on. */
clt_status clt_fit_make_source(clt_fit_run *f);

/* What measures the division of batches, where it may change. */
clt_status clt_fit_make_balance(clt_fit_run *f);

/* Seconds that the sources had to be waited for. */
double clt_fit_waited(const clt_fit_run *f);

/* Reads a step's results, reports them, and gives its inputs back. */
clt_status clt_fit_finish(clt_fit_run *f, const clt_fit_pending *p);

/* The step that was enqueued last. */
clt_status clt_fit_finish_last(clt_fit_run *f);

/* A step whose results went with a device. */
void clt_fit_report_unknown(clt_fit_run *f, const clt_fit_pending *p);

clt_status clt_fit_save(clt_fit_run *f);

/* A save in the middle of the run. A full disk does not cost the training: it goes on, and the
 * next save may succeed. */
void clt_fit_save_on_the_way(clt_fit_run *f);

/* Evaluates, reports the epoch, and saves where that is asked for. */
clt_status clt_fit_end_epoch(clt_fit_run *f, int64_t epoch);

#endif
