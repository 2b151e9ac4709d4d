/* Metrics of all ranks. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/metrics/metrics.h"

/* What ranks tell each other first. */
typedef struct header {
    int64_t classes, outputs, top, auc, logits, ignore_index; /* must be equal */
    int64_t samples, kept;
    double weight, top_hits;
} header;

enum { COMPARED = 6 };

static clt_status gather(const clt_world *w, const void *mine, int64_t bytes, void **all)
{
    *all = clt_alloc((size_t)(bytes * w->ranks));
    CLT_TRY_MEMORY(*all);
    return w->gather(w->user, mine, bytes, *all);
}

static clt_status compare(const header *all, int ranks)
{
    for (int r = 1; r < ranks; r++)
        if (memcmp(&all[r], &all[0], COMPARED * sizeof(int64_t)))
            return clt_fail(CLT_MISMATCH,
                            "metrics: rank %d has other options than rank 0: %lld classes, %lld "
                            "outputs, top %lld against %lld, %lld, %lld",
                            r, (long long)all[r].classes, (long long)all[r].outputs,
                            (long long)all[r].top, (long long)all[0].classes,
                            (long long)all[0].outputs, (long long)all[0].top);
    return CLT_OK;
}

/* Replaces a block of doubles by its sum over the ranks. */
static clt_status add_up(const clt_world *w, double *block, int64_t count)
{
    void *all = NULL;
    const clt_status status = gather(w, block, count * (int64_t)sizeof *block, &all);
    const double *from = all;
    for (int64_t i = 0; status == CLT_OK && i < count; i++) {
        double sum = 0;
        for (int r = 0; r < w->ranks; r++)
            sum += from[r * count + i];
        block[i] = sum;
    }
    clt_free(all);
    return status;
}

static clt_status gather_outputs(const clt_world *w, clt_metrics *m)
{
    void *all = NULL;
    const int64_t n = m->options.outputs;
    const clt_status status = gather(w, m->outputs, n * (int64_t)sizeof *m->outputs, &all);
    for (int64_t i = 0; status == CLT_OK && i < n; i++) {
        clt_metrics_output sum = {0};
        for (int r = 0; r < w->ranks; r++)
            clt_metrics_merge(&sum, (const clt_metrics_output *)all + r * n + i);
        m->outputs[i] = sum;
    }
    clt_free(all);
    return status;
}

/* Replaces a block of `columns` doubles a sample by those of all ranks. A rank sends as many as the
 * rank with most samples has. */
static clt_status gather_kept(const clt_world *w, const header *all, int64_t most, int64_t columns,
                              double **block)
{
    void *padded = clt_calloc((size_t)(most * columns), sizeof **block), *parts = NULL;
    int64_t total = 0;
    clt_status status = padded ? CLT_OK : CLT_OUT_OF_MEMORY;
    const int64_t kept = all[w->rank].kept;
    if (status == CLT_OK && kept)
        memcpy(padded, *block, (size_t)(kept * columns) * sizeof **block);
    CLT_NEXT(status, gather(w, padded, most * columns * (int64_t)sizeof **block, &parts));
    for (int r = 0; r < w->ranks; r++)
        total += all[r].kept;
    double *joined =
        status == CLT_OK ? clt_alloc((size_t)(total * columns) * sizeof *joined) : NULL;
    if (status == CLT_OK && !joined)
        status = CLT_OUT_OF_MEMORY;
    double *to = joined;
    for (int r = 0; status == CLT_OK && r < w->ranks; r++) {
        const int64_t count = all[r].kept * columns;
        memcpy(to, (const double *)parts + r * most * columns, (size_t)count * sizeof *to);
        to += count;
    }
    CLT_FREE(padded, parts);
    if (status != CLT_OK)
        return status;
    clt_free(*block);
    *block = joined;
    return CLT_OK;
}

clt_status clt_metrics_gather(clt_metrics *m, const clt_world *w)
{
    if (!m)
        return clt_fail(CLT_INVALID_ARGUMENT, "metrics: the metrics are NULL");
    if (!w || w->ranks < 2)
        return CLT_OK;
    const clt_metrics_options *o = &m->options;
    const header mine = {.classes = o->classes,
                         .outputs = o->outputs,
                         .top = o->top,
                         .auc = o->auc,
                         .logits = o->logits,
                         .ignore_index = o->ignore_index,
                         .samples = m->samples,
                         .kept = m->kept,
                         .weight = m->weight,
                         .top_hits = m->top_hits};
    void *gathered = NULL;
    clt_status status = gather(w, &mine, sizeof mine, &gathered);
    const header *all = gathered;
    CLT_NEXT(status, compare(all, w->ranks));
    if (status == CLT_OK && o->classes) {
        CLT_NEXT(status, add_up(w, m->confusion, o->classes * o->classes));
        CLT_NEXT(status, add_up(w, m->seen, o->classes));
    } else if (status == CLT_OK) {
        status = gather_outputs(w, m);
    }
    int64_t most = 0, total = 0;
    for (int r = 0; status == CLT_OK && r < w->ranks; r++) {
        most = all[r].kept > most ? all[r].kept : most;
        total += all[r].kept;
    }
    if (status == CLT_OK && total) {
        CLT_NEXT(status, gather_kept(w, all, most, m->columns, &m->scores));
        CLT_NEXT(status, gather_kept(w, all, most, 1, &m->labels));
        CLT_NEXT(status, gather_kept(w, all, most, 1, &m->weights));
        if (status == CLT_OK)
            m->kept = m->room = total;
    }
    if (status == CLT_OK) {
        m->samples = 0;
        m->weight = m->top_hits = 0;
        for (int r = 0; r < w->ranks; r++) {
            m->samples += all[r].samples;
            m->weight += all[r].weight;
            m->top_hits += all[r].top_hits;
        }
    }
    clt_free(gathered);
    return status;
}
