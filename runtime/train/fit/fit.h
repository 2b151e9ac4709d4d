/* The state of a run of clt_fit, its beginning, its reports and its saves. */
#ifndef CLT_TRAIN_FIT_FIT_H
#define CLT_TRAIN_FIT_FIT_H

#include <cltrain/fit.h>

#include "train/planner/balance.h"
#include "train/fit/batch_source.h"
#include "train/fit/policies.h"
#include "train/core/trainer.h"

/* A step that was enqueued. */
typedef struct clt_fit_pending {
    int slot; /* slot of the loader; -1: none */
    int64_t step, epoch;
    int64_t samples;
    clt_position start;
    bool split; /* the batch's division differs from that of the step before */
} clt_fit_pending;

/* The state of a run of clt_fit. */
typedef struct clt_fit_run {
    clt_trainer *trainer;
    clt_dataset *train, *test;
    const clt_fit_options *options;
    clt_source *source;
    int64_t batch, seed;
    int64_t total_steps, first_step; /* the trainer's steps at the end and at the beginning */
    bool resumed;                    /* the run continues from a checkpoint */
    clt_position position;           /* where the next batch starts */
    double began, reported;
    double loss_scale; /* loss scale of the last reported step */
    int64_t skipped;
    /* Steps that are enqueued and not reported yet, the oldest first (fit/queue.c). */
    clt_fit_pending queue[CLT_MOST_QUEUED];
    int n_queue;
    double step_seconds;   /* mean of the last steps */
    clt_fit_pending tried; /* the last step that was begun */
    clt_position after;    /* where the batch after `tried` starts */
    int64_t tried_due;     /* value of `due` once `tried` is done */
    int64_t due;           /* the evaluation that is due, see clt_fit_due; -1: none */
    bool between; /* between two steps: a failure there leaves the last step's weights complete */
    bool evaluating; /* an evaluation runs, between two steps */
    bool lost;       /* a device or another rank failed, and training has not gone on yet */
    bool dropped;    /* a rank could not read its samples, so all ranks are between two steps */
    double epoch_loss;
    int64_t epoch_samples;
    double ended_loss;       /* mean of the last epoch that was reported */
    int64_t saved_step;      /* of the last checkpoint; -1: none */
    clt_policy_run policies; /* fit/policies.c */
    clt_balance *balance;    /* NULL: the division is fixed, or changes as options->splits say */
    bool rebalance;          /* the next step uses the weights of `balance` */
    int next_split;          /* index of the next of options->splits */
    bool split;              /* the next step's division differs from that of the step before */
    double waited;           /* seconds of waiting for destroyed sources, and in evaluations */
    clt_folder_lock *lock;   /* NULL: the caller holds the lock, or this rank saves nothing */
    /* After a rank has lost its last device (fit/idle.c): */
    int64_t reported_step, reported_epoch, reported_validation; /* the last ones */
    char *news;            /* reports that idle ranks have not got yet */
    int n_news, news_room; /* bytes */
    double told;           /* when idle ranks were told last */
    bool idle_stop;        /* an idle rank wants the run to stop */
    bool hook_stop;        /* a hook wants the run to stop */
    bool failing;          /* the run has failed, and ranks may be apart */
} clt_fit_run;

/* Checks what does not depend on data. */
clt_status clt_fit_options_check(const clt_fit_options *options, const clt_trainer *trainer);

/* Returns the samples of an epoch. A reservoir has no epochs; each batch is a whole one. */
int64_t clt_fit_samples(const clt_fit_run *f);

/* Finds where the first batch starts and how many steps there are. All ranks agree. */
clt_status clt_fit_begin(clt_fit_run *f, clt_dataset *train);

/* Fails with UNSUPPORTED if the options have hooks: `what` has none. */
clt_status clt_fit_refuse_hooks(const clt_fit_options *options, const char *what);

/* Returns the step at which the schedule is for a batch that starts at `position`; -1 stands for
 * the number of steps done. */
int64_t clt_fit_schedule_step(const clt_fit_run *f, clt_position position);

/* Sets trainer->reads: what of the data determines the numbers of a run. */
void clt_fit_describe_data(clt_trainer *trainer, const clt_dataset *train,
                           const clt_fit_options *options);

/* Checks that all ranks have the same samples, if a rank has them in host memory. `test` and
 * `validation` may be NULL. Collective. */
clt_status clt_fit_compare_data(const clt_participants *all, clt_dataset *train, clt_dataset *test,
                                clt_dataset *validation);

/* Creates the source of batches from f->position on. */
clt_status clt_fit_make_source(clt_fit_run *f);

/* Creates the balance that measures the division of batches, if the division may change. */
clt_status clt_fit_make_balance(clt_fit_run *f);

/* Returns the seconds of waiting for all sources. */
double clt_fit_waited(const clt_fit_run *f);

/* Gives the caller a report. `*progress` of an epoch gets the loss and number of samples of the
 * epoch's steps. An epoch that was reported before is left out. */
void clt_fit_report_step(clt_fit_run *f, const clt_progress *progress);
void clt_fit_report_epoch(clt_fit_run *f, clt_progress *progress);

void clt_fit_report_validation(clt_fit_run *f, const clt_progress *progress);

/* Reads a step's results, reports them, and releases its inputs. */
clt_status clt_fit_finish(clt_fit_run *f, const clt_fit_pending *p);

/* Reports a step whose results were lost with a device. */
void clt_fit_report_unknown(clt_fit_run *f, const clt_fit_pending *p);

clt_status clt_fit_save(clt_fit_run *f);

/* Saves in the middle of the run. A full disk does not end the training: it continues, and the next
 * save may succeed. */
void clt_fit_save_on_the_way(clt_fit_run *f);

/* Computes means over a set, the loss of all, and the first metric. `sums` has the sum of each loss
 * and metric of the set, then the weight of each, then room for the means, which are returned. */
const double *clt_fit_means(const clt_session *session, double *sums, double *loss, double *metric);

/* The same into the test set's members of a report. */
void clt_fit_test_means(const clt_session *session, double *sums, clt_progress *progress);

/* Returns what is due after the step that is step number `steps` and the last of its epoch, or not:
 * a number for clt_fit_evaluate, -1 for nothing. */
int64_t clt_fit_due(const clt_fit_run *f, int64_t steps, int64_t epoch, bool last_of_epoch);

/* Evaluates what is due, reports it, calls the policies, and saves if they or the options ask for
 * it. */
clt_status clt_fit_evaluate(clt_fit_run *f, int64_t due);

/* --- queue.c: steps that are enqueued and not reported --------------------------------------- */

/* Begins with an empty queue. */
void clt_fit_queue_begin(clt_fit_run *f);

/* Notes that a step was enqueued, and finishes those that are due. A step that fails stays in the
 * queue, as its first one. */
clt_status clt_fit_queue_add(clt_fit_run *f, const clt_fit_pending *p);

/* Notes the seconds since the step before was reported. */
void clt_fit_queue_time(clt_fit_run *f, double seconds);

/* Finishes all steps that are enqueued. */
clt_status clt_fit_finish_all(clt_fit_run *f);

/* Finds a step that is enqueued and not reported; NULL: none. */
const clt_fit_pending *clt_fit_queued(const clt_fit_run *f, int64_t step);

/* --- idle.c: ranks that have lost their last device ----------------------------------------- */

/* A report for idle ranks; SAVE comes before a checkpoint. */
typedef enum clt_fit_news {
    CLT_FIT_STEP,
    CLT_FIT_EPOCH,
    CLT_FIT_VALIDATION,
    CLT_FIT_SAVE
} clt_fit_news;

/* Whether this rank is idle. */
bool clt_fit_is_idle(const clt_fit_run *f);

/* Notes a report for the idle ranks, if there are any. `progress` may be NULL with SAVE. */
clt_status clt_fit_note(clt_fit_run *f, clt_fit_news kind, const clt_progress *progress);

/* Whether idle ranks are to be told how far training is: once a second, and often enough that few
 * reports are kept. */
bool clt_fit_should_tell(const clt_fit_run *f);

/* Tells idle ranks how far training is, if there are any. Collective over the other ranks. */
clt_status clt_fit_tell(clt_fit_run *f);

/* Waits as an idle rank, and reports what the others do, until the run ends. Returns its status. */
clt_status clt_fit_wait_idle(clt_fit_run *f);

/* Tells idle ranks, if there are any, that the run has ended. */
void clt_fit_end_idle(clt_fit_run *f, clt_status status);

#endif
