#include "train/step/graph_collectives.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "train/ranks/shares.h"
#include "train/step/interpret.h"
#include "train/ranks/world.h"

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

static clt_status compare_ranks(clt_trainer *t)
{
    CLT_TRY(clt_ranks_compare(t->all.world, hash_order(t->training),
                              "order of all-reduces in training"));
    return clt_ranks_compare(t->all.world, hash_order(t->evaluation),
                             "order of all-reduces in evaluation");
}

clt_status clt_segments_prepare(clt_trainer *t)
{
    CLT_TRY(clt_segments_check(t->training));
    CLT_TRY(clt_segments_check(t->evaluation));
    int room = t->training->devices[0].plan->n_collectives, in_graph = 0;
    for (int i = 0; i < t->graph->n_nodes; i++)
        in_graph += t->graph->nodes[i]->op->collective;
    room = in_graph > room ? in_graph : room; /* those outside training have no more */
    return clt_exchange_reserve(&t->exchange, room);
}

static bool has_collectives(const clt_session *s)
{
    return s->devices[0].plan->n_collectives > 0;
}

clt_status clt_segments_agree(clt_trainer *t)
{
    /* Of the graph's own nodes, so that all ranks come to the same calls. */
    bool any = false;
    for (int i = 0; i < t->graph->n_nodes; i++)
        any = any || t->graph->nodes[i]->op->collective;
    return any && t->all.ranks > 1 ? compare_ranks(t) : CLT_OK;
}

/* --- what it needs --------------------------------------------------------------------------- */

static int64_t count_of(const clt_plan *plan, int k)
{
    return clt_type_elements(&plan->nodes[plan->collectives[k].node].node->out[0]->type, 0);
}

/* Collectives that have begun and are not complete, at most. */
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

static clt_status reserve(clt_trainer *t)
{
    for (int d = 0; d < t->all.own; d++) {
        const clt_plan *plans[] = {t->training->devices[d].plan, t->evaluation->devices[d].plan};
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
            CLT_TRY(t->exchange.collectives.reserve(t->exchange.collectives.self, d,
                                                    largest * (int64_t)sizeof(float), most));
    }
    return CLT_OK;
}

clt_status clt_segments_reserve(clt_trainer *t)
{
    const bool any = has_collectives(t->training) || has_collectives(t->evaluation);
    return any ? clt_world_agree(&t->all, reserve(t)) : CLT_OK;
}

clt_status clt_segments_rounds(clt_trainer *t)
{
    t->shares.rounds = 0;
    if (!has_collectives(t->session))
        return CLT_OK;
    t->shares.rounds = 1;
    if (t->shares.max_micros == 1)
        return CLT_OK;
    CLT_TRY(clt_shares_count(&t->shares, &t->all, &t->exchange.collectives));
    /* At least once, as where numbers of samples are not told. */
    for (int p = 0; p < t->all.total; p++) {
        const int micros = clt_share_of(&t->shares, t->shares.counts[p]).micros;
        t->shares.rounds = micros > t->shares.rounds ? micros : t->shares.rounds;
    }
    return CLT_OK;
}
