/* Predicts the memory that a batch needs on the devices from plans alone, before anything is
 * allocated. */
#include "train/setup/capacity.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "device/program/tuning_file.h"
#include "exec/optimizer.h"
#include "train/setup/explain.h"
#include <cltrain/data.h>

/* Largest batch that is tried, as a power of two. */
enum { LARGEST_POWER = 40 };

clt_status clt_capacity_share(int participants, const clt_trainer_options *options, int64_t batch,
                              int64_t *share)
{
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
    plan.in_flight = mode == CLT_PLAN_TRAIN ? options->in_flight : 0;
    return plan;
}

/* The memory of a device, in bytes. */
typedef struct need {
    int64_t store;  /* parameters, gradients, optimizer */
    int64_t inputs; /* inputs of two steps, in training and in evaluation, and constants */
    int64_t other;  /* results, partial sums, and staging buffers of gradients */
    int64_t arena;  /* intermediates */
} need;

static int64_t total_of(const need *n)
{
    return n->store + n->inputs + n->other + n->arena;
}

/* Bytes of inputs in the buffers of a session, which keeps the inputs of two steps. */
static int64_t input_bytes(const clt_graph *graph, int64_t share, int micro_batches)
{
    int64_t bytes = 0;
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->kind == CLT_VALUE_INPUT)
            bytes += 2 * micro_batches *
                     (clt_type_elements(&v->type, share) * clt_dtype_size(v->type.dtype) +
                      CLT_TENSOR_ALIGN);
    }
    return bytes;
}

/* Returns the bytes of the optimizer's state that a participant keeps. */
static int64_t optimizer_bytes(const clt_store *store, const clt_trainer_options *options,
                               int participants, int participant)
{
    const int slots = clt_optimizer_find(options->optimizer)->n_slots;
    const int shards = options->zero == 1 || store->owners ? participants : 1;
    const clt_buckets *layout = store->replicas[0].layout;
    int64_t bytes = 0;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            bytes += clt_shard_size(&layout->buckets[i], participant, shards) * slots;
    return bytes;
}

/* Counts what the device of a participant needs beside the intermediates. */
static void count_fixed(const clt_graph *graph, const clt_store *store, int participant,
                        const clt_trainer_options *options, int participants, int64_t share,
                        need *n)
{
    enum { SMALL = 256 * 1024 };
    const clt_buckets *layout = store->replicas[0].layout;
    const int micro_batches = clt_capacity_micro_batches(options);
    int64_t largest = 0;
    *n = (need){.inputs = 2 * input_bytes(graph, share, micro_batches), .other = SMALL};
    n->store = optimizer_bytes(store, options, participants, participant);
    for (int i = 0; i < layout->n_buckets; i++) {
        const clt_bucket *b = &layout->buckets[i];
        n->store += b->bytes;
        /* Micro-batches are summed in f32, beside the gradients in the run's precision. */
        if (!b->state)
            n->store += b->bytes * (micro_batches > 1) +
                        clt_bucket_gradient_bytes(b, options->precision) + 2 * CLT_SHARD_ROOM;
        largest = b->bytes > largest ? b->bytes : largest;
    }
    if (participants > 1)
        n->other += largest;
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_CONSTANT)
            n->inputs += clt_type_elements(&graph->values[i]->type, 0) *
                         clt_dtype_size(graph->values[i]->type.dtype);
}

clt_status clt_capacity_limit(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants,
                              clt_plan_options *plan)
{
    need n;
    plan->arena_limit = 0;
    if (!options->memory || plan->mode != CLT_PLAN_TRAIN)
        return CLT_OK;
    count_fixed(graph, store, plan->participant, options, participants, plan->max_batch, &n);
    if (total_of(&n) >= options->memory)
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "parameters, gradients and optimizer take %.1f MiB of a device and inputs "
                        "of a batch %.1f MiB, which leaves nothing of the %.1f MiB of memory",
                        (double)n.store / 1048576, (double)(n.inputs + n.other) / 1048576,
                        (double)options->memory / 1048576);
    plan->arena_limit = options->memory - total_of(&n);
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

/* Returns the bytes of the device's memory that the replica already uses. */
static int64_t held(const clt_replica *replica, const clt_trainer_options *options)
{
    int64_t bytes = 0;
    for (int i = 0; i < replica->layout->n_buckets; i++) {
        const clt_bucket *b = &replica->layout->buckets[i];
        const int slots = clt_optimizer_find(options->optimizer)->n_slots;
        bytes += b->bytes;
        if (b->state)
            continue;
        bytes += CLT_SHARD_ROOM;
        if (replica->n_slots)
            bytes += clt_shard_size(b, replica->shard, replica->shards) *
                     (replica->n_slots < slots ? replica->n_slots : slots);
        if (clt_replica_gradients(replica, options->precision))
            bytes += clt_bucket_gradient_bytes(b, options->precision) + CLT_SHARD_ROOM;
        if (replica->micro_gradients && clt_capacity_micro_batches(options) > 1)
            bytes += b->bytes;
    }
    return bytes;
}

/* Makes the plan of a device. If the allowed memory is too small, makes the plan that needs the
 * least and sets *within to false. */
static clt_status make_plan(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants,
                            const clt_replica *replica, const clt_tuning_record *tuning,
                            clt_plan_options *plan_options, bool *within, clt_plan **plan)
{
    const clt_caps *caps = &replica->device->caps;
    *within = false;
    clt_store_place(store, (int)(replica - store->replicas), plan_options);
    clt_status status = clt_capacity_limit(graph, store, options, participants, plan_options);
    CLT_NEXT(status, clt_plan_create(graph, replica->layout, caps, tuning, plan_options, plan));
    *within = status == CLT_OK;
    if (status != CLT_OUT_OF_DEVICE_MEMORY || !options->memory)
        return status;
    plan_options->arena_limit = 0;
    plan_options->recompute = true;
    return clt_plan_create(graph, replica->layout, caps, tuning, plan_options, plan);
}

static clt_status does_not_fit(const clt_device *device, const clt_trainer_options *options,
                               int64_t batch, const need *n)
{
    return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                    "a batch of %lld needs at least %.1f MiB of %s, also where backward computes "
                    "intermediates again (%.1f MiB; parameters, gradients and optimizer %.1f MiB, "
                    "inputs %.1f MiB); the memory allowed is %.1f MiB",
                    (long long)batch, (double)total_of(n) / 1048576, device->label,
                    (double)n->arena / 1048576, (double)n->store / 1048576,
                    (double)(n->inputs + n->other) / 1048576, (double)options->memory / 1048576);
}

/* Returns the bytes of a slab of the arena, as training needs it. */
static int64_t slab_bytes(const clt_plan *plan, int slab)
{
    if (slab < plan->n_slabs)
        return plan->slabs[slab];
    return slab < clt_plan_all_slabs(plan)
               ? plan->slabs[(slab - plan->n_slabs) % plan->n_flight_slabs]
               : 0;
}

/* Evaluation runs in the same slabs as training. It may need larger ones if training was planned to
 * use little. */
static clt_status add_evaluation(const clt_graph *graph, const clt_store *store,
                                 const clt_trainer_options *options, int participants,
                                 int64_t share, const clt_replica *replica,
                                 const clt_plan *training, need *n)
{
    clt_plan_options plan_options = clt_capacity_options(options, CLT_PLAN_EVALUATE, share);
    clt_plan *plan;
    plan_options.several = participants > 1;
    clt_store_place(store, (int)(replica - store->replicas), &plan_options);
    CLT_TRY(clt_plan_create(graph, replica->layout, &replica->device->caps, NULL, &plan_options,
                            &plan));
    for (int i = 0; i < plan->n_slabs; i++) {
        const int64_t more = plan->slabs[i] - slab_bytes(training, i);
        n->arena += more > 0 ? more : 0;
    }
    clt_plan_destroy(plan);
    return CLT_OK;
}

/* Checks one device. */
static clt_status check_device(const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int participants, int64_t batch,
                               int64_t share, const clt_replica *replica)
{
    const clt_device *device = replica->device;
    clt_plan_options plan_options = clt_capacity_options(options, CLT_PLAN_TRAIN, share);
    bool within;
    need n;
    clt_plan *plan;
    plan_options.several = participants > 1;
    CLT_TRY(make_plan(graph, store, options, participants, replica, NULL, &plan_options, &within,
                      &plan));
    count_fixed(graph, store, plan_options.participant, options, participants, share, &n);
    n.arena = clt_plan_arena_bytes(plan);
    int64_t largest = 0;
    for (int s = 0; s < plan->n_slabs; s++)
        if (plan->slabs[s] > largest)
            largest = plan->slabs[s];
    const clt_status status =
        options->memory || options->recompute
            ? add_evaluation(graph, store, options, participants, share, replica, plan, &n)
            : CLT_OK;
    clt_plan_destroy(plan);
    CLT_TRY(status);
    if (options->memory && (!within || total_of(&n) > options->memory))
        return does_not_fit(device, options, batch, &n);
    /* The host reports its free memory, other devices only their total memory. */
    const int64_t there = available(store, options->world, device);
    const int64_t needed = total_of(&n) - (device->caps.host_memory ? held(replica, options) : 0);
    if (needed > there || largest > device->caps.max_alloc_bytes)
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "a batch of %lld needs %.1f MiB of %s, which has %.1f MiB available "
                        "and at most %.1f MiB in one buffer",
                        (long long)batch, (double)needed / 1048576, device->label,
                        (double)there / 1048576, (double)device->caps.max_alloc_bytes / 1048576);
    return CLT_OK;
}

clt_status clt_capacity_check(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int participants, int64_t batch)
{
    int64_t share;
    CLT_TRY(clt_capacity_share(participants, options, batch, &share));
    for (int i = 0; i < store->n_devices; i++)
        CLT_TRY(
            check_device(graph, store, options, participants, batch, share, &store->replicas[i]));
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

/* With offload, prints which device keeps the optimizer's state. */
static void print_owners(const clt_store *store, const clt_trainer_options *options,
                         int participants, clt_str *s)
{
    for (int d = 0; store->owners && d < store->n_devices; d++)
        clt_str_add(s, "Optimizer's state on device %d (%s, %s): %lld bytes\n", d,
                    store->replicas[d].device->label,
                    clt_store_owns(store, store->first + d) ? "owner" : "trains",
                    (long long)optimizer_bytes(store, options, participants, store->first + d));
}

/* Prints the memory of a device, and how much more would fit. */
static void print_memory(const clt_graph *graph, const clt_store *store,
                         const clt_trainer_options *options, int participants,
                         clt_plan *const plans[2], clt_str *s)
{
    const int64_t training = clt_plan_arena_bytes(plans[CLT_PLAN_TRAIN]);
    const int64_t evaluation = clt_plan_arena_bytes(plans[CLT_PLAN_EVALUATE]);
    clt_trainer_options again = *options;
    need n;
    count_fixed(graph, store, plans[CLT_PLAN_TRAIN]->options.participant, options, participants,
                plans[CLT_PLAN_TRAIN]->options.max_batch, &n);
    n.arena = training > evaluation ? training : evaluation;
    clt_str_add(s,
                "\nAll memory of a device: %.1f MiB (parameters, gradients and optimizer %.1f, "
                "intermediates %.1f, inputs and the rest %.1f)\n",
                (double)total_of(&n) / 1048576, (double)n.store / 1048576,
                (double)n.arena / 1048576, (double)(n.inputs + n.other) / 1048576);
    print_owners(store, options, participants, s);
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

static clt_status print_plans(const clt_graph *graph, clt_store *store,
                              const clt_trainer_options *options, int participants, int explain,
                              char **text)
{
    static const char *const titles[] = {"Training", "Evaluation"};
    clt_str s = {0};
    int64_t share;
    CLT_TRY(clt_capacity_share(participants, options, options->batch, &share));
    clt_plan *plans[2] = {NULL};
    const clt_replica *replica = &store->replicas[0];
    clt_tuning_record tuning;
    clt_tuning_load(replica->device, &tuning);
    clt_status status = CLT_OK;
    for (int mode = CLT_PLAN_TRAIN; status == CLT_OK && mode <= CLT_PLAN_EVALUATE; mode++) {
        clt_plan_options plan_options = clt_capacity_options(options, (clt_plan_mode)mode, share);
        bool within;
        plan_options.several = participants > 1;
        status = make_plan(graph, store, options, participants, replica, &tuning, &plan_options,
                           &within, &plans[mode]);
        if (status != CLT_OK)
            break;
        clt_str_add(&s, "\n%s\n", titles[mode]);
        clt_plan_print(plans[mode], explain != 0, &s);
        if (explain && mode == CLT_PLAN_TRAIN)
            status = clt_step_program_explain(plans[mode], store, options, participants, &s);
    }
    clt_tuning_free(&tuning);
    if (status == CLT_OK)
        print_memory(graph, store, options, participants, plans, &s);
    clt_plan_destroy(plans[0]);
    clt_plan_destroy(plans[1]);
    if (status != CLT_OK) {
        clt_str_free(&s);
        return clt_capacity_explain(status, graph, store, options, participants);
    }
    if (s.failed) {
        clt_str_free(&s);
        return CLT_OUT_OF_MEMORY;
    }
    *text = s.text; /* the caller frees it with free(), as the header says: clt_alloc uses malloc */
    return CLT_OK;
}

clt_status clt_trainer_plan(const clt_graph *graph, clt_store *store,
                            const clt_trainer_options *options, int explain, char **text)
{
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(clt_trainer_check_options(options));
    const int parts = store->mesh.size[CLT_AXIS_DATA];
    if (!parts) /* the devices of other ranks are not known: assume as many as this rank has */
        return print_plans(graph, store, options,
                           store->n_devices * (options->world ? options->world->ranks : 1), explain,
                           text);
    clt_trainer_options own = *options;
    double *weights = clt_calloc((size_t)parts, sizeof *weights);
    CLT_TRY_MEMORY(weights);
    for (int i = 0; options->weights && i < parts; i++)
        weights[i] = options->weights[clt_mesh_neighbour(&store->mesh, CLT_AXIS_DATA, 0, i)];
    clt_store_weigh(store, options->weights != NULL, weights);
    own.weights = options->weights || store->owners ? weights : NULL;
    const clt_status status = print_plans(graph, store, &own, parts, explain, text);
    clt_free(weights);
    return status;
}
