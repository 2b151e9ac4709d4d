#include "train/planner/bucket.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"

/* Steps whose times differ by less than this fraction count as equal. */
static const double SAME = 0.005;

enum { MEGABYTE = 1 << 20, LEAST = 2 * MEGABYTE };

int clt_bucket_lay(const clt_gradients_cost *gradients, int64_t bucket_bytes,
                   clt_bucket_cost *buckets)
{
    const clt_bucket_sizes sizes = {CLT_BUCKET_FIRST, bucket_bytes, gradients->max_bytes};
    int n = 0;
    for (int i = 0; i < gradients->count; i++) {
        const clt_gradient_cost *g = &gradients->list[i];
        const double last = n ? buckets[n - 1].bytes : 0;
        if (clt_bucket_closes(&sizes, n, (int64_t)last, (int64_t)g->bytes))
            buckets[n++] = (clt_bucket_cost){0};
        buckets[n - 1].bytes += g->bytes;
        buckets[n - 1].ready = g->ready;
    }
    return n;
}

static int best_of(const clt_bucket_try *tries)
{
    double least = INFINITY;
    int best = 0;
    for (int i = 0; i < CLT_BUCKET_SIZES; i++)
        least = fmin(least, tries[i].step.seconds);
    while (tries[best].step.seconds > least * (1 + SAME))
        best++;
    for (int i = best + 1; i < CLT_BUCKET_SIZES; i++)
        if (tries[i].step.seconds <= least * (1 + SAME) &&
            tries[i].n_buckets <= tries[best].n_buckets)
            best = i;
    return best;
}

clt_status clt_bucket_choose(const clt_cost *cost, const clt_gradients_cost *gradients,
                             const double *samples, int ranks, const clt_network *network,
                             clt_bucket_choice *choice)
{
    clt_cost trial = *cost;
    *choice = (clt_bucket_choice){.best = -1};
    if (ranks < 2 && !clt_cost_reduces(cost, samples))
        return CLT_OK;
    trial.buckets = clt_calloc((size_t)gradients->count + 1, sizeof *trial.buckets);
    CLT_TRY_MEMORY(trial.buckets);
    for (int i = 0; i < CLT_BUCKET_SIZES; i++) {
        clt_bucket_try *one = &choice->tries[i];
        one->bytes = (int64_t)LEAST << i;
        one->n_buckets = trial.n_buckets = clt_bucket_lay(gradients, one->bytes, trial.buckets);
        clt_cost_between(&trial, samples, ranks, network, &one->step);
    }
    clt_free(trial.buckets);
    choice->best = best_of(choice->tries);
    return CLT_OK;
}

void clt_bucket_describe(const clt_bucket_choice *choice, bool on_host, clt_str *text)
{
    const clt_bucket_try *tries = choice->tries;
    if (choice->best < 0)
        return;
    const clt_bucket_try *best = &tries[choice->best];
    if (tries[0].n_buckets == best->n_buckets) {
        clt_str_add(text, "gradients in %d bucket%s, of whatever size\n", best->n_buckets,
                    best->n_buckets == 1 ? "" : "s");
        return;
    }
    clt_str_add(text, "gradients in %d buckets, of 1 MB and then %lld MB", best->n_buckets,
                (long long)(best->bytes / MEGABYTE));
    if (on_host)
        clt_str_add(text, ", since the cores that compute also reduce and nothing is hidden");
    const char *before = "; exposed with";
    for (int i = 0; i < CLT_BUCKET_SIZES; i++) {
        clt_str_add(text, "%s %lld MB %.3f ms", before, (long long)(tries[i].bytes / MEGABYTE),
                    1e3 * tries[i].step.exposed);
        before = ",";
    }
    clt_str_add(text, "\n");
}
