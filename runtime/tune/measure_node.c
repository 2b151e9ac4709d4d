/* Measures the nodes of a graph's plan one by one, in their places in the plan. */
#include "tune/measure_node.h"

#include <stdio.h>
#include <stdlib.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "device/program/tuning_file.h"
#include "tune/lab.h"
#include "tune/tune.h"

CLT_STRUCT_INIT(clt_measure_options, .batch = 1, .blocks = 9, .seconds = 0.1, .precision = CLT_F32)

enum { MOST_SHARES = 99 }; /* the most blocks */

typedef struct bench {
    const clt_measure_options *options;
    clt_lab lab;
    int node; /* the node that is measured */
    /* With a meter: the limit that bounds this node. */
    clt_limit_kind bound;
    double work; /* operations or bytes of the node, as the bound says */
    double rate; /* the rate of the bound before a block */
    double shares[MOST_SHARES], limits[MOST_SHARES];
    int blocks; /* number of blocks so far */
} bench;

static clt_status enqueue_node(void *user)
{
    bench *b = user;
    return clt_exec_enqueue(b->lab.exec, &b->lab.run, b->node, b->node + 1, 0, NULL);
}

/* --- the limit beside each block ---------------------------------------------------------------
 */

static int before_block(void *user, int runs)
{
    const bench *b = user;
    return b->options->before ? b->options->before(b->options->user, runs) : runs;
}

static clt_status begin_block(void *user)
{
    bench *b = user;
    return b->options->meter ? clt_meter_rate(b->options->meter, b->bound, &b->rate) : CLT_OK;
}

static clt_status end_block(void *user, double seconds)
{
    bench *b = user;
    if (b->options->meter) {
        double rate;
        CLT_TRY(clt_meter_rate(b->options->meter, b->bound, &rate));
        if (b->blocks < MOST_SHARES) {
            rate = 0.5 * (b->rate + rate);
            b->limits[b->blocks] = rate;
            b->shares[b->blocks++] = b->work / rate / seconds;
        }
    }
    if (b->options->after)
        b->options->after(b->options->user, seconds);
    return CLT_OK;
}

static double median(double *values, int count)
{
    if (!count)
        return 0;
    qsort(values, (size_t)count, sizeof *values, clt_clock_compare);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* Chooses the limit at which the node would need longer. */
static void choose_bound(bench *b, double flops, double bytes)
{
    b->blocks = 0;
    if (!b->options->meter)
        return;
    const clt_limits best = clt_meter_limits(b->options->meter);
    b->bound = flops / best.flops > bytes / best.copy_bytes ? CLT_LIMIT_FLOPS : CLT_LIMIT_COPY;
    b->work = b->bound == CLT_LIMIT_FLOPS ? flops : bytes;
}

/* --- nodes -------------------------------------------------------------------------------------
 */

static clt_status measure_node(bench *b, clt_node_time *out)
{
    const clt_measure_options *o = b->options;
    const clt_plan_node *pn = &b->lab.plan->nodes[b->node];
    const clt_time_hooks hooks = {before_block, o->warm != 0, begin_block, end_block, b};
    const double flops = clt_node_flops(pn->node, o->batch);
    const double bytes = clt_node_bytes(pn->node, o->batch);
    clt_timing timing;
    char type[CLT_TYPE_TEXT];
    choose_bound(b, flops, bytes);
    CLT_TRY(
        clt_time_blocks(b->lab.device, enqueue_node, b, o->blocks, o->seconds, &hooks, &timing));
    *out = (clt_node_time){.schema = pn->node->op,
                           .backward = pn->node->backward,
                           .flops = flops,
                           .bytes = bytes,
                           .median = timing.median,
                           .least = timing.least,
                           .most = timing.most,
                           .share = median(b->shares, b->blocks),
                           .limit = median(b->limits, b->blocks),
                           .bound = b->bound};
    snprintf(out->node, sizeof out->node, "%s", pn->node->name);
    snprintf(out->op, sizeof out->op, "%s", pn->node->op->name);
    snprintf(out->variant, sizeof out->variant, "%s", pn->variant->name);
    if (pn->tuned)
        snprintf(out->tile, sizeof out->tile, "%s", pn->tuned->options);
    snprintf(out->result, sizeof out->result, "%.63s",
             clt_type_text(&pn->node->out[0]->type, type));
    return CLT_OK;
}

static clt_status make_plan(bench *b, const clt_graph *graph, clt_device *device,
                            clt_tuning_record *record)
{
    const clt_measure_options *o = b->options;
    clt_plan_options plan =
        clt_plan_options_default(o->training ? CLT_PLAN_TRAIN : CLT_PLAN_PREDICT, o->batch);
    plan.variants = o->variants;
    plan.precision = o->precision;
    /* Otherwise a product by a number below 1 that runs repeatedly ends in slow denormal
     * numbers. */
    plan.repeatable = true;
    if (o->tune_seconds > 0) {
        const clt_tune_limits limits = {.seconds = o->tune_seconds};
        clt_tune_report report;
        CLT_TRY(clt_tune_plan(graph, device, &plan, &limits, record, &report));
    }
    CLT_TRY(clt_lab_open(&b->lab, device, graph, &plan));
    CLT_TRY(clt_lab_plan(&b->lab, graph, &plan, record));
    /* The first run compiles kernels and makes drivers allocate memory. */
    return clt_lab_run(&b->lab, 0, b->lab.plan->n_nodes);
}

clt_status clt_measure_graph(const clt_graph *graph, clt_device *device,
                             const clt_measure_options *options, clt_node_time **times, int *count)
{
    CLT_TRY(CLT_CHECK_STRUCT(options, clt_measure_options));
    bench b = {.options = options};
    int n = 0;
    clt_node_time *all = NULL;
    clt_tuning_record record = {0};
    clt_status status = make_plan(&b, graph, device, &record);
    if (status == CLT_OK) {
        all = clt_calloc((size_t)b.lab.plan->n_nodes + 1, sizeof *all);
        status = all ? CLT_OK : CLT_OUT_OF_MEMORY;
    }
    for (b.node = 0; status == CLT_OK && b.node < b.lab.plan->n_nodes; b.node++)
        if (!b.lab.plan->nodes[b.node].node->op->view)
            status = measure_node(&b, &all[n++]);
    clt_lab_close(&b.lab);
    clt_tuning_free(&record);
    if (status != CLT_OK) {
        clt_free(all);
        return status;
    }
    *times = clt_alloc_give(all);
    *count = n;
    return CLT_OK;
}
