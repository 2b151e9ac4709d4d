#include "train/setup/choices.h"

#include <stdio.h>
#include <string.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/log.h"
#include "device/program/tuning_file.h"
#include "exec/update/optimizer.h"
#include "train/setup/capacity.h"
#include "tune/blas.h"
#include "tune/measure_node.h"
#include "tune/tune.h"

/* The data of a measurement. */
typedef struct maker {
    clt_choices *choices;
    const clt_graph *graph;
    const clt_store *store;
    const clt_trainer_options *options;
    int64_t per_run;
} maker;

/* Parts of one device share measurements, unless their numbers of cores differ. */
static bool same_kind(const clt_device *a, const clt_device *b)
{
    return a->identity == b->identity && !memcmp(&a->caps, &b->caps, sizeof a->caps);
}

/* Measuring needs more memory than training: it overwrites no operand, and has parameters and
 * gradients of its own. */
static clt_status measuring_fits(const maker *m, const clt_replica *replica,
                                 const clt_plan_options *options, bool *fits)
{
    const clt_device *device = replica->device;
    const clt_trainer_options *o = m->options;
    clt_plan_options repeatable = *options;
    clt_plan *plan;
    *fits = true;
    if (!o->memory)
        return CLT_OK;
    repeatable.repeatable = true;
    CLT_TRY(clt_plan_create(m->graph, replica->layout, &device->caps, NULL, &repeatable, &plan));
    const int slots = clt_optimizer_of(o)->n_slots;
    const int64_t bytes = clt_plan_arena_bytes(plan) + clt_plan_store_bytes(plan, 0) +
                          clt_plan_store_bytes(plan, slots);
    clt_plan_destroy(plan);
    *fits = bytes <= o->memory;
    if (!*fits)
        clt_log(CLT_LOG_INFO,
                "%s: kernels are not measured, since that would take %.1f MiB of the %.1f MiB of "
                "memory allowed; `cltrain tune` can do so before",
                clt_device_label(device), (double)bytes / 1048576, (double)o->memory / 1048576);
    return CLT_OK;
}

/* Returns a rate in operations a second that no device of the kind exceeds: two units of fused
 * multiply-adds, as wide as the vectors, at a clock that no chip reaches. */
static double fastest(const clt_caps *caps)
{
    enum { CPU_OPERATIONS = 4, GPU_OPERATIONS = 512 };
    const double clock = 6e9;
    return clock * caps->compute_units *
           (clt_caps_is_cpu(caps) ? CPU_OPERATIONS * caps->vector_width : GPU_OPERATIONS);
}

/* Whether the run is so long that measuring costs little of it. */
static clt_status repays(const maker *m, const clt_replica *replica,
                         const clt_plan_options *options, bool *repaid)
{
    enum { TIMES = 60 };
    const clt_trainer_options *o = m->options;
    clt_plan *plan;
    double flops = 0;
    *repaid = true;
    if (!o->tune_steps)
        return CLT_OK;
    CLT_TRY(
        clt_plan_create(m->graph, replica->layout, &replica->device->caps, NULL, options, &plan));
    for (int i = 0; i < plan->n_nodes; i++)
        if (!plan->nodes[i].node->op->view)
            flops += clt_node_flops(plan->nodes[i].node, m->per_run);
    clt_plan_destroy(plan);
    const double runs = (double)o->tune_steps * clt_capacity_micro_batches(o);
    *repaid = flops * runs / fastest(&replica->device->caps) >= TIMES * o->tune_seconds;
    return CLT_OK;
}

static clt_status measure(maker *m, int index, clt_tuning_record *record)
{
    const clt_replica *replica = &m->store->replicas[index];
    clt_device *device = replica->device;
    const clt_trainer_options *o = m->options;
    clt_plan_options options = clt_capacity_options(o, CLT_PLAN_TRAIN, m->per_run);
    clt_tune_report report;
    bool fits, repaid;
    const clt_tune_limits limits = {.seconds = o->tune_seconds,
                                    .anew = o->tune_anew != 0,
                                    .stop = o->tune_stop,
                                    .user = o->tune_user};
    /* Leave out recompute: copies of nodes have the same shapes as the original nodes. */
    options.recompute = options.early_outputs = false;
    clt_store_place(m->store, index, &options);
    CLT_TRY(repays(m, replica, &options, &repaid));
    if (!repaid)
        m->choices->later = true;
    CLT_TRY(measuring_fits(m, replica, &options, &fits));
    if (!fits || !repaid)
        return CLT_OK;
    /* A caller who only wants the record learns at once if it cannot be written, before time is
     * spent. */
    if (o->tune_anew)
        CLT_TRY(clt_tuning_save(device, record));
    const clt_status status = clt_tune_plan(m->graph, device, &options, &limits, record, &report);
    /* Measuring needs more memory than training, so training may still fit. */
    if (status == CLT_OUT_OF_DEVICE_MEMORY) {
        clt_log(CLT_LOG_WARN, "kernels are not measured, training goes on without: %s",
                clt_error_message());
        return CLT_OK;
    }
    CLT_TRY(status);
    m->choices->classes += report.classes;
    m->choices->left += report.classes - report.measured + report.unfinished;
    if (!report.measured)
        return CLT_OK;
    clt_log(CLT_LOG_INFO, "%s: measured %d of %d classes of shapes, %d candidates",
            clt_device_label(device), report.measured, report.classes, report.candidates);
    const clt_status saved = clt_tuning_save(device, record);
    if (o->tune_anew)
        return saved;
    /* Without a file, the kernels are measured again next time. */
    if (saved != CLT_OK)
        clt_log(CLT_LOG_INFO, "%s", clt_error_message());
    return CLT_OK;
}

/* With virtual shards all runs on one kind of device have the same kernels, and take no choices
 * from a checkpoint. */
static clt_status compare_kinds(const clt_trainer_options *o, const clt_device *device)
{
    bool same = true;
    if (o->frozen)
        CLT_TRY(clt_tunings_have_kind(o->frozen, device, &same));
    if (!same)
        clt_log(CLT_LOG_WARN,
                "%s: the checkpoint is of devices of another kind, so its run does not go on with "
                "the same bits: results are equal to rounding",
                clt_device_label(device));
    return CLT_OK;
}

static clt_status make_record(maker *m, int index, clt_tuning_record *record)
{
    clt_device *device = m->store->replicas[index].device;
    const clt_trainer_options *o = m->options;
    if (o->virtual_shards)
        CLT_TRY(compare_kinds(o, device));
    if (o->frozen && !o->virtual_shards) { /* else plans take no measurements */
        clt_status status = clt_tunings_find(o->frozen, device, record);
        if (status != CLT_NOT_FOUND)
            return status;
        clt_log(CLT_LOG_WARN,
                "%s: the checkpoint's choices of kernels are of other devices; they are made "
                "anew, and results are equal to rounding",
                clt_device_label(device));
    }
    clt_tuning_load(device, record);
    if (o->portable || o->tune_seconds <= 0)
        return CLT_OK;
    return measure(m, index, record);
}

clt_status clt_choices_make(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int64_t per_run, clt_choices **out)
{
    const size_t n = (size_t)store->n_devices;
    clt_choices *c = *out = CLT_NEW(clt_choices);
    CLT_TRY_MEMORY(c);
    maker m = {c, graph, store, options, per_run};
    c->n_devices = store->n_devices;
    c->records = clt_calloc(n, sizeof *c->records);
    c->of = clt_calloc(n, sizeof *c->of);
    CLT_TRY_MEMORY(c->records && c->of);
    for (size_t i = 0; i < n; i++) {
        clt_device *device = store->replicas[i].device;
        c->of[i] = &c->records[i];
        for (size_t j = 0; j < i; j++)
            if (same_kind(store->replicas[j].device, device))
                c->of[i] = c->of[j];
        if (c->of[i] == &c->records[i])
            CLT_TRY(make_record(&m, (int)i, &c->records[i]));
    }
    return CLT_OK;
}

clt_status clt_kernels_measure(const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int64_t samples, int *classes,
                               int *left)
{
    clt_choices *choices = NULL;
    clt_trainer_options measured = *options;
    measured.tune_steps = 0;
    measured.frozen = NULL;
    *classes = *left = 0;
    const clt_status status = clt_choices_make(graph, store, &measured, samples, &choices);
    if (choices) {
        *classes = choices->classes;
        *left = choices->left;
    }
    clt_choices_free(choices);
    return status;
}

void clt_choices_free(clt_choices *c)
{
    for (int i = 0; c && c->records && i < c->n_devices; i++)
        clt_tuning_free(&c->records[i]);
    if (c) {
        CLT_FREE(c->records, c->of);
    }
    clt_free(c);
}

/* Adds the choice of every node. Without a measurement the order of the operator's variants
 * decided, and a later version of the library may have another order. */
static clt_status add_plan(const clt_plan *plan, clt_tuning_record *used)
{
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        clt_tuning_entry entry = {.key = pn->key};
        if (!pn->variant)
            continue;
        snprintf(entry.op, sizeof entry.op, "%s", pn->node->op->name);
        snprintf(entry.variant, sizeof entry.variant, "%s", pn->variant->name);
        memcpy(entry.shape_class, pn->shape_class, sizeof entry.shape_class);
        CLT_TRY(clt_tuning_put(used, pn->tuned ? pn->tuned : &entry));
    }
    return CLT_OK;
}

clt_status clt_choices_to_json(const clt_choices *c, const clt_session *training,
                               const clt_session *evaluation, char **text)
{
    clt_tuning_record *used = clt_calloc((size_t)c->n_devices, sizeof *used);
    CLT_TRY_MEMORY(used);
    int count = 0;
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < c->n_devices; i++) {
        if (c->of[i] != &c->records[i])
            continue;
        clt_tuning_record *record = &used[count++];
        *record = c->records[i];
        record->entries = clt_calloc(CLT_BLAS_KERNELS, sizeof *record->entries);
        record->count = 0;
        record->room = record->entries ? CLT_BLAS_KERNELS : 0;
        if (!record->entries)
            status = CLT_OUT_OF_MEMORY;
        else
            clt_tune_blas_copy(&c->records[i], record);
        /* Training comes last: its choice stays where both plans have the class. */
        CLT_NEXT(status, add_plan(evaluation->devices[i].plan, record));
        CLT_NEXT(status, add_plan(training->devices[i].plan, record));
    }
    CLT_NEXT(status, clt_tunings_to_json(used, count, text));
    for (int i = 0; i < count; i++)
        clt_tuning_free(&used[i]);
    clt_free(used);
    return status;
}
