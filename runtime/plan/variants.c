#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "plan/plan.h"

/* Returns the variant that the caller asked for, if it accepts. */
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

/* Returns the variant that a measurement found best, or that a checkpoint repeats; NULL if there is
 * none or it does not accept here. Earlier variants in the list decline for their own reasons, or
 * were not chosen. */
static const clt_variant *measured(clt_plan *plan, int index, const clt_target *target,
                                   clt_str *declined)
{
    clt_plan_node *pn = &plan->nodes[index];
    const clt_node *node = pn->node;
    char why[CLT_WHY] = "", old_class[64] = "";
    if (target->tuning && target->tuning->texts)
        clt_plan_old_class(node, target->max_batch, old_class);
    const clt_tuning_entry *entry =
        clt_tuning_find(target->tuning, node->op->name, pn->key, old_class);
    if (entry && entry->variants && entry->variants != clt_variants_hash(node, target))
        entry = NULL;
    for (const clt_variant *v = entry ? node->op->variants : NULL; v && v->name; v++)
        if (!strcmp(v->name, entry->variant) && (!v->accepts || v->accepts(node, target, why))) {
            plan->tuned[index] = *entry;
            plan->tuned[index].key = pn->key;
            memcpy(plan->tuned[index].shape_class, pn->shape_class, sizeof pn->shape_class);
            pn->tuned = &plan->tuned[index];
            for (const clt_variant *other = node->op->variants; other != v; other++)
                if (other->accepts && !other->accepts(node, target, why))
                    clt_str_add(declined, "%s: %s\n", other->name, why);
                else
                    clt_str_add(declined, "%s: another was %s\n", other->name,
                                entry->seconds > 0 ? "measured faster" : "chosen before");
            return v;
        }
    return NULL;
}

static clt_status choose(clt_plan *plan, int index, const clt_target *target)
{
    clt_plan_node *pn = &plan->nodes[index];
    const clt_node *node = pn->node;
    if (node->op->view || node->op->collective)
        return CLT_OK;
    clt_str declined = {0};
    pn->key = clt_plan_key(node, target);
    clt_plan_class(node, plan->options.max_batch, pn->shape_class);
    pn->variant = wanted(node, target, &declined);
    if (!pn->variant && !plan->options.portable)
        pn->variant = measured(plan, index, target, &declined);
    if (!pn->variant)
        pn->variant = first_accepting(node, target, plan->options.portable, &declined);
    if (!pn->variant) {
        clt_status status =
            clt_fail(CLT_UNSUPPORTED, "node %s: no variant of %s accepts it on %s: %s", node->name,
                     node->op->name, target->caps->name, clt_str_text(&declined));
        clt_str_free(&declined);
        return status;
    }
    if (declined.length)
        pn->declined = clt_strdup(clt_str_text(&declined));
    const bool complete = !declined.failed && (pn->declined || !declined.length);
    clt_str_free(&declined);
    CLT_TRY_MEMORY(complete);
    clt_target own = *target;
    own.tile = pn->tuned ? pn->tuned->options : NULL;
    pn->variant->emit(node, &own, &pn->program);
    clt_program_tell_storage(&pn->program, node);
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
    plan->tuned = clt_calloc((size_t)plan->n_nodes + 1, sizeof *plan->tuned);
    CLT_TRY_MEMORY(plan->tuned);
    for (int i = 0; i < plan->n_nodes; i++)
        CLT_TRY(choose(plan, i, target));
    return CLT_OK;
}
