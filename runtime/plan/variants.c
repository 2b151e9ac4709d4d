#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/plan.h"

/* The variant asked for, if it accepts. */
static const clt_variant *wanted(const clt_node *node, const clt_target *target, clt_str *declined)
{
    const clt_variant *v = clt_variant_wanted(node->op, target->variants);
    char why[CLT_WHY] = "";
    if (!v || !v->accepts || v->accepts(node, target, why))
        return v;
    clt_str_add(declined, "%s: asked for, but %s\n", v->name, why);
    return NULL;
}

static const clt_variant *first_accepting(const clt_node *node, const clt_target *target,
                                          bool portable, clt_str *declined)
{
    for (const clt_variant *v = node->op->variants; v && v->name; v++) {
        char why[CLT_WHY] = "";
        if (portable && v[1].name) {
            clt_str_add(declined, "%s: the plan is to be portable\n", v->name);
            continue;
        }
        if (!v->accepts || v->accepts(node, target, why))
            return v;
        clt_str_add(declined, "%s: %s\n", v->name, why);
    }
    return NULL;
}

static clt_status choose(clt_plan_node *pn, const clt_target *target, bool portable)
{
    const clt_node *node = pn->node;
    if (node->op->view)
        return CLT_OK;
    clt_str declined = {0};
    pn->variant = wanted(node, target, &declined);
    if (!pn->variant)
        pn->variant = first_accepting(node, target, portable, &declined);
    if (!pn->variant) {
        clt_status status =
            clt_fail(CLT_UNSUPPORTED, "node %s: no variant of %s accepts it on %s: %s", node->name,
                     node->op->name, target->caps->name, clt_str_text(&declined));
        clt_str_free(&declined);
        return status;
    }
    if (declined.length)
        pn->declined = clt_strdup(clt_str_text(&declined));
    clt_str_free(&declined);
    pn->variant->emit(node, target, &pn->program);
    if (pn->program.status != CLT_OK)
        return clt_fail_prefix(pn->program.status, "node %s, variant %s: ", node->name,
                               pn->variant->name);
    if (pn->program.n_scratch > (int)(sizeof pn->scratch / sizeof *pn->scratch))
        return clt_fail(CLT_INTERNAL, "node %s, variant %s: too many scratch blocks", node->name,
                        pn->variant->name);
    return CLT_OK;
}

clt_status clt_plan_variants(clt_plan *plan, const clt_target *target)
{
    for (int i = 0; i < plan->n_nodes; i++)
        CLT_TRY(choose(&plan->nodes[i], target, plan->options.portable));
    return CLT_OK;
}
