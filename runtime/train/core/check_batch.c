/* Checks a batch before anything of its step runs: a mistake then stops no device halfway. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "train/core/feed.h"

static clt_status check_name(const char *what, int number, const char *name, int device)
{
    if (!name)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s %d of the batch has no name", what, number);
    return device >= -1
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT,
                          "%s %s is of device %d: give 0 or more, or -1 for the samples of "
                          "all devices",
                          what, name, device);
}

clt_status clt_session_check_names(const clt_feed *feeds, int n_feeds, const clt_fetch *fetches,
                                   int n_fetches)
{
    if (n_feeds < 0 || n_fetches < 0 || (n_feeds && !feeds) || (n_fetches && !fetches))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a batch of %d feeds and %d fetches: the numbers must not be negative, and "
                        "the arrays not NULL",
                        n_feeds, n_fetches);
    for (int i = 0; i < n_feeds; i++) {
        CLT_TRY(check_name("feed", i, feeds[i].name, feeds[i].device));
        for (int k = 0; k < i; k++)
            if (feeds[k].device == feeds[i].device && !strcmp(feeds[k].name, feeds[i].name))
                return clt_fail(CLT_INVALID_ARGUMENT,
                                "feeds %d and %d of the batch have the same name %s", k, i,
                                feeds[i].name);
    }
    for (int i = 0; i < n_fetches; i++)
        CLT_TRY(check_name("fetch", i, fetches[i].name, fetches[i].device));
    return CLT_OK;
}

static clt_status no_feed(const clt_session_device *d, const clt_feed *feeds, int n_feeds,
                          const char *name)
{
    const char **names = clt_calloc((size_t)n_feeds + 1, sizeof *names);
    bool same = false;
    for (int i = 0; names && i < n_feeds; i++) {
        names[i] = feeds[i].name;
        same = same || !strcmp(names[i], name);
    }
    const char *near = names ? clt_nearest(name, names, n_feeds) : NULL;
    clt_free(names);
    if (same)
        near = NULL;
    return clt_fail(CLT_INVALID_ARGUMENT, "the batch has no feed for input %s of %s%s%s%s%s", name,
                    d->device->label, near ? "; its feed " : "", near ? near : "",
                    near ? " has a similar name" : "",
                    same ? "; it has one for another device" : "");
}

clt_status clt_session_check_array(const clt_session *s, const clt_value *v, const char *label,
                                   const clt_array *array, int64_t samples, int on, bool feed)
{
    const clt_array wanted = clt_session_dense(v, samples, NULL);
    const clt_device *user = s->devices[on].device;
    CLT_TRY(clt_array_fits(array, label, wanted.dtype, wanted.rank, wanted.shape));
    if (!array->buffer)
        return CLT_OK;
    return clt_buffer_check(user, array->buffer, feed, array->offset, wanted.bytes,
                            feed ? clt_dtype_size(wanted.dtype) : 1, label);
}

/* Checks the array of a feed or fetch, for samples of the whole batch, or of one device. */
static clt_status check_array(const clt_session *s, const clt_value *v, bool feed,
                              const clt_array *array, int device, int on, const clt_shares *shares)
{
    const int64_t samples =
        device < 0 ? shares->offsets[shares->parts] : clt_shares_samples(shares, on);
    char label[160]; /* not by snprintf, which takes longer than the checks */
    strncat(strcpy(label, feed ? "feed " : "fetch "), v->name, sizeof label - sizeof "fetch ");
    return clt_session_check_array(s, v, label, array, samples, on, feed);
}

clt_status clt_session_check_feeds(const clt_session *s, int device, const clt_shares *shares,
                                   const clt_feed *feeds, int n_feeds, bool output_gradients)
{
    const clt_session_device *d = &s->devices[device];
    for (int i = 0; i < d->plan->n_inputs; i++) {
        const clt_value *v = d->plan->inputs[i];
        if (v->output_gradient != output_gradients || clt_feed_is_upstream(d, s->n_losses, i) ||
            !clt_feed_used(d->plan, v))
            continue;
        const clt_feed *feed = clt_feed_find(feeds, n_feeds, v->name, device);
        if (!feed && !(output_gradients && d->views[i].buffer))
            return no_feed(d, feeds, n_feeds, v->name);
        if (feed)
            CLT_TRY(check_array(s, v, true, &feed->array, feed->device, device, shares));
    }
    return CLT_OK;
}

static const clt_value *find_value(const clt_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->output && v->name && !strcmp(v->name, name))
            return v;
    }
    return NULL;
}

const clt_value *clt_session_output(const clt_plan *plan, const char *name)
{
    return find_value(plan->graph, name);
}

/* Fails if the batch asks for an output that the plan does not have. */
static clt_status check_fetches(const clt_session *s, const clt_step_batch *batch,
                                const clt_shares *shares)
{
    for (int i = 0; i < batch->n_fetches; i++) {
        const clt_fetch *fetch = &batch->fetches[i];
        const clt_value *v = NULL;
        for (int d = 0; d < s->n_devices && !v; d++) /* stages have different outputs */
            v = clt_session_output(s->devices[d].plan, fetch->name);
        if (!v && clt_store_stages(s->store) > 1 && find_value(s->graph, fetch->name))
            continue; /* a device of another rank has it */
        if (!v && find_value(s->graph, fetch->name))
            return clt_fail(CLT_UNSUPPORTED,
                            "output %s is divided over devices of the mesh, and training and "
                            "evaluation do not gather it: fetch it from a prediction",
                            fetch->name);
        if (!v)
            return clt_fail(CLT_NOT_FOUND,
                            "the graph has no output %s: mark the value with clt_output",
                            fetch->name);
        if (v->input_gradient)
            return clt_fail(CLT_UNSUPPORTED,
                            "fetch %s: backward computes it after outputs are fetched: call "
                            "clt_trainer_input_gradient",
                            fetch->name);
        if (!clt_type_has_batch(&v->type) && fetch->device < 0 && shares->parts > 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "output %s has no batch dimension, so every device has its own: the "
                            "fetch must name one",
                            fetch->name);
        if (fetch->array.buffer && fetch->device < 0 && s->n_devices > 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "fetch %s: a buffer belongs to one of the %d devices; name it",
                            fetch->name, s->n_devices);
        if (fetch->device >= s->n_devices)
            return clt_fail(CLT_INVALID_ARGUMENT, "fetch %s is of device %d; there are %d",
                            fetch->name, fetch->device, s->n_devices);
        CLT_TRY(check_array(s, v, false, &fetch->array, fetch->device,
                            fetch->device < 0 ? 0 : fetch->device, shares));
    }
    return CLT_OK;
}

/* With virtual shards the global batch decides which samples a device has. */
static clt_status check_shards(const clt_step_batch *batch, const clt_shares *shares)
{
    for (int p = 0; shares->bounds && p <= shares->parts; p++) {
        const int64_t begin = clt_shares_shard_begin(shares, p) - clt_shares_shard_begin(shares, 0);
        if (shares->offsets[p] != begin || (p == shares->parts && batch->count != begin))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "with virtual shards part %d of this rank begins with its sample %lld "
                            "of a batch of %lld, not %lld, and the rank has %lld samples, not %lld",
                            p, (long long)begin, (long long)shares->total,
                            (long long)shares->offsets[p],
                            (long long)(clt_shares_shard_begin(shares, shares->parts) -
                                        clt_shares_shard_begin(shares, 0)),
                            (long long)batch->count);
    }
    return CLT_OK;
}

clt_status clt_session_divide(const clt_session *s, const clt_participants *all,
                              const clt_step_batch *batch, clt_shares *shares)
{
    int64_t *offsets = shares->offsets;
    CLT_TRY(
        clt_session_check_names(batch->feeds, batch->n_feeds, batch->fetches, batch->n_fetches));
    shares->total = all->ranks > 1 ? batch->total : batch->count;
    if (shares->bounds && !shares->total && all->ranks > 1 && batch->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "with virtual shards several ranks must give the "
                                              "samples of the whole batch (total)");
    if (batch->n_wait && all->own > 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a batch may wait for events on one device only, and there are %d: leave "
                        "its wait list empty",
                        all->own);
    if (batch->offsets)
        memcpy(offsets, batch->offsets, ((size_t)shares->parts + 1) * sizeof *offsets);
    else
        CLT_TRY(clt_shares_split(shares, all, batch->count));
    CLT_TRY(check_shards(batch, shares));
    if (offsets[0] != 0 || offsets[shares->parts] != batch->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the batch's offsets must begin with 0 and end with its %lld samples; they "
                        "are %lld to %lld",
                        (long long)batch->count, (long long)offsets[0],
                        (long long)offsets[shares->parts]);
    for (int i = 0; batch->loss_weights && i < s->n_losses; i++)
        if (isnan(batch->loss_weights[i]))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "the batch's loss_weights need a number for each of %d losses, and "
                            "number %d is nan",
                            s->n_losses, i);
    const int64_t most = shares->per_run * shares->max_micro_batches;
    for (int d = 0; d < all->own; d++) {
        const int64_t share = clt_shares_samples(shares, d);
        if (share < 0 || share > most)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "device %d gets %lld samples; the plan holds %lld", d, (long long)share,
                            (long long)most);
        if (share && clt_store_owns(s->store, s->store->first + d))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "device %d owns the optimizer's state (offload), so it takes no "
                            "samples, and gets %lld",
                            d, (long long)share);
        if (share)
            CLT_TRY(clt_session_check_feeds(s, d, shares, batch->feeds, batch->n_feeds, false));
    }
    return check_fetches(s, batch, shares);
}
