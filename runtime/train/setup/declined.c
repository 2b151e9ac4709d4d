/* Explains why variants that the user asked for are not used. */
#include <string.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/core/device.h"
#include "ops/core/ops.h"
#include "plan/plan.h"
#include "train/core/trainer.h"

/* Lists only variants that the user asked for. Others often decline, which is normal. */
static void add_asked(const clt_plan_node *pn, clt_str *text)
{
    for (const char *line = pn->declined; line && *line;) {
        const char *end = strchr(line, '\n'), *asked = strstr(line, ": asked for, but ");
        if (asked && asked < end)
            clt_str_add(text, "%s%s: declined %.*s", text->length ? "\n" : "", pn->node->name,
                        (int)(end - line), line);
        line = end + 1;
    }
}

static bool has(const clt_plan *plan, const clt_op *op)
{
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].node->op == op)
            return true;
    return false;
}

static void add_declined(const clt_plan *plan, clt_str *text)
{
    for (int i = 0; i < plan->n_nodes; i++)
        add_asked(&plan->nodes[i], text);
}

/* Lists variants of operators that no plan has. */
static void add_missing(const clt_plan *const *plans, int count, const char *variants,
                        clt_str *text)
{
    const clt_op *op;
    int length;
    for (const char *item; (item = clt_variants_next(&variants, &length, &op));) {
        bool found = false;
        for (int p = 0; p < count; p++)
            found |= has(plans[p], op);
        if (!found && op)
            clt_str_add(text, "%s%.*s: asked for, but no node of the plan is %s",
                        text->length ? "\n" : "", length, item, op->name);
    }
}

/* The caller frees the text with free(), as the header says. */
static clt_status give(clt_str *lines, char **text)
{
    if (lines->failed) {
        clt_str_free(lines);
        return CLT_OUT_OF_MEMORY;
    }
    *text = clt_alloc_give(lines->text);
    return CLT_OK;
}

clt_status clt_trainer_declined(const clt_trainer *trainer, const char *variants, char **text)
{
    CLT_TRY(clt_store_check_devices(trainer->store));
    const clt_plan *const plans[] = {trainer->training->devices[0].plan,
                                     trainer->evaluation->devices[0].plan};
    clt_str lines = {0};
    /* The other plan has the same nodes, or some of them. */
    add_declined(plans[0], &lines);
    add_missing(plans, 2, variants, &lines);
    return give(&lines, text);
}

static clt_status plan_for(const clt_graph *graph, const clt_device *device,
                           const clt_measure_options *options, clt_plan **plan)
{
    CLT_TRY(CLT_CHECK_STRUCT(options, clt_measure_options));
    clt_plan_options asked = clt_plan_options_default(
        options->training ? CLT_PLAN_TRAIN : CLT_PLAN_PREDICT, options->batch);
    asked.variants = options->variants;
    asked.precision = options->precision;
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_buckets buckets = {0};
    CLT_TRY(clt_graph_status(graph));
    clt_status status = clt_buckets_create(graph, &sizes, &buckets);
    CLT_NEXT(status, clt_plan_create(graph, &buckets, &device->caps, NULL, &asked, plan));
    clt_buckets_free(&buckets);
    return status;
}

clt_status clt_measure_declined(const clt_graph *const *graphs, const clt_measure_options *options,
                                int count, const clt_device *device, char **text)
{
    clt_str lines = {0};
    clt_plan **plans = clt_calloc((size_t)count, sizeof *plans);
    clt_status status = plans ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < count; i++) {
        status = plan_for(graphs[i], device, &options[i], &plans[i]);
        if (status == CLT_OK)
            add_declined(plans[i], &lines);
    }
    if (status == CLT_OK)
        add_missing((const clt_plan *const *)plans, count, options[0].variants, &lines);
    for (int i = 0; plans && i < count; i++)
        clt_plan_destroy(plans[i]);
    clt_free(plans);
    if (status == CLT_OK)
        return give(&lines, text);
    clt_str_free(&lines);
    return status;
}
