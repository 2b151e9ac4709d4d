/* Finds the gradients that micro-batches add up where they are: in the buckets. Further
 * micro-batches write the others to the arena, and the update adds them to the buckets. */
#include "base/alloc.h"
#include "base/error.h"
#include "ops/core/ops.h"
#include "plan/plan.h"

/* Returns the operand to which the node adds in its place; NULL if there is none. */
static clt_value *added_to(const clt_plan *plan, const clt_node *node)
{
    const clt_place *out = &plan->places[node->out[0]->id];
    for (int i = 0; i < node->n_in; i++) {
        clt_value *in = node->in[i];
        const clt_place *place = in ? &plan->places[in->id] : NULL;
        const bool sums = node->op == &clt_op_add || (node->op->base && node->op->base == i);
        if (sums && place && clt_place_equal(place, out))
            return in;
    }
    return NULL;
}

/* Whether the node can add its result to what is in its output. A base elsewhere would replace it.
 * The order of the tree of virtual shards adds whole gradients. */
static bool adds(const clt_plan *plan, const clt_node *node)
{
    const clt_plan_node *of = &plan->nodes[node->id];
    return of->variant && (of->variant->traits & CLT_ADDS) &&
           !(node->op->base && node->in[node->op->base]) &&
           !(plan->options.virtual_shards && of->program.adds_parts);
}

/* The gradient may be the last of several sums in the same place, as for a parameter that two
 * layers use. Then the first one adds, unless a virtual shard's sum must be whole before it is
 * added. Nothing else may read any of them, because it would read the
 * sum over the micro-batches. */
static void mark(clt_plan *plan, clt_value *gradient, const int *readers)
{
    clt_value *v = gradient;
    if (readers[v->id] || v->output || v->type.dtype != CLT_F32 || !v->producer)
        return;
    for (clt_value *in; (in = added_to(plan, v->producer)); v = in)
        if (readers[in->id] != 1 || in->output || !in->producer || v->producer->out[0] != v)
            return;
    const bool several = v != gradient && plan->options.virtual_shards;
    if (v->producer->out[0] != v || several || !adds(plan, v->producer))
        return;
    const clt_value *first = v;
    for (v = gradient; v != first;) {
        clt_value *in = added_to(plan, v->producer);
        plan->places[v->id].kind = CLT_PLACE_TOTAL;
        v = in;
    }
    plan->places[first->id].kind = CLT_PLACE_TOTAL;
}

bool clt_plan_has_totals(const clt_plan *plan, int bucket)
{
    const clt_bucket *b = &plan->buckets.buckets[bucket];
    bool any = false;
    for (int s = b->first; s < b->end; s++)
        any = any ||
              (plan->gradients[s] && plan->places[plan->gradients[s]->id].kind == CLT_PLACE_TOTAL);
    return any;
}

clt_status clt_plan_totals(clt_plan *plan)
{
    if (plan->options.mode != CLT_PLAN_TRAIN || plan->options.precision != CLT_F32)
        return CLT_OK;
    int *readers = clt_calloc((size_t)plan->graph->n_values + 1, sizeof *readers);
    CLT_TRY_MEMORY(readers);
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].node->n_in; j++)
            if (plan->nodes[i].node->in[j])
                readers[plan->nodes[i].node->in[j]->id]++;
    for (int i = 0; i < plan->graph->n_assigns; i++)
        readers[plan->graph->assigns[i].value->id]++;
    for (int s = 0; s < plan->buckets.n_slots; s++)
        if (plan->gradients[s] && plan->places[plan->gradients[s]->id].kind == CLT_PLACE_GRADIENT)
            mark(plan, plan->gradients[s], readers);
    clt_free(readers);
    return CLT_OK;
}
