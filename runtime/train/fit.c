/* The loop over epochs and steps. */
#include <cltrain/fit.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "train/planner/balance.h"
#include "train/source.h"
#include "train/trainer.h"
#include "train/world.h"

void clt_fit_options_init(clt_fit_options *options)
{
    *options = (clt_fit_options){.struct_size = sizeof *options,
                                 .epochs = 1,
                                 .seed = -1,
                                 .shuffle = 1,
                                 .ignore_index = INT64_MIN,
                                 .keep = 3};
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A step that was enqueued. */
typedef struct pending {
    int slot; /* of the loader; -1: none */
    int64_t step, epoch;
    int64_t samples;
    clt_position start;
    bool split; /* it has another division of the batch than the step before */
} pending;

/* A run of clt_fit. */
typedef struct fit {
    clt_trainer *trainer;
    clt_dataset *train, *test;
    const clt_fit_options *options;
    clt_source *source;
    int64_t batch, seed;
    int64_t total_steps;
    clt_position position; /* where the next batch starts */
    double began, reported;
    pending last;       /* enqueued and not reported yet */
    pending tried;      /* the last one that was begun */
    clt_position after; /* where the batch after it starts */
    int64_t tried_due;  /* epoch_due, once it is done */
    int64_t epoch_due;  /* the epoch whose end is to be reported; -1: none */
    double epoch_loss;
    int64_t epoch_samples;
    clt_balance *balance; /* NULL: the division stays, or changes as options->splits say */
    int next_split;       /* of those */
    bool split;           /* the next step has another division than the one before */
    double waited;        /* for sources that are gone */
} fit;

static clt_status check(const clt_fit_options *o, const clt_trainer *t)
{
    if (o->struct_size != sizeof *o)
        return clt_fail(CLT_INVALID_ARGUMENT, "fit options were not set up by "
                                              "clt_fit_options_init");
    if (o->n_splits && !t->options.rebalance)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "changes of the division need clt_trainer_options.rebalance");
    if (o->epochs < 0 || o->steps < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "a run of %lld epochs and %lld steps is not possible",
                        (long long)o->epochs, (long long)o->steps);
    if (o->batch < 0 || o->batch > t->options.batch)
        return clt_fail(CLT_INVALID_ARGUMENT, "batch %lld; the trainer was made for 1 to %lld",
                        (long long)o->batch, (long long)t->options.batch);
    return CLT_OK;
}

static double waited(const fit *f)
{
    return f->waited + (f->source ? clt_source_waited(f->source) : 0);
}

static void report(fit *f, const pending *p, const clt_step_result *result)
{
    const double at = now();
    const clt_trainer *t = f->trainer;
    const double *split = p->split && t->ranks == 1 ? t->shares : NULL;
    if (isfinite(result->loss)) {
        f->epoch_loss += result->loss * (double)result->samples;
        f->epoch_samples += result->samples;
    }
    const clt_progress progress = {.step = p->step + 1,
                                   .epoch = p->epoch + 1,
                                   .samples = result->samples,
                                   .total_steps = f->total_steps,
                                   .loss = result->loss,
                                   .norm = result->norm,
                                   .lr = result->lr,
                                   .seconds = at - f->began,
                                   .step_seconds = at - f->reported,
                                   .wait_seconds = waited(f),
                                   .test_loss = NAN,
                                   .test_metric = NAN,
                                   .split = split,
                                   .n_split = split ? t->n_devices : 0,
                                   .quantum = split ? t->options.quantum : 0};
    f->reported = at;
    if (f->options->on_step)
        f->options->on_step(f->options->user, &progress);
}

/* Reads a step's results, reports them, and gives its inputs back. */
static clt_status finish(fit *f, const pending *p)
{
    clt_step_result result;
    if (p->slot < 0)
        return CLT_OK;
    CLT_TRY(clt_trainer_result(f->trainer, p->step, &result));
    CLT_TRY(clt_source_release(f->source, p->slot));
    report(f, p, &result);
    return CLT_OK;
}

static clt_status finish_last(fit *f)
{
    CLT_TRY(finish(f, &f->last));
    f->last.slot = -1;
    return CLT_OK;
}

static clt_status save(fit *f)
{
    const clt_fit_options *o = f->options;
    clt_heartbeat_state_is(f->trainer->beat, CLT_HEARTBEAT_SAVING);
    if (o->checkpoint_dir && o->on_checkpoint)
        o->on_checkpoint(o->user);
    return o->checkpoint_dir ? clt_trainer_save(f->trainer, o->checkpoint_dir, f->position,
                                                f->batch, f->seed, o->keep, o->model)
                             : CLT_OK;
}

/* A save in the middle of the run. A full disk does not cost the training: it goes on, and the
 * next save may succeed. */
static void save_on_the_way(fit *f)
{
    if (save(f) != CLT_OK)
        clt_log(CLT_LOG_WARN, "no checkpoint of step %lld, training goes on: %s",
                (long long)f->trainer->steps, clt_error_message());
}

static clt_status end_epoch(fit *f, int64_t epoch)
{
    clt_progress progress = {.step = f->trainer->steps,
                             .epoch = epoch + 1,
                             .samples = f->epoch_samples,
                             .total_steps = f->total_steps,
                             .loss =
                                 f->epoch_samples ? f->epoch_loss / (double)f->epoch_samples : NAN,
                             .test_loss = NAN,
                             .test_metric = NAN};
    if (f->test) {
        const clt_session *session = f->trainer->evaluation;
        double *sums = clt_calloc(2 * (size_t)session->n_means + 1, sizeof *sums);
        if (!sums)
            return CLT_OUT_OF_MEMORY;
        double *weights = sums + session->n_means;
        clt_status status = clt_evaluate(f->trainer, f->test, f->options, sums, weights);
        progress.test_loss = 0;
        for (int l = 0; l < session->n_losses; l++)
            if (weights[l] > 0)
                progress.test_loss += session->coefficients[l] * sums[l] / weights[l];
        if (session->n_means > session->n_losses && weights[session->n_losses] > 0)
            progress.test_metric = sums[session->n_losses] / weights[session->n_losses];
        clt_free(sums);
        CLT_TRY(status);
    }
    progress.seconds = now() - f->began;
    progress.wait_seconds = waited(f);
    f->epoch_loss = 0;
    f->epoch_samples = 0;
    if (f->options->on_epoch)
        f->options->on_epoch(f->options->user, &progress);
    f->reported = now();
    /* The last one's success is the run's: clt_fit saves it. */
    if (f->options->checkpoint_every < 0 && f->trainer->steps < f->total_steps)
        save_on_the_way(f);
    return CLT_OK;
}

/* One step: enqueue it, then report the one before. */
static clt_status one_step(fit *f)
{
    clt_source_batch batch;
    const pending before = f->last;
    const clt_position start = f->position;
    const int64_t step = f->trainer->steps;
    CLT_TRY(clt_source_next(f->source, &batch));
    f->tried = (pending){batch.slot, step, batch.epoch, batch.step.total, start, f->split};
    f->after = (clt_position){batch.next_epoch, batch.next_sample};
    f->tried_due = batch.last_of_epoch ? batch.epoch : -1;
    CLT_TRY(clt_trainer_step(f->trainer, &batch.step, NULL));
    f->split = false;
    f->last = f->tried;
    f->position = f->after;
    f->epoch_due = f->tried_due;
    const clt_status status = finish(f, &before);
    if (status == CLT_NONFINITE) /* the guard stopped there */
        f->last = before;
    return status;
}

static clt_status after_step(fit *f)
{
    if (f->epoch_due >= 0) {
        CLT_TRY(finish_last(f));
        CLT_TRY(end_epoch(f, f->epoch_due));
        f->epoch_due = -1;
    }
    const int64_t every = f->options->checkpoint_every;
    if (every > 0 && f->trainer->steps % every == 0 && f->trainer->steps < f->total_steps) {
        CLT_TRY(finish_last(f));
        save_on_the_way(f);
    }
    return CLT_OK;
}

static clt_status make_source(fit *f)
{
    return clt_source_create(f->trainer, f->trainer->training, f->train, f->options, f->batch,
                             f->seed, f->position, 0, &f->source);
}

static clt_status make_balance(fit *f)
{
    const clt_trainer *t = f->trainer;
    clt_balance_free(f->balance);
    f->balance = NULL;
    f->split = t->shares != NULL;
    return t->options.rebalance && !f->options->splits
               ? clt_balance_create(t, f->batch, &f->balance)
               : CLT_OK;
}

static void drop_source(fit *f)
{
    f->waited = waited(f);
    clt_source_destroy(f->source);
    f->source = NULL;
}

/* The step before the change is reported, and its inputs are not needed any more, before the
 * batches that are assembled already go. */
static clt_status change_split(fit *f, const double *weights, int64_t quantum)
{
    clt_trainer *t = f->trainer;
    CLT_TRY(finish_last(f));
    CLT_TRY(clt_trainer_wait(t));
    CLT_TRY(clt_trainer_set_weights(t, weights, quantum));
    f->split = true;
    drop_source(f);
    return make_source(f);
}

/* Before a step: the division that it is to have. */
static clt_status divide(fit *f)
{
    const clt_fit_options *o = f->options;
    const int64_t step = f->trainer->steps + 1;
    const clt_split_change *last = NULL;
    for (; f->next_split < o->n_splits && o->splits[f->next_split].step <= step; f->next_split++)
        last = &o->splits[f->next_split];
    if (last)
        return change_split(f, last->weights, last->quantum);
    bool change = false;
    if (f->balance && f->last.slot >= 0)
        CLT_TRY(clt_balance_step(f->balance, f->trainer, &change));
    return change ? change_split(f, f->balance->weights, f->balance->quantum) : CLT_OK;
}

/* A step whose results went with a device. */
static void report_unknown(fit *f, const pending *p)
{
    const clt_trainer_options *o = &f->trainer->options;
    const clt_step_result unknown = {.loss = NAN,
                                     .norm = NAN,
                                     .samples = p->samples,
                                     .lr = clt_schedule_rate(&o->schedule, o->lr, p->step)};
    report(f, p, &unknown);
}

/* A device that failed is left behind, where others remain; else this is the run's failure. */
static clt_status recover(fit *f, clt_status failure)
{
    clt_trainer *t = f->trainer;
    int redo;
    char message[1024];
    if (!clt_lost_one_of_several(t))
        return failure;
    snprintf(message, sizeof message, "%s", clt_error_message());
    /* What the last step gave can often still be read. */
    if (f->last.slot >= 0 && finish(f, &f->last) != CLT_OK)
        report_unknown(f, &f->last);
    f->last.slot = -1;
    clt_trainer_wait(t); /* transfers from the loader's memory end */
    drop_source(f);
    clt_error_restore(message);
    CLT_TRY(clt_trainer_recover(t, &redo));
    f->next_split = f->options->n_splits; /* those were among other devices */
    CLT_TRY(make_balance(f));
    if (!redo) {
        report_unknown(f, &f->tried);
        f->position = f->after;
        f->epoch_due = f->tried_due;
    }
    return make_source(f);
}

/* Whether to stop after the step that was enqueued last. Ranks say it with their gradients, before
 * the next step, so that all of them stop after the same one. */
static bool stops(const fit *f)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    const bool now_stop = o->should_stop && o->should_stop(o->user);
    if (t->ranks == 1)
        return now_stop;
    t->vote = now_stop ? CLT_VOTE_STOP : 0;
    return (t->votes & CLT_VOTE_STOP) != 0;
}

static clt_status stop(fit *f)
{
    CLT_TRY(finish_last(f));
    CLT_TRY(clt_world_agree(f->trainer, save(f)));
    return clt_fail(CLT_STOPPED, "stopped after step %lld", (long long)f->trainer->steps);
}

static clt_status run(fit *f)
{
    clt_status status = CLT_OK;
    for (;;) {
        /* After a device was lost, an epoch's end may be due without another step. */
        const bool ended = f->trainer->steps >= f->total_steps;
        if (f->epoch_due < 0 && !ended)
            status = divide(f);
        if (status == CLT_OK && f->epoch_due < 0 && !ended)
            status = one_step(f);
        if (status == CLT_OK)
            status = after_step(f);
        if (status == CLT_OK && ended)
            status = finish_last(f);
        if (status == CLT_OK && ended && f->epoch_due < 0)
            return clt_trainer_wait(f->trainer);
        if (status == CLT_OK && stops(f))
            return stop(f);
        if (status != CLT_OK)
            CLT_TRY(recover(f, status));
        status = CLT_OK;
    }
}

/* Not the name, since files may move. */
static void describe_data(clt_trainer *t, const clt_dataset *train, const clt_fit_options *o)
{
    int used = snprintf(t->reads, sizeof t->reads, "%lld samples, %s",
                        (long long)clt_dataset_count(train), o->shuffle ? "shuffled" : "in order");
    for (int c = 0; c < o->channels && used > 0 && used < (int)sizeof t->reads; c++)
        used += snprintf(t->reads + used, sizeof t->reads - (size_t)used,
                         ", channel %d less %.9g by %.9g", c, o->mean[c], o->std[c]);
}

static clt_status resume(fit *f)
{
    if (!f->options->resume || !f->options->checkpoint_dir || f->trainer->rank)
        return CLT_OK;
    int64_t seed;
    clt_status status =
        clt_trainer_restore(f->trainer, f->options->checkpoint_dir, &f->position, &seed);
    /* A folder without any checkpoint is where a first run begins. */
    if (status == CLT_NOT_FOUND)
        return CLT_OK;
    CLT_TRY(status);
    if (f->options->seed >= 0 && f->options->seed != seed)
        return clt_fail(CLT_MISMATCH,
                        "the checkpoints in %s are of a run with seed %lld, not %lld: leave the "
                        "seed out to go on with it",
                        f->options->checkpoint_dir, (long long)seed, (long long)f->options->seed);
    f->seed = seed;
    return CLT_OK;
}

static uint64_t add_number(uint64_t hash, int64_t number)
{
    return clt_hash(&number, sizeof number, hash);
}

/* All ranks begin where rank 0 does, on the same data. */
static clt_status begin_together(fit *f, const clt_dataset *train)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    CLT_TRY(clt_world_agree(t, resume(f)));
    if (t->ranks == 1)
        return CLT_OK;
    uint64_t hash = clt_hash_text(t->reads, 0);
    hash = add_number(hash, clt_dataset_count(train));
    hash = add_number(hash, f->test ? clt_dataset_count(f->test) : 0);
    hash = add_number(hash, f->batch);
    hash = add_number(hash, o->epochs);
    hash = add_number(hash, o->steps);
    hash = add_number(hash, o->seed);
    hash = add_number(hash, o->checkpoint_dir ? o->checkpoint_every : 0);
    CLT_TRY(clt_world_compare(t, hash, "run (data, normalisation, batch, length or seed)"));
    int64_t begin[] = {f->position.epoch, f->position.sample, f->seed};
    CLT_TRY(clt_world_tell(t, 0, begin, sizeof begin));
    f->position = (clt_position){begin[0], begin[1]};
    f->seed = begin[2];
    t->vote = t->votes = 0;
    return clt_trainer_broadcast(t, 0);
}

static clt_status begin(fit *f, clt_dataset *train)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    describe_data(t, train, o);
    CLT_TRY(begin_together(f, train));
    const int64_t per_epoch = (clt_dataset_count(train) + f->batch - 1) / f->batch;
    f->total_steps = o->steps ? o->steps : o->epochs * per_epoch;
    CLT_TRY(make_balance(f));
    return clt_world_agree(t, make_source(f));
}

/* Transfers from the loader's memory must have ended before it is freed. The guard kept the weights
 * of the last good step: what comes after it is forgotten, and it is saved. */
static void after_failure(fit *f, clt_status status)
{
    char message[1024];
    strncpy(message, clt_error_message(), sizeof message - 1);
    message[sizeof message - 1] = '\0';
    /* The other ranks wait for this one's gradients; where all stop together they do not. */
    if (f->trainer->ranks > 1 && status != CLT_NONFINITE && status != CLT_STOPPED)
        f->trainer->collectives.stop(f->trainer->collectives.self, status, message);
    if (status != CLT_STOPPED)
        clt_heartbeat_failed(f->trainer->beat, status, message);
    clt_trainer_wait(f->trainer);
    if (status == CLT_NONFINITE && f->last.slot >= 0) {
        clt_trainer_set_steps(f->trainer, f->last.step);
        f->position = f->last.start;
        if (save(f) != CLT_OK)
            clt_log(CLT_LOG_WARN, "the last good step is not saved: %s", clt_error_message());
    }
    clt_error_restore(message);
}

clt_status clt_fit(clt_trainer *trainer, clt_dataset *train, clt_dataset *test,
                   const clt_fit_options *options)
{
    CLT_TRY(check(options, trainer));
    fit f = {.trainer = trainer,
             .train = train,
             .test = test,
             .options = options,
             .batch = options->batch ? options->batch : trainer->options.batch,
             .seed = options->seed < 0 ? 0 : options->seed,
             .last = {.slot = -1},
             .epoch_due = -1,
             .began = now(),
             .reported = now()};
    clt_status status = begin(&f, train);
    if (status != CLT_OK) {
        clt_heartbeat_failed(trainer->beat, status, clt_error_message());
        clt_balance_free(f.balance);
        clt_source_destroy(f.source);
        return status;
    }
    status = run(&f);
    /* At the end, and after a failure that left the weights of the last good step. */
    if (status == CLT_OK)
        status = clt_world_agree(trainer, save(&f));
    if (status != CLT_OK)
        after_failure(&f, status);
    clt_balance_free(f.balance);
    clt_source_destroy(f.source);
    return status;
}

clt_status clt_evaluate(clt_trainer *trainer, clt_dataset *dataset, const clt_fit_options *options,
                        double *sums, double *weights)
{
    clt_fit_options own = *options;
    own.shuffle = 0;
    clt_source *source;
    CLT_TRY(clt_source_create(trainer, trainer->evaluation, dataset, &own, trainer->options.batch,
                              0, (clt_position){0, 0}, 1, &source));
    clt_status status = CLT_OK;
    const size_t bytes = (size_t)trainer->evaluation->n_means * sizeof *sums;
    memset(sums, 0, bytes);
    memset(weights, 0, bytes);
    for (;;) {
        clt_source_batch batch;
        CLT_TRY_GOTO(status, clt_source_next(source, &batch), done);
        if (batch.slot < 0)
            break;
        clt_heartbeat_state_is(trainer->beat, CLT_HEARTBEAT_EVALUATING);
        CLT_TRY_GOTO(status, clt_trainer_evaluate(trainer, &batch.step, sums, weights), done);
        CLT_TRY_GOTO(status, clt_source_release(source, batch.slot), done);
    }
done:
    clt_source_destroy(source);
    return status;
}
