#include "train/async/range.h"

#include <string.h>

#include "base/alloc.h"
#include "exec/update/update.h"
#include "train/store/store.h"

struct clt_slice {
    const clt_async_layout *layout;
    int holder;
    clt_trainer_options options;
    clt_store *store;
    clt_update *update;
    int kept;
    float *values; /* as the device has them, if `fresh` */
    bool fresh;
    float *staging;         /* of the largest bucket */
    const clt_slot **slots; /* by parameter; NULL: the holder has nothing of it */
};

/* A graph of parameters alone: the pieces of the holder, with the groups of their tensors. */
static clt_status make_graph(const clt_graph *model, clt_slice *s, clt_graph *pieces)
{
    for (int i = 0, p = 0; i < model->n_values; i++) {
        const clt_value *v = model->values[i];
        if (v->kind != CLT_VALUE_PARAMETER)
            continue;
        const clt_async_piece piece = clt_async_piece_of(s->layout, s->holder, p++);
        if (piece.from == piece.to)
            continue;
        const int64_t elements = piece.to - piece.from;
        const clt_init zeros = {0};
        clt_value *own = clt_parameter(pieces, v->name, 1, &elements, zeros);
        CLT_TRY(clt_graph_status(pieces));
        own->frozen = v->frozen;
        own->group = v->group;
        own->rate = v->rate;
        own->decay = v->decay;
    }
    return CLT_OK;
}

static clt_status make_update(clt_slice *s)
{
    const clt_trainer_options *o = &s->options;
    const clt_update_options options = {
        .rule = clt_optimizer_rule_of(o), .clip_norm = o->clip_norm, .precision = CLT_F32};
    s->kept = clt_optimizer_of(o)->n_slots;
    CLT_TRY(clt_replica_for_training(s->store->replicas, CLT_F32, s->kept, 0, 1));
    if (options.rule.initial > 0)
        CLT_TRY(clt_replica_fill_slots(s->store->replicas, (float)options.rule.initial));
    return clt_update_create(s->store->replicas, &options, &s->update);
}

static clt_status find_slots(clt_slice *s)
{
    s->slots = clt_calloc((size_t)s->layout->n_parameters + 1, sizeof(clt_slot *));
    CLT_TRY_MEMORY(s->slots);
    for (int p = 0; p < s->layout->n_parameters; p++) {
        const clt_async_piece piece = clt_async_piece_of(s->layout, s->holder, p);
        if (piece.from < piece.to)
            CLT_TRY(clt_store_slot(s->store, s->layout->parameters[p].name, &s->slots[p]));
    }
    return CLT_OK;
}

clt_status clt_slice_create(const clt_graph *graph, const clt_async_layout *layout, int holder,
                            clt_device *device, const clt_trainer_options *options, clt_slice **out)
{
    clt_slice *s = CLT_NEW(clt_slice);
    clt_graph *pieces = NULL;
    CLT_TRY_MEMORY(s);
    s->layout = layout;
    s->holder = holder;
    s->options = *options;
    clt_status status = clt_graph_create(&pieces);
    CLT_NEXT(status, make_graph(graph, s, pieces));
    CLT_NEXT(status, clt_store_create(pieces, &device, 1, 0, &s->store));
    CLT_NEXT(status, make_update(s));
    CLT_NEXT(status, find_slots(s));
    int64_t most = 0;
    for (int b = 0; status == CLT_OK && b < s->store->layout.n_buckets; b++)
        if (s->store->layout.buckets[b].bytes > most)
            most = s->store->layout.buckets[b].bytes;
    s->staging = clt_calloc((size_t)most / sizeof *s->staging + 1, sizeof *s->staging);
    s->values = clt_calloc((size_t)clt_slice_elements(s) + 1, sizeof *s->values);
    if (status == CLT_OK && (!s->staging || !s->values))
        status = CLT_OUT_OF_MEMORY;
    clt_graph_destroy(pieces);
    if (status != CLT_OK) {
        clt_slice_destroy(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

void clt_slice_destroy(clt_slice *s)
{
    if (!s)
        return;
    clt_update_destroy(s->update);
    clt_store_destroy(s->store);
    CLT_FREE(s->values, s->staging, s->slots, s);
}

int64_t clt_slice_elements(const clt_slice *s)
{
    return clt_async_cut(s->layout, s->holder + 1) - clt_async_cut(s->layout, s->holder);
}

int clt_slice_kept(const clt_slice *s)
{
    return s->kept;
}

/* What a transfer reads or writes: the values of a bucket, its gradients, or a tensor that the
 * optimizer keeps, whose number it is. */
enum { VALUES = -1, GRADIENTS = -2 };

static cl_mem buffer_of(const clt_slice *s, int bucket, int which)
{
    const clt_replica *r = s->store->replicas;
    return which == VALUES      ? r->values[bucket]
           : which == GRADIENTS ? clt_replica_gradients(r, CLT_F32)[bucket]
                                : r->slots[which][bucket];
}

/* Copies the pieces of a bucket between its staging and the holder's range. */
static void copy_pieces(const clt_slice *s, const clt_bucket *bucket, bool in, float *range)
{
    const clt_buckets *layout = &s->store->layout;
    const int64_t begin = clt_async_cut(s->layout, s->holder);
    for (int p = 0; p < s->layout->n_parameters; p++) {
        const clt_async_tensor *t = &s->layout->parameters[p];
        const clt_async_piece piece = clt_async_piece_of(s->layout, s->holder, p);
        const clt_slot *slot = s->slots[p];
        if (!slot || &layout->buckets[slot->bucket] != bucket)
            continue;
        float *at = s->staging + slot->offset / (int64_t)sizeof *at;
        float *own = range + (t->begin + piece.from - begin);
        memcpy(in ? at : own, in ? own : at, (size_t)slot->bytes);
    }
}

static clt_status transfer(clt_slice *s, int which, bool in, float *range)
{
    const clt_buckets *layout = &s->store->layout;
    for (int b = 0; b < layout->n_buckets; b++) {
        const clt_bucket *bucket = &layout->buckets[b];
        const clt_replica *r = s->store->replicas;
        if (which != VALUES && bucket->state) /* frozen parameters have values only */
            continue;
        if (in) { /* between the pieces are zeros */
            memset(s->staging, 0, (size_t)bucket->bytes);
            copy_pieces(s, bucket, true, range);
            CLT_TRY(clt_replica_write(r, buffer_of(s, b, which), 0, bucket->bytes, s->staging));
        } else {
            CLT_TRY(clt_replica_read(r, buffer_of(s, b, which), 0, bucket->bytes, s->staging));
            copy_pieces(s, bucket, false, range);
        }
    }
    return CLT_OK;
}

clt_status clt_slice_load(clt_slice *s, const float *values, const float *kept)
{
    s->fresh = false;
    CLT_TRY(transfer(s, VALUES, true, (float *)(uintptr_t)values));
    for (int k = 0; k < s->kept; k++)
        CLT_TRY(transfer(s, k, true, (float *)(uintptr_t)kept + k * clt_slice_elements(s)));
    return CLT_OK;
}

clt_status clt_slice_values(clt_slice *s, const float **values)
{
    if (!s->fresh)
        CLT_TRY(transfer(s, VALUES, false, s->values));
    s->fresh = true;
    *values = s->values;
    return CLT_OK;
}

clt_status clt_slice_save(clt_slice *s, float *values, float *kept)
{
    const float *own;
    CLT_TRY(clt_slice_values(s, &own));
    memcpy(values, own, (size_t)clt_slice_elements(s) * sizeof *values);
    for (int k = 0; kept && k < s->kept; k++)
        CLT_TRY(transfer(s, k, false, kept + k * clt_slice_elements(s)));
    return CLT_OK;
}

clt_status clt_slice_apply(clt_slice *s, const float *gradient, double squares, int64_t version)
{
    const clt_trainer_options *o = &s->options;
    s->fresh = false;
    CLT_TRY(transfer(s, GRADIENTS, true, (float *)(uintptr_t)gradient));
    CLT_TRY(clt_update_set_status(s->update, squares, true));
    CLT_TRY(clt_update_apply(s->update, clt_schedule_rate(&o->schedule, o->lr, version), version));
    return clt_device_flush(s->store->replicas->device);
}
