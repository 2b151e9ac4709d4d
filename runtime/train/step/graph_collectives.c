#include "train/step/graph_collectives.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"

/* --- the order ------------------------------------------------------------------------------- */

static const char *name_of(const clt_plan *plan, int k)
{
    return plan->nodes[plan->collectives[k].node].node->name;
}

clt_status clt_segments_check(const clt_session *s)
{
    const clt_plan *first = s->devices[0].plan;
    for (int d = 1; d < s->n_devices; d++) {
        const clt_plan *plan = s->devices[d].plan;
        for (int k = 0; k < first->n_collectives || k < plan->n_collectives; k++)
            if (k >= first->n_collectives || k >= plan->n_collectives ||
                strcmp(name_of(first, k), name_of(plan, k)))
                return clt_fail(CLT_UNSUPPORTED,
                                "%s and %s, whose plans differ, would come to the all-reduces of "
                                "the graph in different orders, from number %d on: join those that "
                                "do not depend on each other into one (clt_concat)",
                                s->devices[0].device->label, s->devices[d].device->label, k);
    }
    return CLT_OK;
}

static uint64_t hash_order(const clt_session *s)
{
    const clt_plan *plan = s->devices[0].plan;
    uint64_t hash = 0;
    for (int k = 0; k < plan->n_collectives; k++)
        hash = clt_hash_text(name_of(plan, k), hash);
    return hash;
}

static int count_collectives(const clt_graph *graph)
{
    int count = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        count += graph->nodes[i]->op->collective;
    return count;
}

clt_status clt_segments_prepare(const clt_graph *graph, const clt_session *training,
                                const clt_session *evaluation, clt_exchange *exchange)
{
    CLT_TRY(clt_segments_check(training));
    CLT_TRY(clt_segments_check(evaluation));
    /* Plans outside training have at most as many collectives as the graph. */
    const int planned = training->devices[0].plan->n_collectives, all = count_collectives(graph);
    return clt_exchange_reserve(exchange, all > planned ? all : planned);
}

static bool has_collectives(const clt_session *s)
{
    return s->devices[0].plan->n_collectives > 0;
}

/* Count the graph's nodes, not a plan's, so that all ranks make the same calls. */
clt_status clt_segments_agree(const clt_graph *graph, const clt_session *training,
                              const clt_session *evaluation, const clt_participants *all)
{
    if (all->ranks == 1 || !count_collectives(graph))
        return CLT_OK;
    CLT_TRY(
        clt_ranks_compare(all->world, hash_order(training), "order of all-reduces in training"));
    return clt_ranks_compare(all->world, hash_order(evaluation),
                             "order of all-reduces in evaluation");
}

/* --- memory ---------------------------------------------------------------------------------- */

static int64_t count_of(const clt_plan *plan, int k)
{
    return clt_type_elements(&plan->nodes[plan->collectives[k].node].node->out[0]->type, 0);
}

/* Returns the most collectives that are under way at once. */
static int most_at_once(const clt_plan *plan)
{
    int most = 0;
    for (int k = 0, ended = 0; k < plan->n_collectives; k++) {
        while (plan->collectives[ended].needed <= plan->collectives[k].node)
            ended++;
        most = k + 1 - ended > most ? k + 1 - ended : most;
    }
    return most;
}

static clt_status reserve(const clt_session *training, const clt_session *evaluation,
                          const clt_collectives *c)
{
    for (int d = 0; d < training->n_devices; d++) {
        const clt_plan *plans[] = {training->devices[d].plan, evaluation->devices[d].plan};
        int64_t largest = 0;
        int most = 0;
        for (int p = 0; p < 2; p++) {
            const int at_once = most_at_once(plans[p]);
            most = at_once > most ? at_once : most;
            for (int k = 0; k < plans[p]->n_collectives; k++)
                if (count_of(plans[p], k) > largest)
                    largest = count_of(plans[p], k);
        }
        if (most)
            CLT_TRY(c->reserve(c->self, 0, d, largest * (int64_t)sizeof(float), most));
    }
    return CLT_OK;
}

clt_status clt_segments_reserve(const clt_session *training, const clt_session *evaluation,
                                const clt_participants *all, const clt_exchange *exchange)
{
    const bool any = has_collectives(training) || has_collectives(evaluation);
    return any ? clt_world_agree(all, reserve(training, evaluation, &exchange->collectives))
               : CLT_OK;
}

clt_status clt_segments_rounds(const clt_session *session, const clt_participants *all,
                               const clt_exchange *exchange, clt_shares *shares)
{
    shares->rounds = 0;
    if (session->devices[0].plan->options.in_flight) {
        shares->rounds = shares->max_micro_batches;
        return CLT_OK;
    }
    if (!has_collectives(session))
        return CLT_OK;
    shares->rounds = 1;
    if (shares->max_micro_batches == 1)
        return CLT_OK;
    CLT_TRY(clt_shares_count(shares, all, &exchange->collectives));
    /* At least one round, as for plans that exchange no numbers of samples. */
    for (int p = 0; p < all->total; p++) {
        const int micro_batches = clt_share_of(shares, shares->counts[p]).micro_batches;
        shares->rounds = micro_batches > shares->rounds ? micro_batches : shares->rounds;
    }
    return CLT_OK;
}
