#include "ops/harness/retile.h"

bool op_retile(const clt_graph *graph, const clt_buckets *buckets, const clt_plan_options *options,
               int index, const char *says, clt_plan **plan)
{
    const clt_plan *old = *plan;
    clt_tuning_entry *entries = calloc((size_t)old->n_nodes + 1, sizeof *entries);
    clt_tuning_record record = {.entries = entries};
    assert_non_null(entries);
    for (int i = 0; i < old->n_nodes; i++) {
        const clt_plan_node *pn = &old->nodes[i];
        const clt_target target = {
            .caps = &old->caps, .lanes = old->options.lanes, .max_batch = old->options.max_batch};
        char text[CLT_TILE_TEXT];
        if (!pn->variant || !pn->variant->tiles)
            continue;
        if (says)
            snprintf(text, sizeof text, "%s", says);
        else if (!pn->variant->tiles(pn->node, &target, index, text))
            continue;
        clt_tuning_entry *e = &entries[record.count++];
        snprintf(e->op, sizeof e->op, "%s", pn->node->op->name);
        e->key = pn->key;
        snprintf(e->variant, sizeof e->variant, "%s", pn->variant->name);
        snprintf(e->options, sizeof e->options, "%s", text);
    }
    const clt_caps caps = old->caps;
    clt_plan_destroy(*plan);
    OP_OK(clt_plan_create(graph, buckets, &caps, &record, options, plan));
    free(entries);
    return record.count > 0;
}
