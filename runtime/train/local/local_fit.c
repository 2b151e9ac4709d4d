/* The loop of clt_local_fit: periods, synchronisations, and what is due at them. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "train/fit/fit.h"
#include "train/fit/length.h"
#include "train/local/run.h"

/* --- beginning ------------------------------------------------------------------------------- */

static clt_status check(const clt_local_run *run, int64_t most)
{
    const clt_fit_options *o = run->options;
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_fit_options));
    if (o->validation || o->n_policies)
        return clt_fail(CLT_UNSUPPORTED, "clt_fit_options.validation and .policies are not built "
                                         "for replicas: evaluate the test set instead");
    CLT_TRY(clt_dataset_need_fixed(run->train, "replicas"));
    CLT_TRY(clt_fit_refuse_hooks(o, "clt_local_fit"));
    if (o->n_splits)
        return clt_fail(CLT_UNSUPPORTED, "clt_fit_options.splits is not built for replicas");
    if (o->schedule_batch < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_fit_options.schedule_batch %lld: must not be negative",
                        (long long)o->schedule_batch);
    if (o->drop_last && clt_local_by_time(run))
        return clt_fail(CLT_UNSUPPORTED, "drop_last: replicas that are synchronised by time use "
                                         "every sample of an epoch");
    if (o->epochs < 0 || o->steps < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "%lld epochs and %lld steps: neither may be negative",
                        (long long)o->epochs, (long long)o->steps);
    if (o->batch < 0 || o->batch > most)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "batch %lld; the trainers of the %d replicas were made for 1 to %lld",
                        (long long)o->batch, run->local->total, (long long)most);
    return CLT_OK;
}

static clt_status compare(const clt_local_run *run)
{
    const clt_fit_options *o = run->options;
    const clt_participants *all = &run->local->all;
    const int64_t numbers[] = {clt_dataset_count(run->train),
                               run->test ? clt_dataset_count(run->test) : 0,
                               run->batch,
                               o->epochs,
                               o->steps,
                               o->seed,
                               o->schedule_batch,
                               o->checkpoint_dir ? o->checkpoint_every : 0};
    if (all->ranks == 1)
        return CLT_OK;
    const uint64_t hash = clt_hash_text(run->local->trainers[0]->reads, 0);
    CLT_TRY(clt_ranks_compare(all->world, clt_hash(numbers, sizeof numbers, hash),
                              "run (number of samples, shuffling, normalisation, batch, length or "
                              "seed)"));
    return clt_fit_compare_data(all, run->train, run->test, NULL);
}

static clt_status make_replicas(clt_local_run *run)
{
    const clt_local *local = run->local;
    const size_t total = (size_t)local->total, ranks = (size_t)local->all.ranks;
    run->replicas = clt_calloc((size_t)local->own, sizeof *run->replicas);
    run->told = clt_calloc(total, sizeof *run->told);
    run->weights = clt_calloc(3 * total + ranks, sizeof *run->weights);
    run->counts = clt_calloc(2 * total + ranks, sizeof *run->counts);
    CLT_TRY_MEMORY(run->replicas && run->told && run->weights && run->counts);
    run->numbers = run->weights + total;
    run->speeds = run->numbers + 2 * total;
    run->taken = run->counts + 2 * total;
    for (int i = 0; i < local->own; i++) {
        clt_local_replica *r = &run->replicas[i];
        const clt_trainer *t = local->trainers[i];
        const int parts = clt_participants_parts(&t->all);
        *r = (clt_local_replica){.run = run, .index = i, .parts = t->all, .slot = -1, .ended = -1};
        r->parts.mesh.size[CLT_AXIS_DATA] = parts * local->total;
        r->parts.first_part = (local->first + i) * parts;
        r->sums = clt_calloc(2 * (size_t)t->evaluation->n_means + 1, sizeof *r->sums);
        CLT_TRY_MEMORY(r->sums);
    }
    return clt_local_by_time(run)
               ? clt_pool_create(local->all.rank, local->all.ranks, local->own, &run->pool)
               : CLT_OK;
}

static int64_t find_end(const clt_local_run *run)
{
    const clt_fit_options *o = run->options;
    const int64_t samples = clt_dataset_count(run->train);
    if (o->steps && !o->schedule_batch)
        return o->steps;
    if (!clt_local_by_time(run))
        return run->step + clt_fit_steps_left(o, samples, run->batch, run->position);
    if (o->steps)
        return run->step +
               clt_fit_steps_left(o, samples, run->part * run->local->total, run->position);
    if (run->position.epoch >= o->epochs)
        return run->step;
    /* Only the last batch of an epoch has fewer samples, as parts are dealt in whole batches. */
    return (run->batches + clt_spans_batches(&run->left, run->part) +
            (o->epochs - run->position.epoch - 1) * clt_fit_steps_of(o, samples, run->part)) /
           run->local->total;
}

/* Samples of the epoch that are left for replicas by time. A resumed run has its own. */
static clt_status find_left(clt_local_run *run)
{
    const int64_t samples = clt_dataset_count(run->train);
    if (clt_spans_total(&run->left))
        return CLT_OK;
    return clt_spans_add(&run->left, run->position.sample, samples - run->position.sample);
}

/* By time: batches that replicas may claim until the end of the run. Those that they have claimed
 * are theirs. */
static int64_t wanted(const clt_local_run *run)
{
    int64_t rest = run->total_steps * run->local->total - run->batches;
    for (int i = 0; i < run->local->total; i++)
        rest -= run->told[i].held.n;
    return !run->options->steps ? INT64_MAX : rest > 0 ? rest : 0;
}

static clt_status lock(clt_local_run *run)
{
    const clt_fit_options *o = run->options;
    return o->checkpoint_dir && !o->lock && !run->local->all.rank
               ? clt_folder_lock_take(o->checkpoint_dir, &run->lock)
               : CLT_OK;
}

static clt_status open_sources(clt_local_run *run)
{
    for (int i = 0; i < run->local->own; i++)
        CLT_TRY(clt_local_open_source(&run->replicas[i]));
    return CLT_OK;
}

/* Finds the largest batch whose parts the trainers can take. By steps the first devices take the
 * rest of a batch that they cannot share equally. */
static int64_t find_most(const clt_local_run *run)
{
    const clt_trainer *t = run->local->trainers[0];
    const int64_t parts = clt_participants_parts(&t->all), of = t->options.batch;
    return clt_local_by_time(run) ? of * run->local->total
                                  : of / parts * parts * run->local->total + of % parts;
}

/* The batch of a caller who gives none: the largest that all devices share equally. */
static int64_t find_usual(const clt_local_run *run)
{
    const int64_t most = find_most(run);
    const int64_t all =
        (int64_t)clt_participants_parts(&run->local->trainers[0]->all) * run->local->total;
    return most < all || clt_local_by_time(run) ? most : most / all * all;
}

static clt_status begin(clt_local_run *run)
{
    const clt_local *local = run->local;
    const int64_t most = find_most(run);
    run->batch = run->options->batch ? run->options->batch : find_usual(run);
    run->part = (run->batch + local->total - 1) / local->total;
    clt_status status = check(run, most);
    CLT_NEXT(status, make_replicas(run));
    if (status == CLT_OK)
        clt_fit_describe_data(local->trainers[0], run->train, run->options);
    CLT_TRY(clt_world_agree(&local->all, status));
    CLT_TRY(compare(run));
    CLT_TRY(clt_world_agree(&local->all, lock(run)));
    CLT_TRY(clt_local_resume(run));
    if (clt_local_by_time(run))
        status = find_left(run);
    run->total_steps = find_end(run);
    if (status == CLT_OK && clt_local_by_time(run))
        status = clt_pool_deal(&run->pool, run->position.epoch, &run->left, run->speeds, run->part,
                               wanted(run));
    CLT_NEXT(status, open_sources(run));
    return clt_world_agree(&local->all, status);
}

/* --- a synchronisation ----------------------------------------------------------------------- */

/* What a rank tells the others, followed by what its replicas have done. */
typedef struct head {
    int64_t stop, taken;
    double seconds; /* of training */
    clt_position position;
    int64_t ended;
} head;

static void tell_own(clt_local_run *run, double seconds, char *record)
{
    const clt_fit_options *o = run->options;
    head h = {.stop = o->should_stop && o->should_stop(o->user),
              .taken = run->pool.taken,
              .seconds = seconds,
              .position = run->replicas[0].position,
              .ended = run->replicas[0].ended};
    memcpy(record, &h, sizeof h);
    for (int i = 0; i < run->local->own; i++) {
        const clt_local_replica *r = &run->replicas[i];
        clt_local_told told = {r->samples, r->batches, r->counted, r->loss, {.n = 0}};
        if (clt_local_by_time(run))
            told.held = run->pool.held[i];
        memcpy(record + sizeof h + (size_t)i * sizeof told, &told, sizeof told);
    }
}

/* Reads the records of all ranks. Returns whether one wants to stop. */
static bool read_all(clt_local_run *run, const char *records, size_t bytes)
{
    const clt_local *local = run->local;
    bool stop = false;
    for (int r = 0; r < local->all.ranks; r++) {
        head h;
        double samples = 0;
        memcpy(&h, records + (size_t)r * bytes, sizeof h);
        for (int i = local->begins[r]; i < local->begins[r + 1]; i++) {
            memcpy(&run->told[i],
                   records + (size_t)r * bytes + sizeof h +
                       (size_t)(i - local->begins[r]) * sizeof *run->told,
                   sizeof *run->told);
            samples += (double)run->told[i].samples;
        }
        stop = stop || h.stop;
        run->taken[r] = h.taken;
        if (samples > 0 && h.seconds > 0)
            run->speeds[r] = samples / h.seconds;
        if (r == 0 && !clt_local_by_time(run)) {
            run->position = h.position;
            run->due = h.ended >= 0 ? h.ended : run->due;
        }
    }
    return stop;
}

static clt_status tell(clt_local_run *run, double seconds, bool *stop)
{
    const clt_local *local = run->local;
    const size_t bytes = sizeof(head) + (size_t)local->most * sizeof *run->told;
    void *all = NULL;
    char *record = clt_calloc(1, bytes);
    clt_status status = clt_world_agree(&local->all, record ? CLT_OK : CLT_OUT_OF_MEMORY);
    if (status == CLT_OK) {
        tell_own(run, seconds, record);
        status = clt_ranks_gather(local->all.world, record, bytes, &all);
    }
    if (status == CLT_OK)
        *stop = read_all(run, all, bytes);
    CLT_FREE(record, all);
    return status;
}

/* Counts the batches, and finds what is left of the epoch. */
static clt_status count_time(clt_local_run *run)
{
    const clt_local *local = run->local;
    clt_spans left = {0};
    int64_t held = 0;
    clt_status status = CLT_OK;
    for (int r = 0; r < local->all.ranks; r++)
        CLT_NEXT(status, clt_spans_rest(&left, &run->pool.dealt[r], run->taken[r]));
    for (int i = 0; i < local->total; i++) {
        run->batches += run->told[i].batches;
        for (int k = 0; k < run->told[i].held.n; k++)
            held += run->told[i].held.of[k].count;
    }
    clt_free(run->left.of);
    run->left = left;
    const int64_t samples = clt_dataset_count(run->train);
    const int64_t rest = clt_spans_total(&left) + held;
    run->position.sample = samples - rest;
    if (status == CLT_OK && !rest) {
        run->due = run->position.epoch;
        run->position = (clt_position){run->position.epoch + 1, 0};
        status = clt_spans_add(&run->left, 0, samples);
    }
    return status;
}

/* All replicas count steps alike, also those that made fewer or more. */
static void set_steps(clt_local_run *run)
{
    for (int i = 0; i < run->local->own; i++) {
        clt_trainer *t = run->local->trainers[i];
        clt_trainer_set_steps(t, run->step);
        for (int k = 0; k < CLT_RESULT_RING; k++)
            t->results.records[k].step = -1;
    }
}

/* Samples whose loss is not finite are left out of means. Without any sample the mean is NaN. */
static double mean_of(double loss, int64_t counted)
{
    return counted ? loss / (double)counted : NAN;
}

static void report(clt_local_run *run, int64_t before, bool exchanged, double trained,
                   double seconds)
{
    const clt_local *local = run->local;
    const double now = clt_clock();
    double loss = 0;
    int64_t counted = 0;
    clt_sync_report sync = {.number = run->sync,
                            .steps = run->step - before,
                            .replicas = local->total,
                            .samples = run->counts,
                            .batches = run->counts + local->total,
                            .losses = run->numbers,
                            .bytes = exchanged ? clt_local_sync_bytes(local) : 0,
                            .period = trained,
                            .seconds = seconds};
    clt_progress progress = {.step = run->step,
                             .epoch = (run->due >= 0 ? run->due : run->position.epoch) + 1,
                             .total_steps = run->total_steps,
                             .norm = NAN,
                             .lr = run->lr,
                             .loss_scale = run->loss_scale,
                             .skipped = run->skipped,
                             .seconds = now - run->began,
                             .step_seconds = now - run->reported,
                             .test_loss = NAN,
                             .test_metric = NAN,
                             .val_loss = NAN,
                             .val_metric = NAN,
                             .average_test_loss = NAN,
                             .average_val_loss = NAN,
                             .sync = &sync};
    for (int i = 0; i < local->total; i++) {
        run->counts[i] = run->told[i].samples;
        run->counts[local->total + i] = run->told[i].batches;
        run->numbers[i] = mean_of(run->told[i].loss, run->told[i].counted);
        loss += run->told[i].loss;
        counted += run->told[i].counted;
        progress.samples += run->told[i].samples;
    }
    progress.loss = mean_of(loss, counted);
    run->epoch_loss += loss;
    run->epoch_counted += counted;
    run->epoch_samples += progress.samples;
    run->reported = now;
    if (run->options->on_step)
        run->options->on_step(run->options->user, &progress);
}

/* Tells, exchanges and reports. *stop: a rank wishes to stop. */
static clt_status synchronise(clt_local_run *run, double seconds, bool *stop)
{
    clt_local *local = run->local;
    const double began = clt_clock();
    const int64_t before = run->step;
    CLT_TRY(tell(run, seconds, stop));
    for (int i = 0; i < local->total; i++)
        run->numbers[i] = (double)run->told[i].samples;
    const bool any = clt_local_weigh(local, run->numbers, run->weights);
    if (any)
        CLT_TRY(clt_outer_exchange(local, run->weights));
    if (clt_local_by_time(run)) {
        CLT_TRY(clt_world_agree(&local->all, count_time(run)));
        run->step = run->batches / local->total;
        set_steps(run);
        /* In between, a rank's heartbeat counts the steps of its first replica. */
        clt_heartbeat_step(local->trainers[0]->exchange.beat, run->step);
        clt_heartbeat_state_is(local->trainers[0]->exchange.beat, CLT_HEARTBEAT_WAITING);
    } else
        run->step += run->steps;
    run->sync++;
    report(run, before, any && local->total > 1, seconds, clt_clock() - began);
    return CLT_OK;
}

/* --- what is due at a synchronisation -------------------------------------------------------- */

/* Adds up the sums of all replicas, in their order. */
static clt_status add_sums(const clt_local_run *run, int n, double *sums)
{
    const clt_local *local = run->local;
    const size_t bytes = 2 * (size_t)n * sizeof *sums;
    void *all = NULL;
    char *record = clt_calloc((size_t)local->most, bytes + 1);
    clt_status status = clt_world_agree(&local->all, record ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int i = 0; status == CLT_OK && i < local->own; i++)
        memcpy(record + (size_t)i * bytes, run->replicas[i].sums, bytes);
    CLT_NEXT(status, clt_ranks_gather(local->all.world, record, (size_t)local->most * bytes, &all));
    for (int r = 0; status == CLT_OK && r < local->all.ranks; r++)
        for (int i = 0; i < local->begins[r + 1] - local->begins[r]; i++)
            for (int k = 0; k < 2 * n; k++) {
                double part;
                memcpy(&part,
                       (const char *)all + ((size_t)r * (size_t)local->most + (size_t)i) * bytes +
                           (size_t)k * sizeof part,
                       sizeof part);
                sums[k] += part;
            }
    CLT_FREE(record, all);
    return status;
}

/* Computes losses and metrics over the test set. The caller frees *means after the report. */
static clt_status evaluate(clt_local_run *run, clt_progress *progress, double **means)
{
    const clt_session *session = run->local->trainers[0]->evaluation;
    const int n = session->n_means;
    double *sums = clt_calloc(3 * (size_t)n + 1, sizeof *sums);
    clt_heartbeat *beat = run->local->trainers[0]->exchange.beat;
    *means = sums;
    clt_heartbeat_state_is(beat, CLT_HEARTBEAT_EVALUATING);
    const clt_status status =
        sums ? clt_local_each(run->local, clt_local_evaluate, run) : CLT_OUT_OF_MEMORY;
    clt_heartbeat_state_is(beat, CLT_HEARTBEAT_WAITING);
    CLT_TRY(clt_world_agree(&run->local->all, status));
    CLT_TRY(add_sums(run, n, sums));
    clt_fit_test_means(session, sums, progress);
    return CLT_OK;
}

static clt_status end_epoch(clt_local_run *run)
{
    clt_progress progress = {.step = run->step,
                             .epoch = run->due + 1,
                             .total_steps = run->total_steps,
                             .samples = run->epoch_samples,
                             .loss = mean_of(run->epoch_loss, run->epoch_counted),
                             .loss_scale = run->loss_scale,
                             .skipped = run->skipped,
                             .test_loss = NAN,
                             .test_metric = NAN,
                             .val_loss = NAN,
                             .val_metric = NAN,
                             .average_test_loss = NAN,
                             .average_val_loss = NAN};
    double *means = NULL;
    const clt_status status = run->test ? evaluate(run, &progress, &means) : CLT_OK;
    progress.seconds = clt_clock() - run->began;
    if (status == CLT_OK && run->options->on_epoch)
        run->options->on_epoch(run->options->user, &progress);
    clt_free(means);
    run->epoch_loss = 0;
    run->epoch_samples = run->epoch_counted = 0;
    run->due = -1;
    run->reported = clt_clock();
    return status;
}

static bool is_over(const clt_local_run *run)
{
    return clt_local_by_time(run) && !run->options->steps
               ? run->position.epoch >= run->options->epochs
               : run->step >= run->total_steps;
}

/* A full disk does not end the training: the next save may succeed. */
static clt_status save_on_the_way(clt_local_run *run)
{
    if (clt_local_save(run) != CLT_OK)
        clt_log(CLT_LOG_WARN, "no checkpoint of step %lld, training goes on: %s",
                (long long)run->step, clt_error_message());
    return CLT_OK;
}

static clt_status after(clt_local_run *run, int64_t before)
{
    const int64_t every = run->options->checkpoint_every;
    const bool ended = run->due >= 0;
    if (ended)
        CLT_TRY(end_epoch(run));
    const bool due = every > 0 ? run->step / every > before / every : every < 0 && ended;
    return due && !is_over(run) ? save_on_the_way(run) : CLT_OK;
}

/* --- the loop -------------------------------------------------------------------------------- */

/* Trains on all replicas until the next synchronisation. */
static clt_status period(clt_local_run *run, double *seconds)
{
    const clt_local_options *o = &run->local->options;
    const double began = clt_clock();
    const int64_t left = run->total_steps - run->step;
    run->steps = o->every_steps < left ? o->every_steps : left;
    run->deadline = began + o->every_seconds;
    clt_status status = clt_local_each(run->local, clt_local_period, run);
    *seconds = clt_clock() - began;
    clt_heartbeat_state_is(run->local->trainers[0]->exchange.beat, CLT_HEARTBEAT_WAITING);
    if (clt_local_by_time(run))
        clt_pool_close(&run->pool);
    return clt_world_agree(&run->local->all, status);
}

/* Deals what is left of the epoch anew. */
static clt_status deal(clt_local_run *run)
{
    if (!clt_local_by_time(run))
        return CLT_OK;
    const clt_status status = clt_pool_deal(&run->pool, run->position.epoch, &run->left,
                                            run->speeds, run->part, wanted(run));
    for (int i = 0; status == CLT_OK && i < run->local->own; i++)
        clt_source_ask_again(run->replicas[i].source);
    return clt_world_agree(&run->local->all, status);
}

static clt_status loop(clt_local_run *run)
{
    bool stop = false;
    double seconds;
    while (!is_over(run)) {
        const int64_t before = run->step;
        CLT_TRY(period(run, &seconds));
        CLT_TRY(synchronise(run, seconds, &stop));
        CLT_TRY(after(run, before));
        if (stop) {
            CLT_TRY(clt_local_save(run));
            return clt_fail(CLT_STOPPED, "stopped after step %lld", (long long)run->step);
        }
        if (!is_over(run))
            CLT_TRY(deal(run));
    }
    return clt_local_save(run);
}

static void end(clt_local_run *run)
{
    for (int i = 0; run->replicas && i < run->local->own; i++) {
        clt_source_destroy(run->replicas[i].source);
        clt_free(run->replicas[i].sums);
    }
    clt_pool_free(&run->pool, run->local->all.ranks);
    clt_folder_lock_release(run->lock);
    CLT_FREE(run->replicas, run->told, run->weights, run->counts, run->left.of);
}

static clt_status fit(clt_local *local, clt_dataset *train, clt_dataset *test,
                      const clt_fit_options *options)
{
    clt_local_run run = {.local = local,
                         .train = train,
                         .test = test,
                         .options = options,
                         .seed = options->seed < 0 ? 0 : options->seed,
                         .due = -1,
                         .loss_scale = 1,
                         .began = clt_clock(),
                         .reported = clt_clock()};
    clt_heartbeat *beat = local->trainers[0]->exchange.beat;
    clt_status status = begin(&run);
    CLT_NEXT(status, loop(&run));
    if (status != CLT_OK && status != CLT_STOPPED)
        clt_heartbeat_failed(beat, status, clt_error_message());
    end(&run);
    return status;
}

clt_status clt_local_fit(clt_local *local, clt_dataset *train, clt_dataset *test,
                         const clt_fit_options *options)
{
    clt_local_use_begin(local, train, test);
    return clt_local_use_end(local, train, test, fit(local, train, test, options));
}
