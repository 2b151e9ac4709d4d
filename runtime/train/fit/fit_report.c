/* Reports and saves of a run of clt_fit, and the evaluation after an epoch. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/core/use.h"
#include "train/fit/fit.h"
#include "base/clock.h"

double clt_fit_waited(const clt_fit_run *f)
{
    return f->waited + (f->source ? clt_source_waited(f->source) : 0);
}

static void note(clt_fit_run *f, clt_fit_news kind, const char *what, int64_t number,
                 const clt_progress *progress)
{
    if (clt_fit_note(f, kind, progress) != CLT_OK)
        clt_log(CLT_LOG_WARN, "idle ranks do not report %s %lld: %s", what, (long long)number,
                clt_error_message());
}

static void tell(const clt_fit_run *f, void (*callback)(void *user, const clt_progress *progress),
                 const clt_progress *progress)
{
    if (!callback)
        return;
    f->trainer->reporting = true;
    callback(f->options->user, progress);
    f->trainer->reporting = false;
}

void clt_fit_report_step(clt_fit_run *f, const clt_progress *progress)
{
    if (isfinite(progress->loss)) {
        f->epoch_loss += progress->loss * (double)progress->samples;
        f->epoch_samples += progress->samples;
    }
    f->reported_step = progress->step;
    f->loss_scale = progress->loss_scale;
    f->skipped = progress->skipped;
    tell(f, f->options->on_step, progress);
    note(f, CLT_FIT_STEP, "step", progress->step, progress);
}

static double mean_of_epoch(const clt_fit_run *f)
{
    return f->epoch_samples ? f->epoch_loss / (double)f->epoch_samples : NAN;
}

/* An evaluation may be repeated after the loss of a device: the epoch's loss stays. */
void clt_fit_report_epoch(clt_fit_run *f, clt_progress *progress)
{
    const bool again = f->reported_epoch >= progress->epoch;
    progress->samples = f->epoch_samples;
    progress->loss = again ? f->ended_loss : mean_of_epoch(f);
    f->ended_loss = progress->loss;
    f->epoch_loss = 0;
    f->epoch_samples = 0;
    if (!again)
        tell(f, f->options->on_epoch, progress);
    f->reported_epoch = progress->epoch;
    note(f, CLT_FIT_EPOCH, "epoch", progress->epoch, progress);
}

void clt_fit_report_validation(clt_fit_run *f, const clt_progress *progress)
{
    if (f->reported_validation < progress->step)
        tell(f, f->options->on_validation, progress);
    f->reported_validation = progress->step;
    note(f, CLT_FIT_VALIDATION, "the validation after step", progress->step, progress);
}

static void report(clt_fit_run *f, const clt_fit_pending *p, const clt_step_result *result)
{
    const double at = clt_clock();
    const clt_trainer *t = f->trainer;
    const double *split = p->split ? t->shares.weights : NULL;
    const clt_progress progress = {.step = p->step + 1,
                                   .epoch = p->epoch + 1,
                                   .samples = result->samples,
                                   .total_steps = f->total_steps,
                                   .loss = result->loss,
                                   .norm = result->norm,
                                   .lr = result->lr,
                                   .loss_scale = result->loss_scale,
                                   .skipped = result->skipped,
                                   .seconds = at - f->began,
                                   .step_seconds = at - f->reported,
                                   .wait_seconds = clt_fit_waited(f),
                                   .test_loss = NAN,
                                   .test_metric = NAN,
                                   .val_loss = NAN,
                                   .val_metric = NAN,
                                   .average_test_loss = NAN,
                                   .average_val_loss = NAN,
                                   .split = split,
                                   .n_split = split ? clt_participants_parts(&t->all) : 0,
                                   .quantum = split ? t->shares.quantum : 0,
                                   .bucket_bytes = split ? t->store->bucket_bytes : 0};
    clt_fit_queue_time(f, at - f->reported);
    f->reported = at;
    clt_fit_report_step(f, &progress);
}

clt_status clt_fit_finish(clt_fit_run *f, const clt_fit_pending *p)
{
    clt_step_result result;
    clt_step_result_init(&result);
    if (p->slot < 0)
        return CLT_OK;
    CLT_TRY(clt_trainer_result(f->trainer, p->step, &result));
    CLT_TRY(clt_source_release(f->source, p->slot));
    report(f, p, &result);
    return CLT_OK;
}

void clt_fit_report_unknown(clt_fit_run *f, const clt_fit_pending *p)
{
    const clt_trainer_options *o = &f->trainer->options;
    const int64_t at = clt_fit_schedule_step(f, p->start);
    const clt_step_result unknown = {
        .loss = NAN,
        .norm = NAN,
        .loss_scale = f->loss_scale,
        .skipped = f->skipped,
        .samples = p->samples,
        .lr = clt_schedule_rate(&o->schedule, o->lr, at < 0 ? p->step : at)};
    report(f, p, &unknown);
}

/* Idle ranks have called on_checkpoint when they are told the second time. After a failure they
 * learn of the end only, because not all ranks need save then. */
static clt_status tell_of_save(clt_fit_run *f)
{
    if (f->failing)
        return CLT_OK;
    CLT_TRY(clt_fit_note(f, CLT_FIT_SAVE, NULL));
    CLT_TRY(clt_fit_tell(f));
    return clt_fit_tell(f);
}

clt_status clt_fit_save(clt_fit_run *f)
{
    const clt_fit_options *o = f->options;
    clt_heartbeat_state_is(f->trainer->exchange.beat, CLT_HEARTBEAT_SAVING);
    if (!o->checkpoint_dir)
        return CLT_OK;
    if (o->on_checkpoint)
        o->on_checkpoint(o->user);
    CLT_TRY(tell_of_save(f));
    CLT_TRY(clt_policies_store(f));
    CLT_TRY(clt_trainer_save_in_run(f->trainer, o->checkpoint_dir, f->position, f->batch, f->seed,
                                    o->keep, o->model, f->failing));
    f->saved_step = f->trainer->steps;
    return CLT_OK;
}

void clt_fit_save_on_the_way(clt_fit_run *f)
{
    if (clt_fit_save(f) != CLT_OK)
        clt_log(CLT_LOG_WARN, "no checkpoint of step %lld, training goes on: %s",
                (long long)f->trainer->steps, clt_error_message());
}

/* Waits for all devices: after a failure of one device, others may still read the batch. Keeps the
 * error message. */
static void wait_for_transfers(clt_trainer *trainer)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    for (int d = 0; d < trainer->all.own; d++)
        clt_device_finish(trainer->store->replicas[d].device);
    clt_error_restore(message);
}

/* Batches of an evaluation after which idle ranks are told, so that they do not take others for
 * hanging. */
enum { TELL_EVERY = 32 };

/* Evaluates, and adds the seconds of waiting for batches to *waited. `f`: the run, if it has idle
 * ranks to tell; may be NULL. */
static clt_status evaluate(clt_trainer *trainer, clt_dataset *dataset,
                           const clt_fit_options *options, double *sums, double *weights,
                           double *waited, clt_fit_run *f)
{
    clt_fit_options own = *options;
    own.shuffle = own.drop_last = 0;
    clt_source *source;
    CLT_TRY(clt_source_create(&trainer->all, &trainer->shares, trainer->evaluation, dataset, &own,
                              trainer->options.batch, 0, (clt_position){0, 0}, 1, &source));
    clt_status status = CLT_OK;
    const size_t bytes = (size_t)trainer->evaluation->n_means * sizeof *sums;
    memset(sums, 0, bytes);
    memset(weights, 0, bytes);
    for (int n = 1;; n++) {
        clt_source_batch batch;
        const double asked = clt_clock();
        CLT_TRY_GOTO(status, clt_source_next(source, &batch), done);
        *waited += clt_clock() - asked;
        if (batch.slot < 0)
            break;
        clt_heartbeat_state_is(trainer->exchange.beat, CLT_HEARTBEAT_EVALUATING);
        CLT_TRY_GOTO(status, clt_trainer_evaluate(trainer, &batch.step, sums, weights), done);
        CLT_TRY_GOTO(status, clt_source_release(source, batch.slot), done);
        if (f && n % TELL_EVERY == 0)
            CLT_TRY_GOTO(status, clt_fit_tell(f), done);
    }
done:
    if (status != CLT_OK)
        wait_for_transfers(trainer);
    clt_source_destroy(source);
    return status;
}

const double *clt_fit_means(const clt_session *session, double *sums, double *loss, double *metric)
{
    const int n = session->n_means;
    const double *weights = sums + n;
    double *own = sums + 2 * n;
    *loss = 0;
    for (int m = 0; m < n; m++) {
        own[m] = weights[m] > 0 ? sums[m] / weights[m] : NAN;
        if (m < session->n_losses && weights[m] > 0)
            *loss += session->coefficients[m] * own[m];
    }
    if (n > session->n_losses)
        *metric = own[session->n_losses];
    return own;
}

void clt_fit_test_means(const clt_session *session, double *sums, clt_progress *progress)
{
    progress->test_means =
        clt_fit_means(session, sums, &progress->test_loss, &progress->test_metric);
    progress->n_test_means = session->n_means;
}

/* What is due: the epoch, and whether it ends, or the validation set is to be evaluated. */
enum { DUE_EPOCH = 1, DUE_VALIDATION = 2, DUE_KINDS = 4 };

int64_t clt_fit_due(const clt_fit_run *f, int64_t steps, int64_t epoch, bool last_of_epoch)
{
    const int64_t every = f->options->validate_every;
    const int kinds =
        (last_of_epoch ? DUE_EPOCH : 0) |
        ((every ? steps % every == 0 : last_of_epoch) && f->options->validation ? DUE_VALIDATION
                                                                                : 0);
    return kinds ? epoch * DUE_KINDS + kinds : -1;
}

/* Computes losses and metrics over a set: means in sums[2 n_means], which the caller frees. */
static clt_status evaluate_set(clt_fit_run *f, clt_dataset *dataset, double **sums)
{
    const int n = f->trainer->evaluation->n_means;
    *sums = clt_calloc(3 * (size_t)n + 1, sizeof **sums);
    CLT_TRY_MEMORY(*sums);
    return evaluate(f->trainer, dataset, f->options, *sums, *sums + n, &f->waited, f);
}

/* Evaluates the sets. The caller frees sums[] after the report. */
static clt_status evaluate_sets(clt_fit_run *f, int kinds, clt_progress *p, double *sums[2])
{
    const clt_session *session = f->trainer->evaluation;
    if (kinds & DUE_VALIDATION) {
        CLT_TRY(evaluate_set(f, f->options->validation, &sums[0]));
        p->val_means = clt_fit_means(session, sums[0], &p->val_loss, &p->val_metric);
        p->n_val_means = session->n_means;
    }
    if (kinds & DUE_EPOCH && f->test) {
        CLT_TRY(evaluate_set(f, f->test, &sums[1]));
        clt_fit_test_means(session, sums[1], p);
    }
    return CLT_OK;
}

/* The same with the averages of weights, which are then put back, also after a failure. */
static clt_status evaluate_averages(clt_fit_run *f, int kinds, clt_progress *p, double *sums[2])
{
    clt_progress own = {.test_loss = NAN, .val_loss = NAN};
    clt_trainer *t = f->trainer;
    int64_t steps = 0;
    if (!t->options.average.kind || !(kinds & DUE_VALIDATION || f->test))
        return CLT_OK;
    CLT_TRY(clt_trainer_averaged(t, &steps));
    if (!steps)
        return CLT_OK;
    clt_status status = clt_trainer_use_average(t, 1);
    CLT_NEXT(status, evaluate_sets(f, kinds, &own, sums));
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    const clt_status back = clt_trainer_use_average(t, 0);
    if (status != CLT_OK) {
        clt_error_restore(message);
        return status;
    }
    p->average_test_loss = own.test_loss;
    p->average_val_loss = own.val_loss;
    p->average_test_means = own.test_means;
    p->average_val_means = own.val_means;
    p->n_average_test_means = own.n_test_means;
    p->n_average_val_means = own.n_val_means;
    return back;
}

static clt_status evaluate_and_report(clt_fit_run *f, int kinds, clt_progress *p, double *sums[4])
{
    CLT_TRY(evaluate_sets(f, kinds, p, sums));
    CLT_TRY(evaluate_averages(f, kinds, p, sums + 2));
    p->seconds = clt_clock() - f->began;
    p->wait_seconds = clt_fit_waited(f);
    if (kinds & DUE_EPOCH)
        clt_fit_report_epoch(f, p);
    else
        clt_fit_report_validation(f, p);
    return clt_policies_evaluated(f, p);
}

clt_status clt_fit_evaluate(clt_fit_run *f, int64_t due)
{
    const int kinds = (int)(due % DUE_KINDS);
    double *sums[4] = {NULL};
    clt_progress progress = {.step = f->trainer->steps,
                             .epoch = due / DUE_KINDS + 1,
                             .total_steps = f->total_steps,
                             .samples = f->epoch_samples,
                             .loss = mean_of_epoch(f),
                             .loss_scale = f->loss_scale,
                             .skipped = f->skipped,
                             .test_loss = NAN,
                             .test_metric = NAN,
                             .val_loss = NAN,
                             .val_metric = NAN,
                             .average_test_loss = NAN,
                             .average_val_loss = NAN};
    const clt_status status = evaluate_and_report(f, kinds, &progress, sums);
    CLT_FREE(sums[0], sums[1], sums[2], sums[3]);
    CLT_TRY(status);
    f->reported = clt_clock();
    /* The save of the last step is part of the run's result, so clt_fit does it. */
    const bool wanted = f->policies.keep || (kinds & DUE_EPOCH && f->options->checkpoint_every < 0);
    if (wanted && f->trainer->steps < f->total_steps)
        clt_fit_save_on_the_way(f);
    return CLT_OK;
}

clt_status clt_evaluate(clt_trainer *trainer, clt_dataset *dataset, const clt_fit_options *options,
                        double *sums, double *weights)
{
    double waited = 0;
    CLT_TRY(clt_fit_options_check(options, trainer));
    CLT_TRY(clt_store_check_devices(trainer->store));
    const clt_use use = {trainer, {dataset}};
    clt_use_begin(&use);
    return clt_use_end(&use, evaluate(trainer, dataset, options, sums, weights, &waited, NULL));
}
