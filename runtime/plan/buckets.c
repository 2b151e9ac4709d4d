#include "plan/buckets.h"

#include <string.h>

#include "base/hash.h"
#include "base/vec.h"

/* Kernels count the elements of a bucket with an int, and those of the last work-group go beyond.
 */
static const int64_t MOST_BYTES = ((int64_t)1 << 33) - (1 << 18);

/* Number of the first node that uses the value: parameters of later layers come later. */
static int first_use(const clt_graph *graph, const clt_value *value)
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j] == value)
                return i;
    return graph->n_nodes;
}

static clt_status add_slot(clt_buckets *b, const clt_value *value, int stream)
{
    clt_slot slot = {.name = clt_strdup(value->name),
                     .type = value->type,
                     .init = value->init,
                     .stream = stream,
                     .bytes =
                         clt_type_elements(&value->type, 0) * clt_dtype_size(value->type.dtype),
                     .state = !clt_value_trained(value),
                     .frozen = value->frozen,
                     .carried = value->carried,
                     .group = value->group,
                     .rate = value->rate,
                     .decay = value->decay};
    if (!slot.name)
        return CLT_OUT_OF_MEMORY;
    clt_status status = CLT_PUSH(b->slots, b->n_slots, b->room_slots, slot);
    if (status != CLT_OK)
        clt_free(slot.name);
    return status;
}

/* The positions of the parameters that are trained, by falling first use (ties: falling position).
 */
static int order_trained(const clt_graph *graph, int *use, int *at)
{
    int count = 0;
    for (int i = 0; i < graph->n_values; i++) {
        if (!clt_value_trained(graph->values[i]))
            continue;
        const int first = first_use(graph, graph->values[i]);
        int j = count++;
        for (; j > 0 && use[j - 1] <= first; j--) {
            use[j] = use[j - 1];
            at[j] = at[j - 1];
        }
        use[j] = first;
        at[j] = i;
    }
    return count;
}

static int parameters_before(const clt_graph *graph, int at)
{
    int count = 0;
    for (int j = 0; j < at; j++)
        count += graph->values[j]->kind == CLT_VALUE_PARAMETER;
    return count;
}

/* What is trained, then frozen parameters and states in graph order. */
static clt_status collect_slots(const clt_graph *graph, clt_buckets *b)
{
    int *use = clt_calloc((size_t)graph->n_values + 1, sizeof *use);
    int *at = clt_calloc((size_t)graph->n_values + 1, sizeof *at);
    clt_status status = use && at ? CLT_OK : CLT_OUT_OF_MEMORY;
    const int count = status == CLT_OK ? order_trained(graph, use, at) : 0;
    for (int i = 0; status == CLT_OK && i < count; i++)
        status = add_slot(b, graph->values[at[i]], parameters_before(graph, at[i]));
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++)
        if (graph->values[i]->frozen)
            status = add_slot(b, graph->values[i], parameters_before(graph, i));
    int stream = parameters_before(graph, graph->n_values);
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_STATE)
            status = add_slot(b, graph->values[i], stream++);
    clt_free(use);
    clt_free(at);
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

/* Brings the slots of a bucket into the order of their groups, which an update then passes in one
 * launch each, and gives them their places. */
static void arrange(clt_buckets *b, const clt_bucket *bucket)
{
    for (int i = bucket->first + 1; i < bucket->end; i++) {
        const clt_slot slot = b->slots[i];
        int j = i;
        for (; j > bucket->first && b->slots[j - 1].group > slot.group; j--)
            b->slots[j] = b->slots[j - 1];
        b->slots[j] = slot;
    }
    int64_t offset = 0;
    for (int i = bucket->first; i < bucket->end; i++) {
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
        arrange(b, &b->buckets[i]);
    return CLT_OK;
}

clt_status clt_buckets_create(const clt_graph *graph, const clt_bucket_sizes *sizes,
                              clt_buckets *buckets)
{
    clt_buckets b = {0};
    clt_status status = collect_slots(graph, &b);
    if (status == CLT_OK)
        status = place_slots(&b, sizes);
    if (status != CLT_OK)
        clt_buckets_free(&b);
    else
        *buckets = b;
    return status;
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
    clt_free(buckets->slots);
    clt_free(buckets->buckets);
    *buckets = (clt_buckets){0};
}

const clt_slot *clt_buckets_find(const clt_buckets *buckets, const char *name)
{
    for (int i = 0; i < buckets->n_slots; i++)
        if (!strcmp(buckets->slots[i].name, name))
            return &buckets->slots[i];
    return NULL;
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
        const double update[] = {slot->rate, slot->decay};
        hash = clt_hash(update, sizeof update, clt_hash(place, sizeof place, hash));
    }
    return hash;
}
