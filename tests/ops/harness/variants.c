#include "ops/harness/variants.h"

void op_list_variants(const clt_plan *plan, op_walk *w)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        char name[sizeof((op_mode *)NULL)->variants];
        const clt_target target = {.caps = &plan->caps,
                                   .lanes = plan->options.lanes,
                                   .max_batch = plan->options.max_batch,
                                   .variants = name};
        for (const clt_variant *v = pn->node->op->variants; v && v->name; v++) {
            char why[CLT_WHY];
            bool known = false;
            snprintf(name, sizeof name, "%s=%s", pn->node->op->name, v->name);
            for (int j = 0; j < w->count; j++)
                known = known || (w->asked[j].op == pn->node->op && w->asked[j].variant == v);
            if (known || (v->accepts && !v->accepts(pn->node, &target, why)))
                continue;
            assert_true(w->count < OP_MAX_ASKED);
            w->asked[w->count++] = (struct op_asked){.op = pn->node->op,
                                                     .variant = v,
                                                     .as_gpu = plan->caps.kind == CLT_KIND_GPU,
                                                     .done = v == pn->variant};
        }
    }
}

bool op_ask(op_walk *w, op_mode *mode)
{
    const struct op_asked *first = NULL;
    *mode = op_as_device;
    for (int i = 0; i < w->count; i++)
        w->asked[i].now = false;
    for (int i = 0; i < w->count && !(first && first->alone); i++) {
        struct op_asked *a = &w->asked[i];
        bool wait = a->done || (first && (a->as_gpu != first->as_gpu || a->alone));
        for (int j = 0; j < i; j++)
            wait = wait || (w->asked[j].now && w->asked[j].op == a->op);
        if (wait)
            continue;
        const size_t used = strlen(mode->variants), room = sizeof mode->variants - used;
        const int n = snprintf(mode->variants + used, room, "%s%s=%s", used ? "," : "", a->op->name,
                               a->variant->name);
        assert_true(n > 0 && (size_t)n < room);
        mode->as_gpu = a->as_gpu;
        a->now = true;
        first = first ? first : a;
    }
    return first != NULL;
}

void op_asked_for(op_walk *w, const clt_plan *plan)
{
    for (int i = 0; i < w->count; i++) {
        struct op_asked *a = &w->asked[i];
        for (int j = 0; a->now && j < plan->n_nodes; j++)
            a->done = a->done ||
                      (plan->nodes[j].node->op == a->op && plan->nodes[j].variant == a->variant);
        if (a->now && !a->done && a->alone)
            fail_msg("variant %s of %s accepts, and is not taken when it is asked for",
                     a->variant->name, a->op->name);
        a->alone = a->now && !a->done;
    }
}
