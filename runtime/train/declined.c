/* Why variants that were asked for are not taken. */
#include <string.h>

#include <cltrain/unstable.h>

#include "base/error.h"
#include "device/device.h"
#include "ops/ops.h"
#include "plan/plan.h"
#include "train/session.h"
#include "train/trainer.h"

/* Those that nobody asked for decline often, and that is as it should be. */
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

/* What the first plan declines (the others have its nodes, or some), and what is asked for
 * operators that none has. */
static void add_all(const clt_plan *const *plans, int count, const char *variants, clt_str *text)
{
    const clt_op *op;
    int length;
    for (int i = 0; i < plans[0]->n_nodes; i++)
        add_asked(&plans[0]->nodes[i], text);
    for (const char *item; (item = clt_variants_next(&variants, &length, &op));) {
        bool found = false;
        for (int p = 0; p < count; p++)
            found |= has(plans[p], op);
        if (!found && op)
            clt_str_add(text, "%s%.*s: asked for, but no node of the plan is %s",
                        text->length ? "\n" : "", length, item, op->name);
    }
}

/* clt_alloc's memory is malloc's, as the header promises. */
static clt_status give(clt_str *lines, char **text)
{
    if (lines->failed) {
        clt_str_free(lines);
        return CLT_OUT_OF_MEMORY;
    }
    *text = lines->text;
    return CLT_OK;
}

clt_status clt_trainer_declined(const clt_trainer *trainer, const char *variants, char **text)
{
    const clt_plan *const plans[] = {trainer->training->devices[0].plan,
                                     trainer->evaluation->devices[0].plan};
    clt_str lines = {0};
    add_all(plans, 2, variants, &lines);
    return give(&lines, text);
}

clt_status clt_measure_declined(const clt_graph *graph, const clt_device *device,
                                const clt_measure_options *options, char **text)
{
    if (options->struct_size != sizeof *options)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "measure options were not set up by clt_measure_options_init");
    clt_plan_options asked = clt_plan_options_default(
        options->training ? CLT_PLAN_TRAIN : CLT_PLAN_PREDICT, options->batch);
    asked.variants = options->variants;
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_buckets buckets = {0};
    clt_plan *plan = NULL;
    clt_str lines = {0};
    clt_status status = clt_graph_status(graph);
    if (status == CLT_OK)
        status = clt_buckets_create(graph, &sizes, &buckets);
    if (status == CLT_OK)
        status = clt_plan_create(graph, &buckets, &device->caps, NULL, &asked, &plan);
    if (status == CLT_OK) {
        add_all((const clt_plan *[]){plan}, 1, options->variants, &lines);
        clt_plan_destroy(plan);
    }
    clt_buckets_free(&buckets);
    return status == CLT_OK ? give(&lines, text) : status;
}
