#include "plan/buckets.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/vec.h"
#include "passes/passes.h"

/* Kernels count the elements of a bucket in an int, and the last work-group's counts go beyond the
 * end. */
static const int64_t MOST_BYTES = ((int64_t)1 << 33) - (1 << 18);

static int64_t bytes_of(const clt_type *type)
{
    return clt_type_elements(type, 0) * clt_dtype_size(type->dtype);
}

/* Returns how a mesh splits a parameter or state. */
static clt_sharding sharding_of(const clt_value *value, const clt_mesh *mesh)
{
    const clt_sharding none = {0, 0}, flat = {CLT_FLAT, 1};
    if (!mesh || mesh->size[clt_mesh_split_axis(mesh)] == 1)
        return none;
    if (mesh->zero)
        return clt_value_trained(value) ? flat : none;
    return value->shardings[CLT_AXIS_TENSOR];
}

static clt_status add_slot(clt_buckets *b, const clt_mesh *mesh, const clt_value *value, int stream)
{
    const int places = mesh ? mesh->size[clt_mesh_split_axis(mesh)] : 1;
    clt_slot slot = {.whole = value->type,
                     .sharding = sharding_of(value, mesh),
                     .stages = value->stages ? value->stages : 1,
                     .init = value->init,
                     .stream = stream,
                     .state = !clt_value_trained(value),
                     .frozen = value->frozen,
                     .carried = value->carried,
                     .group = value->group,
                     .rate = value->rate,
                     .decay = value->decay};
    CLT_TRY(clt_sharding_type(value->name, &slot.whole, slot.sharding, (clt_coordinate){0, places},
                              &slot.type));
    slot.bytes = bytes_of(&slot.type);
    CLT_TRY_MEMORY(slot.name = clt_strdup(value->name));
    clt_status status = CLT_PUSH(b->slots, b->n_slots, b->room_slots, slot);
    if (status != CLT_OK)
        clt_free(slot.name);
    return status;
}

/* A trained parameter. */
typedef struct trained {
    int use; /* the first node that uses it, larger for later layers */
    int at;  /* its number in graph->values */
} trained;

/* Sorts by first use, the last first; ties by position, the last first. */
static int compare_uses(const void *a, const void *b)
{
    const trained *x = a, *y = b;
    return x->use != y->use ? (x->use < y->use) - (x->use > y->use)
                            : (x->at < y->at) - (x->at > y->at);
}

/* Copies of tied parameters have the slot of the parameter. */
static bool has_slot(const clt_value *value)
{
    return value->kind == CLT_VALUE_PARAMETER && !value->tied;
}

/* Data of collect_slots. */
typedef struct order {
    int *first;      /* by value id: the first node that reads it */
    int *parameters; /* by value id: number of parameters before it, trained or not */
    trained *trained;
    int n_trained;
} order;

static clt_status find_order(const clt_graph *graph, order *o)
{
    const size_t n = (size_t)graph->n_values + 1;
    o->first = clt_calloc(n, sizeof *o->first);
    o->parameters = clt_calloc(n, sizeof *o->parameters);
    o->trained = clt_calloc(n, sizeof *o->trained);
    CLT_TRY_MEMORY(o->first && o->parameters && o->trained);
    clt_graph_first_readers(graph, o->first);
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *value = graph->values[i];
        o->parameters[i + 1] = o->parameters[i] + has_slot(value);
        if (clt_value_trained(value) && has_slot(value))
            o->trained[o->n_trained++] = (trained){o->first[i], i};
    }
    if (o->n_trained)
        qsort(o->trained, (size_t)o->n_trained, sizeof *o->trained, compare_uses);
    return CLT_OK;
}

/* Collects the slots: trained parameters, then frozen parameters and states in graph order. */
static clt_status collect_slots(const clt_graph *graph, const clt_mesh *mesh, clt_buckets *b)
{
    order o = {0};
    clt_status status = find_order(graph, &o);
    for (int i = 0; status == CLT_OK && i < o.n_trained; i++)
        status = add_slot(b, mesh, graph->values[o.trained[i].at], o.parameters[o.trained[i].at]);
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++)
        if (graph->values[i]->frozen)
            status = add_slot(b, mesh, graph->values[i], o.parameters[i]);
    int stream = status == CLT_OK ? o.parameters[graph->n_values] : 0;
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_STATE)
            status = add_slot(b, mesh, graph->values[i], stream++);
    CLT_FREE(o.first, o.parameters, o.trained);
    return status;
}

bool clt_bucket_closes(const clt_bucket_sizes *sizes, int n_buckets, int64_t last_bytes,
                       int64_t padded)
{
    int64_t limit = n_buckets <= 1 ? sizes->first_bytes : sizes->other_bytes;
    if (limit > sizes->max_bytes)
        limit = sizes->max_bytes;
    if (limit > MOST_BYTES)
        limit = MOST_BYTES;
    return n_buckets == 0 || last_bytes + padded > limit;
}

/* Sorts by group. Within a group slots keep their order, for which `bucket` holds their positions
 * during the sort. */
static int compare_groups(const void *a, const void *b)
{
    const clt_slot *x = a, *y = b;
    return x->group != y->group ? (x->group > y->group) - (x->group < y->group)
                                : (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* Sorts the slots of a bucket by group, so that an update needs one launch for each group, and sets
 * their offsets. */
static void arrange(clt_buckets *b, int index)
{
    const clt_bucket *bucket = &b->buckets[index];
    for (int i = bucket->first; i < bucket->end; i++)
        b->slots[i].bucket = i;
    qsort(b->slots + bucket->first, (size_t)(bucket->end - bucket->first), sizeof *b->slots,
          compare_groups);
    int64_t offset = 0;
    for (int i = bucket->first; i < bucket->end; i++) {
        b->slots[i].bucket = index;
        b->slots[i].offset = offset;
        offset += clt_slot_padded(&b->slots[i]);
    }
}

static clt_status place_slots(clt_buckets *b, const clt_bucket_sizes *sizes)
{
    for (int i = 0; i < b->n_slots; i++) {
        clt_slot *slot = &b->slots[i];
        const int64_t padded = clt_slot_padded(slot);
        if (padded > sizes->max_bytes)
            return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                            "%s needs one buffer of %lld bytes; a device of this run allocates at "
                            "most %lld at once",
                            slot->name, (long long)padded, (long long)sizes->max_bytes);
        if (padded > MOST_BYTES)
            return clt_fail(CLT_UNSUPPORTED,
                            "%s takes %lld bytes; a tensor of a store takes at most %lld",
                            slot->name, (long long)padded, (long long)MOST_BYTES);
        clt_bucket *last = b->n_buckets ? &b->buckets[b->n_buckets - 1] : NULL;
        if (!last || last->state != slot->state ||
            clt_bucket_closes(sizes, b->n_buckets, last->bytes, padded)) {
            clt_bucket fresh = {.first = i, .end = i, .state = slot->state};
            CLT_TRY(CLT_PUSH(b->buckets, b->n_buckets, b->room_buckets, fresh));
            last = &b->buckets[b->n_buckets - 1];
        }
        slot->bucket = b->n_buckets - 1;
        last->bytes += padded;
        last->end = i + 1;
    }
    for (int i = 0; i < b->n_buckets; i++)
        arrange(b, i);
    return CLT_OK;
}

static clt_status index_names(clt_buckets *b)
{
    for (int i = 0; i < b->n_slots; i++)
        CLT_TRY(clt_table_add(&b->names, clt_hash_text(b->slots[i].name, 0), i));
    return CLT_OK;
}

clt_status clt_buckets_create(const clt_graph *graph, const clt_bucket_sizes *sizes,
                              clt_buckets *buckets)
{
    return clt_buckets_create_parts(graph, sizes, NULL, buckets);
}

clt_status clt_buckets_create_parts(const clt_graph *graph, const clt_bucket_sizes *sizes,
                                    const clt_mesh *mesh, clt_buckets *parts)
{
    clt_buckets b = {0};
    clt_graph *staged = NULL;
    clt_status status = CLT_OK;
    if (mesh && mesh->size[CLT_AXIS_PIPELINE] > 1) {
        status = clt_graph_copy(graph, &staged);
        CLT_NEXT(status, clt_pass_stages(staged, mesh->size[CLT_AXIS_PIPELINE]));
    }
    CLT_NEXT(status, collect_slots(staged ? staged : graph, mesh, &b));
    CLT_NEXT(status, place_slots(&b, sizes));
    CLT_NEXT(status, index_names(&b));
    clt_graph_destroy(staged);
    if (status != CLT_OK)
        clt_buckets_free(&b);
    else
        *parts = b;
    return status;
}

bool clt_buckets_split(const clt_buckets *buckets)
{
    for (int i = 0; i < buckets->n_slots; i++)
        if (buckets->slots[i].sharding.blocks)
            return true;
    return false;
}

bool clt_buckets_tied(const clt_buckets *buckets)
{
    for (int i = 0; i < buckets->n_slots; i++)
        if (clt_slot_tied(&buckets->slots[i]))
            return true;
    return false;
}

clt_status clt_buckets_whole(const clt_buckets *parts, clt_buckets *whole)
{
    CLT_TRY(clt_buckets_copy(parts, whole));
    for (int b = 0; b < whole->n_buckets; b++) {
        clt_bucket *bucket = &whole->buckets[b];
        bucket->bytes = 0;
        for (int i = bucket->first; i < bucket->end; i++) {
            clt_slot *slot = &whole->slots[i];
            slot->type = slot->whole;
            slot->bytes = bytes_of(&slot->whole);
            slot->offset = bucket->bytes;
            bucket->bytes += clt_slot_padded(slot);
        }
    }
    return CLT_OK;
}

clt_status clt_buckets_stage(const clt_buckets *all, int stage, clt_buckets *own)
{
    CLT_TRY(clt_buckets_copy(all, own));
    for (int b = 0; b < own->n_buckets; b++) {
        clt_bucket *bucket = &own->buckets[b];
        bucket->bytes = 0;
        for (int i = bucket->first; i < bucket->end; i++) {
            clt_slot *slot = &own->slots[i];
            if (!(slot->stages >> stage & 1))
                slot->bytes = 0;
            slot->offset = bucket->bytes;
            bucket->bytes += clt_slot_padded(slot);
        }
        bucket->bytes = bucket->bytes ? bucket->bytes : CLT_TENSOR_ALIGN;
    }
    return CLT_OK;
}

clt_status clt_slot_part_type(const clt_slot *slot, clt_coordinate at, clt_type *part)
{
    return clt_sharding_type(slot->name, &slot->whole, slot->sharding, at, part);
}

int64_t clt_slot_part_bytes(const clt_slot *slot, clt_coordinate at)
{
    return clt_sharding_pieces(&slot->whole, slot->sharding) *
           clt_sharding_piece(&slot->whole, slot->sharding, at, 0).count *
           clt_dtype_size(slot->whole.dtype);
}

clt_status clt_buckets_copy(const clt_buckets *buckets, clt_buckets *copy)
{
    clt_buckets b = {0};
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < buckets->n_slots; i++) {
        clt_slot slot = buckets->slots[i];
        slot.name = clt_strdup(slot.name);
        status = slot.name ? CLT_PUSH(b.slots, b.n_slots, b.room_slots, slot) : CLT_OUT_OF_MEMORY;
    }
    for (int i = 0; status == CLT_OK && i < buckets->n_buckets; i++)
        status = CLT_PUSH(b.buckets, b.n_buckets, b.room_buckets, buckets->buckets[i]);
    CLT_NEXT(status, index_names(&b));
    if (status != CLT_OK)
        clt_buckets_free(&b);
    else
        *copy = b;
    return status;
}

void clt_buckets_free(clt_buckets *buckets)
{
    for (int i = 0; i < buckets->n_slots; i++)
        clt_free(buckets->slots[i].name);
    CLT_FREE(buckets->slots, buckets->buckets);
    clt_table_free(&buckets->names);
    *buckets = (clt_buckets){0};
}

typedef struct lookup {
    const clt_buckets *buckets;
    const char *name;
} lookup;

static bool has_name(const void *context, int slot)
{
    const lookup *l = context;
    return !strcmp(l->buckets->slots[slot].name, l->name);
}

const clt_slot *clt_buckets_find(const clt_buckets *buckets, const char *name)
{
    const lookup l = {buckets, name};
    const int slot = clt_table_find(&buckets->names, clt_hash_text(name, 0), has_name, &l);
    return slot < 0 ? NULL : &buckets->slots[slot];
}

uint64_t clt_buckets_hash(const clt_buckets *buckets)
{
    uint64_t hash = 0;
    for (int i = 0; i < buckets->n_slots; i++) {
        const clt_slot *slot = &buckets->slots[i];
        hash = clt_hash_text(slot->name, hash);
        hash = clt_hash(slot->type.dims, (size_t)slot->type.rank * sizeof *slot->type.dims, hash);
        const int64_t place[] = {(int64_t)slot->type.dtype,
                                 slot->type.rank,
                                 slot->bucket,
                                 slot->offset,
                                 slot->bytes,
                                 slot->state,
                                 slot->group};
        if (slot->sharding.blocks) {
            const int64_t split[] = {slot->sharding.dim, slot->sharding.blocks};
            hash = clt_hash(split, sizeof split, hash);
            hash = clt_hash(slot->whole.dims, (size_t)slot->whole.rank * sizeof *slot->whole.dims,
                            hash);
        }
        const double update[] = {slot->rate, slot->decay};
        hash = clt_hash(update, sizeof update, clt_hash(place, sizeof place, hash));
    }
    return hash;
}
