/* Places a carried state's new value in the state's own place if possible, as the new rows of a
 * cache. Otherwise the value is copied there after the run. */
#include "base/alloc.h"
#include "base/error.h"
#include "plan/plan.h"

/* Who reads a value: the last node, and how many make views of it. */
typedef struct reader {
    int last, views;
} reader;

/* Whether the node may write its result in the state's place. The node must overwrite this operand.
 * No later node may read the state. No other node may make a view of the state, because the readers
 * of a view come later. */
static bool updates_state(const clt_plan *plan, const clt_node *node, const clt_value *state,
                          const reader *readers)
{
    const reader *r = &readers[state->id];
    bool operand = false;
    for (int j = 0; j < node->n_in && j < 32; j++)
        operand = operand || (node->in[j] == state && clt_plan_may_overwrite(node, j));
    return operand && r->last <= node->id && r->views == (node->op->view ? 1 : 0) &&
           !plan->options.separate && !plan->options.repeatable;
}

static reader *find_readers(const clt_plan *plan)
{
    reader *readers = clt_calloc((size_t)plan->graph->n_values + 1, sizeof *readers);
    for (int i = 0; readers && i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        for (int j = 0; j < node->n_in; j++) {
            if (!node->in[j])
                continue;
            reader *r = &readers[node->in[j]->id];
            r->views += node->op->view && (!r->views || r->last != i);
            r->last = i;
        }
    }
    return readers;
}

clt_status clt_plan_carried(clt_plan *plan)
{
    reader *readers = find_readers(plan);
    CLT_TRY_MEMORY(readers);
    clt_status status = CLT_OK;
    for (int i = 0; i < plan->graph->n_assigns && status == CLT_OK; i++) {
        const clt_value *value = plan->graph->assigns[i].value,
                        *state = plan->graph->assigns[i].state;
        if (!state->carried)
            continue;
        const clt_value *origin = clt_value_root(value);
        if (origin->kind == CLT_VALUE_STATE || origin->kind == CLT_VALUE_PARAMETER)
            status = clt_fail(CLT_UNSUPPORTED,
                              "carried state %s takes the value of %s as it is: give it a copy "
                              "(clt_copy)",
                              state->name, origin->name);
        else if (value->producer && value->slot == 0 &&
                 plan->places[value->id].kind == CLT_PLACE_NONE &&
                 updates_state(plan, value->producer, state, readers))
            plan->places[value->id] = plan->places[state->id];
    }
    clt_free(readers);
    return status;
}
