#include "train/planner/probe.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/planner/clock.h"
#include "train/planner/reduction.h"
#include "train/trainer.h"

/* Least seconds of a round on a device. */
static const double ROUND = 0.03;
enum { UPDATES = 5, PREFIXES = 3, FEW = 16 };

/* A trainer, of one device alone or of all of them. */
typedef struct bench {
    clt_device *device; /* the first */
    clt_store *store;
    clt_trainer *trainer;
    clt_feed *feeds; /* an input of the plan each, as far as the caller feeds them */
    int n_feeds;
    double samples;
    double least; /* seconds of a round */
    double step;  /* seconds, of the last round */
} bench;

typedef struct probe {
    const clt_graph *graph;
    const clt_probe_options *options;
    bench *benches;
    int count;
    clt_crew *crew;
    clt_probe_result *result;
    double began;
} probe;

/* --- making ---------------------------------------------------------------------------------- */

static bool is_upstream(const clt_plan *plan, const clt_value *input)
{
    for (int l = 0; l < plan->graph->n_losses; l++)
        if (plan->graph->losses[l].upstream == input)
            return true;
    return false;
}

/* Numbers from 0 to 1; integers are 0, which is a class and an index of every table. */
static clt_status make_feed(const clt_value *input, int64_t samples, clt_feed *feed)
{
    const int64_t count = clt_type_elements(&input->type, samples);
    void *data = clt_alloc_pages((size_t)(count * clt_dtype_size(input->type.dtype)) + 1);
    if (!data)
        return CLT_OUT_OF_MEMORY;
    memset(data, 0, (size_t)(count * clt_dtype_size(input->type.dtype)));
    if (input->type.dtype == CLT_F32)
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[i] = (float)(i * 37 % 101) / 101;
    *feed = (clt_feed){.name = input->name, .device = -1, .host = data};
    return CLT_OK;
}

static clt_status make_feeds(bench *b, int64_t samples)
{
    const clt_plan *plan = b->trainer->training->devices[0].plan;
    b->feeds = clt_calloc((size_t)plan->n_inputs + 1, sizeof *b->feeds);
    if (!b->feeds)
        return CLT_OUT_OF_MEMORY;
    for (int i = 0; i < plan->n_inputs; i++)
        if (!is_upstream(plan, plan->inputs[i]))
            CLT_TRY(make_feed(plan->inputs[i], samples, &b->feeds[b->n_feeds++]));
    return CLT_OK;
}

/* The rate 0 keeps the parameters finite, whatever the data. */
static clt_trainer_options trainer_options(const clt_probe_options *options, int64_t batch)
{
    clt_trainer_options own = *options->trainer;
    own.batch = batch;
    own.accumulate = 1;
    own.lr = 0;
    own.schedule = (clt_schedule){.kind = CLT_SCHEDULE_CONSTANT};
    own.guard = 0;
    own.poison = 0;
    own.frozen = NULL;
    own.world = NULL;
    own.heartbeat = NULL;
    own.check_every = 0;
    own.weights = NULL;
    own.quantum = 1;
    own.rebalance = 0;
    own.per_device = 0;
    return own;
}

static clt_status make_bench(const probe *p, clt_device *const *devices, int count, bench *b)
{
    const int64_t batch = p->options->samples * count;
    b->device = devices[0];
    const clt_trainer_options options = trainer_options(p->options, batch);
    CLT_TRY(clt_store_create(p->graph, devices, count, 1, &b->store));
    CLT_TRY(clt_trainer_create(p->graph, b->store, &options, &b->trainer));
    return make_feeds(b, batch);
}

static void destroy_bench(bench *b)
{
    clt_trainer_destroy(b->trainer);
    clt_store_destroy(b->store);
    for (int i = 0; i < b->n_feeds; i++)
        clt_free((void *)b->feeds[i].host);
    clt_free(b->feeds);
}

/* --- whole steps ----------------------------------------------------------------------------- */

static clt_status run_bench(bench *b)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = (int64_t)b->samples;
    batch.feeds = b->feeds;
    batch.n_feeds = b->n_feeds;
    const double began = clt_clock();
    int steps = 0;
    do {
        CLT_TRY(clt_trainer_step(b->trainer, &batch, NULL));
        steps++;
    } while (clt_clock() - began < b->least);
    CLT_TRY(clt_trainer_wait(b->trainer));
    b->step = (clt_clock() - began) / steps;
    return CLT_OK;
}

static clt_status run_steps(void *arg, int d)
{
    return run_bench(&((probe *)arg)->benches[d]);
}

/* A round on all devices, or on `only`. */
static clt_status run_round(probe *p, int only, double samples, double least)
{
    if (p->options->stop && p->options->stop(p->options->user))
        return clt_fail(CLT_STOPPED, "stopped while devices were measured");
    for (int d = 0; d < p->count; d++) {
        p->benches[d].samples = samples;
        p->benches[d].least = least;
    }
    return only < 0 ? clt_crew_run(p->crew, run_steps, p) : run_steps(p, only);
}

/* Drivers compile kernels when they are first enqueued, and for a size. */
static clt_status warm_up(probe *p)
{
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        CLT_TRY(run_round(p, -1, p->result->samples[i], 0));
    return run_round(p, -1, (double)p->options->samples, 0);
}

static clt_status measure_together(probe *p)
{
    clt_probe_result *r = p->result;
    while (r->rounds < CLT_PROBE_ROUNDS) {
        for (int i = 0; i < CLT_SPEED_POINTS; i++) {
            CLT_TRY(run_round(p, -1, r->samples[i], ROUND));
            for (int d = 0; d < p->count; d++)
                r->seconds[i][r->rounds * p->count + d] = p->benches[d].step;
        }
        r->rounds++;
        if (clt_clock() - p->began > p->options->seconds)
            break;
    }
    return CLT_OK;
}

static clt_status measure_alone(probe *p)
{
    for (int d = 0; d < p->count; d++) {
        double *least = &p->result->alone[d];
        *least = p->result->seconds[1][d];
        for (int r = 0; p->count > 1 && r < 2; r++) {
            CLT_TRY(run_round(p, d, (double)p->options->samples, ROUND));
            if (r == 0 || p->benches[d].step < *least)
                *least = p->benches[d].step;
        }
    }
    return CLT_OK;
}

static double few(const probe *p)
{
    return fmin(FEW, (double)p->options->samples);
}

/* Short steps, in which it shows what it costs that devices meet. */
static clt_status measure_apart(probe *p)
{
    double times[CLT_PROBE_ROUNDS];
    CLT_TRY(run_round(p, -1, few(p), 0));
    for (int k = 0; k < CLT_PROBE_ROUNDS; k++) {
        CLT_TRY(run_round(p, -1, few(p), 0.3 * ROUND));
        times[k] = 0;
        for (int d = 0; d < p->count; d++)
            times[k] = fmax(times[k], p->benches[d].step);
    }
    p->result->few_apart = clt_clock_median(times, CLT_PROBE_ROUNDS);
    return CLT_OK;
}

static clt_status run_whole(bench *b, double *seconds)
{
    double times[CLT_PROBE_ROUNDS];
    b->least = 0;
    CLT_TRY(run_bench(b));
    b->least = 0.3 * ROUND;
    for (int k = 0; k < CLT_PROBE_ROUNDS; k++) {
        CLT_TRY(run_bench(b));
        times[k] = b->step;
    }
    *seconds = clt_clock_median(times, CLT_PROBE_ROUNDS);
    return CLT_OK;
}

static clt_status measure_whole(const probe *p, clt_device *const *devices)
{
    bench b = {.samples = few(p) * p->count};
    clt_status status = make_bench(p, devices, p->count, &b);
    if (status == CLT_OK)
        status = run_whole(&b, &p->result->few_together);
    destroy_bench(&b);
    return status;
}

/* --- parts of a step ------------------------------------------------------------------------- */

/* All devices write their parameters at the same time, as at the end of a step. */
static clt_status run_update(void *arg, int d)
{
    probe *p = arg;
    bench *b = &p->benches[d];
    const clt_trainer *t = b->trainer;
    double words[UPDATES], times[UPDATES];
    for (int i = 0; i < UPDATES; i++) {
        const double began = clt_clock();
        CLT_TRY(clt_update_word(t->devices[0].update));
        CLT_TRY(clt_device_finish(b->device));
        const double between = clt_clock();
        CLT_TRY(clt_update_apply(t->devices[0].update, 0, t->steps, NULL, 0));
        CLT_TRY(clt_device_finish(b->device));
        words[i] = between - began;
        times[i] = clt_clock() - between;
    }
    p->result->word[d] = clt_clock_median(words, UPDATES);
    p->result->update[d] = clt_clock_median(times, UPDATES);
    return CLT_OK;
}

/* The plan's nodes up to the end of a segment, on the first device. */
static clt_status run_prefix(bench *b, int end, double *seconds)
{
    clt_trainer *t = b->trainer;
    clt_session *s = t->training;
    const clt_run run = {.count = t->options.batch,
                         .seed = t->options.seed,
                         .inputs = s->devices[0].views,
                         .gradients = b->store->replicas[0].gradients,
                         .results = clt_session_results(s, 0, 0, 0)};
    double times[PREFIXES];
    for (int i = 0; i < PREFIXES; i++) {
        const double began = clt_clock();
        CLT_TRY(clt_exec_enqueue(s->devices[0].exec, &run, 0, end, 0, NULL));
        CLT_TRY(clt_device_finish(b->device));
        times[i] = clt_clock() - began;
    }
    *seconds = clt_clock_median(times, PREFIXES);
    return CLT_OK;
}

static clt_status measure_buckets(probe *p)
{
    bench *b = &p->benches[0];
    const clt_plan *plan = b->trainer->training->devices[0].plan;
    clt_probe_result *r = p->result;
    double whole, part;
    r->buckets = clt_calloc((size_t)plan->n_ready + 1, sizeof *r->buckets);
    if (!r->buckets)
        return CLT_OUT_OF_MEMORY;
    CLT_TRY(run_prefix(b, plan->n_nodes, &whole));
    for (int i = 0; i < plan->n_segments; i++) {
        const clt_segment *segment = &plan->segments[i];
        if (segment->first_ready == segment->end_ready)
            continue;
        CLT_TRY(run_prefix(b, segment->end, &part));
        for (int k = segment->first_ready; k < segment->end_ready; k++)
            r->buckets[r->n_buckets++] = (clt_bucket_cost){
                .bytes = (double)plan->buckets.buckets[plan->ready[k]].bytes,
                .ready = segment->end == plan->n_nodes || part > whole ? 1 : part / whole};
    }
    return CLT_OK;
}

static clt_status measure_reduction(probe *p, clt_device *const *devices)
{
    double largest = 0;
    for (int b = 0; b < p->result->n_buckets; b++)
        if (p->result->buckets[b].bytes > largest)
            largest = p->result->buckets[b].bytes;
    return clt_reduction_measure(devices, p->count, (int64_t)largest, &p->result->reduction);
}

/* --- the whole ------------------------------------------------------------------------------- */

static clt_status allocate(probe *p)
{
    clt_probe_result *r = p->result;
    const size_t n = (size_t)p->count;
    p->benches = clt_calloc(n, sizeof *p->benches);
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        r->seconds[i] = clt_calloc(n * CLT_PROBE_ROUNDS, sizeof(double));
    r->alone = clt_calloc(n, sizeof *r->alone);
    r->update = clt_calloc(n, sizeof *r->update);
    r->word = clt_calloc(n, sizeof *r->word);
    return p->benches && r->seconds[0] && r->seconds[1] && r->alone && r->update && r->word
               ? CLT_OK
               : CLT_OUT_OF_MEMORY;
}

static clt_status measure(probe *p, clt_device *const *devices)
{
    CLT_TRY(allocate(p));
    for (int d = 0; d < p->count; d++) {
        const clt_status status = make_bench(p, &devices[d], 1, &p->benches[d]);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "measuring %s: ", devices[d]->label);
    }
    CLT_TRY(clt_crew_create(p->count, &p->crew));
    CLT_TRY(warm_up(p));
    p->began = clt_clock();
    CLT_TRY(measure_together(p));
    CLT_TRY(measure_alone(p));
    CLT_TRY(clt_crew_run(p->crew, run_update, p));
    CLT_TRY(measure_buckets(p));
    CLT_TRY(measure_reduction(p, devices));
    return p->count > 1 ? measure_apart(p) : CLT_OK;
}

static void destroy_benches(probe *p)
{
    for (int d = 0; p->benches && d < p->count; d++)
        destroy_bench(&p->benches[d]);
    clt_free(p->benches);
    p->benches = NULL;
}

clt_status clt_probe_run(const clt_graph *graph, clt_device *const *devices, int n_devices,
                         const clt_probe_options *options, clt_probe_result *result)
{
    probe p = {.graph = graph, .options = options, .count = n_devices, .result = result};
    /* A quarter, in whole lanes where there are enough. */
    const int64_t quarter = options->samples / 4, lanes = (quarter + 15) / 16 * 16;
    const int64_t less = quarter >= 16 ? lanes : quarter > 0 ? quarter : options->samples;
    *result = (clt_probe_result){.samples = {(double)less, (double)options->samples}};
    clt_status status = measure(&p, devices);
    clt_crew_destroy(p.crew);
    destroy_benches(&p); /* before the next one takes their place in memory */
    if (status == CLT_OK && n_devices > 1)
        status = measure_whole(&p, devices);
    if (status != CLT_OK)
        clt_probe_free(result);
    return status;
}

void clt_probe_free(clt_probe_result *result)
{
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        clt_free(result->seconds[i]);
    clt_free(result->alone);
    clt_free(result->update);
    clt_free(result->word);
    clt_free(result->buckets);
    *result = (clt_probe_result){0};
}
