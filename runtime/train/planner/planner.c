#include <cltrain/planner.h>

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "exec/testing/slow.h"
#include "train/planner/measure_devices.h"
#include "train/planner/planner_cost.h"
#include "train/ranks/world.h"
#include <cltrain/data.h>

/* Fraction of a step that a device must save to be used, and that an uneven split must save. */
static const double GAIN = 0.05, SPLIT_GAIN = 0.03;

/* Vectors that a device's share must hold for the division to be in whole vectors. */
enum { LEAST_QUANTA = 4 };

/* Most devices whose speeds the text lists. */
enum { LISTED = 16 };

struct clt_planner {
    clt_cost cost; /* by device of all ranks */
    const clt_world *world;
    int first, count; /* this rank's devices */
    int *rank_of;
    clt_host_cores *hosts;
    char **labels;
    bool *use;  /* the device gets samples */
    bool *keep; /* or takes part without samples, since its rank has no other device */
    int n_used;
    double *samples; /* by device, scratch */
    double *weights; /* by device */
    bool uneven;     /* the division is by speed */
    bool named;      /* the caller named the devices: none is dropped */
    bool idle;       /* a rank gets no samples */
    int64_t lanes, quantum;
    clt_dtype precision; /* precision of gradients */
    clt_gradients_cost gradients;
    clt_bucket_choice buckets; /* cost.buckets are those of the best choice */
    clt_str text;
};

CLT_STRUCT_INIT(clt_planner_options, .seconds = 2)

CLT_STRUCT_INIT(clt_prediction, )

/* --- from measured times to a model ---------------------------------------------------------- */

static clt_status make_cost(clt_planner *p, bool on_host, clt_probe_result *r)
{
    const int n = p->cost.n_devices;
    CLT_TRY(clt_probe_speeds(r, p->cost.speeds));
    p->gradients = r->gradients;
    r->gradients.list = NULL; /* owned by the planner now */
    p->cost.buckets = clt_calloc((size_t)p->gradients.count + 1, sizeof *p->cost.buckets);
    CLT_TRY_MEMORY(p->cost.buckets);
    /* The same buckets as in the probe's store. */
    p->cost.n_buckets = clt_bucket_lay(&p->gradients, CLT_BUCKET_BYTES, p->cost.buckets);
    double reduction = 0, status_time = 0;
    for (int b = 0; b < p->cost.n_buckets; b++)
        reduction += r->reduction.latency + n * p->cost.buckets[b].bytes * r->reduction.byte;
    for (int d = 0; d < n; d++)
        status_time = fmax(status_time, r->status_time[d]);
    p->cost.on_host = on_host;
    p->cost.together =
        n > 1 ? fmax(0, r->few_together - (r->few_apart - status_time) - reduction) : 0;
    p->cost.reduction = r->reduction;
    p->cost.load = r->load;
    return CLT_OK;
}

/* --- predictions ----------------------------------------------------------------------------- */

static int64_t quantum_for(const clt_planner *p, int n_used)
{
    const int64_t least = LEAST_QUANTA * p->lanes * n_used * p->cost.accumulate;
    return p->cost.batch >= least ? p->lanes : 1;
}

/* Computes whole samples of each device, by weights[d] or (weights NULL) equally. */
static clt_status whole_samples(const clt_planner *p, const bool *use, const double *weights,
                                double *samples)
{
    const int n = p->cost.n_devices;
    int64_t *offsets = clt_calloc((size_t)n + 1, sizeof *offsets);
    double *used_weights = clt_calloc((size_t)n, sizeof *used_weights);
    int used = 0;
    for (int d = 0; used_weights && d < n; d++)
        if (use[d])
            used_weights[used++] = weights ? weights[d] : 1;
    clt_status status = offsets && used_weights ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_split(p->cost.batch, used, used_weights,
                               weights ? quantum_for(p, used) : 1, offsets));
    for (int d = 0, k = 0; status == CLT_OK && d < n; d++) {
        samples[d] = 0;
        if (!use[d])
            continue;
        samples[d] = (double)(offsets[k + 1] - offsets[k]);
        k++;
    }
    CLT_FREE(offsets, used_weights);
    return status;
}

/* Divides by speed. Each named device gets at least a quantum if the batch is large enough. */
static void weigh(const clt_planner *p, const bool *use, double *samples)
{
    const int n = p->cost.n_devices;
    int used = 0;
    clt_cost_divide(&p->cost, use, (double)p->cost.batch, samples);
    for (int d = 0; d < n; d++)
        used += use[d];
    const double least = (double)quantum_for(p, used);
    if (!p->named || least * used > (double)p->cost.batch)
        return;
    double missing = 0, more = 0;
    for (int d = 0; d < n; d++) {
        missing += use[d] ? fmax(0, least - samples[d]) : 0;
        more += use[d] ? fmax(0, samples[d] - least) : 0;
    }
    for (int d = 0; d < n; d++)
        if (use[d])
            samples[d] =
                samples[d] > least ? samples[d] - missing * (samples[d] - least) / more : least;
}

/* Sets p->samples to the division, in whole samples. */
static clt_status divide(const clt_planner *p, const bool *use, bool even)
{
    double *weights = clt_calloc((size_t)p->cost.n_devices, sizeof *weights);
    CLT_TRY_MEMORY(weights);
    weigh(p, use, weights);
    const clt_status status = whole_samples(p, use, even ? NULL : weights, p->samples);
    clt_free(weights);
    return status;
}

static const char *const algorithms[CLT_NETWORK_ALGORITHMS] = {"", "ring", "halving"};

static clt_prediction prediction_of(const clt_planner *p, const clt_step_cost *step, int ranks)
{
    clt_prediction out;
    clt_prediction_init(&out);
    out.step = step->seconds;
    out.compute = step->compute;
    out.update = step->update;
    out.reduction = step->reduction;
    out.exposed = step->exposed;
    out.samples_per_second = ranks * (double)p->cost.batch / step->seconds;
    out.efficiency = 1;
    out.bucket_bytes = clt_planner_bucket_bytes(p);
    memcpy(out.algorithm, algorithms[step->algorithm], strlen(algorithms[step->algorithm]) + 1);
    return out;
}

static clt_status predict(const clt_planner *p, const bool *use, bool even, clt_prediction *out)
{
    clt_step_cost step;
    CLT_TRY(divide(p, use, even));
    clt_cost_step(&p->cost, p->samples, &step);
    *out = prediction_of(p, &step, 1);
    return CLT_OK;
}

clt_status clt_planner_predict(const clt_planner *p, const int *use, int even,
                               clt_prediction *prediction)
{
    CLT_TRY(CLT_CHECK_STRUCT(prediction, clt_prediction));
    bool *chosen = clt_calloc((size_t)p->cost.n_devices, sizeof *chosen), any = false;
    CLT_TRY_MEMORY(chosen);
    for (int d = 0; d < p->cost.n_devices; d++) {
        chosen[d] = use ? use[d] != 0 : p->use[d];
        any = any || chosen[d];
    }
    clt_status status =
        any ? predict(p, chosen, even || (!use && !p->uneven), prediction)
            : clt_fail(CLT_INVALID_ARGUMENT, "a prediction needs at least one device in use");
    clt_free(chosen);
    return status;
}

clt_status clt_planner_simulate(const clt_planner *p, int ranks, const clt_link *link,
                                clt_prediction *prediction)
{
    CLT_TRY(CLT_CHECK_STRUCT(prediction, clt_prediction));
    if (p->rank_of)
        return clt_fail(CLT_UNSUPPORTED, "ranks can be simulated in a run of one process only");
    if (ranks < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "%d ranks: simulate at least 1", ranks);
    /* Sizes of buckets are in bytes of f32; the network transfers the gradients' precision. */
    const double width = (double)sizeof(float) / (double)clt_dtype_size(p->precision);
    const clt_network network = {width * link->bytes_per_second, link->latency};
    clt_bucket_choice choice;
    clt_step_cost one;
    CLT_TRY(divide(p, p->use, !p->uneven));
    clt_cost_step(&p->cost, p->samples, &one);
    CLT_TRY(clt_bucket_choose(&p->cost, &p->gradients, p->samples, ranks, &network, &choice));
    const clt_bucket_try *best = choice.best < 0 ? NULL : &choice.tries[choice.best];
    const clt_step_cost all = best ? best->step : one;
    *prediction = prediction_of(p, &all, ranks);
    prediction->efficiency = one.seconds / all.seconds;
    prediction->bucket_bytes = best ? best->bytes : 0;
    return CLT_OK;
}

/* --- decisions ------------------------------------------------------------------------------- */

static bool rank_begins(const clt_planner *p, int d)
{
    return d == 0 || (p->rank_of && p->rank_of[d] != p->rank_of[d - 1]);
}

/* Return the first device of the rank that has device d, and the end of its devices. */
static int rank_begin(const clt_planner *p, int d)
{
    while (!rank_begins(p, d))
        d--;
    return d;
}

static int rank_end(const clt_planner *p, int d)
{
    for (d++; d < p->cost.n_devices && !rank_begins(p, d);)
        d++;
    return d;
}

static bool rank_works(const clt_planner *p, const bool *use, int d)
{
    for (int k = rank_begin(p, d); k < rank_end(p, d); k++)
        if (use[k])
            return true;
    return false;
}

/* A rank cannot leave a training: a rank without samples keeps one device. */
static void keep_ranks(clt_planner *p)
{
    for (int d = 0; d < p->cost.n_devices; d++) {
        const bool idles = rank_begins(p, d) && !rank_works(p, p->use, d);
        p->keep[d] = p->use[d] || idles;
        p->idle = p->idle || idles;
    }
}

/* Chooses the bucket size for the division. */
static clt_status lay_buckets(clt_planner *p, bool even)
{
    CLT_TRY(divide(p, p->use, even));
    CLT_TRY(clt_bucket_choose(&p->cost, &p->gradients, p->samples, 1, NULL, &p->buckets));
    if (p->buckets.best >= 0)
        p->cost.n_buckets =
            clt_bucket_lay(&p->gradients, p->buckets.tries[p->buckets.best].bytes, p->cost.buckets);
    return CLT_OK;
}

static clt_status decide(clt_planner *p, bool choose)
{
    clt_prediction even, uneven;
    p->named = !choose;
    for (int d = 0; d < p->cost.n_devices; d++)
        p->use[d] = true;
    CLT_TRY(lay_buckets(p, false));
    if (choose)
        CLT_TRY(clt_cost_choose(&p->cost, GAIN, p->use));
    keep_ranks(p);
    CLT_TRY(lay_buckets(p, false));
    for (int d = 0; d < p->cost.n_devices; d++)
        p->n_used += p->use[d];
    CLT_TRY(predict(p, p->use, true, &even));
    CLT_TRY(predict(p, p->use, false, &uneven));
    p->uneven = uneven.step < even.step * (1 - SPLIT_GAIN);
    p->quantum = p->uneven ? quantum_for(p, p->n_used) : 1;
    if (p->uneven)
        weigh(p, p->use, p->weights);
    /* Round to few digits, so that the weights' text is exact. */
    for (int d = 0; d < p->cost.n_devices; d++)
        p->weights[d] =
            p->uneven ? round(1e6 * p->weights[d] / (double)p->cost.batch) / 1e6 : p->use[d];
    return lay_buckets(p, !p->uneven);
}

/* "172 + 84 samples" */
static void add_split(clt_planner *p)
{
    const char *before = "";
    for (int d = 0; d < p->cost.n_devices; d++) {
        if (!p->use[d])
            continue;
        clt_str_add(&p->text, "%s%.0f", before, p->samples[d]);
        before = " + ";
    }
}

static void describe_speed(clt_planner *p, int d)
{
    const clt_speed *s = &p->cost.speeds[d];
    const int last = s->n_points - 1;
    clt_str_add(&p->text, "%s: %.0f samples/s, %.3f ms for %.0f and the update\n", p->labels[d],
                s->samples[last] / (s->seconds[last] + s->update),
                1e3 * (s->seconds[last] + s->update), s->samples[last]);
}

/* Describes a device that gets no samples. */
static clt_status describe_unused(clt_planner *p, int d)
{
    clt_prediction with;
    p->use[d] = true;
    const clt_status status = predict(p, p->use, false, &with);
    p->use[d] = false;
    CLT_TRY(status);
    clt_str_add(&p->text,
                "%s %s: with it a step would take %.3f ms; name it in --devices to use it\n",
                p->labels[d], p->keep[d] ? "gets no samples" : "is left out", 1e3 * with.step);
    return CLT_OK;
}

/* "0, 2" */
static void add_ranks(clt_planner *p, const bool *use)
{
    const char *before = "";
    for (int d = 0; d < p->cost.n_devices; d++)
        if (rank_begins(p, d) && rank_works(p, use, d)) {
            clt_str_add(&p->text, "%s%d", before, p->rank_of[d]);
            before = ", ";
        }
}

/* Says whether a job of fewer ranks, which reduces less, would be faster. */
static clt_status describe_fewer(clt_planner *p, const clt_prediction *own)
{
    const int n = p->cost.n_devices;
    bool *use = clt_calloc((size_t)n, sizeof *use), fewer = false;
    clt_prediction without;
    CLT_TRY_MEMORY(use);
    p->cost.idle_ranks = false;
    clt_status status = clt_cost_choose(&p->cost, 0, use);
    CLT_NEXT(status, predict(p, use, false, &without));
    p->cost.idle_ranks = true;
    for (int d = 0; d < n; d++)
        fewer = fewer || !rank_works(p, use, d);
    if (status == CLT_OK && fewer && without.step < own->step * (1 - GAIN)) {
        clt_str_add(&p->text, "warning: a step would take %.3f ms in a job of what is now rank ",
                    1e3 * without.step);
        add_ranks(p, use);
        clt_str_add(&p->text, " alone, less than among %d ranks: start fewer\n", p->world->ranks);
    }
    clt_free(use);
    return status;
}

static clt_status describe(clt_planner *p)
{
    clt_prediction own;
    for (int d = 0; d < p->cost.n_devices && d < LISTED; d++)
        describe_speed(p, d);
    if (p->cost.n_devices > LISTED)
        clt_str_add(&p->text, "... and %d more devices\n", p->cost.n_devices - LISTED);
    for (int d = 0; d < p->cost.n_devices; d++)
        if (!p->use[d])
            CLT_TRY(describe_unused(p, d));
    CLT_TRY(predict(p, p->use, !p->uneven, &own));
    if (p->rank_of)
        CLT_TRY(describe_fewer(p, &own));
    CLT_TRY(predict(p, p->use, !p->uneven, &own)); /* restores the division, for add_split */
    clt_str_add(&p->text, "batch %lld on %d device%s: ", (long long)p->cost.batch, p->n_used,
                p->n_used == 1 ? "" : "s");
    add_split(p);
    clt_str_add(&p->text, p->n_used == 1 ? "" : p->uneven ? " by speed" : " equally");
    clt_str_add(&p->text, "; predicted %.3f ms a step, %.0f samples/s", 1e3 * own.step,
                own.samples_per_second);
    if (own.reduction > 0)
        clt_str_add(&p->text, ", reduction %.3f ms, exposed %.3f ms", 1e3 * own.reduction,
                    1e3 * own.exposed);
    clt_str_add(&p->text, "\n");
    clt_bucket_describe(&p->buckets, p->cost.on_host, &p->text);
    return p->text.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

/* --- the object ------------------------------------------------------------------------------ */

static clt_status allocate(clt_planner *p, const clt_probe_result *r,
                           const clt_trainer_options *options)
{
    const size_t n = (size_t)r->count;
    p->cost.n_devices = r->count;
    p->cost.batch = options->batch;
    p->cost.accumulate = options->accumulate;
    p->cost.speeds = clt_calloc(n, sizeof *p->cost.speeds);
    p->cost.hosts = p->hosts = clt_calloc(n, sizeof *p->hosts);
    p->labels = clt_calloc(n, sizeof *p->labels);
    p->use = clt_calloc(n, sizeof *p->use);
    p->keep = clt_calloc(n, sizeof *p->keep);
    p->samples = clt_calloc(n, sizeof *p->samples);
    p->weights = clt_calloc(n, sizeof *p->weights);
    CLT_TRY_MEMORY(p->cost.speeds && p->hosts && p->labels && p->use && p->keep && p->samples &&
                   p->weights);
    if (options->world && options->world->ranks > 1) {
        p->cost.rank_of = p->rank_of = clt_calloc(n, sizeof *p->rank_of);
        p->cost.idle_ranks = true;
        CLT_TRY_MEMORY(p->rank_of);
    }
    for (int d = 0; d < r->count; d++) {
        const clt_probe_device *device = &r->devices[d];
        p->lanes = p->lanes < device->lanes ? device->lanes : p->lanes;
        p->hosts[d] = device->host;
        if (p->rank_of)
            p->rank_of[d] = device->rank;
        CLT_TRY_MEMORY(p->labels[d] = clt_strdup(device->label));
    }
    return CLT_OK;
}

/* Makes decisions from measurements. Both are the same on all ranks. */
static clt_status plan(clt_planner *p, clt_probe_result *result, const clt_trainer_options *options,
                       bool choose)
{
    bool on_host = false;
    for (int d = 0; d < result->count; d++)
        on_host = on_host || result->devices[d].on_host;
    CLT_TRY(allocate(p, result, options));
    CLT_TRY(make_cost(p, on_host, result));
    CLT_TRY(decide(p, choose));
    return describe(p);
}

/* If one rank names its devices, no rank drops devices. */
static clt_status all_choose(const clt_world *world, bool *choose)
{
    const int32_t own = *choose;
    void *all;
    CLT_TRY(clt_ranks_gather(world, &own, sizeof own, &all));
    for (int r = 0; world && r < world->ranks; r++)
        *choose = *choose && ((const int32_t *)all)[r];
    clt_free(all);
    return CLT_OK;
}

static clt_status make(clt_planner *p, const clt_graph *graph, clt_device *const *devices,
                       int count, const clt_trainer_options *options,
                       const clt_planner_options *own)
{
    int total;
    bool choose = own->choose != 0;
    p->world = options->world;
    p->count = count;
    if (p->world)
        clt_slow_rank(p->world->rank);
    CLT_TRY(clt_world_count(p->world, count, &p->first, &total));
    CLT_TRY(all_choose(p->world, &choose));
    const int64_t shares = (int64_t)total * options->accumulate;
    const clt_probe_options probe = {.samples = (options->batch + shares - 1) / shares,
                                     .seconds = own->seconds,
                                     .trainer = options,
                                     .stop = own->stop,
                                     .user = own->user};
    clt_probe_result result;
    clt_status status = clt_probe_run(graph, devices, count, &probe, &result);
    if (status != CLT_OK) /* the failure is on all ranks */
        return status == CLT_STOPPED
                   ? status
                   : clt_fail_prefix(status, "while steps were measured, before the first one: ");
    status = plan(p, &result, options, choose);
    clt_probe_free(&result);
    return clt_ranks_agree(p->world, status, NULL);
}

static clt_status check(int count, const clt_trainer_options *options,
                        const clt_planner_options *own)
{
    CLT_TRY(CLT_CHECK_STRUCT(own, clt_planner_options));
    if (count < 1 || options->batch < 1 || options->accumulate < 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "batch %lld, accumulate %d, %d devices: each must be at least 1",
                        (long long)options->batch, options->accumulate, count);
    return CLT_OK;
}

clt_status clt_planner_create(const clt_graph *graph, clt_device *const *devices, int count,
                              const clt_trainer_options *options,
                              const clt_planner_options *planner_options, clt_planner **out)
{
    clt_planner_options own;
    clt_planner_options_init(&own);
    own = planner_options ? *planner_options : own;
    clt_planner *p = CLT_NEW(clt_planner);
    clt_status status = p ? check(count, options, &own) : CLT_OUT_OF_MEMORY;
    status = clt_ranks_agree(options->world, status, NULL);
    if (status == CLT_OK)
        p->precision = options->precision;
    CLT_NEXT(status, make(p, graph, devices, count, options, &own));
    if (status != CLT_OK) {
        clt_planner_destroy(p);
        return status;
    }
    *out = p;
    return CLT_OK;
}

void clt_planner_destroy(clt_planner *p)
{
    if (!p)
        return;
    for (int d = 0; p->labels && d < p->cost.n_devices; d++)
        clt_free(p->labels[d]);
    CLT_FREE(p->labels, p->cost.speeds, p->cost.buckets, p->gradients.list, p->rank_of, p->hosts,
             p->use, p->keep, p->samples, p->weights);
    clt_str_free(&p->text);
    clt_free(p);
}

int clt_planner_uses(const clt_planner *p, int device)
{
    return device >= 0 && device < p->count && p->keep[p->first + device];
}

int clt_planner_weights(const clt_planner *p, double *weights, int64_t *quantum)
{
    const bool has_weights = p->uneven || p->idle;
    for (int d = 0, k = 0; d < p->cost.n_devices; d++)
        if (p->keep[d])
            weights[k++] = has_weights ? p->weights[d] : 1;
    *quantum = p->quantum;
    return has_weights;
}

int64_t clt_planner_bucket_bytes(const clt_planner *p)
{
    return p->buckets.best < 0 ? 0 : p->buckets.tries[p->buckets.best].bytes;
}

const clt_cost *clt_planner_cost(const clt_planner *p)
{
    return &p->cost;
}

const char *clt_planner_text(const clt_planner *p)
{
    return clt_str_text(&p->text);
}
