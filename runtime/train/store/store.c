#include "train/store/store.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "train/store/init.h"
#include "train/store/offload.h"
#include "train/store/parts.h"
#include "train/store/rest.h"
#include <cltrain/checkpoint.h>
#include <cltrain/world.h>

/* Orders slots by stream: parameters in graph order, then states. */
static clt_status make_order(clt_store *store)
{
    store->order = clt_calloc((size_t)store->layout.n_slots + 1, sizeof *store->order);
    CLT_TRY_MEMORY(store->order);
    for (int i = 0; i < store->layout.n_slots; i++)
        store->order[store->layout.slots[i].stream] = i;
    return CLT_OK;
}

static clt_status keep_file_names(clt_store *store, const clt_graph *graph)
{
    if (graph->file_prefix && !(store->file_prefix = clt_strdup(graph->file_prefix)))
        return CLT_OUT_OF_MEMORY;
    if (graph->file_ignored && !(store->file_ignored = clt_strdup(graph->file_ignored)))
        return CLT_OUT_OF_MEMORY;
    return CLT_OK;
}

/* Writes a tensor's initial values to all devices. `data` has room for the largest part. */
static clt_status initialise_slot(clt_store *store, const clt_slot *slot, uint64_t seed, void *data)
{
    int filled = -1; /* the place whose part `data` has */
    for (int d = 0; d < store->n_devices; d++) {
        const clt_replica *r = &store->replicas[d];
        const clt_slot *part = clt_store_part(store, d, slot);
        if (!part->bytes)
            continue;
        if (filled < 0 || (slot->sharding.blocks && filled != r->at.place))
            clt_init_fill(slot, r->at, seed, data);
        filled = r->at.place;
        CLT_TRY(clt_replica_write(r, r->values[part->bucket], part->offset,
                                  clt_slot_part_bytes(slot, r->at), data));
    }
    return CLT_OK;
}

static clt_status initialise(clt_store *store, uint64_t seed)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        void *data = clt_alloc((size_t)slot->bytes);
        CLT_TRY_MEMORY(data);
        const clt_status status = initialise_slot(store, slot, seed, data);
        clt_free(data);
        CLT_TRY(status);
    }
    return CLT_OK;
}

CLT_STRUCT_INIT(clt_store_options, )

clt_status clt_store_create(const clt_graph *graph, clt_device *const *devices, int count,
                            uint64_t seed, clt_store **out)
{
    clt_store_options options;
    clt_store_options_init(&options);
    options.seed = seed;
    return clt_store_create_with(graph, devices, count, &options, out);
}

static clt_status check_options(const clt_store_options *options)
{
    CLT_TRY(CLT_CHECK_STRUCT(options, clt_store_options));
    if (options->bucket_bytes < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "buckets of %lld bytes are not possible: 0 is the default",
                        (long long)options->bucket_bytes);
    if (options->zero != 0 && options->zero != 3)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "zero %d is not possible for a store: it must be 0 or 3", options->zero);
    return clt_offload_check(options);
}

enum { MESH_TEXT = 128 };

/* Fails if another rank has another mesh than rank 0. */
static clt_status compare_meshes(const clt_world *world, const char *parallel,
                                 const clt_store_options *options)
{
    char mine[MESH_TEXT], owners[48] = "";
    if (options->offload)
        snprintf(owners, sizeof owners, " with offload to %d devices", options->offload);
    snprintf(mine, sizeof mine, "%s%s%s", parallel, options->zero ? " with zero 3" : "", owners);
    char *all = clt_calloc((size_t)world->ranks, sizeof mine);
    CLT_TRY_MEMORY(all);
    clt_status status = world->gather(world->user, mine, sizeof mine, all);
    for (int r = 1; status == CLT_OK && r < world->ranks; r++)
        if (strcmp(all, all + r * MESH_TEXT))
            status = clt_fail(CLT_MISMATCH, "rank 0 has the mesh '%s', rank %d the mesh '%s'", all,
                              r, all + r * MESH_TEXT);
    clt_free(all);
    return status;
}

static clt_status find_begins(clt_store *store)
{
    const int ranks = store->world.ranks > 1 ? store->world.ranks : 1;
    store->begins = clt_calloc((size_t)ranks + 1, sizeof *store->begins);
    CLT_TRY_MEMORY(store->begins);
    store->begins[ranks] = store->total;
    return ranks == 1 ? CLT_OK
                      : store->world.gather(store->world.user, &store->first,
                                            (int64_t)sizeof store->first, store->begins);
}

/* Shards along dp need several devices there. */
static clt_status set_zero(clt_mesh *mesh, int devices)
{
    mesh->zero = true;
    if (devices == 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "zero 3 divides the model among devices, and there "
                                              "is one: leave it out");
    return mesh->size[CLT_AXIS_DATA] == devices
               ? CLT_OK
               : clt_fail(CLT_UNSUPPORTED, "zero 3 needs a mesh that has no other axis than dp: "
                                           "leave out the other axes, or zero");
}

static clt_status make_mesh(clt_store *store, const clt_store_options *options, int count)
{
    const char *parallel = options->parallel ? options->parallel : "";
    if (!options->parallel && !options->zero && !options->offload)
        return CLT_OK;
    if (options->world)
        store->world = *options->world;
    CLT_TRY(clt_world_count(options->world, count, &store->first, &store->total));
    if (store->world.ranks > 1)
        CLT_TRY(compare_meshes(&store->world, parallel, options));
    CLT_TRY(find_begins(store));
    CLT_TRY(clt_mesh_parse(parallel, store->total, &store->mesh));
    return options->zero ? set_zero(&store->mesh, store->total) : CLT_OK;
}

/* The mesh, or NULL if there is none. */
static const clt_mesh *mesh_of(const clt_store *store)
{
    return store->mesh.size[CLT_AXIS_DATA] ? &store->mesh : NULL;
}

int clt_store_stages(const clt_store *store)
{
    return store->stages ? store->mesh.size[CLT_AXIS_PIPELINE] : 1;
}

int clt_store_stage(const clt_store *store, int device)
{
    return store->stages
               ? clt_mesh_coordinate(&store->mesh, CLT_AXIS_PIPELINE, store->first + device)
               : 0;
}

/* Without another wish a pipeline runs as 1F1B: a micro-batch for each stage from this one on is in
 * flight. */
void clt_store_place(const clt_store *store, int device, clt_plan_options *options)
{
    options->mesh = mesh_of(store);
    options->participant = store->first + device;
    if (clt_store_owns(store, options->participant))
        options->max_batch = 1; /* it has no samples, but joins collectives of the graph */
    if (options->mode == CLT_PLAN_TRAIN && store->stages && !options->in_flight)
        options->in_flight = clt_store_stages(store) - clt_store_stage(store, device);
}

bool clt_store_neighbours(const clt_store *store, clt_axis axis, int a, int b)
{
    const clt_mesh *mesh = mesh_of(store);
    return mesh ? clt_mesh_neighbour(mesh, axis, store->first + a, 0) ==
                      clt_mesh_neighbour(mesh, axis, store->first + b, 0)
                : axis == CLT_AXIS_DATA;
}

bool clt_store_same_plan(const clt_store *store, int a, int b)
{
    return clt_store_neighbours(store, CLT_AXIS_DATA, a, b) &&
           clt_store_owns(store, store->first + a) == clt_store_owns(store, store->first + b) &&
           !memcmp(&store->replicas[a].device->caps, &store->replicas[b].device->caps,
                   sizeof store->replicas[a].device->caps);
}

static const clt_buckets *layout_of(const clt_store *store, int device)
{
    if (store->stages)
        return &store->stages[clt_store_stage(store, device)];
    return store->parts.n_slots ? &store->parts : &store->layout;
}

static clt_status lay_out_stages(clt_store *store)
{
    const clt_buckets *all = store->parts.n_slots ? &store->parts : &store->layout;
    const int stages = mesh_of(store) ? store->mesh.size[CLT_AXIS_PIPELINE] : 1;
    if (stages == 1)
        return CLT_OK;
    store->stages = clt_calloc((size_t)stages, sizeof *store->stages);
    CLT_TRY_MEMORY(store->stages);
    for (int s = 0; s < stages; s++)
        CLT_TRY(clt_buckets_stage(all, s, &store->stages[s]));
    return CLT_OK;
}

/* Lays out the whole tensors, and the parts of devices if tensors are split. */
static clt_status lay_out(clt_store *store, const clt_graph *graph, const clt_bucket_sizes *sizes)
{
    CLT_TRY(clt_buckets_create_parts(graph, sizes, mesh_of(store), &store->parts));
    if (clt_buckets_split(&store->parts)) {
        CLT_TRY(clt_buckets_whole(&store->parts, &store->layout));
    } else {
        store->layout = store->parts;
        store->parts = (clt_buckets){0};
    }
    return lay_out_stages(store);
}

static clt_status make_replica(clt_store *store, clt_device *device, int index, bool outline)
{
    clt_replica *replica = &store->replicas[index];
    const clt_mesh *mesh = mesh_of(store);
    clt_arena_init(&store->arenas[index], device);
    if (outline)
        *replica = (clt_replica){.device = device, .layout = layout_of(store, index), .at = {0, 1}};
    else
        CLT_TRY(clt_replica_create(device, layout_of(store, index), replica));
    replica->stage = clt_store_stage(store, index);
    if (mesh)
        replica->at = clt_mesh_split_place(mesh, store->first + index);
    return CLT_OK;
}

static clt_status create(const clt_graph *graph, clt_device *const *devices, int count,
                         const clt_store_options *options, bool outline, clt_store **out)
{
    CLT_TRY(check_options(options));
    CLT_TRY(clt_graph_status(graph));
    if (count < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a store needs at least one device, not %d", count);
    clt_store *store = CLT_NEW(clt_store);
    CLT_TRY_MEMORY(store);
    clt_bucket_sizes sizes = clt_bucket_sizes_default();
    if (options->bucket_bytes)
        sizes.other_bytes = options->bucket_bytes;
    if (sizes.first_bytes > sizes.other_bytes)
        sizes.first_bytes = sizes.other_bytes;
    store->bucket_bytes = sizes.other_bytes;
    for (int i = 0; i < count; i++)
        if (devices[i]->caps.max_alloc_bytes < sizes.max_bytes)
            sizes.max_bytes = devices[i]->caps.max_alloc_bytes;
    clt_status status = make_mesh(store, options, count);
    CLT_NEXT(status, clt_offload_devices(store, devices, count, options->offload));
    CLT_NEXT(status, mesh_of(store) ? clt_mesh_check(&store->mesh, graph) : CLT_OK);
    CLT_NEXT(status, lay_out(store, graph, &sizes));
    CLT_NEXT(status, clt_offload_share(store));
    if (status == CLT_OK) {
        store->replicas = clt_calloc((size_t)count, sizeof *store->replicas);
        store->arenas = clt_calloc((size_t)count, sizeof *store->arenas);
        if (!store->replicas || !store->arenas)
            status = CLT_OUT_OF_MEMORY;
    }
    for (int i = 0; status == CLT_OK && i < count; i++) {
        status = make_replica(store, devices[i], i, outline);
        store->n_devices = i + 1;
    }
    CLT_NEXT(status, keep_file_names(store, graph));
    CLT_NEXT(status, make_order(store));
    CLT_NEXT(status, outline ? CLT_OK : initialise(store, options->seed));
    if (status != CLT_OK) {
        clt_store_destroy(store);
        return status;
    }
    *out = store;
    return CLT_OK;
}

clt_status clt_store_create_with(const clt_graph *graph, clt_device *const *devices, int count,
                                 const clt_store_options *options, clt_store **out)
{
    return create(graph, devices, count, options, false, out);
}

clt_status clt_store_outline(const clt_graph *graph, clt_device *const *devices, int count,
                             const clt_store_options *options, clt_store **out)
{
    return create(graph, devices, count, options, true, out);
}

void clt_store_destroy(clt_store *store)
{
    if (!store)
        return;
    for (int i = 0; i < store->n_devices; i++) {
        clt_replica_destroy(&store->replicas[i]);
        clt_arena_destroy(&store->arenas[i]);
    }
    CLT_FREE(store->replicas, store->arenas, store->begins, store->order, store->file_prefix,
             store->file_ignored);
    clt_buckets_free(&store->layout);
    clt_buckets_free(&store->parts);
    for (int s = 0; store->stages && s < store->mesh.size[CLT_AXIS_PIPELINE]; s++)
        clt_buckets_free(&store->stages[s]);
    clt_free(store->stages);
    clt_rest_free(store->rest);
    clt_free(store);
}

clt_status clt_store_check_devices(const clt_store *store)
{
    return store->n_devices
               ? CLT_OK
               : clt_fail(CLT_STATE, "this rank has lost its last device, so it has no parameters: "
                                     "start the ranks again from a checkpoint");
}

int64_t clt_store_bucket_bytes(const clt_store *store)
{
    return store->bucket_bytes;
}

int clt_store_count(const clt_store *store)
{
    return store->layout.n_slots;
}

clt_status clt_store_describe(const clt_store *store, int index, const char **name,
                              clt_dtype *dtype, int *rank, int64_t *dims, int *is_state)
{
    if (index < 0 || index >= store->layout.n_slots)
        return clt_fail(CLT_INVALID_ARGUMENT, "the store has no entry %d, only %d", index,
                        store->layout.n_slots);
    const clt_slot *slot = &store->layout.slots[store->order[index]];
    if (name)
        *name = slot->name;
    if (dtype)
        *dtype = slot->type.dtype;
    if (rank)
        *rank = slot->type.rank;
    if (dims)
        memcpy(dims, slot->type.dims, (size_t)slot->type.rank * sizeof *dims);
    if (is_state)
        *is_state = slot->state && !slot->frozen;
    return CLT_OK;
}

clt_status clt_store_slot(const clt_store *store, const char *name, const clt_slot **slot)
{
    *slot = clt_buckets_find(&store->layout, name);
    if (*slot)
        return CLT_OK;
    const char **names = clt_calloc((size_t)store->layout.n_slots + 1, sizeof *names);
    for (int i = 0; names && i < store->layout.n_slots; i++)
        names[i] = store->layout.slots[i].name;
    const char *best = names ? clt_nearest(name, names, store->layout.n_slots) : NULL;
    clt_free(names);
    return clt_fail(CLT_NOT_FOUND, "the store has no tensor %s%s%s%s", name,
                    best ? "; did you mean " : "", best ? best : "", best ? "?" : "");
}

clt_status clt_store_sized(const clt_store *store, const char *name, size_t bytes,
                           const clt_slot **slot)
{
    CLT_TRY(clt_store_slot(store, name, slot));
    if ((int64_t)bytes != (*slot)->bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "tensor %s has %lld bytes, not %zu", name,
                        (long long)(*slot)->bytes, bytes);
    return CLT_OK;
}

clt_status clt_slot_check_data(const clt_slot *slot, const void *data)
{
    return data ? CLT_OK
                : clt_fail(CLT_INVALID_ARGUMENT,
                           "tensor %s: its data is NULL: give the address of %lld bytes",
                           slot->name, (long long)slot->bytes);
}

clt_status clt_store_get(clt_store *store, const char *name, void *data, size_t bytes)
{
    const clt_slot *slot;
    CLT_TRY(clt_store_check_devices(store));
    CLT_TRY(clt_store_sized(store, name, bytes, &slot));
    CLT_TRY(clt_slot_check_data(slot, data));
    return clt_store_read(store, CLT_VALUES, slot, data);
}

clt_status clt_store_set(clt_store *store, const char *name, const void *data, size_t bytes)
{
    const clt_slot *slot;
    CLT_TRY(clt_store_check_devices(store));
    CLT_TRY(clt_store_sized(store, name, bytes, &slot));
    CLT_TRY(clt_slot_check_data(slot, data));
    return clt_store_write(store, CLT_VALUES, slot, data);
}

void clt_store_groups_text(const clt_store *store, clt_str *text)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[store->order[i]];
        if (slot->frozen)
            clt_str_add(text, "%s frozen\n", slot->name);
        else if (slot->group && slot->decay == CLT_COMMON_DECAY)
            clt_str_add(text, "%s lr=%.17g\n", slot->name, slot->rate);
        else if (slot->group)
            clt_str_add(text, "%s lr=%.17g decay=%.17g\n", slot->name, slot->rate, slot->decay);
    }
}

int64_t clt_store_parameters(const clt_store *store)
{
    int64_t elements = 0;
    for (int i = 0; i < store->layout.n_slots; i++)
        if (!store->layout.slots[i].state || store->layout.slots[i].frozen)
            elements += clt_type_elements(&store->layout.slots[i].type, 0);
    return elements;
}

int64_t clt_store_trained(const clt_store *store)
{
    int64_t elements = 0;
    for (int i = 0; i < store->layout.n_slots; i++)
        if (!store->layout.slots[i].state)
            elements += clt_type_elements(&store->layout.slots[i].type, 0);
    return elements;
}

static clt_status compare_slot(const clt_store *store, const clt_slot *slot, void *first,
                               void *other)
{
    int read = -1; /* the device whose part `first` has */
    for (int d = 1; d < store->n_devices; d++) {
        const clt_replica *r = &store->replicas[d];
        const int same = clt_store_first_with(store, CLT_VALUES, slot, d);
        if (same == d)
            continue;
        const clt_replica *s = &store->replicas[same];
        const clt_slot *part = clt_store_part(store, d, slot);
        const clt_slot *its = clt_store_part(store, same, slot);
        if (!part->bytes)
            continue;
        if (same != read)
            CLT_TRY(clt_replica_read(s, s->values[its->bucket], its->offset, its->bytes, first));
        read = same;
        CLT_TRY(clt_replica_read(r, r->values[part->bucket], part->offset, part->bytes, other));
        if (memcmp(first, other, (size_t)part->bytes))
            return clt_fail(CLT_MISMATCH, "%s differs between %s and %s", slot->name,
                            s->device->label, r->device->label);
    }
    return CLT_OK;
}

clt_status clt_store_check(clt_store *store)
{
    CLT_TRY(clt_store_check_devices(store));
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        void *first = clt_alloc((size_t)slot->bytes), *other = clt_alloc((size_t)slot->bytes);
        clt_status status =
            first && other ? compare_slot(store, slot, first, other) : CLT_OUT_OF_MEMORY;
        CLT_FREE(first, other);
        CLT_TRY(status);
    }
    return CLT_OK;
}

clt_status clt_replica_read_floats(const clt_replica *replica, clt_view from, clt_dtype dtype,
                                   int64_t count, float *data)
{
    const int64_t bytes = count * clt_dtype_size(dtype);
    if (dtype == CLT_F32)
        return clt_replica_read(replica, from.buffer, from.offset, bytes, data);
    clt_tensor tensor;
    void *half = clt_alloc((size_t)bytes + 1);
    clt_status status = half ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_replica_read(replica, from.buffer, from.offset, bytes, half));
    CLT_NEXT(status, clt_tensor_init(&tensor, "a value", (clt_file_dtype)dtype, 1, &count, half));
    CLT_NEXT(status, clt_tensor_to_f32(&tensor, count, data));
    clt_free(half);
    return status;
}
