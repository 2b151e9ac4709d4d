#include "train/setup/device_memory.h"

#include "base/alloc.h"
#include "exec/checksum.h"
#include "exec/update/shard_sums.h"
#include "exec/update/update.h"
#include "train/core/session.h"
#include "train/core/updates.h"
#include "train/ranks/virtual_shards.h"
#include "train/setup/capacity.h"
#include "train/setup/matrices.h"
#include "train/step/states.h"

int64_t clt_memory_total(const clt_memory *m)
{
    return m->store + m->inputs + m->other + m->arena;
}

clt_status clt_memory_mesh(const clt_store *store, int participants, clt_mesh *mesh, int *total)
{
    *mesh = store->mesh;
    *total = mesh->size[CLT_AXIS_DATA] ? store->total : participants;
    return mesh->size[CLT_AXIS_DATA] ? CLT_OK : clt_mesh_parse(NULL, participants, mesh);
}

bool clt_memory_unlike(const clt_store *store, const clt_mesh *mesh)
{
    for (int d = 1; d < store->n_devices; d++)
        for (int e = 0; e < d; e++)
            if (store->replicas[d].device->identity != store->replicas[e].device->identity &&
                clt_mesh_neighbour(mesh, CLT_AXIS_SAMPLES, store->first + d, 0) ==
                    clt_mesh_neighbour(mesh, CLT_AXIS_SAMPLES, store->first + e, 0))
                return true;
    return false;
}

bool clt_memory_sharded(const clt_store *store, const clt_trainer_options *options,
                        const clt_mesh *mesh)
{
    return clt_mesh_places(mesh, CLT_AXIS_SAMPLES) > 1 && !mesh->zero &&
           (options->zero || store->owners || clt_memory_unlike(store, mesh));
}

/* `states`: the set has buckets of states too. */
static int64_t set_bytes(const clt_buckets *layout, bool states, clt_dtype dtype, int shard,
                         int shards)
{
    int64_t bytes = 0;
    for (int i = 0; i < layout->n_buckets; i++)
        if (states || !layout->buckets[i].state)
            bytes += clt_replica_buffer_bytes(&layout->buckets[i], dtype, shard, shards);
    return bytes;
}

/* With error feedback: 16-bit gradients beside those in f32, and residuals of what is rounded. */
static int64_t wire_bytes(const clt_buckets *layout, const clt_trainer_options *options)
{
    const bool full = options->precision == CLT_F32;
    if (options->wire == CLT_F32)
        return 0;
    return (full ? set_bytes(layout, false, options->wire, 0, 1) : 0) +
           (full || clt_capacity_micro_batches(options) > 1
                ? set_bytes(layout, false, CLT_F32, 0, 1)
                : 0);
}

/* Training keeps the inputs of two steps. */
static int64_t input_bytes(const clt_value *input, int64_t samples, int micro_batches, int copies)
{
    return copies * micro_batches * clt_session_input_bytes(input, samples);
}

static int64_t constant_bytes(const clt_value *constant)
{
    return clt_type_elements(&constant->type, 0) * clt_dtype_size(constant->type.dtype);
}

/* Devices with memory of their own are copied through the host. */
static int64_t staging_bytes(const clt_replica *replica)
{
    int64_t largest = 0;
    for (int i = 0; i < replica->layout->n_buckets; i++)
        if (replica->layout->buckets[i].bytes > largest)
            largest = replica->layout->buckets[i].bytes;
    return replica->device->caps.host_memory ? 0 : largest;
}

bool clt_memory_accumulates(const clt_trainer_options *options)
{
    return options->precision == CLT_F32 && clt_capacity_micro_batches(options) > 1;
}

int64_t clt_memory_terms(const clt_trainer_options *options, int64_t shards)
{
    return clt_memory_accumulates(options) && shards > 1 ? shards / 2 : shards;
}

/* Finds how many virtual shards a device has; 1 without. If the division is not known, every device
 * counts as the one with the most. */
static clt_status count_shards(const clt_store *store, const clt_trainer_options *options,
                               int total, int device, int64_t *shards)
{
    int64_t *bounds = NULL;
    int first;
    *shards = 1;
    if (!options->virtual_shards)
        return CLT_OK;
    CLT_TRY(clt_virtual_shards_plan(options->virtual_shards, store, options->world, total, &bounds,
                                    &first));
    *shards = bounds ? bounds[first + device + 1] - bounds[first + device] : options->accumulate;
    clt_free(bounds);
    return CLT_OK;
}

static int64_t shard_bytes(const clt_buckets *layout, const clt_trainer_options *options, int sets)
{
    int64_t bytes = 0;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            bytes += clt_bucket_gradient_bytes(&layout->buckets[i], options->precision);
    return sets * bytes;
}

static clt_status count_results(const clt_graph *graph, const clt_trainer_options *options,
                                const clt_mesh *mesh, int sets, int64_t *bytes)
{
    const int micro_batches = clt_capacity_micro_batches(options);
    const bool shared =
        options->world && options->world->ranks > 1 &&
        (clt_mesh_places(mesh, CLT_AXIS_SAMPLES) > 1 || mesh->size[CLT_AXIS_PIPELINE] > 1);
    int64_t states;
    const int64_t places = options->virtual_shards ? options->virtual_shards : micro_batches;
    CLT_TRY(clt_states_bytes(graph, mesh, micro_batches, &states));
    *bytes = states * (1 + sets) +
             2 * clt_session_bytes(graph->n_losses + graph->n_metrics, places, shared);
    return CLT_OK;
}

/* Returns the number of a device among all participants. A plan without a mesh cannot ask other
 * ranks, so it takes them to have as many devices as this one. -1: they have not. */
static int participant_of(const clt_store *store, const clt_world *world, int total, int device)
{
    if (store->mesh.size[CLT_AXIS_DATA])
        return store->first + device;
    const int ranks = world ? world->ranks : 1, rank = world ? world->rank : 0;
    return ranks * store->n_devices == total ? rank * store->n_devices + device : -1;
}

/* The numbers of the optimizer's tensors, without what their buffers have beyond them. */
static int64_t state_bytes(const clt_buckets *layout, int shard, int shards)
{
    int64_t bytes = 0;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            bytes += shards > 1 ? clt_shard_size(&layout->buckets[i], shard, shards)
                                : layout->buckets[i].bytes;
    return bytes;
}

/* Counts a shard's part of the optimizer's tensors in m->slots and m->numbers, and what updates of
 * the shard need. */
static clt_status count_update(const clt_replica *replica, const clt_trainer_options *options,
                               const bool *matrices, int shard, int shards, clt_memory *m,
                               int64_t *update)
{
    const int slots = clt_optimizer_of(options)->n_slots;
    clt_replica own = *replica;
    own.shard = shard;
    own.shards = shards;
    m->slots = slots * set_bytes(replica->layout, false, CLT_F32, shard, shards);
    m->numbers = slots * state_bytes(replica->layout, shard, shards);
    return clt_update_bytes(&own, options->virtual_shards != 0, matrices, update);
}

/* The same for a participant's shard. A device whose shard is not known counts with the most that
 * any shard needs. */
static clt_status count_updates(const clt_replica *replica, const clt_trainer_options *options,
                                const bool *matrices, const clt_mesh *mesh, bool sharded,
                                int participant, clt_memory *m, int64_t *update)
{
    const int shards = sharded ? clt_mesh_places(mesh, CLT_AXIS_SAMPLES) : 1;
    if (shards == 1 || participant >= 0)
        return count_update(replica, options, matrices,
                            shards == 1 ? 0
                                        : clt_mesh_coordinate(mesh, CLT_AXIS_SAMPLES, participant),
                            shards, m, update);
    *update = 0;
    for (int shard = 0; shard < shards; shard++) {
        clt_memory one;
        int64_t bytes;
        CLT_TRY(count_update(replica, options, matrices, shard, shards, &one, &bytes));
        m->slots = one.slots > m->slots ? one.slots : m->slots;
        m->numbers = one.numbers > m->numbers ? one.numbers : m->numbers;
        *update = bytes > *update ? bytes : *update;
    }
    return CLT_OK;
}

clt_status clt_memory_count(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int participants, int device,
                            int64_t samples, clt_memory *m)
{
    const clt_replica *replica = &store->replicas[device];
    const int micro_batches = clt_capacity_micro_batches(options);
    clt_mesh mesh;
    int64_t shards;
    int total;
    CLT_TRY(clt_memory_mesh(store, participants, &mesh, &total));
    CLT_TRY(count_shards(store, options, total, device, &shards));
    int64_t update, results;
    bool *matrices;
    CLT_TRY(clt_matrices_find(graph, store, options, clt_memory_unlike(store, &mesh), &matrices));
    *m = (clt_memory){0};
    const clt_status status =
        count_updates(replica, options, matrices, &mesh, clt_memory_sharded(store, options, &mesh),
                      participant_of(store, options->world, total, device), m, &update);
    clt_free(matrices);
    CLT_TRY(status);
    m->store = set_bytes(replica->layout, true, CLT_F32, 0, 1) +
               set_bytes(replica->layout, false, options->precision, 0, 1) + m->slots;
    m->store += shard_bytes(replica->layout, options,
                            clt_shard_sums_sets(clt_memory_terms(options, shards)));
    /* They are summed in f32. */
    if (micro_batches > 1 && options->precision != CLT_F32 && !options->virtual_shards)
        m->store += set_bytes(replica->layout, false, CLT_F32, 0, 1);
    if (total > 1)
        m->store += wire_bytes(replica->layout, options);
    if (options->average.kind)
        m->store += set_bytes(replica->layout, true, CLT_F32, 0, 1);
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->kind == CLT_VALUE_INPUT)
            m->inputs += input_bytes(v, samples, micro_batches, v->input_gradient ? 4 : 3);
        if (v->kind == CLT_VALUE_CONSTANT)
            m->inputs += 2 * constant_bytes(v);
    }
    CLT_TRY(count_results(graph, options, &mesh, clt_shard_sums_sets(shards), &results));
    m->other = update + results;
    if (clt_shared_supported(replica->device))
        m->other += CLT_STEP_STATUS_BYTES;
    if (total > 1)
        m->other += clt_checksum_bytes(replica) + staging_bytes(replica);
    return CLT_OK;
}

static bool is_upstream(const clt_graph *graph, const clt_value *input)
{
    for (int l = 0; l < graph->n_losses; l++)
        if (graph->losses[l].upstream == input)
            return true;
    return false;
}

/* Returns the bytes of a slab of the arena as the plan needs it. */
static int64_t slab_bytes(const clt_plan *plan, int slab)
{
    if (slab < plan->n_slabs)
        return plan->slabs[slab];
    return slab < clt_plan_all_slabs(plan)
               ? plan->slabs[(slab - plan->n_slabs) % plan->n_flight_slabs]
               : 0;
}

/* Training and evaluation use the same slabs, so that a slab has the larger size. */
void clt_memory_count_plans(const clt_store *store, const clt_plan *training,
                            const clt_plan *evaluation, int max_micro_batches, clt_memory *m)
{
    const bool samples = !clt_store_owns(store, training->options.participant);
    const clt_plan *const plans[] = {training, evaluation};
    m->inputs = m->arena = 0;
    for (int p = 0; p < 2; p++) {
        const clt_plan *plan = plans[p];
        for (int i = 0; i < plan->n_inputs; i++)
            if (!is_upstream(plan->graph, plan->inputs[i]) &&
                (samples || !clt_type_has_batch(&plan->inputs[i]->type)))
                m->inputs +=
                    input_bytes(plan->inputs[i], plan->options.max_batch, max_micro_batches,
                                p ? 1 : 2 + plan->inputs[i]->input_gradient);
        for (int i = 0; i < plan->n_constants; i++)
            m->inputs += constant_bytes(plan->constants[i]);
    }
    for (int i = 0; i < clt_plan_all_slabs(training) || i < clt_plan_all_slabs(evaluation); i++) {
        const int64_t a = slab_bytes(training, i), b = slab_bytes(evaluation, i);
        m->arena += a > b ? a : b;
    }
}

int64_t clt_memory_held(const clt_replica *replica, const clt_trainer_options *options)
{
    const clt_buckets *layout = replica->layout;
    const int slots = clt_optimizer_of(options)->n_slots;
    int64_t bytes = replica->values ? set_bytes(layout, true, CLT_F32, 0, 1) : 0;
    if (replica->n_slots)
        bytes += (replica->n_slots < slots ? replica->n_slots : slots) *
                 set_bytes(layout, false, CLT_F32, replica->shard, replica->shards);
    if (clt_replica_gradients(replica, options->precision))
        bytes += set_bytes(layout, false, options->precision, 0, 1);
    if (replica->gradient_sums && options->precision != CLT_F32 &&
        clt_capacity_micro_batches(options) > 1 && !options->virtual_shards)
        bytes += set_bytes(layout, false, CLT_F32, 0, 1);
    if (replica->residuals)
        bytes += wire_bytes(layout, options);
    if (replica->averages && options->average.kind)
        bytes += set_bytes(layout, true, CLT_F32, 0, 1);
    return bytes;
}
