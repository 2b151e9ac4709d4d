/* Why variants that were asked for are not taken, from a plan that is not run. */
#include <string.h>

#include <cltrain/unstable.h>

#include "base/error.h"
#include "device/device.h"
#include "plan/plan.h"

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
    for (int i = 0; status == CLT_OK && i < plan->n_nodes; i++)
        add_asked(&plan->nodes[i], &lines);
    if (status == CLT_OK)
        clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    if (lines.failed) {
        clt_str_free(&lines);
        return CLT_OUT_OF_MEMORY;
    }
    *text = lines.text; /* clt_alloc's memory is malloc's, as the header promises */
    return status;
}
