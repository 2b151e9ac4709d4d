/*
 * What backward recomputes in large graphs. The search of recompute_search.c takes more time than
 * the square of the graph. Beyond MOST_WORK (candidates times nodes), and where the search gives
 * up, forward is divided into segments, and backward keeps what the next segments read (Chen et
 * al., "Training deep nets with sublinear memory cost", 2016).
 */
#include <string.h>

#include "plan/recompute_internal.h"

/* Smaller graphs keep the search, whose choices are better: for `cltrain plan --model resnet18
 * --batch 32 --recompute` segments compute 35 % of forward again, and the search 16 %. */
static const double MOST_WORK = 1 << 20;

bool clt_recompute_is_large(const clt_recompute *r)
{
    double candidates = 0;
    for (int i = 0; i < r->n_nodes; i++)
        candidates += r->candidate[i];
    return candidates * r->n_nodes > MOST_WORK;
}

/* Writes the segment number of each forward node to r->looked. All segments have about as many
 * bytes of candidates. */
static void number_segments(clt_recompute *r, int segments)
{
    double total = 1, before = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < r->plan->n_forward; i++) {
            const clt_node *node = r->plan->nodes[i].node;
            double bytes = 0;
            for (int j = 0; r->candidate[i] && j < node->n_out; j++)
                bytes +=
                    clt_recompute_is_root(r, node->out[j]) ? (double)r->bytes[node->out[j]->id] : 0;
            if (pass)
                r->looked[i] = (int)(before * segments / total);
            *(pass ? &before : &total) += bytes;
        }
}

/* Backward recomputes the first `first` of the segments, but keeps what later segments read. */
static clt_recompute_cost choose_segments(clt_recompute *r, int segments, int first)
{
    bool *kept = r->made; /* `made` is free until evaluate uses it */
    number_segments(r, segments);
    memset(kept, 0, (size_t)r->n_nodes * sizeof *kept);
    for (int i = 0; i < r->plan->n_forward; i++) {
        const clt_node *node = r->plan->nodes[i].node;
        for (int j = 0; j < node->n_in; j++) {
            const int root = node->in[j] ? r->root[node->in[j]->id] : -1;
            const clt_node *from = root < 0 ? NULL : r->plan->graph->values[root]->producer;
            if (from && r->looked[from->id] < r->looked[i])
                kept[from->id] = true;
        }
    }
    for (int i = 0; i < r->n_nodes; i++)
        r->recomputed[i] = i < r->plan->n_forward && !r->fixed[i] && !kept[i] &&
                           (!r->candidate[i] || r->looked[i] < first);
    return clt_recompute_evaluate(r, 0);
}

/* Returns the number of segments with the least memory. *least gets its bytes. */
static int best_segments(clt_recompute *r, int64_t *least)
{
    int best = 1;
    *least = INT64_MAX;
    for (int n = 1; n <= r->plan->n_forward; n += n < 2 ? 1 : n / 2) {
        const int64_t peak = choose_segments(r, n, n).peak;
        if (peak < *least) {
            *least = peak;
            best = n;
        }
    }
    return best;
}

/* Chooses the fewest segments that bring the peak to at most `bytes`. All segments together do. */
static void choose_fewest(clt_recompute *r, int segments, int64_t bytes)
{
    int low = 0, high = segments;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (choose_segments(r, segments, middle).peak <= bytes)
            high = middle;
        else
            low = middle + 1;
    }
    choose_segments(r, segments, high);
}

bool clt_recompute_segments(clt_recompute *r, int64_t bytes)
{
    int64_t least;
    const int segments = best_segments(r, &least);
    if (bytes && least > bytes)
        return false;
    choose_fewest(r, segments, bytes ? bytes : least + least / 100);
    return true;
}
