/* Predicts the memory that a batch needs on the devices from plans alone, before anything is
 * allocated. */
#include "train/setup/capacity.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "device/program/merge_source.h"
#include "device/program/tuning_file.h"
#include "exec/update/optimizer.h"
#include "train/ranks/virtual_shards.h"
#include "train/setup/explain.h"
#include <cltrain/data.h>

/* Largest batch that is tried, as a power of two. */
enum { LARGEST_POWER = 40 };

clt_status clt_capacity_share(int participants, const clt_trainer_options *options, int64_t batch,
                              int64_t *share)
{
    if (options->virtual_shards) {
        *share = (batch + options->virtual_shards - 1) / options->virtual_shards;
        return CLT_OK;
    }
    int64_t *capacity = clt_calloc((size_t)participants, sizeof *capacity);
    CLT_TRY_MEMORY(capacity);
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

int clt_capacity_micro_batches(const clt_trainer_options *options)
{
    return options->accumulate * (options->rebalance ? 2 : 1);
}

clt_plan_options clt_capacity_options(const clt_trainer_options *options, clt_plan_mode mode,
                                      int64_t share)
{
    clt_plan_options plan = clt_plan_options_default(mode, share);
    plan.early_outputs = true;
    plan.recompute = options->recompute && mode == CLT_PLAN_TRAIN;
    plan.separate = options->separate != 0;
    plan.portable = options->portable != 0;
    plan.precision = options->precision;
    plan.variants = options->variants;
    plan.merge = options->merge_launches;
    plan.merge_steps = (double)options->merge_steps * clt_capacity_micro_batches(options);
    plan.merges = clt_merge_accepts_kernel;
    plan.virtual_shards = options->virtual_shards;
    plan.in_flight = mode == CLT_PLAN_TRAIN ? options->in_flight : 0;
    plan.accumulates = mode == CLT_PLAN_TRAIN && clt_memory_accumulates(options);
    return plan;
}

clt_status clt_capacity_limit(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int device,
                              clt_plan_options *plan)
{
    clt_memory n;
    plan->arena_limit = 0;
    if (!options->memory || plan->mode != CLT_PLAN_TRAIN ||
        clt_store_owns(store, store->first + device))
        return CLT_OK;
    CLT_TRY(clt_memory_count(graph, store, options, participants, device, plan->max_batch, &n));
    if (clt_memory_total(&n) >= options->memory)
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "parameters, gradients and optimizer take %.1f MiB of a device and inputs "
                        "of a batch %.1f MiB, which leaves nothing of the %.1f MiB of memory",
                        (double)n.store / 1048576, (double)(n.inputs + n.other) / 1048576,
                        (double)options->memory / 1048576);
    plan->arena_limit = options->memory - clt_memory_total(&n);
    return CLT_OK;
}

/* Devices in the host's memory share it, also with devices of the node's other ranks. */
static int64_t available(const clt_store *store, const clt_world *world, const clt_device *device)
{
    int sharing = 0;
    for (int i = 0; i < store->n_devices; i++)
        sharing += store->replicas[i].device->caps.host_memory;
    sharing *= world ? world->node_ranks : 1;
    const int64_t bytes = clt_device_memory_available(device);
    return device->caps.host_memory ? bytes / sharing : bytes;
}

static clt_status make_plan(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants, int device,
                            clt_plan_mode mode, int64_t share, const clt_tuning_record *tuning,
                            bool least, clt_plan **plan)
{
    const clt_replica *replica = &store->replicas[device];
    clt_plan_options own = clt_capacity_options(options, mode, share);
    own.several = participants > 1;
    clt_store_place(store, device, &own);
    if (least)
        own.recompute = true;
    else
        CLT_TRY(clt_capacity_limit(graph, store, options, participants, device, &own));
    return clt_plan_create(graph, replica->layout, &replica->device->caps, tuning, &own, plan);
}

/* Makes the plan of training on a device. If the allowed memory is too small, makes the plan that
 * needs the least and sets *within to false. */
static clt_status make_training(const clt_graph *graph, const clt_store *store,
                                const clt_trainer_options *options, int participants, int device,
                                int64_t share, const clt_tuning_record *tuning, bool *within,
                                clt_plan **plan)
{
    const clt_status status = make_plan(graph, store, options, participants, device, CLT_PLAN_TRAIN,
                                        share, tuning, false, plan);
    *within = status == CLT_OK;
    if (status != CLT_OUT_OF_DEVICE_MEMORY || !options->memory)
        return status;
    return make_plan(graph, store, options, participants, device, CLT_PLAN_TRAIN, share, tuning,
                     true, plan);
}

static clt_status does_not_fit(const clt_device *device, const clt_trainer_options *options,
                               int64_t batch, const clt_memory *n)
{
    return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                    "a batch of %lld needs at least %.1f MiB of %s, also where backward computes "
                    "intermediates again (%.1f MiB; parameters, gradients and optimizer %.1f MiB, "
                    "inputs %.1f MiB); the memory allowed is %.1f MiB",
                    (long long)batch, (double)clt_memory_total(n) / 1048576, device->label,
                    (double)n->arena / 1048576, (double)n->store / 1048576,
                    (double)(n->inputs + n->other) / 1048576, (double)options->memory / 1048576);
}

/* Takes what the check of memory needs of the plans. Evaluation may need larger slabs if training
 * was planned to use little; else `evaluation` is NULL. */
static void take_need(const clt_store *store, const clt_trainer_options *options,
                      const clt_plan *training, const clt_plan *evaluation, bool within,
                      clt_capacity_need *need)
{
    clt_memory n = {.inputs = -1, .arena = clt_plan_arena_bytes(training)};
    *need = (clt_capacity_need){.within = within, .samples = training->options.max_batch};
    for (int s = 0; s < training->n_slabs; s++)
        if (training->slabs[s] > need->largest)
            need->largest = training->slabs[s];
    if (evaluation)
        clt_memory_count_plans(store, training, evaluation, clt_capacity_micro_batches(options),
                               &n);
    need->inputs = n.inputs;
    need->arena = n.arena;
}

/* Whether the check of memory looks at the plan of evaluation too. */
static bool looks_at_evaluation(const clt_trainer_options *options)
{
    return options->memory || options->recompute;
}

void clt_capacity_need_of(const clt_store *store, const clt_trainer_options *options,
                          const clt_plan *training, const clt_plan *evaluation,
                          clt_capacity_need *need)
{
    take_need(store, options, training, looks_at_evaluation(options) ? evaluation : NULL, true,
              need);
}

static clt_status find_need(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants, int64_t share,
                            int device, clt_capacity_need *need)
{
    bool within;
    clt_plan *training, *evaluation = NULL;
    CLT_TRY(make_training(graph, store, options, participants, device, share, NULL, &within,
                          &training));
    clt_status status = CLT_OK;
    if (looks_at_evaluation(options))
        status = make_plan(graph, store, options, participants, device, CLT_PLAN_EVALUATE, share,
                           NULL, false, &evaluation);
    if (status == CLT_OK)
        take_need(store, options, training, evaluation, within, need);
    clt_plan_destroy(training);
    clt_plan_destroy(evaluation);
    return status;
}

clt_status clt_capacity_need_find(const clt_graph *graph, const clt_store *store,
                                  const clt_trainer_options *options, int participants, int device,
                                  clt_capacity_need *need)
{
    int64_t share;
    CLT_TRY(clt_capacity_share(participants, options, options->batch, &share));
    return find_need(graph, store, options, participants, share, device, need);
}

clt_status clt_capacity_fits(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants, int64_t batch,
                             int index, const clt_capacity_need *need)
{
    const clt_device *device = store->replicas[index].device;
    clt_memory n;
    CLT_TRY(clt_memory_count(graph, store, options, participants, index, need->samples, &n));
    n.arena = need->arena;
    if (need->inputs >= 0)
        n.inputs = need->inputs;
    if (options->memory && !clt_store_owns(store, store->first + index) &&
        (!need->within || clt_memory_total(&n) > options->memory))
        return does_not_fit(device, options, batch, &n);
    /* The host reports its free memory, other devices only their total memory. */
    const int64_t there = available(store, options->world, device);
    const int64_t needed =
        clt_memory_total(&n) -
        (device->caps.host_memory ? clt_memory_held(&store->replicas[index], options) : 0);
    if (needed > there || need->largest > device->caps.max_alloc_bytes)
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "a batch of %lld needs %.1f MiB of %s, which has %.1f MiB available "
                        "and at most %.1f MiB in one buffer",
                        (long long)batch, (double)needed / 1048576, device->label,
                        (double)there / 1048576, (double)device->caps.max_alloc_bytes / 1048576);
    return CLT_OK;
}

static clt_status check_device(const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int participants, int64_t batch,
                               int64_t share, int index)
{
    clt_capacity_need need;
    CLT_TRY(find_need(graph, store, options, participants, share, index, &need));
    return clt_capacity_fits(graph, store, options, participants, batch, index, &need);
}

clt_status clt_capacity_check_device(const clt_graph *graph, const clt_store *store,
                                     const clt_trainer_options *options, int participants,
                                     int64_t batch, int device)
{
    int64_t share;
    CLT_TRY(clt_capacity_share(participants, options, batch, &share));
    return check_device(graph, store, options, participants, batch, share, device);
}

clt_status clt_capacity_check(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int64_t batch)
{
    for (int i = 0; i < store->n_devices; i++)
        CLT_TRY(clt_capacity_check_device(graph, store, options, participants, batch, i));
    return CLT_OK;
}

int64_t clt_capacity_largest(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants)
{
    /* Search to three digits, since the available memory changes between calls. Search less exactly
     * if each plan is itself searched for. */
    const int64_t digits = options->recompute || options->memory ? 128 : 1024;
    /* First find the powers of two around the batch: 2^(from - 1) fits, 2^to does not. */
    int from = 0, to = LARGEST_POWER;
    while (from < to) {
        const int middle = from + (to - from) / 2;
        if (clt_capacity_check(graph, store, options, participants, (int64_t)1 << middle) == CLT_OK)
            from = middle + 1;
        else
            to = middle;
    }
    int64_t low = from ? (int64_t)1 << (from - 1) : 0, high = (int64_t)1 << from;
    while (high - low > 1 + low / digits) {
        const int64_t middle = low + (high - low) / 2;
        if (clt_capacity_check(graph, store, options, participants, middle) == CLT_OK)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Returns the fewest micro-batches, as a power of two, with which the batch fits; 0 if it never
 * fits. */
static int micro_batches_of(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants)
{
    clt_trainer_options own = *options;
    for (own.accumulate = 2 * options->accumulate;
         own.accumulate <= CLT_MOST_ACCUMULATE && own.accumulate < 2 * options->batch;
         own.accumulate *= 2)
        if (clt_capacity_check(graph, store, &own, participants, options->batch) == CLT_OK)
            return own.accumulate;
    return 0;
}

clt_status clt_capacity_explain(clt_status status, const clt_graph *graph, const clt_store *store,
                                const clt_trainer_options *options, int participants)
{
    if (status != CLT_OUT_OF_DEVICE_MEMORY)
        return status;
    char message[1024], more[160] = "";
    strncpy(message, clt_error_message(), sizeof message - 1);
    message[sizeof message - 1] = '\0';
    const int64_t largest = clt_capacity_largest(graph, store, options, participants);
    clt_trainer_options again = *options;
    again.recompute = 1;
    const int micro_batches = micro_batches_of(graph, store, options, participants);
    if (!options->recompute && !options->memory &&
        clt_capacity_check(graph, store, &again, participants, options->batch) == CLT_OK)
        snprintf(more, sizeof more, "; this one does where backward computes again (recompute)");
    else if (micro_batches)
        snprintf(more, sizeof more, "; this one does in %d micro-batches (accumulate)",
                 micro_batches);
    if (!largest)
        return clt_fail(status, "%s; no batch fits%s", message, more);
    return clt_fail(status, "%s; the largest batch that fits is about %lld%s", message,
                    (long long)largest, more);
}

static void print_memory(const clt_memory *n, const char *device, clt_str *s)
{
    clt_str_add(s,
                "All memory of %s: %.1f MiB (parameters, gradients and optimizer %.1f, "
                "intermediates %.1f, inputs and the rest %.1f)\n",
                device, (double)clt_memory_total(n) / 1048576, (double)n->store / 1048576,
                (double)n->arena / 1048576, (double)(n->inputs + n->other) / 1048576);
    clt_str_add(s, "Optimizer's state of %s: %lld bytes\n", device, (long long)n->numbers);
}

static void print_largest(const clt_graph *graph, const clt_store *store,
                          const clt_trainer_options *options, int participants, clt_str *s)
{
    clt_trainer_options again = *options;
    if (clt_capacity_check(graph, store, options, participants, options->batch) != CLT_OK)
        clt_str_add(s, "This batch does not fit: %s\n", clt_error_message());
    const int64_t largest = clt_capacity_largest(graph, store, options, participants);
    if (largest)
        clt_str_add(s, "Largest batch that fits: about %lld", (long long)largest);
    else
        clt_str_add(s, "No batch fits");
    again.recompute = 1;
    if (!options->recompute && !options->memory) {
        const int64_t more = clt_capacity_largest(graph, store, &again, participants);
        if (more > largest)
            clt_str_add(s, "; where backward computes again (recompute): about %lld",
                        (long long)more);
        else
            clt_str_add(s, "; not more where backward computes again (recompute)");
    }
    clt_str_add(s, "\n");
}

/* Makes the plans of training and evaluation that a device would have. */
static clt_status make_plans(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants, int device,
                             clt_plan *plans[2])
{
    bool within;
    int64_t share;
    clt_tuning_record tuning;
    CLT_TRY(clt_capacity_share(participants, options, options->batch, &share));
    clt_tuning_load(store->replicas[device].device, &tuning);
    clt_status status = make_training(graph, store, options, participants, device, share, &tuning,
                                      &within, &plans[0]);
    CLT_NEXT(status, make_plan(graph, store, options, participants, device, CLT_PLAN_EVALUATE,
                               share, &tuning, false, &plans[1]));
    clt_tuning_free(&tuning);
    return status;
}

clt_status clt_capacity_memory(const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int participants, int device,
                               clt_memory *memory)
{
    clt_plan *plans[2] = {NULL};
    clt_status status = make_plans(graph, store, options, participants, device, plans);
    CLT_NEXT(status, clt_memory_count(graph, store, options, participants, device,
                                      plans[0]->options.max_batch, memory));
    if (status == CLT_OK)
        clt_memory_count_plans(store, plans[0], plans[1], clt_capacity_micro_batches(options),
                               memory);
    clt_plan_destroy(plans[0]);
    clt_plan_destroy(plans[1]);
    return status;
}

clt_status clt_capacity_plan(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, int participants, int device,
                             clt_plan_mode mode, const clt_tuning_record *tuning, clt_plan **plan)
{
    int64_t share;
    CLT_TRY(clt_capacity_share(participants, options, options->batch, &share));
    return make_plan(graph, store, options, participants, device, mode, share, tuning, false, plan);
}

/* With offload each device keeps another part of the optimizer's state. */
static bool are_alike(const clt_store *store, int a, int b)
{
    return a == b || (clt_store_same_plan(store, a, b) && !store->owners);
}

/* Prints the memory of the devices, of those with the same plan once. */
static clt_status print_devices(const clt_graph *graph, const clt_store *store,
                                const clt_trainer_options *options, int participants, clt_str *s)
{
    bool alike = true;
    for (int d = 1; d < store->n_devices; d++)
        alike = alike && are_alike(store, 0, d);
    clt_str_add(s, "\n");
    for (int d = 0; d < store->n_devices; d++) {
        clt_memory n;
        char name[32] = "a device";
        int same = 0;
        while (!are_alike(store, same, d))
            same++;
        if (same < d)
            continue;
        CLT_TRY(clt_capacity_memory(graph, store, options, participants, d, &n));
        if (!alike)
            snprintf(name, sizeof name, "device %d", d);
        print_memory(&n, name, s);
        if (store->owners)
            clt_str_add(s, "Optimizer's state on device %d (%s, %s): %lld bytes\n", d,
                        store->replicas[d].device->label,
                        clt_store_owns(store, store->first + d) ? "owner" : "trains",
                        (long long)n.slots);
    }
    return CLT_OK;
}

static clt_status print_plans(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int explain,
                              clt_str *s)
{
    static const char *const titles[] = {"Training", "Evaluation"};
    clt_plan *plans[2] = {NULL};
    clt_status status = make_plans(graph, store, options, participants, 0, plans);
    for (int mode = CLT_PLAN_TRAIN; status == CLT_OK && mode <= CLT_PLAN_EVALUATE; mode++) {
        clt_str_add(s, "\n%s\n", titles[mode]);
        clt_plan_print(plans[mode], explain != 0, s);
        if (explain && mode == CLT_PLAN_TRAIN)
            status = clt_step_program_explain(plans[mode], store, options, participants, s);
    }
    clt_plan_destroy(plans[0]);
    clt_plan_destroy(plans[1]);
    return status;
}

static clt_status print_all(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants, int explain,
                            char **text)
{
    clt_str s = {0};
    clt_status status = print_plans(graph, store, options, participants, explain, &s);
    CLT_NEXT(status, print_devices(graph, store, options, participants, &s));
    if (status == CLT_OK)
        print_largest(graph, store, options, participants, &s);
    if (status == CLT_OK && s.failed)
        status = CLT_OUT_OF_MEMORY;
    if (status != CLT_OK) {
        clt_str_free(&s);
        return clt_capacity_explain(status, graph, store, options, participants);
    }
    *text = clt_alloc_give(s.text);
    return CLT_OK;
}

/* What is planned: the options with the weights of the places of dp. The devices of other ranks are
 * not known without a mesh, and count as many as this rank has. */
typedef struct planned {
    clt_trainer_options options;
    double *weights;
    int participants;
} planned;

/* A device's virtual shards are its micro-batches. */
static clt_status count_shards(const clt_store *store, planned *p)
{
    const int64_t shards = p->options.virtual_shards;
    int64_t most = 1, *bounds;
    clt_mesh mesh;
    int total, first;
    if (!shards)
        return CLT_OK;
    CLT_TRY(clt_memory_mesh(store, p->participants, &mesh, &total));
    CLT_TRY(clt_virtual_shards_plan(shards, store, p->options.world, total, &bounds, &first));
    for (int d = 0; bounds && d < total; d++)
        if (bounds[d + 1] - bounds[d] > most)
            most = bounds[d + 1] - bounds[d];
    clt_free(bounds);
    p->options.accumulate = (int)most;
    return CLT_OK;
}

static clt_status prepare(const clt_graph *graph, clt_store *store,
                          const clt_trainer_options *options, planned *p)
{
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(clt_trainer_check_options(options));
    CLT_TRY(clt_capacity_check_store(graph, store, options));
    const int parts = store->mesh.size[CLT_AXIS_DATA];
    *p = (planned){.options = *options, .participants = parts};
    if (!parts) {
        p->participants = store->n_devices * (options->world ? options->world->ranks : 1);
        return count_shards(store, p);
    }
    p->weights = clt_calloc((size_t)parts, sizeof *p->weights);
    CLT_TRY_MEMORY(p->weights);
    for (int i = 0; options->weights && i < parts; i++)
        p->weights[i] = options->weights[clt_mesh_neighbour(&store->mesh, CLT_AXIS_DATA, 0, i)];
    clt_store_weigh(store, options->weights != NULL, p->weights);
    p->options.weights = options->weights || store->owners ? p->weights : NULL;
    return count_shards(store, p);
}

clt_status clt_trainer_plan(const clt_graph *graph, clt_store *store,
                            const clt_trainer_options *options, int explain, char **text)
{
    planned p;
    CLT_TRY(prepare(graph, store, options, &p));
    const clt_status status = print_all(graph, store, &p.options, p.participants, explain, text);
    clt_free(p.weights);
    return status;
}

clt_status clt_trainer_fits(const clt_graph *graph, clt_store *store,
                            const clt_trainer_options *options)
{
    planned p;
    CLT_TRY(prepare(graph, store, options, &p));
    const clt_status status =
        clt_capacity_check(graph, store, &p.options, p.participants, p.options.batch);
    clt_free(p.weights);
    return status;
}
