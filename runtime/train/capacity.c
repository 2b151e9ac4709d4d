/* What a batch needs on the devices, found from plans alone, before anything is allocated. */
#include "train/capacity.h"

#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "device/tuning_file.h"
#include "train/trainer.h"
#include <cltrain/data.h>

/* Batches beyond this are not looked for. */
static const int64_t LARGEST = (int64_t)1 << 40;

clt_status clt_capacity_share(int participants, const clt_trainer_options *options, int64_t batch,
                              int64_t *share)
{
    int64_t *capacity = clt_calloc((size_t)participants, sizeof *capacity);
    if (!capacity)
        return CLT_OUT_OF_MEMORY;
    clt_status status =
        clt_split_capacity(batch, participants, options->weights, options->quantum, capacity);
    int64_t largest = 1;
    for (int i = 0; status == CLT_OK && i < participants; i++)
        if (capacity[i] > largest)
            largest = capacity[i];
    clt_free(capacity);
    *share = (largest + options->accumulate - 1) / options->accumulate;
    return status;
}

int clt_capacity_micros(const clt_trainer_options *options)
{
    return options->accumulate * (options->rebalance ? 2 : 1);
}

clt_plan_options clt_capacity_options(const clt_trainer_options *options, clt_plan_mode mode,
                                      int64_t share)
{
    clt_plan_options plan = clt_plan_options_default(mode, share);
    plan.early_outputs = true;
    plan.separate = options->separate != 0;
    plan.portable = options->portable != 0;
    plan.variants = options->variants;
    return plan;
}

/* A device's memory for intermediates and inputs; two steps' inputs are kept. */
static int64_t bytes_of(const clt_plan *plan, int micros)
{
    int64_t bytes = clt_plan_arena_bytes(plan);
    for (int i = 0; i < plan->n_inputs; i++) {
        const clt_type *type = &plan->inputs[i]->type;
        bytes += 2 * micros * clt_type_elements(type, plan->options.max_batch) *
                 clt_dtype_size(type->dtype);
    }
    return bytes;
}

/* Devices in the host's memory share it, those of the node's other ranks too. */
static int64_t available(const clt_store *store, const clt_world *world, const clt_device *device)
{
    int sharing = 0;
    for (int i = 0; i < store->n_devices; i++)
        sharing += store->replicas[i].device->caps.host_memory;
    sharing *= world ? world->node_ranks : 1;
    const int64_t bytes = clt_device_memory_available(device);
    return device->caps.host_memory ? bytes / sharing : bytes;
}

clt_status clt_capacity_check(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int64_t batch)
{
    int64_t share;
    CLT_TRY(clt_capacity_share(participants, options, batch, &share));
    clt_plan_options plan_options = clt_capacity_options(options, CLT_PLAN_TRAIN, share);
    plan_options.several = participants > 1;
    for (int i = 0; i < store->n_devices; i++) {
        const clt_device *device = store->replicas[i].device;
        clt_plan *plan;
        CLT_TRY(clt_plan_create(graph, &store->layout, &device->caps, NULL, &plan_options, &plan));
        const int64_t needed = bytes_of(plan, clt_capacity_micros(options));
        int64_t largest = 0;
        for (int s = 0; s < plan->n_slabs; s++)
            if (plan->slabs[s] > largest)
                largest = plan->slabs[s];
        clt_plan_destroy(plan);
        const int64_t there = available(store, options->world, device);
        if (needed > there || largest > device->caps.max_alloc_bytes)
            return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                            "a batch of %lld needs %.1f MiB of %s, which has %.1f MiB available "
                            "and at most %.1f MiB in one buffer",
                            (long long)batch, (double)needed / 1048576, device->label,
                            (double)there / 1048576,
                            (double)device->caps.max_alloc_bytes / 1048576);
    }
    return CLT_OK;
}

int64_t clt_capacity_largest(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants)
{
    int64_t low = 0, high = 1;
    while (high < LARGEST &&
           clt_capacity_check(graph, store, options, participants, high) == CLT_OK) {
        low = high;
        high *= 2;
    }
    /* To three digits: memory that is available changes from one call to the next. */
    while (high - low > 1 + low / 1024) {
        const int64_t middle = low + (high - low) / 2;
        if (clt_capacity_check(graph, store, options, participants, middle) == CLT_OK)
            low = middle;
        else
            high = middle;
    }
    return low;
}

clt_status clt_capacity_explain(clt_status status, const clt_graph *graph, const clt_store *store,
                                const clt_trainer_options *options, int participants)
{
    if (status != CLT_OUT_OF_DEVICE_MEMORY)
        return status;
    char message[1024];
    strncpy(message, clt_error_message(), sizeof message - 1);
    message[sizeof message - 1] = '\0';
    const int64_t largest = clt_capacity_largest(graph, store, options, participants);
    return clt_fail(status, "%s; the largest batch that fits is about %lld", message,
                    (long long)largest);
}

clt_status clt_trainer_plan(const clt_graph *graph, clt_store *store,
                            const clt_trainer_options *options, int explain, char **text)
{
    static const char *const titles[] = {"Training", "Evaluation"};
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(clt_trainer_check_options(options));
    clt_str s = {0};
    int64_t share;
    /* Each rank has as many devices as this one, as far as is known here. */
    const int participants = store->n_devices * (options->world ? options->world->ranks : 1);
    CLT_TRY(clt_capacity_share(participants, options, options->batch, &share));
    for (int mode = CLT_PLAN_TRAIN; mode <= CLT_PLAN_EVALUATE; mode++) {
        clt_plan_options plan_options = clt_capacity_options(options, (clt_plan_mode)mode, share);
        plan_options.several = participants > 1;
        const clt_device *device = store->replicas[0].device;
        clt_plan *plan;
        clt_tuning_record tuning;
        clt_tuning_load(device, &tuning);
        clt_status status =
            clt_plan_create(graph, &store->layout, &device->caps, &tuning, &plan_options, &plan);
        clt_tuning_free(&tuning);
        if (status != CLT_OK) {
            clt_str_free(&s);
            return clt_capacity_explain(status, graph, store, options, participants);
        }
        clt_str_add(&s, "\n%s\n", titles[mode]);
        clt_plan_print(plan, explain != 0, &s);
        clt_plan_destroy(plan);
    }
    const bool fits =
        clt_capacity_check(graph, store, options, participants, options->batch) == CLT_OK;
    clt_str_add(&s, "\n");
    if (!fits)
        clt_str_add(&s, "This batch does not fit: %s\n", clt_error_message());
    clt_str_add(&s, "Largest batch that fits: about %lld\n",
                (long long)clt_capacity_largest(graph, store, options, participants));
    if (s.failed) {
        clt_str_free(&s);
        return CLT_OUT_OF_MEMORY;
    }
    *text = s.text; /* clt_alloc's memory is malloc's, as the header promises */
    return CLT_OK;
}
