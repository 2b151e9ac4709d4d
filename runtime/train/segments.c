#include "train/segments.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "train/reduce.h"
#include "train/world.h"
#include <cltrain/comm.h>

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

/* How many collectives have begun, in a plan run by itself, when each bucket is ready; the most of
 * this process' devices. */
static void find_places(const clt_trainer *t, int32_t *after)
{
    for (int d = 0; d < t->n_devices; d++) {
        const clt_plan *plan = t->training->devices[d].plan;
        for (int i = 0, begun = 0; i < plan->n_segments; i++) {
            const clt_segment *s = &plan->segments[i];
            begun += s->begins >= 0;
            for (int r = s->first_ready; r < s->end_ready; r++)
                if (after[plan->ready[r]] < begun)
                    after[plan->ready[r]] = begun;
        }
    }
}

static uint64_t hash_order(const clt_session *s)
{
    const clt_plan *plan = s->devices[0].plan;
    uint64_t hash = 0;
    for (int k = 0; k < plan->n_collectives; k++)
        hash = clt_hash_text(name_of(plan, k), hash);
    return hash;
}

/* A plan of another rank's devices may have its buckets ready later. */
static clt_status compare_ranks(clt_trainer *t)
{
    const size_t n = (size_t)t->store->layout.n_buckets + 1;
    void *all;
    CLT_TRY(clt_world_compare(t, hash_order(t->training), "order of all-reduces in training"));
    CLT_TRY(clt_world_compare(t, hash_order(t->evaluation), "order of all-reduces in evaluation"));
    CLT_TRY(clt_ranks_gather(t->options.world, t->after, n * sizeof *t->after, &all));
    const int32_t *others = all;
    for (size_t i = 0; i < n * (size_t)t->ranks; i++)
        if (t->after[i % n] < others[i])
            t->after[i % n] = others[i];
    clt_free(all);
    return CLT_OK;
}

clt_status clt_segments_prepare(clt_trainer *t)
{
    CLT_TRY(clt_segments_check(t->training));
    CLT_TRY(clt_segments_check(t->evaluation));
    t->after = clt_calloc((size_t)t->store->layout.n_buckets + 1, sizeof *t->after);
    if (!t->after)
        return CLT_OUT_OF_MEMORY;
    find_places(t, t->after);
    int room = t->training->devices[0].plan->n_collectives, in_graph = 0;
    for (int i = 0; i < t->graph->n_nodes; i++)
        in_graph += t->graph->nodes[i]->op->collective;
    room = in_graph > room ? in_graph : room; /* those outside training have no more */
    for (int d = 0; d < t->n_devices; d++) {
        clt_trainer_device *td = &t->devices[d];
        td->exchanges = clt_calloc((size_t)room + 1, sizeof *td->exchanges);
        if (!td->exchanges)
            return CLT_OUT_OF_MEMORY;
    }
    return CLT_OK;
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
    return any && t->ranks > 1 ? compare_ranks(t) : CLT_OK;
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
    for (int d = 0; d < t->n_devices; d++) {
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
            CLT_TRY(clt_comm_reserve(t->comm, d, largest * (int64_t)sizeof(float), most));
    }
    return CLT_OK;
}

clt_status clt_segments_reserve(clt_trainer *t)
{
    const bool any = has_collectives(t->training) || has_collectives(t->evaluation);
    return any ? clt_world_agree(t, reserve(t)) : CLT_OK;
}

clt_status clt_segments_rounds(clt_trainer *t)
{
    t->rounds = 0;
    if (!has_collectives(t->session))
        return CLT_OK;
    t->rounds = 1;
    if (t->max_micros == 1)
        return CLT_OK;
    CLT_TRY(clt_reduce_shares(t));
    /* At least once, as where numbers of samples are not told. */
    for (int p = 0; p < t->total; p++) {
        const int micros = clt_step_micros(t, t->devices[0].counts[p]);
        t->rounds = micros > t->rounds ? micros : t->rounds;
    }
    return CLT_OK;
}

/* --- running --------------------------------------------------------------------------------- */

static clt_status begin(clt_trainer *t, int d, const clt_run *run, int k)
{
    const clt_session_device *sd = &t->session->devices[d];
    const clt_plan_collective *c = &sd->plan->collectives[k];
    const clt_node *node = sd->plan->nodes[c->node].node;
    clt_view in, out;
    CLT_TRY(clt_exec_locate(sd->exec, run, node->in[0], &in));
    CLT_TRY(clt_exec_locate(sd->exec, run, node->out[0], &out));
    const bool same = in.buffer == out.buffer && in.offset == out.offset;
    const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_REDUCE,
                                 .buffer = in.buffer,
                                 .offset = in.offset / (int64_t)sizeof(float),
                                 .count = count_of(sd->plan, k),
                                 .out = same ? NULL : out.buffer,
                                 .out_offset = out.offset / (int64_t)sizeof(float),
                                 .dtype = CLT_F32,
                                 .empty = run->count == 0,
                                 .label = c->label};
    return clt_reduce_begin(t, d, &what, &t->devices[d].exchanges[k]);
}

static clt_status complete(clt_trainer *t, int d, int k)
{
    const clt_plan *plan = t->session->devices[d].plan;
    const clt_node *node = plan->nodes[plan->collectives[k].node].node;
    clt_trainer_device *td = &t->devices[d];
    clt_collective_result result;
    CLT_TRY(t->collectives.complete(t->collectives.self, d, td->exchanges[k], &result));
    td->exposed += result.done - result.ready;
    td->waited += result.done - result.ready;
    if (t->profile)
        clt_profile_reduction(t->profile, d, node->name, node->backward,
                              count_of(plan, k) * (int64_t)sizeof(float), &result);
    return CLT_OK;
}

/* The segments within nodes [first, end). */
static clt_status run_segments(clt_trainer *t, int d, const clt_run *run, int first, int end,
                               bool reduce)
{
    const clt_session_device *sd = &t->session->devices[d];
    const clt_plan *plan = sd->plan;
    int begun = 0, completed, ready = 0;
    while (begun < plan->n_collectives && plan->collectives[begun].node < first)
        begun++;
    completed = begun;
    for (int i = 0; i < plan->n_segments; i++) {
        const clt_segment *s = &plan->segments[i];
        if (s->first >= end)
            break;
        if (s->first >= first) {
            while (completed < begun && plan->collectives[completed].needed <= s->first)
                CLT_TRY(complete(t, d, completed++));
            CLT_TRY(clt_exec_enqueue(sd->exec, run, s->first, s->end, 0, NULL));
            if (s->begins >= 0)
                CLT_TRY(begin(t, d, run, begun++));
        }
        while (reduce && ready < s->end_ready && t->after[plan->ready[ready]] <= begun)
            CLT_TRY(clt_reduce_start(t, d, plan->ready[ready++]));
    }
    while (completed < begun)
        CLT_TRY(complete(t, d, completed++));
    return CLT_OK;
}

clt_status clt_segments_forward(clt_trainer *t, int d, const clt_run *run)
{
    return run_segments(t, d, run, 0, t->session->devices[d].plan->n_forward, false);
}

clt_status clt_segments_backward(clt_trainer *t, int d, const clt_run *run, bool reduce)
{
    const clt_plan *plan = t->session->devices[d].plan;
    return run_segments(t, d, run, plan->n_forward, plan->n_nodes, reduce);
}
