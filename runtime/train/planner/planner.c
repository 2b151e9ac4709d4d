#include <cltrain/planner.h>

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "device/device.h"
#include "train/planner/clock.h"
#include "train/planner/probe.h"
#include <cltrain/data.h>

/* A device must save so much of a step to be used; an uneven split so much to be made; and devices
 * of a kind differ by more than that. */
static const double GAIN = 0.05, SPLIT_GAIN = 0.03, TOLERANCE = 0.45;

/* Lanes that a device must have of its share for the division to be in whole lanes. */
enum { LEAST_QUANTA = 4 };

struct clt_planner {
    clt_cost cost;
    char **labels;
    bool *use;
    int n_used;
    double *samples; /* by device, scratch */
    double *weights; /* by device */
    bool uneven;
    int64_t lanes, quantum;
    clt_str text;
};

void clt_planner_options_init(clt_planner_options *options)
{
    *options = (clt_planner_options){.struct_size = sizeof *options, .seconds = 2};
}

void clt_prediction_init(clt_prediction *prediction)
{
    *prediction = (clt_prediction){.struct_size = sizeof *prediction};
}

/* --- from measured times to a model ---------------------------------------------------------- */

static bool same_kind(const clt_device *a, const clt_device *b)
{
    return a->identity == b->identity && !memcmp(&a->caps, &b->caps, sizeof a->caps);
}

static void fill_speed(const clt_probe_result *r, int n, int d, clt_speed *s)
{
    s->update = r->update[d];
    s->word = r->word[d];
    s->n_points = 0;
    for (int i = r->samples[0] < r->samples[1] ? 0 : 1; i < CLT_SPEED_POINTS; i++) {
        double times[CLT_PROBE_ROUNDS];
        for (int k = 0; k < r->rounds; k++)
            times[k] = r->seconds[i][k * n + d];
        const double step = clt_clock_median(times, r->rounds);
        s->samples[s->n_points] = r->samples[i];
        s->seconds[s->n_points++] = fmax(step - s->update - s->word, 0.1 * step);
    }
    const double together = s->seconds[s->n_points - 1];
    s->alone = fmin(1, fmax((r->alone[d] - s->update - s->word) / together, 0.1));
}

/* Gives those of members[] that do not differ the mean of their times. */
static void level(clt_speed *speeds, const int *members, const bool *equal, int count)
{
    clt_speed mean = {0};
    int n = 0;
    for (int i = 0; i < count; i++) {
        const clt_speed *s = &speeds[members[i]];
        if (!equal[i])
            continue;
        n++;
        for (int k = 0; k < s->n_points; k++)
            mean.seconds[k] += s->seconds[k];
        mean.alone += s->alone;
        mean.update += s->update;
        mean.word += s->word;
    }
    for (int i = 0; i < count; i++) {
        clt_speed *s = &speeds[members[i]];
        if (!equal[i])
            continue;
        for (int k = 0; k < s->n_points; k++)
            s->seconds[k] = mean.seconds[k] / n;
        s->alone = mean.alone / n;
        s->update = mean.update / n;
        s->word = mean.word / n;
    }
}

/* The devices from `first` on that are of its kind; their times by round. */
static clt_status level_kind(clt_planner *p, clt_device *const *devices, int first,
                             const clt_probe_result *r)
{
    const int n = p->cost.n_devices;
    int *members = clt_calloc((size_t)n, sizeof *members), count = 0;
    bool *equal = clt_calloc((size_t)n, sizeof *equal);
    double *seconds = clt_calloc((size_t)n * CLT_PROBE_ROUNDS, sizeof *seconds);
    if (members && equal && seconds) {
        for (int d = first; d < n; d++)
            if (same_kind(devices[d], devices[first]))
                members[count++] = d;
        for (int k = 0; k < r->rounds; k++)
            for (int i = 0; i < count; i++)
                seconds[k * count + i] = r->seconds[CLT_SPEED_POINTS - 1][k * n + members[i]];
        clt_cost_equal(seconds, count, r->rounds, TOLERANCE, equal);
        level(p->cost.speeds, members, equal, count);
    }
    const bool failed = !members || !equal || !seconds;
    clt_free(members);
    clt_free(equal);
    clt_free(seconds);
    return failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

static clt_status make_cost(clt_planner *p, clt_device *const *devices, clt_probe_result *r)
{
    const int n = p->cost.n_devices;
    for (int d = 0; d < n; d++)
        fill_speed(r, n, d, &p->cost.speeds[d]);
    for (int d = 0; d < n; d++) {
        bool first = true;
        for (int k = 0; k < d; k++)
            first = first && !same_kind(devices[k], devices[d]);
        if (first)
            CLT_TRY(level_kind(p, devices, d, r));
        p->cost.on_host = p->cost.on_host || clt_caps_is_cpu(&devices[d]->caps);
    }
    double reduction = 0, word = 0;
    for (int b = 0; b < r->n_buckets; b++)
        reduction += r->reduction.latency + n * r->buckets[b].bytes * r->reduction.byte;
    for (int d = 0; d < n; d++)
        word = fmax(word, r->word[d]);
    p->cost.together = n > 1 ? fmax(0, r->few_together - (r->few_apart - word) - reduction) : 0;
    p->cost.reduction = r->reduction;
    p->cost.buckets = r->buckets;
    p->cost.n_buckets = r->n_buckets;
    r->buckets = NULL; /* the planner's now */
    return CLT_OK;
}

/* --- predictions ----------------------------------------------------------------------------- */

static int64_t quantum_for(const clt_planner *p, int n_used)
{
    const int64_t least = LEAST_QUANTA * p->lanes * n_used * p->cost.accumulate;
    return p->cost.batch >= least ? p->lanes : 1;
}

/* Whole samples of each device: by its weight, or (weights NULL) equally. */
static clt_status whole_samples(const clt_planner *p, const bool *use, const double *weights,
                                double *samples)
{
    const int n = p->cost.n_devices;
    int64_t *offsets = clt_calloc((size_t)n + 1, sizeof *offsets);
    double *given = clt_calloc((size_t)n, sizeof *given);
    int used = 0;
    for (int d = 0; given && d < n; d++)
        if (use[d])
            given[used++] = weights ? weights[d] : 1;
    clt_status status = offsets && given ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK)
        status = clt_split(p->cost.batch, used, given, weights ? quantum_for(p, used) : 1, offsets);
    for (int d = 0, k = 0; status == CLT_OK && d < n; d++) {
        samples[d] = 0;
        if (!use[d])
            continue;
        samples[d] = (double)(offsets[k + 1] - offsets[k]);
        k++;
    }
    clt_free(offsets);
    clt_free(given);
    return status;
}

/* p->samples becomes the division, in whole samples. */
static clt_status divide(const clt_planner *p, const bool *use, bool even)
{
    double *weights = clt_calloc((size_t)p->cost.n_devices, sizeof *weights);
    if (!weights)
        return CLT_OUT_OF_MEMORY;
    clt_cost_divide(&p->cost, use, (double)p->cost.batch, weights);
    const clt_status status = whole_samples(p, use, even ? NULL : weights, p->samples);
    clt_free(weights);
    return status;
}

static const char *const ways[CLT_WAYS] = {"", "ring", "halving"};

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
    memcpy(out.way, ways[step->way], strlen(ways[step->way]) + 1);
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
    bool *chosen = clt_calloc((size_t)p->cost.n_devices, sizeof *chosen), any = false;
    if (!chosen)
        return CLT_OUT_OF_MEMORY;
    for (int d = 0; d < p->cost.n_devices; d++) {
        chosen[d] = use ? use[d] != 0 : p->use[d];
        any = any || chosen[d];
    }
    clt_status status = any ? predict(p, chosen, even || (!use && !p->uneven), prediction)
                            : clt_fail(CLT_INVALID_ARGUMENT, "a step on no device");
    clt_free(chosen);
    return status;
}

clt_status clt_planner_simulate(const clt_planner *p, int ranks, const clt_link *link,
                                clt_prediction *prediction)
{
    if (ranks < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "%d ranks are not possible", ranks);
    const clt_network network = {link->bytes_per_second, link->latency};
    clt_step_cost one, all;
    CLT_TRY(divide(p, p->use, !p->uneven));
    clt_cost_step(&p->cost, p->samples, &one);
    clt_cost_between(&p->cost, p->samples, ranks, &network, &all);
    *prediction = prediction_of(p, &all, ranks);
    prediction->efficiency = one.seconds / all.seconds;
    return CLT_OK;
}

/* --- decisions ------------------------------------------------------------------------------- */

static clt_status decide(clt_planner *p, bool choose)
{
    clt_prediction even, uneven;
    for (int d = 0; d < p->cost.n_devices; d++)
        p->use[d] = true;
    if (choose)
        CLT_TRY(clt_cost_choose(&p->cost, GAIN, p->use));
    for (int d = 0; d < p->cost.n_devices; d++)
        p->n_used += p->use[d];
    CLT_TRY(predict(p, p->use, true, &even));
    CLT_TRY(predict(p, p->use, false, &uneven));
    p->uneven = uneven.step < even.step * (1 - SPLIT_GAIN);
    p->quantum = p->uneven ? quantum_for(p, p->n_used) : 1;
    if (p->uneven)
        clt_cost_divide(&p->cost, p->use, (double)p->cost.batch, p->weights);
    /* Few digits, so that a text of them is exact. */
    for (int d = 0; d < p->cost.n_devices; d++)
        p->weights[d] = round(1e6 * p->weights[d] / (double)p->cost.batch) / 1e6;
    return CLT_OK;
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

static clt_status describe(clt_planner *p)
{
    clt_prediction own, with;
    for (int d = 0; d < p->cost.n_devices; d++) {
        const clt_speed *s = &p->cost.speeds[d];
        const int last = s->n_points - 1;
        clt_str_add(&p->text, "%s: %.0f samples/s, %.3f ms for %.0f and the update\n", p->labels[d],
                    s->samples[last] / (s->seconds[last] + s->update),
                    1e3 * (s->seconds[last] + s->update), s->samples[last]);
    }
    CLT_TRY(predict(p, p->use, !p->uneven, &own));
    for (int d = 0; d < p->cost.n_devices; d++) {
        if (p->use[d])
            continue;
        p->use[d] = true;
        const clt_status status = predict(p, p->use, false, &with);
        p->use[d] = false;
        CLT_TRY(status);
        clt_str_add(&p->text,
                    "%s is left out: with it a step would take %.3f ms; name it in --devices to "
                    "use it\n",
                    p->labels[d], 1e3 * with.step);
    }
    CLT_TRY(predict(p, p->use, !p->uneven, &own));
    clt_str_add(&p->text, "batch %lld on %d device%s: ", (long long)p->cost.batch, p->n_used,
                p->n_used == 1 ? "" : "s");
    add_split(p);
    clt_str_add(&p->text, p->n_used == 1 ? "" : p->uneven ? " by speed" : " equally");
    clt_str_add(&p->text, "; predicted %.3f ms a step, %.0f samples/s", 1e3 * own.step,
                own.samples_per_second);
    if (p->n_used > 1)
        clt_str_add(&p->text, ", reduction %.3f ms, exposed %.3f ms", 1e3 * own.reduction,
                    1e3 * own.exposed);
    clt_str_add(&p->text, "\n");
    return p->text.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

/* --- the object ------------------------------------------------------------------------------ */

static clt_status allocate(clt_planner *p, clt_device *const *devices, int count,
                           const clt_trainer_options *options)
{
    const size_t n = (size_t)count;
    p->cost.n_devices = count;
    p->cost.batch = options->batch;
    p->cost.accumulate = options->accumulate;
    p->cost.speeds = clt_calloc(n, sizeof *p->cost.speeds);
    p->labels = clt_calloc(n, sizeof *p->labels);
    p->use = clt_calloc(n, sizeof *p->use);
    p->samples = clt_calloc(n, sizeof *p->samples);
    p->weights = clt_calloc(n, sizeof *p->weights);
    if (!p->cost.speeds || !p->labels || !p->use || !p->samples || !p->weights)
        return CLT_OUT_OF_MEMORY;
    for (int d = 0; d < count; d++) {
        const int width = devices[d]->caps.vector_width;
        p->lanes = p->lanes < width ? width : p->lanes;
        if (!(p->labels[d] = clt_strdup(devices[d]->label)))
            return CLT_OUT_OF_MEMORY;
    }
    return CLT_OK;
}

static clt_status make(clt_planner *p, const clt_graph *graph, clt_device *const *devices,
                       int count, const clt_trainer_options *options,
                       const clt_planner_options *own)
{
    CLT_TRY(allocate(p, devices, count, options));
    const int64_t shares = (int64_t)count * options->accumulate;
    const clt_probe_options probe = {.samples = (options->batch + shares - 1) / shares,
                                     .seconds = own->seconds,
                                     .trainer = options,
                                     .stop = own->stop,
                                     .user = own->user};
    clt_probe_result result;
    CLT_TRY(clt_probe_run(graph, devices, count, &probe, &result));
    clt_status status = make_cost(p, devices, &result);
    clt_probe_free(&result);
    if (status == CLT_OK)
        status = decide(p, own->choose != 0);
    return status == CLT_OK ? describe(p) : status;
}

clt_status clt_planner_create(const clt_graph *graph, clt_device *const *devices, int count,
                              const clt_trainer_options *options,
                              const clt_planner_options *planner_options, clt_planner **out)
{
    clt_planner_options own;
    clt_planner_options_init(&own);
    if (planner_options && planner_options->struct_size != sizeof own)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "planner options were not set up by clt_planner_options_init");
    if (count < 1 || options->batch < 1 || options->accumulate < 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a training of %lld samples in %d micro-batches on %d devices is not "
                        "possible",
                        (long long)options->batch, options->accumulate, count);
    clt_planner *p = CLT_NEW(clt_planner);
    if (!p)
        return CLT_OUT_OF_MEMORY;
    const clt_status status =
        make(p, graph, devices, count, options, planner_options ? planner_options : &own);
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
    clt_free(p->labels);
    clt_free(p->cost.speeds);
    clt_free(p->cost.buckets);
    clt_free(p->use);
    clt_free(p->samples);
    clt_free(p->weights);
    clt_str_free(&p->text);
    clt_free(p);
}

int clt_planner_uses(const clt_planner *p, int device)
{
    return device >= 0 && device < p->cost.n_devices && p->use[device];
}

int clt_planner_weights(const clt_planner *p, double *weights, int64_t *quantum)
{
    for (int d = 0, k = 0; d < p->cost.n_devices; d++)
        if (p->use[d])
            weights[k++] = p->uneven ? p->weights[d] : 1;
    *quantum = p->quantum;
    return p->uneven;
}

const char *clt_planner_text(const clt_planner *p)
{
    return clt_str_text(&p->text);
}
