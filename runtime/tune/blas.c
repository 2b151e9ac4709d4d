#include "tune/blas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "device/program/tuning_file.h"
#include "ops/matmul/gemm.h"
#include "tune/compare.h"
#include "tune/measure_node.h"

enum { BLOCKS = 5 };
static const double BLOCK_SECONDS = 0.004;
/* Another set replaces the first only if its time is below this share of the first one's:
 * measurements have noise. */
static const double GAIN = 0.97;
/* From this number of operations of a product on, packing its operands may be worth it. */
static const double LARGE = 2.0 * 512 * 512 * 512;

typedef struct blas_tuner {
    clt_lab *lab;
    const clt_graph *graph;
    const clt_plan_options *options;
    clt_blas_kernel kernel;
    int node;
    clt_tuning_entry product; /* makes the node's class use CLBlast */
    clt_outcome right;        /* the outputs that the plan's own choice computes for the node */
} blas_tuner;

void clt_tune_blas_copy(const clt_tuning_record *record, clt_tuning_record *to)
{
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++) {
        const clt_tuning_entry *e = clt_gemm_clblast_tuned(record, kernel);
        if (e)
            to->entries[to->count++] = *e;
    }
}

static bool over(const clt_tune_limits *limits, double deadline)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec > deadline ||
           (limits->stop && limits->stop(limits->user));
}

static clt_status enqueue(void *user)
{
    blas_tuner *t = user;
    return clt_exec_enqueue(t->lab->exec, &t->lab->run, t->node, t->node + 1, 0, NULL);
}

static bool takes_blas(const clt_plan *plan, const clt_node *node)
{
    const clt_target target = {
        .caps = &plan->caps, .lanes = plan->options.lanes, .max_batch = plan->options.max_batch};
    const clt_variant *wanted = clt_variant_wanted(node->op, plan->options.variants);
    char why[CLT_WHY];
    for (const clt_variant *v = node->op->view ? NULL : node->op->variants; v && v->name; v++)
        if (v->traits & CLT_CLBLAST)
            return (!wanted || wanted == v) && v->accepts(node, &target, why);
    return false;
}

/* Returns the node to measure, or -1. Packed kernels get the largest product, direct kernels the
 * largest product that is not large. */
static int find_product(const clt_plan *plan, clt_blas_kernel kernel)
{
    int best = -1;
    double most = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        if (!takes_blas(plan, node))
            continue;
        const double flops = clt_node_flops(node, plan->options.max_batch);
        const bool fits = kernel == CLT_BLAS_PACKED || flops < LARGE;
        const bool best_fits = kernel == CLT_BLAS_PACKED || most < LARGE;
        if (best < 0 || (fits && !best_fits) || (fits == best_fits && (flops > most) == fits)) {
            best = i;
            most = flops;
        }
    }
    return best;
}

static clt_tuning_entry entry_of(clt_blas_kernel kernel, const clt_blas_set *set)
{
    clt_tuning_entry e = {.key = clt_blas_key(kernel)};
    snprintf(e.op, sizeof e.op, "%s", CLT_BLAS_OP);
    snprintf(e.shape_class, sizeof e.shape_class, "%s", clt_blas_kernel_name(kernel));
    snprintf(e.variant, sizeof e.variant, "%s", CLT_BLAS_OP);
    clt_blas_set_write(kernel, set, e.options);
    return e;
}

/* Runs the product with the set: compares its result and, if the result is right, measures it. */
static clt_status try(blas_tuner *t, const clt_tuning_entry *set, bool *right, double *seconds)
{
    clt_tuning_entry entries[] = {t->product, *set};
    const clt_tuning_record record = {.entries = entries, .count = 2};
    clt_outcome own;
    clt_timing timing;
    CLT_TRY(clt_lab_plan(t->lab, t->graph, t->options, &record));
    CLT_TRY(clt_lab_run(t->lab, 0, t->node));
    const clt_status status = clt_outcome_read(t->lab, t->node, false, &own);
    *right = status == CLT_OK && clt_outcome_equal(&own, &t->right, NULL, 0);
    clt_outcome_drop(&own);
    CLT_TRY(status);
#ifdef CLT_TESTING
    if (clt_tuning_testing_spoils && strstr(set->options, clt_tuning_testing_spoils))
        *right = false;
#endif
    if (!*right)
        return CLT_OK;
    CLT_TRY(clt_time_calls(t->lab->device, enqueue, t, BLOCKS, BLOCK_SECONDS, &timing));
    *seconds = timing.median;
    return CLT_OK;
}

static void reject(const blas_tuner *t, const clt_tuning_entry *set, int index, const char *why,
                   char *list, size_t room)
{
    char text[64];
    snprintf(text, sizeof text, "%sset %d: %.40s", *list ? "; " : "", index, why);
    if (strlen(list) + strlen(text) < room)
        strcat(list, text);
    clt_log(CLT_LOG_WARN, "%s: CLBlast's %s with %s is not used: %s",
            clt_device_label(t->lab->device), set->shape_class, set->options, why);
}

/* Tries the sets that follow. With `known`, starts with its own set and goes on at number
 * known->tried; otherwise tries all. *best becomes the fastest. Its `tried` is the number of the
 * set at which time ran out, or 0. *found says whether there is a best set. */
static clt_status try_all(blas_tuner *t, const clt_tuning_entry *known,
                          const clt_tune_limits *limits, double deadline, clt_tune_report *report,
                          clt_tuning_entry *best, bool *found)
{
    clt_blas_set set;
    char rejected[sizeof best->rejected] = "";
    double plain = 0;
    int i = known ? known->tried - 1 : 0;
    if (known)
        memcpy(rejected, known->rejected, sizeof rejected);
    *found = false;
    for (bool first = true; clt_blas_set_choice(t->kernel, i, &t->lab->device->caps, &set);
         i++, first = false) {
        clt_tuning_entry e = entry_of(t->kernel, &set);
        double seconds = INFINITY;
        bool right = false;
        if (first && known)
            e = *known;
        if (*found && over(limits, deadline))
            break;
        clt_status status = try(t, &e, &right, &seconds);
        report->candidates++;
        if (status == CLT_BUILD || status == CLT_OPENCL || status == CLT_UNSUPPORTED ||
            status == CLT_OUT_OF_DEVICE_MEMORY || (status == CLT_OK && !right)) {
            report->rejected++;
            reject(t, &e, i, right || status != CLT_OK ? clt_error_message() : "a wrong result",
                   rejected, sizeof rejected);
            continue;
        }
        CLT_TRY(status);
        /* The machine may be slower or faster than in the earlier run: what the known set takes now
         * tells how much. */
        if (!*found)
            plain = first && known ? known->plain_seconds / known->seconds * seconds : seconds;
        if (!*found || seconds < GAIN * best->seconds) {
            *best = e;
            best->seconds = seconds;
        }
        *found = true;
    }
    best->plain_seconds = plain;
    best->tried = clt_blas_set_choice(t->kernel, i, &t->lab->device->caps, &set) ? i : 0;
    memcpy(best->rejected, rejected, sizeof rejected);
    return CLT_OK;
}

static clt_status tune_kernel(blas_tuner *t, const clt_tune_limits *limits, double deadline,
                              clt_tuning_record *record, clt_tune_report *report)
{
    const clt_tuning_entry *known = clt_gemm_clblast_tuned(record, t->kernel);
    clt_tuning_entry best, before;
    bool found = false;
    if ((known && !known->tried && !(known->shipped && limits->anew)) || over(limits, deadline))
        return CLT_OK;
    if (known)
        before = *known;
    CLT_TRY(clt_lab_plan(t->lab, t->graph, t->options, NULL));
    t->node = find_product(t->lab->plan, t->kernel);
    if (t->node < 0)
        return CLT_OK;
    const clt_plan_node *pn = &t->lab->plan->nodes[t->node];
    t->product = (clt_tuning_entry){.key = pn->key};
    snprintf(t->product.op, sizeof t->product.op, "%s", pn->node->op->name);
    snprintf(t->product.shape_class, sizeof t->product.shape_class, "%s", pn->shape_class);
    snprintf(t->product.variant, sizeof t->product.variant, "%s", CLT_BLAS_OP);
    snprintf(t->product.options, sizeof t->product.options, "PACKED=%d",
             t->kernel == CLT_BLAS_PACKED);
    report->classes++;
    CLT_TRY(clt_lab_run(t->lab, 0, t->node));
    clt_status status = clt_outcome_read(t->lab, t->node, false, &t->right);
    CLT_NEXT(status, try_all(t, known && known->tried ? &before : NULL, limits, deadline, report,
                             &best, &found));
    clt_outcome_drop(&t->right);
    CLT_TRY(status);
    if (!found)
        return CLT_OK;
    report->measured++;
    report->unfinished += best.tried != 0;
    return clt_tuning_put(record, &best);
}

clt_status clt_tune_blas(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options,
                         const clt_tune_limits *limits, double deadline, clt_tuning_record *record,
                         clt_tune_report *report)
{
    clt_status status = CLT_OK;
    if (!lab->device->caps.clblast || clt_caps_is_cpu(&lab->device->caps))
        return CLT_OK;
    for (clt_blas_kernel kernel = 0; status == CLT_OK && kernel < CLT_BLAS_KERNELS; kernel++) {
        blas_tuner t = {.lab = lab, .graph = graph, .options = options, .kernel = kernel};
        status = tune_kernel(&t, limits, deadline, record, report);
    }
    return status;
}
