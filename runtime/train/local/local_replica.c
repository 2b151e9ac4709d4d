/* What a replica does on its own thread: steps until the next synchronisation, and its part of an
 * evaluation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "train/fit/length.h"
#include "train/local/run.h"

static clt_trainer *trainer_of(const clt_local_replica *r)
{
    return r->run->local->trainers[r->index];
}

/* Shows that the rank makes progress. Its heartbeat belongs to the trainer of its first replica. */
static void beat(const clt_local_replica *r)
{
    clt_heartbeat_beat(r->run->local->trainers[0]->exchange.beat);
}

static bool claim(void *user, int64_t most, clt_loader_claim *next)
{
    clt_local_replica *r = user;
    return clt_pool_claim(&r->run->pool, r->index, most, next);
}

clt_status clt_local_open_source(clt_local_replica *r)
{
    const clt_local_run *run = r->run;
    clt_trainer *t = trainer_of(r);
    r->position = run->position;
    if (clt_local_by_time(run))
        return clt_source_create_claimed(&t->all, &t->shares, t->training, run->train, run->options,
                                         run->part, run->seed, claim, r, &r->source);
    return clt_source_create(&r->parts, &t->shares, t->training, run->train, run->options,
                             run->batch, run->seed, run->position, 0, &r->source);
}

/* A trainer only knows its own samples. It finds the weights of losses over them itself. */
static void make_own(const clt_local_replica *r, clt_step_batch *batch)
{
    batch->total = batch->count;
    batch->loss_weights = NULL;
    if (clt_local_by_time(r->run)) /* replicas draw different numbers */
        batch->first = (r->run->local->first + r->index) * r->run->part;
}

/* Reads the results of the step that was enqueued, and releases its inputs. */
static clt_status finish(clt_local_replica *r, int slot, int64_t step, int64_t samples)
{
    clt_step_result result;
    clt_step_result_init(&result);
    if (slot < 0)
        return CLT_OK;
    CLT_TRY(clt_trainer_result(trainer_of(r), step, &result));
    CLT_TRY(clt_source_release(r->source, slot));
    if (clt_local_by_time(r->run))
        clt_pool_finish(&r->run->pool, r->index);
    beat(r);
    const double now = clt_clock();
    r->pace = now - r->finished;
    r->finished = now;
    r->samples += samples;
    r->batches++;
    if (isfinite(result.loss)) {
        r->loss += result.loss * (double)samples;
        r->counted += samples;
    }
    if (r->index == 0) {
        r->run->lr = result.lr;
        r->run->loss_scale = result.loss_scale;
        r->run->skipped = result.skipped;
    }
    return CLT_OK;
}

static clt_status finish_last(clt_local_replica *r)
{
    const int slot = r->slot;
    r->slot = -1;
    return finish(r, slot, r->step, r->pending);
}

/* The replica has no sample of the batch, so its parameters stay. The step counts, as it does for
 * all others. */
static clt_status pass_over(clt_local_replica *r, int slot)
{
    clt_trainer *t = trainer_of(r);
    CLT_TRY(finish_last(r));
    CLT_TRY(clt_trainer_wait(t));
    clt_trainer_set_steps(t, t->steps + 1);
    clt_heartbeat_step(t->exchange.beat, t->steps);
    return clt_source_release(r->source, slot);
}

/* Tells the trainer where the schedule is, if it does not count steps of the run. By time a replica
 * knows of its own samples only, and takes the others to be as fast. */
static void set_schedule(const clt_local_replica *r)
{
    const clt_local_run *run = r->run;
    const int64_t samples = clt_dataset_count(run->train);
    clt_position at = r->position;
    if (clt_local_by_time(run)) {
        const int64_t made = (r->batches + (r->slot >= 0)) * run->part * run->local->total;
        at = run->position;
        at.sample = at.sample + made < samples ? at.sample + made : samples - 1;
    }
    trainer_of(r)->schedule_step = clt_fit_schedule_at(run->options, samples, at);
}

/* Enqueues a step, then finishes the step before. *none: the source has no batch at present. */
static clt_status step(clt_local_replica *r, bool *none)
{
    clt_trainer *t = trainer_of(r);
    clt_source_batch batch;
    CLT_TRY(clt_source_next(r->source, &batch));
    *none = batch.slot < 0;
    if (*none)
        return CLT_OK;
    make_own(r, &batch.step);
    set_schedule(r);
    r->position = (clt_position){batch.next_epoch, batch.next_sample};
    r->ended = batch.last_of_epoch ? batch.epoch : r->ended;
    if (!batch.step.count)
        return pass_over(r, batch.slot);
    const int64_t number = t->steps;
    CLT_TRY(clt_trainer_step(t, &batch.step, NULL));
    const int slot = r->slot;
    const int64_t before = r->step, samples = r->pending;
    r->slot = batch.slot;
    r->step = number;
    r->pending = batch.step.count;
    return finish(r, slot, before, samples);
}

/* Whether another step would end after the deadline. One step is always made. */
static bool is_late(const clt_local_replica *r)
{
    const bool pending = r->slot >= 0;
    return (r->batches || pending) && r->finished + (pending ? 2 : 1) * r->pace > r->run->deadline;
}

static bool period_ends(const clt_local_replica *r, int64_t made)
{
    const clt_local_run *run = r->run;
    return atomic_load(&run->failed) || (clt_local_by_time(run) ? is_late(r) : made == run->steps);
}

static clt_status train(clt_local_replica *r)
{
    bool none = false;
    r->finished = clt_clock();
    for (int64_t made = 0; !none && !period_ends(r, made); made++)
        CLT_TRY(step(r, &none));
    CLT_TRY(finish_last(r));
    return clt_trainer_wait(trainer_of(r));
}

/* Says which replica failed. Other replicas of the rank end their period soon. */
static clt_status fails(clt_local_replica *r, clt_status status)
{
    char message[1024];
    clt_trainer *t = trainer_of(r);
    atomic_store(&r->run->failed, true);
    snprintf(message, sizeof message, "%s", clt_error_message());
    for (int d = 0; d < t->all.own; d++) /* transfers from the loader's memory must end */
        clt_device_finish(t->store->replicas[d].device);
    clt_error_restore(message);
    return clt_fail_prefix(status, "replica %d: ", r->run->local->first + r->index);
}

clt_status clt_local_period(void *arg, int i)
{
    clt_local_run *run = arg;
    clt_local_replica *r = &run->replicas[i];
    r->samples = r->counted = r->batches = 0;
    r->loss = 0;
    r->ended = -1;
    const clt_status status = train(r);
    return status == CLT_OK ? CLT_OK : fails(r, status);
}

/* --- evaluation ------------------------------------------------------------------------------ */

static clt_status evaluate(clt_local_replica *r, clt_source *source)
{
    clt_trainer *t = trainer_of(r);
    const int n = t->evaluation->n_means;
    clt_source_batch batch;
    for (;;) {
        CLT_TRY(clt_source_next(source, &batch));
        if (batch.slot < 0)
            return CLT_OK;
        make_own(r, &batch.step);
        beat(r);
        if (batch.step.count)
            CLT_TRY(clt_trainer_evaluate(t, &batch.step, r->sums, r->sums + n));
        CLT_TRY(clt_source_release(source, batch.slot));
    }
}

clt_status clt_local_evaluate(void *arg, int i)
{
    clt_local_run *run = arg;
    clt_local_replica *r = &run->replicas[i];
    clt_trainer *t = trainer_of(r);
    clt_fit_options own = *run->options;
    clt_source *source = NULL;
    own.shuffle = own.drop_last = 0;
    memset(r->sums, 0, 2 * (size_t)t->evaluation->n_means * sizeof *r->sums);
    clt_status status = clt_source_create(&r->parts, &t->shares, t->evaluation, run->test, &own,
                                          run->batch, 0, (clt_position){0, 0}, 1, &source);
    CLT_NEXT(status, evaluate(r, source));
    if (status != CLT_OK)
        status = fails(r, status);
    clt_source_destroy(source);
    return status;
}
