/* Copies data between the caller's memory and a run: feeds of inputs, gradients of outputs, and
 * fetches. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/loss/loss.h"
#include "train/core/session.h"

static const clt_feed *find_feed(const clt_feed *feeds, int n_feeds, const char *name, int device)
{
    for (int i = 0; i < n_feeds; i++)
        if (!strcmp(feeds[i].name, name) && (feeds[i].device == device || feeds[i].device < 0))
            return &feeds[i];
    return NULL;
}

static bool count_labels(const clt_mean *loss, const clt_step_batch *batch, double *weight)
{
    int ignored = 0;
    const clt_value *targets = clt_loss_targets(loss, &ignored);
    const clt_feed *feed =
        targets ? find_feed(batch->feeds, batch->n_feeds, targets->name, -1) : NULL;
    if (!feed || !feed->host || batch->n_wait)
        return false;
    const int32_t *labels =
        (const int32_t *)(const void *)((const char *)feed->host + feed->offset);
    const int64_t count = clt_type_elements(&targets->type, batch->count);
    *weight = 0;
    for (int64_t i = 0; i < count; i++)
        *weight += labels[i] != ignored;
    return true;
}

bool clt_session_label_weights(const clt_session *s, const clt_step_batch *batch, double *weights)
{
    for (int l = 0; l < s->graph->n_losses; l++) {
        const clt_mean *loss = &s->graph->losses[l];
        const double each = clt_graph_sample_weight(loss);
        weights[l] = each * (double)batch->count;
        if (each <= 0 && !count_labels(loss, batch, &weights[l]))
            return false;
    }
    return true;
}

/* Returns true if a node of the plan or the caller reads the input. */
static bool input_used(const clt_plan *plan, const clt_value *input)
{
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].node->n_in; j++)
            if (plan->nodes[i].node->in[j] == input)
                return true;
    return input->output;
}

static clt_status no_feed(const clt_session_device *d, const clt_feed *feeds, int n_feeds,
                          const char *name)
{
    const char **names = clt_calloc((size_t)n_feeds + 1, sizeof *names);
    for (int i = 0; names && i < n_feeds; i++)
        names[i] = feeds[i].name;
    const char *near = names ? clt_nearest(name, names, n_feeds) : NULL;
    clt_free(names);
    return clt_fail(CLT_INVALID_ARGUMENT, "the batch has no feed for input %s of %s%s%s%s", name,
                    d->device->label, near ? "; its feed " : "", near ? near : "",
                    near ? " has a similar name" : "");
}

int64_t clt_session_input_bytes(const clt_value *input, int64_t samples)
{
    const int64_t bytes =
        clt_type_elements(&input->type, samples) * clt_dtype_size(input->type.dtype);
    return (bytes + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
}

static int64_t micro_bytes(const clt_session_device *d, int input)
{
    return clt_session_input_bytes(d->plan->inputs[input], d->plan->options.max_batch);
}

/* The place to which a micro-batch's samples are uploaded from the host. */
static clt_view input_place(const clt_session_device *d, int input, int parity, int micro)
{
    return (clt_view){d->buffers[parity][input], micro * micro_bytes(d, input)};
}

static clt_status upload(clt_session_device *d, int input, int parity, int micro, const void *host,
                         int64_t bytes)
{
    const clt_value *v = d->plan->inputs[input];
    cl_mem *buffer = &d->buffers[parity][input];
    if (!*buffer) {
        const int64_t whole = micro_bytes(d, input) * d->max_micro_batches;
        char what[128];
        snprintf(what, sizeof what, "input %s", v->name);
        CLT_TRY(clt_device_buffer_create(d->device, whole, CL_MEM_READ_WRITE, what, buffer));
    }
    d->views[input] = input_place(d, input, parity, micro);
    return clt_enqueue_upload(d->device, d->views[input], host, bytes);
}

/* The next three functions compute bytes of one sample, and the offset of a device's part in a feed
 * or fetch. Memory for a single device starts with that device's own first sample. */
static int64_t sample_bytes(const clt_value *v)
{
    return clt_type_coefficient(&v->type) * clt_dtype_size(v->type.dtype);
}

static int64_t first_bytes(const clt_value *v, int64_t first)
{
    return clt_type_has_batch(&v->type) ? first * sample_bytes(v) : 0;
}

static int64_t part_offset(const clt_value *v, int device, clt_part part)
{
    return first_bytes(v, part.begin - (device < 0 ? 0 : part.device_begin));
}

static clt_status feed_input(clt_session_device *d, int input, const clt_feed *feed, clt_part part,
                             int parity)
{
    const clt_value *v = d->plan->inputs[input];
    const int64_t offset = feed->offset + part_offset(v, feed->device, part);
    if (feed->buffer) {
        d->views[input] = (clt_view){feed->buffer, offset};
        d->fed[parity][input] =
            (clt_view){feed->buffer, offset - first_bytes(v, part.begin - part.device_begin)};
        return CLT_OK;
    }
    d->fed[parity][input] = (clt_view){0};
    return upload(d, input, parity, part.micro, (const char *)feed->host + offset,
                  sample_bytes(v) * (clt_type_has_batch(&v->type) ? part.count : 1));
}

bool clt_session_refeed(clt_session_device *d, int parity, int micro, int64_t first)
{
    for (int i = 0; i < d->plan->n_inputs; i++) {
        const clt_view fed = d->fed[parity][i];
        if (fed.buffer)
            d->views[i] =
                (clt_view){fed.buffer, fed.offset + first_bytes(d->plan->inputs[i], first)};
        else if (d->buffers[parity][i])
            d->views[i] = input_place(d, i, parity, micro);
        if (!d->views[i].buffer && input_used(d->plan, d->plan->inputs[i]))
            return false;
    }
    return true;
}

void clt_session_forget_buffers(clt_session *s)
{
    for (int n = 0; n < s->n_devices; n++) {
        clt_session_device *d = &s->devices[n];
        for (int i = 0; i < d->plan->n_inputs; i++)
            for (int parity = 0; parity < 2; parity++) {
                clt_view *fed = &d->fed[parity][i];
                if (fed->buffer && fed->buffer == d->views[i].buffer)
                    d->views[i] = (clt_view){0};
                *fed = (clt_view){0};
            }
    }
}

static bool is_upstream(const clt_session_device *d, int n_losses, int input)
{
    for (int l = 0; l < n_losses; l++)
        if (d->upstream_input[l] == input)
            return true;
    return false;
}

/* The caller's memory for samples of a value: for the whole batch, or for one device's part. */
typedef struct caller_memory {
    const char *what, *name; /* "feed" or "fetch", and its name */
    int device;              /* -1: the whole batch */
    bool on_host;
    cl_mem buffer;
    int64_t offset, bytes;
} caller_memory;

/* Checks that the memory has room for the samples of the value. `on` is the device that uses the
 * memory. */
static clt_status check_memory(const clt_session *s, const clt_value *v, caller_memory m, int on,
                               const clt_shares *shares)
{
    const int64_t samples =
        m.device < 0 ? shares->offsets[shares->parts] : clt_shares_samples(shares, on);
    const int64_t needed =
        m.offset + sample_bytes(v) * (clt_type_has_batch(&v->type) ? samples : 1);
    int64_t room = m.bytes;
    if (m.offset < 0 || m.bytes < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s %s: offset %lld and bytes %lld must be at least 0", m.what, m.name,
                        (long long)m.offset, (long long)m.bytes);
    if (m.buffer) {
        const clt_device *device = s->devices[on].device;
        cl_context context = NULL;
        if (!clt_buffer_facts(m.buffer, &context, &room))
            return clt_fail(CLT_INVALID_ARGUMENT, "%s %s: its buffer is not a valid cl_mem object",
                            m.what, m.name);
        if (context != device->context)
            return clt_fail(CLT_INVALID_ARGUMENT, "%s %s: its buffer is of another context than %s",
                            m.what, m.name, device->label);
    }
    if ((m.buffer || (m.on_host && room)) && needed > room)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s %s: has %lld bytes, and needs %lld for %lld samples%s", m.what, m.name,
                        (long long)room, (long long)needed, (long long)samples,
                        m.offset ? " from its offset on" : "");
    return CLT_OK;
}

clt_status clt_session_check_feeds(const clt_session *s, int device, const clt_shares *shares,
                                   const clt_feed *feeds, int n_feeds, bool output_gradients)
{
    const clt_session_device *d = &s->devices[device];
    for (int i = 0; i < d->plan->n_inputs; i++) {
        const clt_value *v = d->plan->inputs[i];
        if (v->output_gradient != output_gradients || is_upstream(d, s->n_losses, i) ||
            !input_used(d->plan, v))
            continue;
        const clt_feed *feed = find_feed(feeds, n_feeds, v->name, device);
        if (!feed && !(output_gradients && d->views[i].buffer))
            return no_feed(d, feeds, n_feeds, v->name);
        if (feed && !feed->host && !feed->buffer)
            return clt_fail(CLT_INVALID_ARGUMENT, "feed %s has neither host nor buffer", v->name);
        if (feed)
            CLT_TRY(check_memory(s, v,
                                 (caller_memory){"feed", v->name, feed->device, feed->host != NULL,
                                                 feed->buffer, feed->offset, feed->bytes},
                                 device, shares));
    }
    return CLT_OK;
}

void clt_session_forget_output_gradients(clt_session *s)
{
    for (int d = 0; d < s->n_devices; d++)
        for (int i = 0; i < s->devices[d].plan->n_inputs; i++)
            if (s->devices[d].plan->inputs[i]->output_gradient)
                s->devices[d].views[i] = (clt_view){0};
}

/* Kernels read inputs without a batch dimension even if a part has no samples, and their output is
 * discarded. Such an input is set to zeros unless this device has a feed for it. */
static clt_status feed_without_samples(clt_session_device *d, int device, int input,
                                       const clt_feed *feed, clt_part part, int parity)
{
    if (clt_type_has_batch(&d->plan->inputs[input]->type))
        return CLT_OK;
    if (feed && (feed->host || (feed->buffer && feed->device == device)))
        return feed_input(d, input, feed, part, parity);
    if (d->views[input].buffer)
        return CLT_OK;
    CLT_TRY(upload(d, input, parity, part.micro, NULL, 0));
    return clt_enqueue_zeros(d->device, d->views[input], micro_bytes(d, input));
}

clt_status clt_session_feed(clt_session *s, int device, const clt_step_batch *batch, clt_part part,
                            int parity)
{
    clt_session_device *d = &s->devices[device];
    for (int i = 0; i < d->plan->n_inputs; i++) {
        const clt_value *v = d->plan->inputs[i];
        const clt_feed *feed = find_feed(batch->feeds, batch->n_feeds, v->name, device);
        if (is_upstream(d, s->n_losses, i))
            continue;
        if (!part.count)
            CLT_TRY(feed_without_samples(d, device, i, feed, part, parity));
        else if (feed)
            CLT_TRY(feed_input(d, i, feed, part, parity));
    }
    return CLT_OK;
}

clt_status clt_session_feed_output_gradients(clt_session *s, int device, const clt_feed *feeds,
                                             int n_feeds, clt_part part, int parity)
{
    clt_session_device *d = &s->devices[device];
    for (int i = 0; i < d->plan->n_inputs; i++) {
        const clt_value *v = d->plan->inputs[i];
        const clt_feed *feed =
            v->output_gradient ? find_feed(feeds, n_feeds, v->name, device) : NULL;
        if (feed && part.count)
            CLT_TRY(feed_input(d, i, feed, part, parity));
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

static const clt_value *find_output(const clt_plan *plan, const char *name)
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
            v = find_output(s->devices[d].plan, fetch->name);
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
        if (!clt_type_has_batch(&v->type) && fetch->device < 0 && shares->parts > 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "output %s has no batch dimension, so every device has its own: the "
                            "fetch must name one",
                            fetch->name);
        if (!fetch->host && !fetch->buffer)
            return clt_fail(CLT_INVALID_ARGUMENT, "fetch %s has neither host nor buffer",
                            fetch->name);
        if (fetch->buffer && fetch->device < 0 && s->n_devices > 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "fetch %s: a buffer belongs to one of the %d devices; name it",
                            fetch->name, s->n_devices);
        if (fetch->device >= s->n_devices)
            return clt_fail(CLT_INVALID_ARGUMENT, "fetch %s is of device %d; there are %d",
                            fetch->name, fetch->device, s->n_devices);
        CLT_TRY(
            check_memory(s, v,
                         (caller_memory){"fetch", fetch->name, fetch->device, fetch->host != NULL,
                                         fetch->buffer, fetch->offset, fetch->bytes},
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

clt_status clt_session_fetch(clt_session *s, int device, const clt_step_batch *batch, clt_part part,
                             bool leads, const clt_run *run)
{
    const clt_session_device *d = &s->devices[device];
    for (int i = 0; i < batch->n_fetches; i++) {
        const clt_fetch *fetch = &batch->fetches[i];
        if (fetch->device < 0 ? !leads : fetch->device != device)
            continue;
        const clt_value *v = find_output(d->plan, fetch->name);
        if (!v) /* another stage has it */
            continue;
        const int64_t bytes = sample_bytes(v) * (clt_type_has_batch(&v->type) ? part.count : 1);
        const int64_t offset = fetch->offset + part_offset(v, fetch->device, part);
        clt_view from;
        clt_status status = clt_exec_locate(d->exec, run, v, &from);
        if (status == CLT_OK && fetch->buffer)
            status = clt_enqueue_copy(d->device, from, (clt_view){fetch->buffer, offset}, bytes);
        else if (status == CLT_OK)
            status =
                clt_enqueue_download(d->device, from, (char *)fetch->host + offset, bytes, NULL);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "fetch %s: ", fetch->name);
    }
    return CLT_OK;
}
