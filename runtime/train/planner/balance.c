#include "train/planner/balance.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/planner/clock.h"
#include <cltrain/data.h>

static const double WORTH = 0.1;

/* --- times ----------------------------------------------------------------------------------- */

clt_status clt_balance_begin(clt_trainer *t, int d)
{
    if (t->options.rebalance)
        t->devices[d].began = clt_clock();
    return CLT_OK;
}

clt_status clt_balance_end(clt_trainer *t, int d)
{
    if (!t->options.rebalance || t->total == 1)
        return CLT_OK;
    CLT_TRY(clt_device_finish(t->store->replicas[d].device));
    t->devices[d].busy = clt_clock() - t->devices[d].began;
    return CLT_OK;
}

/* --- the policy ------------------------------------------------------------------------------ */

/* Keeps all weights between those of a quantum and of `most`; the others share the rest. */
static void bound(double *weights, int n, double least, double most)
{
    for (int pass = 0; pass < n; pass++) {
        double fixed = 0, free = 0;
        for (int d = 0; d < n; d++) {
            weights[d] = fmin(fmax(weights[d], least), most);
            if (weights[d] == least || weights[d] == most)
                fixed += weights[d];
            else
                free += weights[d];
        }
        for (int d = 0; free > 0 && d < n; d++)
            if (weights[d] > least && weights[d] < most)
                weights[d] *= fmax(0, 1 - fixed) / free;
    }
}

bool clt_balance_find(const int64_t *shares, const double *seconds, int n, int64_t batch,
                      int64_t quantum, int64_t most, double *weights)
{
    double sum = 0, longest = 0, next = 0;
    int64_t offsets[CLT_MOST_DEVICES + 1];
    for (int d = 0; d < n; d++) {
        /* Nothing is known of a device without samples: it stays so. */
        weights[d] = shares[d] && seconds[d] > 0 ? (double)shares[d] / seconds[d] : 0;
        sum += weights[d];
        longest = fmax(longest, shares[d] ? seconds[d] : 0);
    }
    if (!(sum > 0) || n > CLT_MOST_DEVICES)
        return false;
    for (int d = 0; d < n; d++)
        weights[d] /= sum;
    bound(weights, n, fmin((double)quantum / (double)batch, 1.0 / n), (double)most / (double)batch);
    /* Few digits, so that a text of them is exact. */
    for (int d = 0; d < n; d++)
        weights[d] = round(1e6 * weights[d]) / 1e6;
    if (clt_split(batch, n, weights, quantum, offsets) != CLT_OK)
        return false;
    for (int d = 0; d < n; d++) {
        const int64_t share = offsets[d + 1] - offsets[d];
        if (share > most)
            return false;
        if (shares[d])
            next = fmax(next, seconds[d] / (double)shares[d] * (double)share);
    }
    return next < longest * (1 - WORTH);
}

clt_status clt_balance_create(const clt_trainer *t, int64_t batch, clt_balance **out)
{
    clt_balance *b = CLT_NEW(clt_balance);
    if (!b)
        return CLT_OUT_OF_MEMORY;
    b->n = t->n_devices;
    b->batch = batch;
    b->seconds = clt_calloc((size_t)b->n * CLT_BALANCE_WINDOW, sizeof *b->seconds);
    b->weights = clt_calloc((size_t)b->n, sizeof *b->weights);
    if (!b->seconds || !b->weights) {
        clt_balance_free(b);
        return CLT_OUT_OF_MEMORY;
    }
    *out = b;
    return CLT_OK;
}

void clt_balance_free(clt_balance *b)
{
    if (!b)
        return;
    clt_free(b->seconds);
    clt_free(b->weights);
    clt_free(b);
}

/* Whole lanes, where there are some for each device. */
static int64_t quantum_of(const clt_trainer *t, int64_t batch)
{
    int64_t lanes = 1;
    for (int d = 0; d < t->n_devices; d++) {
        const int width = t->store->replicas[d].device->caps.vector_width;
        lanes = width > lanes ? width : lanes;
    }
    return batch >= 4 * lanes * t->n_devices * t->options.accumulate ? lanes : 1;
}

clt_status clt_balance_step(clt_balance *b, const clt_trainer *t, bool *change)
{
    double middle[CLT_MOST_DEVICES], times[CLT_BALANCE_WINDOW];
    int64_t shares[CLT_MOST_DEVICES];
    *change = false;
    if (t->offsets[t->n_devices] != b->batch) /* the last one of an epoch */
        return CLT_OK;
    for (int d = 0; d < b->n; d++)
        b->seconds[b->steps * b->n + d] = t->devices[d].busy;
    if (++b->steps < CLT_BALANCE_WINDOW)
        return CLT_OK;
    b->steps = 0;
    for (int d = 0; d < b->n; d++) {
        for (int i = 0; i < CLT_BALANCE_WINDOW; i++)
            times[i] = b->seconds[i * b->n + d];
        middle[d] = clt_clock_median(times, CLT_BALANCE_WINDOW);
        shares[d] = t->offsets[d + 1] - t->offsets[d];
    }
    b->quantum = quantum_of(t, b->batch);
    *change = clt_balance_find(shares, middle, b->n, b->batch, b->quantum,
                               t->per_device * t->max_micros, b->weights);
    return CLT_OK;
}

/* --- what was changed ------------------------------------------------------------------------ */

static clt_status make_room(clt_split_history *h)
{
    const int room = h->room ? 2 * h->room : 8;
    void *steps = clt_realloc(h->steps, (size_t)room * sizeof *h->steps);
    if (!steps)
        return CLT_OUT_OF_MEMORY;
    h->steps = steps;
    void *quanta = clt_realloc(h->quanta, (size_t)room * sizeof *h->quanta);
    if (!quanta)
        return CLT_OUT_OF_MEMORY;
    h->quanta = quanta;
    void *weights = clt_realloc(h->weights, (size_t)room * (size_t)h->n * sizeof *h->weights);
    if (!weights)
        return CLT_OUT_OF_MEMORY;
    h->weights = weights;
    h->room = room;
    return CLT_OK;
}

clt_status clt_split_history_add(clt_split_history **history, int n, int64_t step,
                                 const double *weights, int64_t quantum)
{
    if (!*history && !(*history = CLT_NEW(clt_split_history)))
        return CLT_OUT_OF_MEMORY;
    clt_split_history *h = *history;
    h->n = n;
    if (h->count == h->room)
        CLT_TRY(make_room(h));
    h->steps[h->count] = step;
    h->quanta[h->count] = quantum;
    memcpy(h->weights + (size_t)h->count++ * (size_t)n, weights, (size_t)n * sizeof *weights);
    return CLT_OK;
}

void clt_split_history_free(clt_split_history *h)
{
    if (!h)
        return;
    clt_free(h->steps);
    clt_free(h->quanta);
    clt_free(h->weights);
    clt_free(h);
}

/* --- the trainer ----------------------------------------------------------------------------- */

static clt_status check_room(const clt_trainer *t, const double *weights, int64_t quantum)
{
    int64_t *capacity = clt_calloc((size_t)t->n_devices, sizeof *capacity);
    if (!capacity)
        return CLT_OUT_OF_MEMORY;
    const int64_t most = t->per_device * t->max_micros;
    clt_status status =
        clt_split_capacity(t->options.batch, t->n_devices, weights, quantum, capacity);
    for (int d = 0; status == CLT_OK && d < t->n_devices; d++)
        if (capacity[d] > most)
            status = clt_fail(
                CLT_INVALID_ARGUMENT, "the weights give %s %lld samples; there is room for %lld",
                t->store->replicas[d].device->label, (long long)capacity[d], (long long)most);
    clt_free(capacity);
    return status;
}

clt_status clt_trainer_set_weights(clt_trainer *t, const double *weights, int64_t quantum)
{
    if (!t->options.rebalance)
        return clt_fail(CLT_STATE, "this trainer was made without rebalance: its division stays");
    if (t->phase)
        return clt_fail(CLT_STATE, "the division cannot change within a step");
    CLT_TRY(check_room(t, weights, quantum));
    CLT_TRY(clt_split_history_add(&t->history, t->n_devices, t->steps, weights, quantum));
    memcpy(t->shares, weights, (size_t)t->n_devices * sizeof *weights);
    t->options.quantum = quantum;
    return CLT_OK;
}
