#include "train/planner/measure_devices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "train/core/trainer.h"
#include "base/clock.h"
#include "train/planner/loading.h"
#include "train/planner/reduction_cost.h"
#include "train/ranks/world.h"

/* Shortest round on a device, in seconds. */
static const double ROUND = 0.03;
enum { UPDATES = 5, PREFIXES = 5, FEW = 16 };

/* A trainer on one device or on all devices. */
typedef struct bench {
    clt_device *device; /* its first device */
    clt_store *store;
    clt_trainer *trainer;
    clt_feed *feeds; /* one for each input of the plan that the caller feeds */
    int n_feeds;
    double *weights; /* of the losses */
    double samples;  /* of all its devices on all ranks */
    double least;    /* seconds of a round */
    int64_t steps;   /* steps of a round; 0: as many as last `least` seconds */
    double step;     /* seconds of a step in the last round */
} bench;

typedef struct probe {
    const clt_graph *graph;
    const clt_probe_options *options;
    bench *benches;
    clt_device *const *devices;
    int count;              /* this rank's devices */
    int first, total;       /* first participant of this rank, and the number of all */
    int node_ranks, widest; /* most ranks of a node, most devices of a rank */
    clt_device_threads *threads;
    clt_probe_result *result;
    double began;
} probe;

static const clt_world *world_of(const probe *p)
{
    return p->options->trainer->world;
}

/* Acts as a barrier between parts of a measurement: all ranks begin the next part together, or all
 * fail. */
static clt_status meet(const probe *p, clt_status status)
{
    return clt_ranks_agree(world_of(p), status, NULL);
}

/* --- making ---------------------------------------------------------------------------------- */

static bool is_upstream(const clt_plan *plan, const clt_value *input)
{
    for (int l = 0; l < plan->graph->n_losses; l++)
        if (plan->graph->losses[l].upstream == input)
            return true;
    return false;
}

/* Fills a feed with numbers from 0 to 1. Integers are 0, which is a valid class and a valid index
 * into every table. */
static clt_status make_feed(const clt_value *input, int64_t samples, clt_feed *feed)
{
    const int64_t count = clt_type_elements(&input->type, samples);
    void *data = clt_alloc_pages((size_t)(count * clt_dtype_size(input->type.dtype)) + 1);
    CLT_TRY_MEMORY(data);
    memset(data, 0, (size_t)(count * clt_dtype_size(input->type.dtype)));
    if (input->type.dtype == CLT_F32)
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[i] = (float)(i * 37 % 101) / 101;
    *feed = (clt_feed){.name = input->name, .device = -1, .array = CLT_HOST(data)};
    return CLT_OK;
}

static clt_status make_feeds(bench *b, int64_t samples)
{
    const clt_plan *plan = b->trainer->training->devices[0].plan;
    b->feeds = clt_calloc((size_t)plan->n_inputs + 1, sizeof *b->feeds);
    b->weights = clt_calloc((size_t)plan->graph->n_losses + 1, sizeof *b->weights);
    CLT_TRY_MEMORY(b->feeds && b->weights);
    for (int i = 0; i < plan->n_inputs; i++)
        if (!is_upstream(plan, plan->inputs[i]))
            CLT_TRY(make_feed(plan->inputs[i], samples, &b->feeds[b->n_feeds++]));
    return CLT_OK;
}

/* A learning rate of 0 keeps the parameters finite, whatever the data. */
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
    own.zero = 0; /* one device measures alone */
    own.per_device = 0;
    return own;
}

/* Makes the trainer of one device. */
static clt_status make_bench(const probe *p, int d, bench *b)
{
    const int64_t batch = p->options->samples;
    b->device = p->devices[d];
    const clt_trainer_options options = trainer_options(p->options, batch);
    CLT_TRY(clt_store_create(p->graph, &p->devices[d], 1, 1, &b->store));
    CLT_TRY(clt_trainer_create(p->graph, b->store, &options, &b->trainer));
    return make_feeds(b, batch);
}

/* Makes the trainer of all devices of all ranks. If devices have virtual shards, each has one here,
 * as far as their number is one of shards. */
static clt_status make_whole(const probe *p, bench *b)
{
    clt_trainer_options options = trainer_options(p->options, p->options->samples * p->total);
    if (options.virtual_shards)
        options.virtual_shards = p->total & (p->total - 1) ? 0 : p->total;
    options.world = world_of(p);
    b->device = p->devices[0];
    CLT_TRY(meet(p, clt_store_create(p->graph, p->devices, p->count, 1, &b->store)));
    CLT_TRY(clt_trainer_create(p->graph, b->store, &options, &b->trainer));
    return meet(p, make_feeds(b, p->options->samples * p->count));
}

static void destroy_bench(bench *b)
{
    clt_trainer_destroy(b->trainer);
    clt_store_destroy(b->store);
    for (int i = 0; i < b->n_feeds; i++)
        clt_free(b->feeds[i].array.host);
    CLT_FREE(b->feeds, b->weights);
}

/* --- whole steps ----------------------------------------------------------------------------- */

static clt_status run_bench(bench *b)
{
    const clt_trainer *t = b->trainer;
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.total = (int64_t)b->samples;
    batch.count = batch.total / t->all.total * t->all.own;
    batch.first = batch.total / t->all.total * t->all.first;
    batch.feeds = b->feeds;
    batch.n_feeds = b->n_feeds;
    /* Set the weights, as data sets do, because they know the labels. Otherwise forward would run
     * twice on several devices. */
    batch.loss_weights = b->weights;
    for (int l = 0; l < t->graph->n_losses; l++)
        b->weights[l] = b->samples;
    const double began = clt_clock();
    int64_t steps = 0;
    do {
        CLT_TRY(clt_trainer_step(b->trainer, &batch, NULL));
        steps++;
    } while (b->steps ? steps < b->steps : clt_clock() - began < b->least);
    CLT_TRY(clt_trainer_wait(b->trainer));
    b->step = (clt_clock() - began) / (double)steps;
    return CLT_OK;
}

static clt_status run_steps(void *arg, int d)
{
    return run_bench(&((probe *)arg)->benches[d]);
}

/* Runs a round on all devices, or only on device `only` if it is not -1. */
static clt_status run_round(probe *p, int only, double samples, double least)
{
    if (p->options->stop && p->options->stop(p->options->user))
        return clt_fail(CLT_STOPPED, "stopped while devices were measured");
    for (int d = 0; d < p->count; d++) {
        p->benches[d].samples = samples;
        p->benches[d].least = least;
    }
    return only < 0 ? clt_device_threads_run(p->threads, run_steps, p) : run_steps(p, only);
}

/* Drivers compile kernels at the first enqueue of each size. */
static clt_status warm_up(probe *p)
{
    for (int i = 0; i < CLT_SPEED_POINTS; i++)
        CLT_TRY(run_round(p, -1, p->result->samples[i], 0));
    return run_round(p, -1, (double)p->options->samples, 0);
}

static clt_status measure_together(probe *p)
{
    clt_probe_result *r = p->result;
    for (int64_t more = 1; more && r->rounds < CLT_PROBE_ROUNDS;) {
        for (int i = 0; i < CLT_SPEED_POINTS; i++) {
            CLT_TRY(meet(p, run_round(p, -1, r->samples[i], ROUND)));
            for (int d = 0; d < p->count; d++)
                r->seconds[i][d * CLT_PROBE_ROUNDS + r->rounds] = p->benches[d].step;
        }
        r->rounds++;
        more = clt_clock() - p->began <= p->options->seconds;
        CLT_TRY(clt_ranks_agree(world_of(p), CLT_OK, &more));
    }
    return CLT_OK;
}

static clt_status run_alone(probe *p, int d)
{
    double *least = &p->result->solo_seconds[d];
    for (int r = 0; r < 2; r++) {
        CLT_TRY(run_round(p, d, (double)p->options->samples, ROUND));
        if (p->benches[d].step < *least)
            *least = p->benches[d].step;
    }
    return CLT_OK;
}

/* Measures each device while the other devices of its node are idle. Ranks of a node take turns. */
static clt_status measure_alone(probe *p)
{
    const clt_world *world = world_of(p);
    const int own = world ? world->node_rank : 0;
    for (int d = 0; d < p->count; d++)
        p->result->solo_seconds[d] = p->result->seconds[1][d * CLT_PROBE_ROUNDS];
    for (int r = 0; p->total > 1 && r < p->node_ranks; r++)
        for (int d = 0; d < p->widest; d++)
            CLT_TRY(meet(p, r == own && d < p->count ? run_alone(p, d) : CLT_OK));
    return CLT_OK;
}

static double few(const probe *p)
{
    return fmin(FEW, (double)p->options->samples);
}

/* Copies rank 0's number to all ranks. */
static clt_status tell(const probe *p, double *number)
{
    void *all;
    CLT_TRY(clt_ranks_gather(world_of(p), number, sizeof *number, &all));
    *number = *(const double *)all;
    clt_free(all);
    return CLT_OK;
}

/* Sets *seconds to the longest time of all ranks. */
static clt_status find_longest(const probe *p, double *seconds)
{
    const clt_world *world = world_of(p);
    void *all;
    CLT_TRY(clt_ranks_gather(world, seconds, sizeof *seconds, &all));
    for (int r = 0; r < (world ? world->ranks : 1); r++)
        *seconds = fmax(*seconds, ((const double *)all)[r]);
    clt_free(all);
    return CLT_OK;
}

/* Returns the time that a third of the rounds are shorter than. It is used for times that are
 * subtracted from each other, since a neighbour's work only adds time and does not add it to both
 * alike. */
static double low(double *times)
{
    clt_clock_median(times, CLT_PROBE_ROUNDS); /* sorts */
    return times[CLT_PROBE_ROUNDS / 3];
}

/* Measures short steps on separate trainers, for the cost of synchronizing devices. */
static clt_status measure_apart(probe *p)
{
    double times[CLT_PROBE_ROUNDS];
    CLT_TRY(meet(p, run_round(p, -1, few(p), 0)));
    for (int k = 0; k < CLT_PROBE_ROUNDS; k++) {
        CLT_TRY(meet(p, run_round(p, -1, few(p), 0.3 * ROUND)));
        times[k] = 0;
        for (int d = 0; d < p->count; d++)
            times[k] = fmax(times[k], p->benches[d].step);
        CLT_TRY(find_longest(p, &times[k]));
    }
    p->result->few_apart = low(times);
    return CLT_OK;
}

/* All ranks run the same number of steps. */
static clt_status run_whole(const probe *p, bench *b)
{
    double times[CLT_PROBE_ROUNDS];
    b->steps = 2;
    CLT_TRY(meet(p, run_bench(b)));
    const clt_status status = run_bench(b);
    int64_t steps = status == CLT_OK ? 1 + (int64_t)(0.3 * ROUND / b->step) : 0;
    CLT_TRY(clt_ranks_agree(world_of(p), status, &steps));
    b->steps = steps;
    for (int k = 0; k < CLT_PROBE_ROUNDS; k++) {
        CLT_TRY(meet(p, run_bench(b)));
        times[k] = b->step;
    }
    p->result->few_together = low(times);
    return tell(p, &p->result->few_together);
}

static clt_status measure_whole(const probe *p)
{
    bench b = {.samples = few(p) * p->total};
    clt_status status = make_whole(p, &b);
    CLT_NEXT(status, run_whole(p, &b));
    CLT_NEXT(status, meet(p, clt_trainer_finish(b.trainer)));
    destroy_bench(&b);
    return status;
}

/* --- parts of a step ------------------------------------------------------------------------- */

/* All devices update their parameters at the same time, as at the end of a step. */
static clt_status run_update(void *arg, int d)
{
    probe *p = arg;
    bench *b = &p->benches[d];
    const clt_trainer *t = b->trainer;
    double statuses[UPDATES], times[UPDATES];
    for (int i = 0; i < UPDATES; i++) {
        const double began = clt_clock();
        CLT_TRY(clt_update_status(t->devices[0].update));
        CLT_TRY(clt_device_finish(b->device));
        const double between = clt_clock();
        CLT_TRY(clt_update_apply(t->devices[0].update, 0, t->steps));
        CLT_TRY(clt_device_finish(b->device));
        statuses[i] = between - began;
        times[i] = clt_clock() - between;
    }
    p->result->status_time[d] = clt_clock_median(statuses, UPDATES);
    p->result->update[d] = clt_clock_median(times, UPDATES);
    return CLT_OK;
}

/* Finds, for each slot, the node after which its gradient and all earlier ones are written. A
 * gradient that no node writes counts as written at the end of forward, when its bucket is ready.
 */
static int count_written(const clt_plan *plan, int *ends)
{
    int n = 0, end = plan->n_forward;
    for (int s = 0; s < plan->buckets.n_slots; s++) {
        const clt_value *gradient = plan->gradients[s];
        if (plan->buckets.slots[s].state)
            continue;
        if (gradient && gradient->producer->id + 1 > end)
            end = gradient->producer->id + 1;
        ends[n++] = end;
    }
    return n;
}

/* Runs the plan's nodes on the first device, in parts that end at ends[]. times[i] is the time at
 * the end of part i. */
static clt_status run_parts(bench *b, const int *ends, int count, double *times)
{
    clt_trainer *t = b->trainer;
    clt_session *s = t->training;
    const clt_run run = {.count = t->options.batch,
                         .seed = t->options.seed,
                         .inputs = s->devices[0].views,
                         .gradients =
                             clt_replica_gradients(&b->store->replicas[0], t->options.precision),
                         .results = clt_session_results(s, 0, 0, 0)};
    const double began = clt_clock();
    for (int i = 0, first = 0; i < count; i++) {
        if (ends[i] > first) {
            CLT_TRY(clt_exec_enqueue(s->devices[0].exec, &run, first, ends[i], 0, NULL));
            CLT_TRY(clt_device_finish(b->device));
        }
        first = ends[i];
        times[i] = clt_clock() - began;
    }
    return CLT_OK;
}

/* Returns the least value of a column, since a neighbour's work only adds time. */
static double least_of(const double *rows, int width, int column)
{
    double least = INFINITY;
    for (int r = 0; r < PREFIXES; r++)
        least = fmin(least, rows[r * width + column]);
    return least;
}

/* Sets `ready` of gradients[], as a fraction of all compute. Waiting for the device between parts
 * costs time. Its cost is found by a run of the whole without waiting, and subtracted. */
static clt_status time_gradients(bench *b, const int *ends, int count, double *rows,
                                 clt_gradient_cost *gradients)
{
    const int n_nodes = b->trainer->training->devices[0].plan->n_nodes, width = count + 1;
    double wholes[PREFIXES];
    int parts = 1;
    for (int r = 0; r < PREFIXES; r++) {
        CLT_TRY(run_parts(b, &n_nodes, 1, &wholes[r]));
        CLT_TRY(run_parts(b, ends, width, rows + r * width));
    }
    for (int i = 1; i <= count; i++)
        parts += ends[i] > ends[i - 1];
    const double whole = least_of(wholes, 1, 0), longer = least_of(rows, width, count) - whole;
    const double wait = parts > 1 ? fmax(0, longer) / (parts - 1) : 0;
    double before = 0;
    for (int i = 0, part = 0; i < count; i++) {
        part += i > 0 && ends[i] > ends[i - 1];
        const double at = (least_of(rows, width, i) - part * wait) / whole;
        before = ends[i] == n_nodes ? 1 : fmin(1, fmax(at, before));
        gradients[i].ready = before;
    }
    return CLT_OK;
}

static clt_status measure_gradients(probe *p)
{
    bench *b = &p->benches[0];
    const clt_plan *plan = b->trainer->training->devices[0].plan;
    const size_t room = (size_t)plan->buckets.n_slots + 1;
    clt_gradients_cost *g = &p->result->gradients;
    int *ends = clt_calloc(room, sizeof *ends);
    double *rows = clt_calloc(room * PREFIXES, sizeof *rows);
    g->list = clt_calloc(room, sizeof *g->list);
    g->max_bytes = INT64_MAX;
    for (int d = 0; d < p->count; d++)
        if (p->devices[d]->caps.max_alloc_bytes < g->max_bytes)
            g->max_bytes = p->devices[d]->caps.max_alloc_bytes;
    clt_status status = ends && rows && g->list ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        g->count = count_written(plan, ends);
        ends[g->count] = plan->n_nodes;
        for (int s = 0, i = 0; s < plan->buckets.n_slots; s++)
            if (!plan->buckets.slots[s].state)
                g->list[i++].bytes = (double)clt_slot_padded(&plan->buckets.slots[s]);
        status = time_gradients(b, ends, g->count, rows, g->list);
    }
    CLT_FREE(ends, rows);
    return status;
}

/* Called once all ranks have the same gradients. */
static clt_status measure_reduction(probe *p)
{
    const clt_buckets *layout = p->benches[0].store->replicas[0].layout;
    int64_t largest = 0;
    for (int b = 0; b < layout->n_buckets; b++)
        if (!layout->buckets[b].state && layout->buckets[b].bytes > largest)
            largest = layout->buckets[b].bytes;
    return clt_reduction_measure(p->devices, p->count, p->total, p->options->trainer, largest,
                                 &p->result->reduction);
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Compares properties that must be equal on all ranks, since all must make the same calls. */
static clt_status compare(const probe *p)
{
    const bench *b = &p->benches[0];
    const int64_t buckets = b->trainer->training->devices[0].plan->n_ready;
    const struct {
        int64_t value;
        const char *name;
    } sizes[] = {{p->options->trainer->batch, "batch"},
                 {p->options->trainer->accumulate, "number of micro-batches (accumulate)"},
                 {p->options->samples, "number of samples to measure with"}};
    CLT_TRY(clt_ranks_compare(
        world_of(p),
        clt_hash(&buckets, sizeof buckets, clt_buckets_hash(b->store->replicas[0].layout)),
        "model"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CLT_TRY(clt_ranks_compare(world_of(p), clt_hash(&sizes[i].value, sizeof(int64_t), 0),
                                  sizes[i].name));
    return CLT_OK;
}

/* Finds the number of measuring devices here and on other ranks. */
static clt_status find_turns(probe *p)
{
    const clt_world *world = world_of(p);
    const int32_t own[] = {p->count, world ? world->node_ranks : 1};
    void *all;
    CLT_TRY(clt_world_count(world, p->count, &p->first, &p->total));
    CLT_TRY(clt_ranks_gather(world, own, sizeof own, &all));
    const int32_t *numbers = all;
    for (int r = 0; r < (world ? world->ranks : 1); r++) {
        p->widest = numbers[2 * r] > p->widest ? numbers[2 * r] : p->widest;
        p->node_ranks = numbers[2 * r + 1] > p->node_ranks ? numbers[2 * r + 1] : p->node_ranks;
    }
    clt_free(all);
    return CLT_OK;
}

/* Leaves out the memory that the driver reports, since it changes with other processes. */
static void describe(const probe *p, int d, clt_probe_device *out)
{
    const clt_world *world = world_of(p);
    const clt_device *device = p->devices[d];
    clt_caps caps = device->caps;
    caps.memory_bytes = caps.max_alloc_bytes = 0;
    *out = (clt_probe_device){.kind = clt_hash(&caps, sizeof caps, device->identity),
                              .rank = world ? world->rank : 0,
                              .lanes = device->caps.vector_width,
                              .on_host = clt_caps_is_cpu(&device->caps)};
    out->host.cores = clt_loading_cores();
    out->host.used = out->on_host ? device->caps.compute_units : 0;
    if (world && world->ranks > 1)
        snprintf(out->label, sizeof out->label, "rank %d, %.100s", world->rank, device->label);
    else
        snprintf(out->label, sizeof out->label, "%.120s", device->label);
}

static clt_status make_benches(void *arg)
{
    probe *p = arg;
    CLT_TRY(clt_probe_allocate(p->result, p->count));
    p->benches = clt_calloc((size_t)p->count, sizeof *p->benches);
    CLT_TRY_MEMORY(p->benches);
    for (int d = 0; d < p->count; d++) {
        const clt_status status = make_bench(p, d, &p->benches[d]);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "measuring %s: ", p->devices[d]->label);
        describe(p, d, &p->result->devices[d]);
    }
    return clt_device_threads_create(p->count, &p->threads);
}

/* Measures the time of one sample in assembling a batch, on one core while the others are idle. */
static clt_status measure_loading(probe *p)
{
    const clt_plan *plan = p->benches[0].trainer->training->devices[0].plan;
    CLT_TRY(meet(p, clt_loading_measure(plan, p->options->samples, &p->result->load)));
    return tell(p, &p->result->load);
}

static clt_status measure(probe *p)
{
    CLT_TRY(find_turns(p));
    CLT_TRY(clt_ranks_in_turns(world_of(p), make_benches, p));
    CLT_TRY(compare(p));
    CLT_TRY(meet(p, warm_up(p)));
    p->began = clt_clock();
    CLT_TRY(measure_together(p));
    CLT_TRY(measure_alone(p));
    CLT_TRY(meet(p, clt_device_threads_run(p->threads, run_update, p)));
    CLT_TRY(meet(p, measure_gradients(p)));
    CLT_TRY(measure_loading(p));
    CLT_TRY(clt_probe_share(world_of(p), p->result));
    CLT_TRY(measure_reduction(p));
    return p->total > 1 ? measure_apart(p) : CLT_OK;
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
    probe p = {.graph = graph,
               .options = options,
               .devices = devices,
               .count = n_devices,
               .result = result};
    /* The smaller size is a quarter, a multiple of 16 if there are enough samples. */
    const int64_t quarter = options->samples / 4, lanes = (quarter + 15) / 16 * 16;
    const int64_t less = quarter >= 16 ? lanes : quarter > 0 ? quarter : options->samples;
    *result = (clt_probe_result){.samples = {(double)less, (double)options->samples}};
    clt_status status = measure(&p);
    clt_device_threads_destroy(p.threads);
    destroy_benches(&p); /* frees memory before the next measurement */
    if (status == CLT_OK && p.total > 1)
        status = measure_whole(&p);
    if (status != CLT_OK)
        clt_probe_free(result);
    return status;
}
