#include "train/planner/balance.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "train/ranks/connect.h"
#include "train/ranks/shares.h"
#include <cltrain/data.h>

static const double WORTH = 0.1;

/* --- times ----------------------------------------------------------------------------------- */

void clt_balance_begin(clt_exchange_device *own)
{
    own->waited = 0;
    own->began = clt_clock();
}

clt_status clt_balance_end(clt_device *device, clt_exchange_device *own)
{
    CLT_TRY(clt_device_finish(device));
    own->busy = clt_clock() - own->began - own->waited;
    return CLT_OK;
}

bool clt_balance_defers(const clt_trainer_options *options, const clt_caps *caps, bool collectives)
{
    return options->rebalance && (collectives || clt_caps_is_cpu(caps));
}

/* --- the policy ------------------------------------------------------------------------------ */

/* Bounds all weights except 0 by `least` and `most`. The other weights are scaled up or down, so
 * that the sum stays 1. */
static void bound(double *weights, int n, double least, double most)
{
    for (int pass = 0; pass < 2 * n; pass++) {
        double sum = 0, free = 0;
        for (int d = 0; d < n; d++) {
            weights[d] = weights[d] > 0 ? fmin(fmax(weights[d], least), most) : 0;
            sum += weights[d];
        }
        for (int d = 0; d < n; d++)
            free += (sum < 1 ? weights[d] < most : weights[d] > least) ? weights[d] : 0;
        for (int d = 0; free > 0 && d < n; d++)
            if (sum < 1 ? weights[d] < most : weights[d] > least)
                weights[d] *= fmax(0, 1 - sum + free) / free;
    }
}

/* Computes weights from speeds. Each share is at least a quantum and at most `most` samples. */
static bool find_weights(const int64_t *shares, const double *seconds, int n, int64_t batch,
                         int64_t quantum, int64_t most, double *weights)
{
    double sum = 0;
    for (int d = 0; d < n; d++) {
        /* The speed of a device without samples is unknown, so it stays without samples. */
        weights[d] = shares[d] && seconds[d] > 0 ? (double)shares[d] / seconds[d] : 0;
        sum += weights[d];
    }
    if (!(sum > 0))
        return false;
    for (int d = 0; d < n; d++)
        weights[d] /= sum;
    bound(weights, n, fmin((double)quantum / (double)batch, 1.0 / n), (double)most / (double)batch);
    /* Round to few digits, so that the weights' text is exact. */
    for (int d = 0; d < n; d++)
        weights[d] = round(1e6 * weights[d]) / 1e6;
    return true;
}

static int64_t largest_of(const int64_t *capacity, int n)
{
    int64_t largest = 0;
    for (int d = 0; d < n; d++)
        largest = capacity[d] > largest ? capacity[d] : largest;
    return largest;
}

bool clt_balance_find(const int64_t *shares, const double *seconds, int n, int64_t batch,
                      int64_t quantum, int64_t most, int64_t *offsets, double *weights)
{
    enum { ATTEMPTS = 3 };
    double longest = 0, next = 0;
    int64_t largest = most + 1;
    /* A share in whole quanta may exceed its weight by one quantum. */
    for (int k = 0; k < ATTEMPTS && largest > most && most > k * quantum; k++) {
        if (!find_weights(shares, seconds, n, batch, quantum, most - k * quantum, weights) ||
            clt_split_capacity(batch, n, weights, quantum, offsets) != CLT_OK)
            return false;
        largest = largest_of(offsets, n);
    }
    if (largest > most || clt_split(batch, n, weights, quantum, offsets) != CLT_OK)
        return false;
    for (int d = 0; d < n; d++)
        if (shares[d]) {
            const double share = (double)(offsets[d + 1] - offsets[d]);
            next = fmax(next, seconds[d] / (double)shares[d] * share);
            longest = fmax(longest, seconds[d]);
        }
    return next < longest * (1 - WORTH);
}

clt_status clt_balance_create(const clt_participants *all, int64_t batch, clt_balance **out)
{
    clt_balance *b = CLT_NEW(clt_balance);
    CLT_TRY_MEMORY(b);
    const size_t n = (size_t)all->total, own = (size_t)all->own;
    b->n = all->total;
    b->batch = batch;
    b->seconds = clt_calloc(own * CLT_BALANCE_WINDOW, sizeof *b->seconds);
    b->middle = clt_calloc(n, sizeof *b->middle);
    b->told = clt_calloc(n * own, sizeof *b->told);
    b->offsets = clt_calloc(n + 1, sizeof *b->offsets);
    b->shares = clt_calloc(n, sizeof *b->shares);
    b->weights = clt_calloc(n, sizeof *b->weights);
    if (!b->seconds || !b->middle || !b->told || !b->offsets || !b->shares || !b->weights) {
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
    CLT_FREE(b->seconds, b->middle, b->told, b->offsets, b->shares, b->weights, b);
}

/* Returns the vector width if each device gets several whole vectors; else 1. */
static int64_t quantum_of(const clt_participants *all, const clt_shares *shares, int64_t batch)
{
    return batch >= 4 * all->lanes * all->total * shares->accumulate ? all->lanes : 1;
}

/* Gathers the median times of all ranks. Uses the communicator, so that its deadline applies. */
static clt_status tell(clt_balance *b, const clt_participants *all, const clt_collectives *c)
{
    clt_collective_request request[CLT_MOST_DEVICES];
    clt_collective_result result;
    for (int d = 0; all->ranks > 1 && d < all->own; d++) {
        float *told = b->told + (size_t)d * (size_t)b->n;
        told[all->first + d] = (float)b->middle[all->first + d];
        const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_GATHER,
                                     .host = told,
                                     .count = 1,
                                     .dtype = CLT_F32,
                                     .label = "times of the devices"};
        CLT_TRY(c->start(c->self, d, &what, 0, NULL, &request[d]));
    }
    for (int d = 0; all->ranks > 1 && d < all->own; d++)
        CLT_TRY(c->complete(c->self, d, &request[d], &result));
    for (int p = 0; all->ranks > 1 && p < b->n; p++)
        b->middle[p] = b->told[p];
    return CLT_OK;
}

clt_status clt_balance_check_room(const clt_participants *all, const clt_shares *shares,
                                  int64_t batch, const double *weights, int64_t quantum)
{
    int64_t *capacity = clt_calloc((size_t)all->total, sizeof *capacity);
    CLT_TRY_MEMORY(capacity);
    const int64_t most = shares->per_run * shares->max_micro_batches;
    clt_status status = clt_split_capacity(batch, all->total, weights, quantum, capacity);
    for (int p = 0; status == CLT_OK && p < all->total; p++)
        if (capacity[p] > most)
            status = clt_fail(CLT_INVALID_ARGUMENT,
                              "the weights give device %d (of those of all ranks) %lld samples; "
                              "there is room for %lld",
                              p, (long long)capacity[p], (long long)most);
    clt_free(capacity);
    return status;
}

clt_status clt_balance_step(clt_balance *b, const clt_participants *all, const clt_shares *shares,
                            const clt_exchange *exchange, int64_t largest, int64_t total,
                            bool *change)
{
    *change = false;
    if (total != b->batch) /* the last batch of an epoch */
        return CLT_OK;
    for (int d = 0; d < all->own; d++)
        b->seconds[d * CLT_BALANCE_WINDOW + b->steps] = exchange->devices[d].busy;
    if (++b->steps < CLT_BALANCE_WINDOW)
        return CLT_OK;
    b->steps = 0;
    for (int d = 0; d < all->own; d++)
        b->middle[all->first + d] =
            clt_clock_median(b->seconds + d * CLT_BALANCE_WINDOW, CLT_BALANCE_WINDOW);
    CLT_TRY(tell(b, all, &exchange->collectives));
    CLT_TRY(clt_split(b->batch, b->n, shares->weights, shares->quantum, b->offsets));
    for (int p = 0; p < b->n; p++)
        b->shares[p] = b->offsets[p + 1] - b->offsets[p];
    b->quantum = quantum_of(all, shares, b->batch);
    /* The trainer's batch may be larger than the run's. Devices need room for the trainer's batch
     * too. */
    const int64_t most = shares->per_run * shares->max_micro_batches * b->batch / largest;
    *change = clt_balance_find(b->shares, b->middle, b->n, b->batch, b->quantum, most, b->offsets,
                               b->weights) &&
              clt_balance_check_room(all, shares, largest, b->weights, b->quantum) == CLT_OK;
    return CLT_OK;
}

/* --- history of changes ---------------------------------------------------------------------- */

static clt_status make_room(clt_split_history *h)
{
    const int room = h->room ? 2 * h->room : 8;
    void *steps = clt_realloc(h->steps, (size_t)room * sizeof *h->steps);
    CLT_TRY_MEMORY(steps);
    h->steps = steps;
    void *quanta = clt_realloc(h->quanta, (size_t)room * sizeof *h->quanta);
    CLT_TRY_MEMORY(quanta);
    h->quanta = quanta;
    void *weights = clt_realloc(h->weights, (size_t)room * (size_t)h->n * sizeof *h->weights);
    CLT_TRY_MEMORY(weights);
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
    CLT_FREE(h->steps, h->quanta, h->weights, h);
}
