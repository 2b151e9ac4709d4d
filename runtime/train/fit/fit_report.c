/* Reports and saves of a run of clt_fit, and the evaluation after an epoch. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/fit/fit.h"
#include "base/clock.h"

double clt_fit_waited(const clt_fit_run *f)
{
    return f->waited + (f->source ? clt_source_waited(f->source) : 0);
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
    if (f->options->on_step)
        f->options->on_step(f->options->user, progress);
    if (clt_fit_note(f, CLT_FIT_STEP, progress) != CLT_OK)
        clt_log(CLT_LOG_WARN, "idle ranks do not report step %lld: %s", (long long)progress->step,
                clt_error_message());
}

void clt_fit_report_epoch(clt_fit_run *f, clt_progress *progress)
{
    progress->samples = f->epoch_samples;
    progress->loss = f->epoch_samples ? f->epoch_loss / (double)f->epoch_samples : NAN;
    f->epoch_loss = 0;
    f->epoch_samples = 0;
    if (f->options->on_epoch && f->reported_epoch < progress->epoch)
        f->options->on_epoch(f->options->user, progress);
    f->reported_epoch = progress->epoch;
    if (clt_fit_note(f, CLT_FIT_EPOCH, progress) != CLT_OK)
        clt_log(CLT_LOG_WARN, "idle ranks do not report epoch %lld: %s", (long long)progress->epoch,
                clt_error_message());
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
                                   .split = split,
                                   .n_split = split ? clt_participants_parts(&t->all) : 0,
                                   .quantum = split ? t->shares.quantum : 0,
                                   .bucket_bytes = split ? t->store->bucket_bytes : 0};
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

clt_status clt_fit_finish_last(clt_fit_run *f)
{
    CLT_TRY(clt_fit_finish(f, &f->last));
    f->last.slot = -1;
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
    if (o->checkpoint_dir && o->on_checkpoint)
        o->on_checkpoint(o->user);
    if (o->checkpoint_dir)
        CLT_TRY(tell_of_save(f));
    return o->checkpoint_dir ? clt_trainer_save(f->trainer, o->checkpoint_dir, f->position,
                                                f->batch, f->seed, o->keep, o->model)
                             : CLT_OK;
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

void clt_fit_test_means(const clt_session *session, double *sums, clt_progress *progress)
{
    const int n = session->n_means;
    const double *weights = sums + n;
    double *own = sums + 2 * n;
    progress->test_loss = 0;
    for (int m = 0; m < n; m++) {
        own[m] = weights[m] > 0 ? sums[m] / weights[m] : NAN;
        if (m < session->n_losses && weights[m] > 0)
            progress->test_loss += session->coefficients[m] * own[m];
    }
    if (n > session->n_losses)
        progress->test_metric = own[session->n_losses];
    progress->test_means = own;
    progress->n_test_means = n;
}

/* Computes losses and metrics over the test set. The caller frees *means after the report. */
static clt_status evaluate_epoch(clt_fit_run *f, clt_progress *progress, double **means)
{
    const clt_session *session = f->trainer->evaluation;
    const int n = session->n_means;
    double *sums = clt_calloc(3 * (size_t)n + 1, sizeof *sums);
    CLT_TRY_MEMORY(sums);
    *means = sums;
    CLT_TRY(evaluate(f->trainer, f->test, f->options, sums, sums + n, &f->waited, f));
    clt_fit_test_means(session, sums, progress);
    return CLT_OK;
}

clt_status clt_fit_end_epoch(clt_fit_run *f, int64_t epoch)
{
    clt_progress progress = {.step = f->trainer->steps,
                             .epoch = epoch + 1,
                             .total_steps = f->total_steps,
                             .loss_scale = f->loss_scale,
                             .skipped = f->skipped,
                             .test_loss = NAN,
                             .test_metric = NAN};
    double *means = NULL;
    const clt_status status = f->test ? evaluate_epoch(f, &progress, &means) : CLT_OK;
    if (status != CLT_OK) {
        clt_free(means);
        return status;
    }
    progress.seconds = clt_clock() - f->began;
    progress.wait_seconds = clt_fit_waited(f);
    clt_fit_report_epoch(f, &progress);
    clt_free(means);
    f->reported = clt_clock();
    /* The save of the last epoch is part of the run's result, so clt_fit does it. */
    if (f->options->checkpoint_every < 0 && f->trainer->steps < f->total_steps)
        clt_fit_save_on_the_way(f);
    return CLT_OK;
}

clt_status clt_evaluate(clt_trainer *trainer, clt_dataset *dataset, const clt_fit_options *options,
                        double *sums, double *weights)
{
    double waited = 0;
    CLT_TRY(clt_store_check_devices(trainer->store));
    return evaluate(trainer, dataset, options, sums, weights, &waited, NULL);
}
