#include "train/step/graph_collectives.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"

/* --- the order ------------------------------------------------------------------------------- */

static const char *name_of(const clt_plan *plan, int k)
{
    return plan->nodes[plan->collectives[k].node].node->name;
}

/* On a mesh with other axes than dp, places have other collectives. Only those of a group must come
 * in one order, which the checker of programs compares. */
static bool comes_to_all(const clt_session *s)
{
    return s->store->mesh.size[CLT_AXIS_DATA] == s->store->total;
}

clt_status clt_segments_check(const clt_session *s)
{
    for (int d = 1; d < s->n_devices && comes_to_all(s); d++) {
        const clt_plan *first = s->devices[0].plan, *plan = s->devices[d].plan;
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
        count += graph->nodes[i]->op->collective != CLT_OP_KERNELS;
    return count;
}

clt_status clt_segments_prepare(const clt_graph *graph, const clt_session *training,
                                const clt_session *evaluation, clt_exchange *exchange)
{
    CLT_TRY(clt_segments_check(training));
    CLT_TRY(clt_segments_check(evaluation));
    /* Plans outside training have at most as many collectives as the graph, or as training. */
    int most = count_collectives(graph), in_flight = 0;
    for (int d = 0; d < training->n_devices; d++) {
        const clt_plan *plan = training->devices[d].plan;
        most = plan->n_collectives > most ? plan->n_collectives : most;
        in_flight = plan->options.in_flight > in_flight ? plan->options.in_flight : in_flight;
    }
    return clt_exchange_reserve(exchange, most, in_flight);
}

static bool has_collectives(const clt_session *s)
{
    bool any = false;
    for (int d = 0; d < s->n_devices; d++)
        any = any || s->devices[d].plan->n_collectives > 0;
    return any;
}

/* Count the graph's nodes, not a plan's, so that all ranks make the same calls. */
clt_status clt_segments_agree(const clt_graph *graph, const clt_session *training,
                              const clt_session *evaluation, const clt_participants *all)
{
    if (all->ranks == 1 || !count_collectives(graph) || !comes_to_all(training))
        return CLT_OK;
    CLT_TRY(
        clt_ranks_compare(all->world, hash_order(training), "order of all-reduces in training"));
    return clt_ranks_compare(all->world, hash_order(evaluation),
                             "order of all-reduces in evaluation");
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Elements of the larger of operand and result, for the plan's largest batch. */
static int64_t most_elements(const clt_plan *plan, const clt_plan_collective *c)
{
    const clt_node *node = plan->nodes[c->node].node;
    const int64_t in =
        node->n_in ? clt_type_elements(&node->in[0]->type, plan->options.max_batch) : 0;
    const int64_t out = clt_type_elements(&node->out[0]->type, plan->options.max_batch);
    return in > out ? in : out;
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

/* Reserves for a device's collectives along an axis. Buffer objects in the host's memory are
 * mapped. */
static clt_status reserve_axis(const clt_session *training, const clt_session *evaluation,
                               const clt_exchange *exchange, int d, clt_axis axis)
{
    const clt_collectives *c = &exchange->collectives;
    const clt_plan *plans[] = {training->devices[d].plan, evaluation->devices[d].plan};
    const bool maps = training->devices[d].device->caps.host_memory;
    int64_t largest = 0;
    int most = 0;
    for (int p = 0; p < 2; p++)
        for (int k = 0; k < plans[p]->n_collectives; k++) {
            const clt_plan_collective *one = &plans[p]->collectives[k];
            const bool copied = one->axis == axis && !(one->whole && maps);
            const int64_t elements = copied ? most_elements(plans[p], one) : 0;
            largest = elements > largest ? elements : largest;
        }
    for (int p = 0; largest && p < 2; p++)
        most = most_at_once(plans[p]) > most ? most_at_once(plans[p]) : most;
    return most ? c->reserve(c->self, exchange->groups[axis], d, largest * (int64_t)sizeof(float),
                             most)
                : CLT_OK;
}

static clt_status reserve(const clt_session *training, const clt_session *evaluation,
                          const clt_exchange *exchange)
{
    for (int d = 0; d < training->n_devices; d++)
        for (int a = 0; a < CLT_AXES; a++)
            if (a != CLT_AXIS_PIPELINE) /* each edge takes what its first message needs */
                CLT_TRY(reserve_axis(training, evaluation, exchange, d, (clt_axis)a));
    return CLT_OK;
}

clt_status clt_segments_reserve(const clt_session *training, const clt_session *evaluation,
                                const clt_participants *all, const clt_exchange *exchange)
{
    const bool any = has_collectives(training) || has_collectives(evaluation);
    return any ? clt_world_agree(all, reserve(training, evaluation, exchange)) : CLT_OK;
}

/* Whether devices with different samples meet in the plan's collectives. */
static bool joins_data(const clt_plan *plan)
{
    for (int k = 0; k < plan->n_collectives; k++)
        if (plan->collectives[k].axis == CLT_AXIS_DATA)
            return true;
    return false;
}

clt_status clt_segments_rounds(const clt_session *session, const clt_participants *all,
                               const clt_exchange *exchange, clt_shares *shares)
{
    shares->rounds = 0;
    if (session->devices[0].plan->options.in_flight) {
        shares->rounds = shares->max_micro_batches;
        return CLT_OK;
    }
    bool joins = false;
    for (int d = 0; d < session->n_devices; d++)
        joins = joins || joins_data(session->devices[d].plan);
    if (!joins)
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
