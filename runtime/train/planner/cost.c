#include "train/planner/cost.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/clock.h"

/* --- one device ------------------------------------------------------------------------------ */

/* Interpolates on the line through the first and the last point. The part that does not depend on
 * samples is at least 0. */
static double micro_batch(const clt_speed *s, double samples)
{
    const int last = s->n_points - 1;
    const double n = s->samples[last], t = s->seconds[last];
    double each = t / n;
    if (last > 0 && s->seconds[0] < t)
        each = fmin(each, (t - s->seconds[0]) / (n - s->samples[0]));
    else if (last > 0) /* no measurable cost: assume a hundredth, not 0 */
        each = 0.01 * t / n;
    return t + each * (samples - n);
}

/* Predicts forward and backward of `samples` in micro-batches. `others_idle`: the other devices are
 * idle.
 */
static double speed_compute(const clt_speed *s, double samples, int accumulate, bool others_idle)
{
    if (samples <= 0)
        return 0;
    const double micro_batches = samples < accumulate ? ceil(samples) : accumulate;
    return micro_batches * micro_batch(s, samples / micro_batches) *
           (others_idle ? s->solo_fraction : 1);
}

/* --- a step ---------------------------------------------------------------------------------- */

static int working(const clt_cost *cost, const double *samples)
{
    int count = 0;
    for (int d = 0; d < cost->n_devices; d++)
        count += samples[d] > 0;
    return count;
}

/* Counts the ranks without samples. */
static int idle_ranks(const clt_cost *cost, const double *samples)
{
    int count = 0;
    for (int d = 0, next; d < cost->n_devices; d = next) {
        bool works = false;
        for (next = d; next < cost->n_devices && cost->rank_of[next] == cost->rank_of[d]; next++)
            works = works || samples[next] > 0;
        count += !works;
    }
    return count;
}

static int participants(const clt_cost *cost, const double *samples)
{
    return working(cost, samples) +
           (cost->rank_of && cost->idle_ranks ? idle_ranks(cost, samples) : 0);
}

bool clt_cost_reduces(const clt_cost *cost, const double *samples)
{
    return participants(cost, samples) > 1;
}

/* The loading time of the slowest rank, among those whose devices use all cores. */
static double loading(const clt_cost *cost, const double *samples)
{
    double longest = 0;
    for (int d = 0, next; cost->hosts && d < cost->n_devices; d = next) {
        double count = 0;
        int used = 0;
        for (next = d;
             next < cost->n_devices && (!cost->rank_of || cost->rank_of[next] == cost->rank_of[d]);
             next++) {
            count += samples[next];
            used += samples[next] > 0 ? cost->hosts[next].used : 0;
        }
        if (used >= cost->hosts[d].cores)
            longest = fmax(longest, cost->load * count);
    }
    return longest;
}

/* Fills the times of the device that takes longest. */
static void find_longest(const clt_cost *cost, const double *samples, bool others_idle,
                         bool reduces, clt_step_cost *step)
{
    for (int d = 0; d < cost->n_devices; d++) {
        const clt_speed *s = &cost->speeds[d];
        const double compute = speed_compute(s, samples[d], cost->accumulate, others_idle);
        const double update = s->update + (reduces ? 0 : s->status_time);
        if (samples[d] > 0 && compute + update > step->compute + step->update) {
            step->compute = compute;
            step->update = update;
        }
    }
}

void clt_cost_between(const clt_cost *cost, const double *samples, int ranks,
                      const clt_network *network, clt_step_cost *step)
{
    const int p = participants(cost, samples);
    const bool reduces = ranks > 1 || clt_cost_reduces(cost, samples);
    double end = 0, busy, largest = 0;
    *step = (clt_step_cost){0};
    find_longest(cost, samples, working(cost, samples) == 1, reduces, step);
    step->compute += loading(cost, samples);
    busy = step->compute;
    for (int b = 0; reduces && cost->on_host && b < cost->n_buckets; b++)
        busy += cost->reduction.latency + p * cost->buckets[b].bytes * cost->reduction.byte;
    for (int b = 0; reduces && b < cost->n_buckets; b++) {
        const clt_bucket_cost *bucket = &cost->buckets[b];
        const double local = cost->reduction.latency + p * bucket->bytes * cost->reduction.byte;
        clt_network_algorithm algorithm = CLT_NETWORK_NONE;
        const double between =
            ranks > 1 ? clt_network_reduce(network, ranks, bucket->bytes, &algorithm) : 0;
        end = fmax(end, bucket->ready * busy) + between + (cost->on_host ? 0 : local);
        step->reduction += local + between;
        if (bucket->bytes >= largest) {
            largest = bucket->bytes;
            step->algorithm = algorithm;
        }
    }
    step->exposed = fmax(busy, end) - step->compute + (reduces ? cost->together : 0);
    step->seconds = step->compute + step->exposed + step->update;
}

void clt_cost_step(const clt_cost *cost, const double *samples, clt_step_cost *step)
{
    clt_cost_between(cost, samples, 1, NULL, step);
}

/* --- division ---------------------------------------------------------------------------------
 */

/* Returns the samples, up to `most`, that a device computes in `seconds`. */
static double done_in(const clt_cost *cost, int d, bool others_idle, double seconds, double most)
{
    const clt_speed *s = &cost->speeds[d];
    double low = 0, high = most;
    for (int i = 0; i < 60; i++) {
        const double middle = 0.5 * (low + high);
        if (speed_compute(s, middle, cost->accumulate, others_idle) + s->update <= seconds)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double longest_compute(const clt_cost *cost, const bool *use, double total)
{
    double longest = 0;
    for (int d = 0; d < cost->n_devices; d++)
        if (use[d])
            longest =
                fmax(longest, speed_compute(&cost->speeds[d], total, cost->accumulate, false) +
                                  cost->speeds[d].update);
    return longest;
}

void clt_cost_divide(const clt_cost *cost, const bool *use, double total, double *samples)
{
    double low = 0, high = longest_compute(cost, use, total), sum = 0;
    for (int i = 0; i < 60; i++) {
        const double middle = 0.5 * (low + high);
        sum = 0;
        for (int d = 0; d < cost->n_devices; d++)
            sum += use[d] ? done_in(cost, d, false, middle, total) : 0;
        if (sum < total)
            low = middle;
        else
            high = middle;
    }
    sum = 0;
    for (int d = 0; d < cost->n_devices; d++) {
        samples[d] = use[d] ? done_in(cost, d, false, high, total) : 0;
        if (samples[d] < 1e-6 * total)
            samples[d] = 0;
        sum += samples[d];
    }
    for (int d = 0; d < cost->n_devices; d++)
        samples[d] *= total / sum;
}

static clt_status step_of(const clt_cost *cost, const bool *use, double *seconds)
{
    double *samples = clt_calloc((size_t)cost->n_devices, sizeof *samples);
    CLT_TRY_MEMORY(samples);
    clt_step_cost step;
    clt_cost_divide(cost, use, (double)cost->batch, samples);
    clt_cost_step(cost, samples, &step);
    *seconds = step.seconds;
    clt_free(samples);
    return CLT_OK;
}

/* Returns true if an unused device of the same rank has the same speed. One such device stands for
 * all, since devices of a kind have the same numbers. */
static bool same_as_before(const clt_cost *cost, const bool *use, int d)
{
    for (int k = d - 1; k >= 0; k--)
        if (!use[k] && (!cost->rank_of || cost->rank_of[k] == cost->rank_of[d]) &&
            !memcmp(&cost->speeds[k], &cost->speeds[d], sizeof *cost->speeds))
            return true;
    return false;
}

clt_status clt_cost_choose(const clt_cost *cost, double gain, bool *use)
{
    double best = INFINITY;
    for (int d = 0; d < cost->n_devices; d++)
        use[d] = false;
    for (;;) {
        int next = -1;
        double next_seconds = INFINITY;
        for (int d = 0; d < cost->n_devices; d++) {
            double seconds;
            if (use[d] || same_as_before(cost, use, d))
                continue;
            use[d] = true;
            CLT_TRY(step_of(cost, use, &seconds));
            use[d] = false;
            if (seconds < next_seconds) {
                next = d;
                next_seconds = seconds;
            }
        }
        if (next < 0 || !(next_seconds < best * (1 - gain)))
            return CLT_OK;
        use[next] = true;
        best = next_seconds;
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

double clt_network_reduce(const clt_network *network, int ranks, double bytes,
                          clt_network_algorithm *algorithm)
{
    const double w = ranks, stages = floor(log2(w)), power = exp2(stages);
    const double each = bytes / network->bytes_per_second;
    const double ring = 2 * (w - 1) * network->latency + 2 * (w - 1) / w * each;
    double halving = 2 * stages * network->latency + 2 * (power - 1) / power * each;
    if (power < w)
        halving += 2 * (network->latency + each);
    *algorithm = ring <= halving ? CLT_NETWORK_RING : CLT_NETWORK_HALVING;
    return fmin(ring, halving);
}

/* --- noise ----------------------------------------------------------------------------------- */

/* Returns true if the ratios to the median, one for each round, show that a device is slower. Sorts
 * the ratios. One round in five may be an outlier. */
static bool slower(double *ratios, int rounds, double tolerance)
{
    return clt_clock_median(ratios, rounds) > 1 + tolerance &&
           ratios[rounds / 5] > 1 + tolerance / 3;
}

enum { MOST_OF_KIND = 64, MOST_ROUNDS = 16 };

void clt_cost_equal(const double *seconds, int n, int rounds, double tolerance, bool *equal)
{
    double row[MOST_OF_KIND], above[MOST_ROUNDS], below[MOST_ROUNDS];
    const int counted = n < MOST_OF_KIND ? n : MOST_OF_KIND;
    rounds = rounds < MOST_ROUNDS ? rounds : MOST_ROUNDS;
    for (int d = 0; d < n; d++) {
        for (int r = 0; r < rounds; r++) {
            for (int k = 0; k < counted; k++)
                row[k] = seconds[r * n + k];
            /* Of two devices the faster is the median, so that the slower one differs from it. */
            above[r] = seconds[r * n + d] / clt_clock_median(row, counted);
            below[r] = 1 / above[r];
        }
        equal[d] = !slower(above, rounds, tolerance) && !slower(below, rounds, tolerance);
    }
}
