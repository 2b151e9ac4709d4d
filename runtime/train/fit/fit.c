/* Runs the loop over epochs and steps. */
#include <cltrain/fit.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "train/core/use.h"
#include "train/fit/fit.h"
#include "train/ranks/world.h"
#include "train/setup/remains.h"
#include "train/step/shards.h"
#include "train/store/rest.h"

CLT_STRUCT_INIT(clt_fit_options, .epochs = 1, .seed = -1, .shuffle = 1, .ignore_index = INT64_MIN,
                .keep = 3, .queued_steps = 2)

clt_status clt_fit_options_check(const clt_fit_options *o, const clt_trainer *t)
{
    if (!o)
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_fit_options is NULL: clt_fit_options_init sets "
                                              "the defaults");
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_fit_options));
    if (o->n_splits && !t->options.rebalance)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.splits changes the division of batches: the trainer needs "
                        "clt_trainer_options.rebalance");
    if (o->epochs < 0 || o->steps < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "%lld epochs and %lld steps: neither may be negative",
                        (long long)o->epochs, (long long)o->steps);
    if (o->schedule_batch < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.schedule_batch %lld: must not be negative",
                        (long long)o->schedule_batch);
    if (o->batch < 0 || o->batch > t->options.batch)
        return clt_fail(CLT_INVALID_ARGUMENT, "batch %lld; the trainer was made for 1 to %lld",
                        (long long)o->batch, (long long)t->options.batch);
    if (o->queued_steps < 2 || o->queued_steps > CLT_MOST_QUEUED)
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_fit_options.queued_steps %d: must be 2 to %d",
                        o->queued_steps, CLT_MOST_QUEUED);
    if (o->keep < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.keep %lld: must not be negative; 0 keeps all checkpoints",
                        (long long)o->keep);
    if (o->checkpoint_every < -1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.checkpoint_every %lld: must be a number of steps, 0, or "
                        "-1 for each epoch",
                        (long long)o->checkpoint_every);
    return clt_policies_check(o);
}

clt_status clt_fit_refuse_hooks(const clt_fit_options *o, const char *what)
{
    return o->on_step_begin || o->on_gradients
               ? clt_fail(CLT_UNSUPPORTED, "%s does not call clt_fit_options.%s: leave it NULL",
                          what, o->on_step_begin ? "on_step_begin" : "on_gradients")
               : CLT_OK;
}

/* Calls a hook of the step that begins. */
static void call_hook(clt_fit_run *f, const char *name,
                      int (*hook)(void *user, clt_trainer *trainer, const clt_progress *progress))
{
    clt_trainer *t = f->trainer;
    const int64_t at = t->schedule_step < 0 ? f->tried.step : t->schedule_step;
    const clt_progress progress = {.step = f->tried.step + 1,
                                   .epoch = f->tried.epoch + 1,
                                   .samples = f->tried.samples,
                                   .total_steps = f->total_steps,
                                   .loss = NAN,
                                   .norm = NAN,
                                   .lr = clt_schedule_rate(&t->options.schedule, t->options.lr, at),
                                   .loss_scale = f->loss_scale,
                                   .skipped = f->skipped,
                                   .seconds = clt_clock() - f->began,
                                   .wait_seconds = clt_fit_waited(f),
                                   .test_loss = NAN,
                                   .test_metric = NAN};
    t->within = name;
    if (hook(f->options->user, t, &progress))
        f->hook_stop = true;
    t->within = NULL;
}

/* Makes a step. With a hook it has two calls, also on a rank that has no samples for it. */
static clt_status make_step(clt_fit_run *f, const clt_step_batch *batch, bool hooks)
{
    clt_trainer *t = f->trainer;
    if (!f->options->on_gradients)
        return clt_trainer_step(t, batch, NULL);
    CLT_TRY(clt_trainer_gradients(t, batch));
    if (hooks)
        call_hook(f, "on_gradients", f->options->on_gradients);
    return clt_trainer_apply(t, NULL);
}

/* Called after all ranks have dropped a step. Each rank learns of the failure, its own or
 * another's. */
static clt_status drop(clt_fit_run *f, clt_status failure)
{
    f->dropped = true;
    const clt_status status = clt_world_agree(&f->trainer->all, failure);
    return status == CLT_OK ? CLT_ABORTED : status;
}

/* Handles that this rank could not read its samples. The other ranks are already in the step and
 * wait for this rank. It takes part without samples and votes to drop the step, so that the step
 * changes nothing. */
static clt_status drop_step(clt_fit_run *f, clt_status failure)
{
    clt_trainer *t = f->trainer;
    clt_step_batch none;
    char message[1024];
    /* One rank, no step to save, or other ranks need this one's samples. */
    if (t->all.ranks == 1 || t->steps == f->first_step || clt_participants_have_axes(&t->all))
        return failure;
    snprintf(message, sizeof message, "%s", clt_error_message());
    clt_source_none(f->source, f->batch, &none);
    t->exchange.vote |= CLT_VOTE_DROP;
    make_step(f, &none, false);
    clt_error_restore(message);
    return t->exchange.votes & CLT_VOTE_DROP ? drop(f, failure) : failure;
}

/* Enqueues one step, then reports earlier ones. */
static clt_status one_step(clt_fit_run *f)
{
    clt_source_batch batch;
    const clt_position start = f->position;
    const int64_t step = f->trainer->steps;
    f->between = true;
    const clt_status read = clt_source_next(f->source, &batch);
    if (read == CLT_STOPPED) /* all ranks wait for samples, and one stops */
        return read;
    if (read != CLT_OK)
        return drop_step(f, read);
    f->between = false;
    f->tried = (clt_fit_pending){batch.slot, step, batch.epoch, batch.step.total, start, f->split};
    f->after = (clt_position){batch.next_epoch, batch.next_sample};
    f->tried_due = clt_fit_due(f, step + 1, batch.epoch, batch.last_of_epoch);
    f->trainer->schedule_step = clt_fit_schedule_step(f, start);
    if (f->options->on_step_begin)
        call_hook(f, "on_step_begin", f->options->on_step_begin);
    const clt_status stepped = make_step(f, &batch.step, true);
    if (stepped == CLT_ABORTED && f->trainer->exchange.votes & CLT_VOTE_DROP)
        return drop(f, CLT_OK);
    CLT_TRY(stepped);
    f->split = false;
    f->position = f->after;
    f->due = f->tried_due;
    const clt_status status = clt_fit_queue_add(f, &f->tried);
    if (status == CLT_OK && f->balance) /* before an evaluation distorts the measured times */
        return clt_balance_step(f->balance, &f->trainer->all, &f->trainer->shares,
                                &f->trainer->exchange, f->trainer->options.batch,
                                f->trainer->call.batch.total, &f->rebalance);
    return status;
}

static clt_status after_step(clt_fit_run *f)
{
    if (f->due >= 0) {
        CLT_TRY(clt_fit_finish_all(f));
        f->between = f->evaluating = true;
        CLT_TRY(clt_fit_evaluate(f, f->due));
        f->between = f->evaluating = false;
        f->due = -1;
    }
    const int64_t every = f->options->checkpoint_every;
    if (every > 0 && f->trainer->steps % every == 0 && f->trainer->steps < f->total_steps &&
        f->trainer->steps != f->saved_step) {
        CLT_TRY(clt_fit_finish_all(f));
        clt_fit_save_on_the_way(f);
    }
    return CLT_OK;
}

static void drop_source(clt_fit_run *f)
{
    f->waited = clt_fit_waited(f);
    clt_source_destroy(f->source);
    f->source = NULL;
}

/* Changes the division. Batches that are already assembled are dropped, so the last step must be
 * reported and its inputs free. */
static clt_status change_split(clt_fit_run *f, const double *weights, int64_t quantum)
{
    clt_trainer *t = f->trainer;
    CLT_TRY(clt_fit_finish_all(f));
    CLT_TRY(clt_trainer_wait(t));
    CLT_TRY(clt_trainer_set_weights(t, weights, quantum));
    f->split = true;
    drop_source(f);
    return clt_fit_make_source(f);
}

/* Sets the division of the next step. */
static clt_status divide(clt_fit_run *f)
{
    const clt_fit_options *o = f->options;
    const int64_t step = f->trainer->steps + 1;
    const clt_split_change *last = NULL;
    for (; f->next_split < o->n_splits && o->splits[f->next_split].step <= step; f->next_split++)
        last = &o->splits[f->next_split];
    if (last)
        return change_split(f, last->weights, last->quantum);
    const bool change = f->rebalance;
    f->rebalance = false;
    return change ? change_split(f, f->balance->weights, f->balance->quantum) : CLT_OK;
}

/* Continues without a failed device of any rank, if other devices remain. Otherwise returns the
 * run's failure. */
static clt_status recover(clt_fit_run *f, clt_status failure)
{
    clt_trainer *t = f->trainer;
    int redo;
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    f->lost = atomic_load(&t->lost) >= 0 ||
              (t->all.ranks > 1 && (failure == CLT_ABORTED || failure == CLT_TIMEOUT));
    if (!clt_lost_one_of_several(t))
        return clt_lost_explain(t, failure, message);
    /* The results of the last steps can often still be read. */
    for (int i = 0; i < f->n_queue; i++)
        if (clt_fit_finish(f, &f->queue[i]) != CLT_OK)
            clt_fit_report_unknown(f, &f->queue[i]);
    f->n_queue = 0;
    clt_trainer_wait(t); /* ends transfers from the loader's memory */
    drop_source(f);
    clt_error_restore(message);
    /* Ranks that were ahead evaluate once more, together with the ranks that have not evaluated
     * yet. */
    const int64_t due[] = {f->due, f->tried_due};
    CLT_TRY(clt_lost_recover(t, due, &f->due, &redo));
    f->lost = false;
    f->told = clt_clock();
    if (!redo) {
        clt_fit_report_unknown(f, &f->tried);
        f->position = f->after;
    }
    if (clt_fit_is_idle(f))
        return CLT_OK;
    f->next_split = f->options->n_splits; /* the splits were among other devices */
    CLT_TRY(clt_fit_make_balance(f));
    return clt_fit_make_source(f);
}

/* Returns true if the run stops after the step that was enqueued last. Ranks send their wish with
 * their gradients, before the next step, so that all stop after the same step. */
static bool stops(const clt_fit_run *f)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    const bool now_stop =
        (o->should_stop && o->should_stop(o->user)) || f->idle_stop || f->hook_stop;
    if (t->all.ranks == 1)
        return now_stop;
    t->exchange.vote =
        (now_stop ? CLT_VOTE_STOP : 0) | (clt_fit_should_tell(f) ? CLT_VOTE_TELL : 0);
    return (t->exchange.votes & CLT_VOTE_STOP) != 0;
}

static clt_status stop(clt_fit_run *f)
{
    CLT_TRY(clt_fit_finish_all(f));
    CLT_TRY(clt_world_agree(&f->trainer->all, clt_fit_save(f)));
    return clt_fail(CLT_STOPPED, "stopped after step %lld", (long long)f->trainer->steps);
}

/* Idle ranks are told after a step that all other ranks know of. */
static clt_status tell_idle(clt_fit_run *f)
{
    const clt_trainer *t = f->trainer;
    const bool due =
        t->all.ranks == 1 ? clt_fit_should_tell(f) : (t->exchange.votes & CLT_VOTE_TELL) != 0;
    return due ? clt_fit_tell(f) : CLT_OK;
}

static clt_status run(clt_fit_run *f)
{
    clt_status status = CLT_OK;
    for (;;) {
        /* After the loss of a device, the end of an epoch may be due without another step. */
        const bool ended = f->trainer->steps >= f->total_steps;
        if (f->due < 0 && !ended)
            status = divide(f);
        if (status == CLT_OK && f->due < 0 && !ended)
            status = one_step(f);
        CLT_NEXT(status, after_step(f));
        CLT_NEXT(status, tell_idle(f));
        if (status == CLT_OK && ended)
            status = clt_fit_finish_all(f);
        if (status == CLT_OK && ended && f->due < 0)
            return clt_trainer_wait(f->trainer);
        if (status == CLT_STOPPED || (status == CLT_OK && stops(f)))
            return stop(f);
        if (status != CLT_OK && f->dropped)
            return status;
        if (status != CLT_OK)
            CLT_TRY(recover(f, status));
        if (clt_fit_is_idle(f))
            return clt_fit_wait_idle(f);
        status = CLT_OK;
    }
}

/* Cleans up after a failure. Transfers from the loader's memory must end before it is freed. The
 * guard kept the weights of the last good step; later steps are dropped and these weights are
 * saved. The last step is also saved if samples cannot be read. Other ranks may then be in the next
 * step: all drop it, save, and wait until the checkpoint is written. */
static void after_failure(clt_fit_run *f, clt_status status)
{
    char message[1024];
    strncpy(message, clt_error_message(), sizeof message - 1);
    message[sizeof message - 1] = '\0';
    f->failing = true;
    if (clt_fit_is_idle(f)) {
        clt_heartbeat_failed(f->trainer->exchange.beat, status, message);
        return;
    }
    /* The other ranks wait for this rank's gradients, unless all stop together. */
    if (f->trainer->all.ranks > 1 && status != CLT_NONFINITE && status != CLT_STOPPED &&
        !f->dropped)
        f->trainer->exchange.collectives.stop(f->trainer->exchange.collectives.self, status,
                                              message);
    if (status != CLT_STOPPED)
        clt_heartbeat_failed(f->trainer->exchange.beat, status, message);
    const bool idle = clt_trainer_wait(f->trainer) == CLT_OK;
    /* In an evaluation all ranks have the last step's weights, and rank 0 saves them if it has all
     * of them. */
    const bool alone =
        f->trainer->all.ranks == 1 || (f->evaluating && !clt_shards_together(f->trainer));
    const bool read = f->between && alone && f->trainer->steps > f->first_step;
    bool good = idle && (read || f->dropped);
    if (good && clt_fit_finish_all(f) != CLT_OK)
        good = false;
    if (status == CLT_NONFINITE && f->n_queue) {
        clt_trainer_set_steps(f->trainer, f->queue[0].step);
        f->position = f->queue[0].start;
        good = true;
    }
    /* Where all ranks save together, they do so only if all can. */
    if (f->dropped && clt_shards_together(f->trainer))
        good = clt_world_agree(&f->trainer->all, good ? CLT_OK : CLT_ABORTED) == CLT_OK;
    clt_status saved = good ? clt_fit_save(f) : CLT_OK;
    if (f->dropped)
        saved = clt_world_agree(&f->trainer->all, saved);
    if (saved != CLT_OK)
        clt_log(CLT_LOG_WARN, "the last good step is not saved: %s", clt_error_message());
    clt_error_restore(message);
}

/* The message names a sample of the batch. Adds which sample of the data set that is. */
static void name_sample(const clt_fit_run *f)
{
    const clt_trainer *t = f->trainer;
    const clt_fit_pending *p = clt_fit_queued(f, t->bad_step);
    if (!p && f->tried.step == t->bad_step)
        p = &f->tried;
    int64_t index;
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (!p || t->bad_sample < 0)
        return;
    const int64_t number = clt_source_number(f->source, p->slot, t->bad_sample);
    if (clt_dataset_kind(f->train) == CLT_DATA_RESERVOIR) {
        if (number)
            clt_fail(CLT_NONFINITE, "%s; the sample is number %lld that was pushed into %s",
                     message, (long long)number, clt_dataset_name(f->train));
        return;
    }
    clt_order order;
    clt_order_of(&order, f->train, f->seed, p->start.epoch, f->options->shuffle != 0);
    clt_order_fill(&order, p->start.sample + t->bad_sample, 1, &index);
    clt_fail(CLT_NONFINITE, "%s; the sample is number %lld of data set %s", message,
             (long long)clt_dataset_number(f->train, index), clt_dataset_name(f->train));
}

/* The run ended with a device or a rank. Adds to the message from where it can go on, and which
 * axes need all ranks. */
static void name_checkpoint(const clt_fit_run *f, clt_status status)
{
    const clt_mesh *mesh = &f->trainer->all.mesh;
    const char *dir = f->options->checkpoint_dir;
    clt_step_name *names = NULL;
    int count = 0;
    char message[1024], axes[64] = "", needs[160] = "";
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (status == CLT_TIMEOUT)
        clt_remains_axes(mesh, false, axes);
    if (*axes)
        snprintf(needs, sizeof needs,
                 "; the model is divided along %s of the mesh, which needs all ranks", axes);
    if (!dir)
        clt_fail(status, "%s%s; this run has no checkpoint to resume from", message, needs);
    else if (clt_folder_list(dir, &names, &count) != CLT_OK || !count)
        clt_fail(status, "%s%s; there is no checkpoint in %s to resume from", message, needs, dir);
    else
        clt_fail(status, "%s%s; resume from the last checkpoint, %s/%s", message, needs, dir,
                 names[0].text);
    clt_free(names);
}

static void end(clt_fit_run *f, bool reached)
{
    clt_balance_free(f->balance);
    clt_source_destroy(f->source);
    clt_folder_lock_release(f->lock);
    clt_free(f->news);
    clt_policies_end(f, reached);
    f->trainer->may_idle = false;
    f->trainer->queued = 2;
}

static clt_status fit(clt_trainer *trainer, clt_dataset *train, clt_dataset *test,
                      const clt_fit_options *options)
{
    CLT_TRY(clt_step_may_begin(trainer));
    CLT_TRY(clt_store_check_devices(trainer->store));
    CLT_TRY(clt_rest_check(trainer->store->rest));
    clt_fit_run f = {.trainer = trainer,
                     .train = train,
                     .test = test,
                     .options = options,
                     .batch = options->batch ? options->batch : trainer->options.batch,
                     .seed = options->seed < 0 ? 0 : options->seed,
                     .due = -1,
                     .saved_step = -1,
                     .began = clt_clock(),
                     .reported = clt_clock()};
    clt_fit_queue_begin(&f);
    clt_dataset *const reservoir = trainer->reservoir;
    clt_status status = clt_fit_begin(&f, train);
    if (status != CLT_OK) {
        trainer->reservoir = reservoir;
        clt_heartbeat_failed(trainer->exchange.beat, status, clt_error_message());
        end(&f, false);
        return status;
    }
    f.first_step = trainer->steps;
    trainer->may_idle = true;
    trainer->queued = f.source ? clt_source_queue(f.source) : 2;
    status = run(&f);
    /* Save at the end, and after a failure that left the weights of the last good step. */
    if (!clt_fit_is_idle(&f))
        CLT_NEXT(status, clt_world_agree(&trainer->all, clt_fit_save(&f)));
    if (status == CLT_NONFINITE)
        name_sample(&f);
    if (status != CLT_OK)
        after_failure(&f, status);
    if (f.lost)
        name_checkpoint(&f, status);
    clt_fit_end_idle(&f, status);
    trainer->reservoir = reservoir;
    end(&f, status == CLT_OK && !clt_fit_is_idle(&f));
    return status;
}

clt_status clt_fit(clt_trainer *trainer, clt_dataset *train, clt_dataset *test,
                   const clt_fit_options *options)
{
    CLT_TRY(clt_fit_options_check(options, trainer));
    const clt_use use = {trainer, {train, test, options->validation}};
    clt_use_begin(&use);
    return clt_use_end(&use, fit(trainer, train, test, options));
}
