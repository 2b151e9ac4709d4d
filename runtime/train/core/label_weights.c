#include "train/core/label_weights.h"

#include "base/alloc.h"
#include "train/core/feed.h"

enum { UNKNOWN = -1 };

/* The labels of a device's samples that count in a loss. Losses whose samples all weigh the same
 * have none. */
static int32_t labels_of(const clt_mean *loss, const clt_shares *shares, int device,
                         const clt_step_batch *batch)
{
    double count = 0;
    if (clt_graph_sample_weight(loss) > 0)
        return 0;
    return clt_feed_count_labels(loss, batch, device, clt_shares_begin(shares, device),
                                 clt_shares_samples(shares, device), &count) &&
                   count <= INT32_MAX
               ? (int32_t)count
               : UNKNOWN;
}

/* Adds up the numbers of all participants. Returns false if a participant does not know one. */
static bool add(const clt_graph *graph, const int32_t *numbers, int participants, int64_t total,
                double *weights)
{
    const int losses = graph->n_losses;
    for (int l = 0; l < losses; l++)
        weights[l] = clt_graph_sample_weight(&graph->losses[l]) * (double)total;
    for (int i = 0; i < participants * losses; i++) {
        if (numbers[i] == UNKNOWN)
            return false;
        weights[i % losses] += numbers[i];
    }
    return true;
}

clt_status clt_label_weights(const clt_session *s, const clt_participants *all,
                             const clt_shares *shares, const clt_collectives *c,
                             const clt_step_batch *batch, double *weights, bool *known)
{
    const int losses = s->graph->n_losses;
    *known = false;
    if (!losses || all->total != clt_participants_parts(all))
        return CLT_OK;
    int32_t *numbers = clt_calloc((size_t)(all->own * all->total * losses), sizeof *numbers);
    CLT_TRY_MEMORY(numbers);
    for (int d = 0; d < all->own; d++)
        for (int own = 0; own < all->own; own++)
            for (int l = 0; l < losses; l++)
                numbers[(d * all->total + all->first + own) * losses + l] =
                    labels_of(&s->graph->losses[l], shares, own, batch);
    const clt_status status = clt_shares_gather(all, c, "labels of the ranks", numbers, losses);
    if (status == CLT_OK)
        *known = add(s->graph, numbers, all->total, batch->total, weights);
    clt_free(numbers);
    return status;
}
