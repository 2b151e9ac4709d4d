#include "train/setup/choices.h"

#include <string.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/log.h"
#include "device/program/tuning_file.h"
#include "exec/update.h"
#include "train/setup/capacity.h"
#include "tune/tune.h"

/* Parts of one device share measurements; different numbers of cores do not. */
static bool same_kind(const clt_device *a, const clt_device *b)
{
    return a->identity == b->identity && !memcmp(&a->caps, &b->caps, sizeof a->caps);
}

/* Measuring overwrites no operand, and has parameters and gradients of its own. */
static clt_status measuring_fits(const clt_trainer *t, const clt_graph *graph,
                                 const clt_device *device, const clt_plan_options *options,
                                 bool *fits)
{
    clt_plan_options repeatable = *options;
    clt_plan *plan;
    *fits = true;
    if (!t->options.memory)
        return CLT_OK;
    repeatable.repeatable = true;
    CLT_TRY(clt_plan_create(graph, &t->store->layout, &device->caps, NULL, &repeatable, &plan));
    const int slots = clt_optimizer_find(t->options.optimizer)->n_slots;
    const int64_t bytes = clt_plan_arena_bytes(plan) + clt_plan_store_bytes(plan, 0) +
                          clt_plan_store_bytes(plan, slots);
    clt_plan_destroy(plan);
    *fits = bytes <= t->options.memory;
    if (!*fits)
        clt_log(CLT_LOG_INFO,
                "%s: kernels are not measured, since that would take %.1f MiB of the %.1f MiB of "
                "memory allowed; `cltrain tune` can do so before",
                clt_device_label(device), (double)bytes / 1048576,
                (double)t->options.memory / 1048576);
    return CLT_OK;
}

static clt_status measure(clt_trainer *t, const clt_graph *graph, clt_device *device,
                          clt_tuning_record *record)
{
    clt_plan_options options = clt_capacity_options(&t->options, CLT_PLAN_TRAIN, t->shares.per_run);
    clt_tune_report report;
    bool fits;
    const clt_tune_limits limits = {.seconds = t->options.tune_seconds,
                                    .anew = t->options.tune_anew != 0,
                                    .stop = t->options.tune_stop,
                                    .user = t->options.tune_user};
    /* Copies are of the shapes that are there. */
    options.recompute = options.early_outputs = false;
    CLT_TRY(measuring_fits(t, graph, device, &options, &fits));
    if (!fits)
        return CLT_OK;
    /* Whoever measures for the record's sake hears that it cannot be written before time is spent.
     */
    if (t->options.tune_anew)
        CLT_TRY(clt_tuning_save(device, record));
    const clt_status status = clt_tune_plan(graph, device, &options, &limits, record, &report);
    /* Measuring has parameters of its own: training may fit where that does not. */
    if (status == CLT_OUT_OF_DEVICE_MEMORY) {
        clt_log(CLT_LOG_WARN, "kernels are not measured, training goes on without: %s",
                clt_error_message());
        return CLT_OK;
    }
    CLT_TRY(status);
    t->tune_classes += report.classes;
    t->tune_left += report.classes - report.measured + report.unfinished;
    if (!report.measured)
        return CLT_OK;
    clt_log(CLT_LOG_INFO, "%s: measured %d of %d classes of shapes, %d candidates",
            clt_device_label(device), report.measured, report.classes, report.candidates);
    const clt_status saved = clt_tuning_save(device, record);
    if (t->options.tune_anew)
        return saved;
    /* Without a file they are measured again next time. */
    if (saved != CLT_OK)
        clt_log(CLT_LOG_INFO, "%s", clt_error_message());
    return CLT_OK;
}

static clt_status make_record(clt_trainer *t, const clt_graph *graph, clt_device *device,
                              clt_tuning_record *record)
{
    if (t->options.frozen) {
        clt_status status = clt_tunings_find(t->options.frozen, device, record);
        if (status != CLT_NOT_FOUND)
            return status;
        clt_log(CLT_LOG_WARN,
                "%s: the checkpoint's choices of kernels are of other devices; they are made "
                "anew, and results are equal to rounding",
                clt_device_label(device));
    }
    clt_tuning_load(device, record);
    if (t->options.portable || t->options.tune_seconds <= 0)
        return CLT_OK;
    return measure(t, graph, device, record);
}

clt_status clt_choices_make(clt_trainer *t, const clt_graph *graph)
{
    t->tuning = clt_calloc((size_t)t->all.own, sizeof *t->tuning);
    t->tuning_of = clt_calloc((size_t)t->all.own, sizeof *t->tuning_of);
    if (!t->tuning || !t->tuning_of)
        return CLT_OUT_OF_MEMORY;
    for (int i = 0; i < t->all.own; i++) {
        clt_device *device = t->store->replicas[i].device;
        t->tuning_of[i] = &t->tuning[i];
        for (int j = 0; j < i; j++)
            if (same_kind(t->store->replicas[j].device, device))
                t->tuning_of[i] = t->tuning_of[j];
        if (t->tuning_of[i] == &t->tuning[i])
            CLT_TRY(make_record(t, graph, device, &t->tuning[i]));
    }
    return CLT_OK;
}

void clt_trainer_tuning(const clt_trainer *t, int *classes, int *left)
{
    *classes = t->tune_classes;
    *left = t->tune_left;
}

void clt_choices_free(clt_trainer *t)
{
    for (int i = 0; t->tuning && i < t->all.own; i++)
        clt_tuning_free(&t->tuning[i]);
    clt_free(t->tuning);
    clt_free(t->tuning_of);
    t->tuning = NULL;
    t->tuning_of = NULL;
}

static clt_status add_plan(const clt_plan *plan, clt_tuning_record *used)
{
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].tuned)
            CLT_TRY(clt_tuning_put(used, plan->nodes[i].tuned));
    return CLT_OK;
}

clt_status clt_choices_to_json(const clt_trainer *t, char **text)
{
    clt_tuning_record *used = clt_calloc((size_t)t->all.own, sizeof *used);
    if (!used)
        return CLT_OUT_OF_MEMORY;
    int count = 0;
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < t->all.own; i++) {
        if (t->tuning_of[i] != &t->tuning[i])
            continue;
        clt_tuning_record *record = &used[count++];
        memcpy(record->device, t->tuning[i].device, sizeof record->device);
        memcpy(record->driver, t->tuning[i].driver, sizeof record->driver);
        status = add_plan(t->training->devices[i].plan, record);
        if (status == CLT_OK)
            status = add_plan(t->evaluation->devices[i].plan, record);
    }
    if (status == CLT_OK)
        status = clt_tunings_to_json(used, count, text);
    for (int i = 0; i < count; i++)
        clt_tuning_free(&used[i]);
    clt_free(used);
    return status;
}
