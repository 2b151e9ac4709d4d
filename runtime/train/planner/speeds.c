/* Computes the model's speeds of devices from a probe's measured times. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/clock.h"
#include "train/planner/measure_devices.h"

/* Devices of one kind count as different only beyond this deviation. */
static const double TOLERANCE = 0.45;

static void fill_speed(const clt_probe_result *r, int d, clt_speed *s)
{
    s->update = r->update[d];
    s->status_time = r->status_time[d];
    s->n_points = 0;
    for (int i = r->samples[0] < r->samples[1] ? 0 : 1; i < CLT_SPEED_POINTS; i++) {
        double times[CLT_PROBE_ROUNDS];
        memcpy(times, r->seconds[i] + d * CLT_PROBE_ROUNDS, sizeof times);
        const double step = clt_clock_median(times, r->rounds);
        s->samples[s->n_points] = r->samples[i];
        s->seconds[s->n_points++] = fmax(step - s->update - s->status_time, 0.1 * step);
    }
    const double together = s->seconds[s->n_points - 1];
    s->solo_fraction =
        fmin(1, fmax((r->solo_seconds[d] - s->update - s->status_time) / together, 0.1));
}

/* Gives the mean of their times to all members that do not differ. */
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
        mean.solo_fraction += s->solo_fraction;
        mean.update += s->update;
        mean.status_time += s->status_time;
    }
    for (int i = 0; i < count; i++) {
        clt_speed *s = &speeds[members[i]];
        if (!equal[i])
            continue;
        for (int k = 0; k < s->n_points; k++)
            s->seconds[k] = mean.seconds[k] / n;
        s->solo_fraction = mean.solo_fraction / n;
        s->update = mean.update / n;
        s->status_time = mean.status_time / n;
    }
}

/* Levels the devices of the same kind as `first`, from `first` on. */
static clt_status level_kind(const clt_probe_result *r, int first, clt_speed *speeds)
{
    const int n = r->count;
    int *members = clt_calloc((size_t)n, sizeof *members), count = 0;
    bool *equal = clt_calloc((size_t)n, sizeof *equal);
    double *seconds = clt_calloc((size_t)n * CLT_PROBE_ROUNDS, sizeof *seconds);
    if (members && equal && seconds) {
        for (int d = first; d < n; d++)
            if (r->devices[d].kind == r->devices[first].kind)
                members[count++] = d;
        for (int k = 0; k < r->rounds; k++)
            for (int i = 0; i < count; i++)
                seconds[k * count + i] =
                    r->seconds[CLT_SPEED_POINTS - 1][members[i] * CLT_PROBE_ROUNDS + k];
        clt_cost_equal(seconds, count, r->rounds, TOLERANCE, equal);
        level(speeds, members, equal, count);
    }
    const bool failed = !members || !equal || !seconds;
    CLT_FREE(members, equal, seconds);
    return failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

clt_status clt_probe_speeds(const clt_probe_result *r, clt_speed *speeds)
{
    for (int d = 0; d < r->count; d++)
        fill_speed(r, d, &speeds[d]);
    for (int d = 0; d < r->count; d++) {
        bool first = true;
        for (int k = 0; k < d; k++)
            first = first && r->devices[k].kind != r->devices[d].kind;
        if (first)
            CLT_TRY(level_kind(r, d, speeds));
    }
    return CLT_OK;
}
