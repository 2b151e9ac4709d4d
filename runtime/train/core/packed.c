#include "train/core/packed.h"

#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/vec.h"

/* The samples that an array for `device` (-1: the whole batch) holds. */
static int64_t samples_of(const clt_shares *shares, int device)
{
    return device < 0 ? shares->offsets[shares->parts] : clt_shares_samples(shares, device);
}

clt_array clt_session_dense(const clt_value *v, int64_t samples, const void *host)
{
    int64_t dims[CLT_MAX_RANK];
    for (int d = 0; d < v->type.rank; d++)
        dims[d] = v->type.dims[d] < 0 ? -v->type.dims[d] * samples : v->type.dims[d];
    return clt_array_dense(host, v->type.dtype, v->type.rank, dims);
}

/* Returns block `index` with room for `bytes`. Blocks are kept from run to run. */
static clt_status room(clt_packed *p, int index, int64_t bytes, void **memory)
{
    const clt_packed_block none = {0};
    while (index >= p->n_blocks)
        CLT_TRY(CLT_PUSH(p->blocks, p->n_blocks, p->room_blocks, none));
    clt_packed_block *block = &p->blocks[index];
    if (bytes > block->bytes || !block->memory) {
        clt_free(block->memory);
        *block = none;
        block->memory =
            clt_alloc_pages((size_t)(bytes ? bytes : 1)); /* a rank may have no samples */
        CLT_TRY_MEMORY(block->memory);
        block->bytes = bytes;
    }
    *memory = block->memory;
    return CLT_OK;
}

static const clt_value *find_input(const clt_session *s, const char *name)
{
    for (int d = 0; d < s->n_devices; d++)
        for (int i = 0; i < s->devices[d].plan->n_inputs; i++)
            if (!strcmp(s->devices[d].plan->inputs[i]->name, name))
                return s->devices[d].plan->inputs[i];
    return NULL;
}

static const clt_value *find_output(const clt_session *s, const char *name)
{
    for (int d = 0; d < s->n_devices; d++) {
        const clt_value *v = clt_session_output(s->devices[d].plan, name);
        if (v)
            return v;
    }
    return NULL;
}

/* Room for copies of all feeds and fetches, whose pointers must stay. */
static clt_status reserve(clt_packed *p, int n_feeds, int n_fetches)
{
    const clt_feed feed = {0};
    const clt_fetch fetch = {0};
    const clt_array array = {0};
    while (p->n_feeds < n_feeds)
        CLT_TRY(CLT_PUSH(p->feeds, p->n_feeds, p->room_feeds, feed));
    while (p->n_fetches < n_fetches)
        CLT_TRY(CLT_PUSH(p->fetches, p->n_fetches, p->room_fetches, fetch));
    while (p->n_targets < n_fetches)
        CLT_TRY(CLT_PUSH(p->targets, p->n_targets, p->room_targets, array));
    return CLT_OK;
}

/* Whether memory is used where it lies. If the caller wants copies, only buffers are. */
static bool stays(const clt_array *array, clt_dtype dtype, bool copied)
{
    return array->buffer || (!copied && clt_array_in_place(array, dtype));
}

/* Describes an array that is `whole`. */
static clt_array described(const clt_array *array, const clt_value *v, int64_t samples)
{
    if (!array->whole)
        return *array;
    clt_array dense = clt_session_dense(v, samples, array->host);
    dense.offset = array->offset;
    dense.bytes = array->bytes;
    return dense;
}

static clt_status pack_feeds(clt_session *s, clt_packed *p, const clt_shares *shares,
                             const clt_feed *feeds, int n, bool copied)
{
    for (int i = 0; i < n; i++) {
        const clt_value *v = find_input(s, feeds[i].name);
        void *memory;
        p->feeds[i] = feeds[i];
        if (!v || stays(&feeds[i].array, v->type.dtype, copied))
            continue;
        const int64_t samples = samples_of(shares, feeds[i].device);
        const clt_array from = described(&feeds[i].array, v, samples);
        clt_array to = clt_session_dense(v, samples, NULL);
        CLT_TRY(room(p, i, to.bytes, &memory));
        to.host = memory;
        const clt_status status = clt_array_copy(&from, &to);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "feed %s: ", feeds[i].name);
        p->feeds[i].array = (clt_array)CLT_HOST(memory);
    }
    return CLT_OK;
}

/* Fetches that were filled in place have a target without memory. */
static clt_status pack_fetches(clt_session *s, clt_packed *p, const clt_shares *shares,
                               const clt_step_batch *batch)
{
    p->fetched = 0;
    for (int i = 0; i < batch->n_fetches; i++) {
        const clt_fetch *fetch = &batch->fetches[i];
        const clt_value *v = find_output(s, fetch->name);
        void *memory;
        p->fetches[i] = *fetch;
        p->targets[i] = (clt_array){0};
        if (!v || stays(&fetch->array, v->type.dtype, batch->copied))
            continue;
        const int64_t samples = samples_of(shares, fetch->device);
        clt_array from = clt_session_dense(v, samples, NULL);
        CLT_TRY(room(p, batch->n_feeds + i, from.bytes, &memory));
        from.host = memory;
        p->targets[i] = described(&fetch->array, v, samples);
        p->fetches[i].array = from;
        p->fetched = i + 1;
    }
    return CLT_OK;
}

static bool in_place(const clt_session *s, const clt_feed *feeds, int n_feeds,
                     const clt_fetch *fetches, int n_fetches, bool copied)
{
    bool all = true;
    for (int i = 0; all && i < n_feeds; i++) {
        const clt_value *v = find_input(s, feeds[i].name);
        all = !v || stays(&feeds[i].array, v->type.dtype, copied);
    }
    for (int i = 0; all && i < n_fetches; i++) {
        const clt_value *v = find_output(s, fetches[i].name);
        all = !v || stays(&fetches[i].array, v->type.dtype, copied);
    }
    return all;
}

clt_status clt_packed_begin(clt_session *s, const clt_shares *shares, int entry,
                            clt_step_batch *batch)
{
    clt_packed *p = &s->packed[entry % CLT_PACKED_RING];
    p->fetched = 0;
    if (in_place(s, batch->feeds, batch->n_feeds, batch->fetches, batch->n_fetches, batch->copied))
        return CLT_OK;
    /* The last run of one of these entries reads the memory. If it failed, so will the next wait
     * for it. */
    for (int d = 0; d < s->n_devices; d++)
        for (int e = entry % CLT_PACKED_RING; e < CLT_RESULT_RING; e += CLT_PACKED_RING)
            (void)clt_session_wait(s, d, e);
    CLT_TRY(reserve(p, batch->n_feeds, batch->n_fetches));
    CLT_TRY(pack_feeds(s, p, shares, batch->feeds, batch->n_feeds, batch->copied));
    CLT_TRY(pack_fetches(s, p, shares, batch));
    batch->feeds = p->feeds;
    batch->fetches = p->fetches;
    return CLT_OK;
}

clt_status clt_packed_gradients(clt_session *s, const clt_shares *shares, int entry,
                                const clt_feed **feeds, int n_feeds)
{
    clt_packed *p = &s->packed_gradients[entry % CLT_PACKED_RING];
    if (in_place(s, *feeds, n_feeds, NULL, 0, false))
        return CLT_OK;
    for (int d = 0; d < s->n_devices; d++) /* an earlier backward of this step reads the memory */
        CLT_TRY(clt_device_finish(s->devices[d].device));
    CLT_TRY(reserve(p, n_feeds, 0));
    CLT_TRY(pack_feeds(s, p, shares, *feeds, n_feeds, false));
    *feeds = p->feeds;
    return CLT_OK;
}

clt_status clt_packed_end(clt_session *s, int entry)
{
    clt_packed *p = &s->packed[entry % CLT_PACKED_RING];
    for (int d = 0; p->fetched && d < s->n_devices; d++) {
        s->failed = d;
        CLT_TRY(clt_device_finish(s->devices[d].device));
    }
    for (int i = 0; i < p->fetched; i++)
        if (p->targets[i].host)
            CLT_TRY(clt_array_copy(&p->fetches[i].array, &p->targets[i]));
    p->fetched = 0;
    return CLT_OK;
}

void clt_packed_free(clt_packed *p)
{
    for (int i = 0; i < p->n_blocks; i++)
        clt_free(p->blocks[i].memory);
    CLT_FREE(p->blocks, p->feeds, p->fetches, p->targets);
}
