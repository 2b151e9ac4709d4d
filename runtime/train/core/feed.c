/* Copies data between the caller's memory and a run: feeds of inputs, gradients of outputs, and
 * fetches. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/loss/loss.h"
#include "train/core/feed.h"

const clt_feed *clt_feed_find(const clt_feed *feeds, int n_feeds, const char *name, int device)
{
    for (int i = 0; i < n_feeds; i++)
        if (!strcmp(feeds[i].name, name) && (feeds[i].device == device || feeds[i].device < 0))
            return &feeds[i];
    return NULL;
}

bool clt_feed_count_labels(const clt_mean *loss, const clt_step_batch *batch, int device,
                           int64_t first, int64_t samples, double *weight)
{
    int ignored = 0;
    const clt_value *targets = clt_loss_targets(loss, &ignored);
    *weight = 0;
    if (targets && !samples)
        return true;
    const clt_feed *feed =
        targets ? clt_feed_find(batch->feeds, batch->n_feeds, targets->name, device) : NULL;
    if (!feed || !feed->array.host || feed->array.buffer || batch->n_wait)
        return false;
    const int32_t *labels =
        (const int32_t *)(void *)((char *)feed->array.host + feed->array.offset) +
        clt_type_elements(&targets->type, feed->device < 0 ? first : 0);
    const int64_t count = clt_type_elements(&targets->type, samples);
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
        if (each <= 0 && !clt_feed_count_labels(loss, batch, -1, 0, batch->count, &weights[l]))
            return false;
    }
    return true;
}

bool clt_feed_used(const clt_plan *plan, const clt_value *input)
{
    for (int i = 0; i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].node->n_in; j++)
            if (plan->nodes[i].node->in[j] == input)
                return true;
    return input->output;
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
    const int64_t offset = feed->array.offset + part_offset(v, feed->device, part);
    cl_mem buffer = feed->array.buffer;
    if (buffer) {
        d->views[input] = (clt_view){buffer, offset};
        d->fed[parity][input] =
            (clt_view){buffer, offset - first_bytes(v, part.begin - part.device_begin)};
        return CLT_OK;
    }
    d->fed[parity][input] = (clt_view){0};
    return upload(d, input, parity, part.micro, (const char *)feed->array.host + offset,
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
        if (!d->views[i].buffer && clt_feed_used(d->plan, d->plan->inputs[i]))
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

bool clt_feed_is_upstream(const clt_session_device *d, int n_losses, int input)
{
    for (int l = 0; l < n_losses; l++)
        if (d->upstream_input[l] == input)
            return true;
    return false;
}

void clt_session_forget_output_gradients(clt_session *s, const clt_feed *given, int n_given)
{
    for (int d = 0; d < s->n_devices; d++)
        for (int i = 0; i < s->devices[d].plan->n_inputs; i++) {
            const clt_value *v = s->devices[d].plan->inputs[i];
            if (v->output_gradient && (!given || clt_feed_find(given, n_given, v->name, d)))
                s->devices[d].views[i] = (clt_view){0};
        }
}

/* Kernels read inputs without a batch dimension even if a part has no samples, and their output is
 * discarded. Such an input is set to zeros unless this device has a feed for it. */
static clt_status feed_without_samples(clt_session_device *d, int device, int input,
                                       const clt_feed *feed, clt_part part, int parity)
{
    if (clt_type_has_batch(&d->plan->inputs[input]->type))
        return CLT_OK;
    if (feed && (feed->array.host || (feed->array.buffer && feed->device == device)))
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
        const clt_feed *feed = clt_feed_find(batch->feeds, batch->n_feeds, v->name, device);
        if (clt_feed_is_upstream(d, s->n_losses, i))
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
            v->output_gradient ? clt_feed_find(feeds, n_feeds, v->name, device) : NULL;
        if (feed && part.count)
            CLT_TRY(feed_input(d, i, feed, part, parity));
    }
    return CLT_OK;
}

clt_status clt_session_fetch(clt_session *s, int device, const clt_step_batch *batch, clt_part part,
                             bool leads, const clt_run *run)
{
    const clt_session_device *d = &s->devices[device];
    for (int i = 0; i < batch->n_fetches; i++) {
        const clt_fetch *fetch = &batch->fetches[i];
        if (fetch->device < 0 ? !leads : fetch->device != device)
            continue;
        const clt_value *v = clt_session_output(d->plan, fetch->name);
        if (!v) /* another stage has it */
            continue;
        const int64_t bytes = sample_bytes(v) * (clt_type_has_batch(&v->type) ? part.count : 1);
        const int64_t offset = fetch->array.offset + part_offset(v, fetch->device, part);
        clt_view from;
        clt_status status = clt_exec_locate(d->exec, run, v, &from);
        if (status == CLT_OK && fetch->array.buffer)
            status =
                clt_enqueue_copy(d->device, from, (clt_view){fetch->array.buffer, offset}, bytes);
        else if (status == CLT_OK)
            status = clt_enqueue_download(d->device, from, (char *)fetch->array.host + offset,
                                          bytes, NULL);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "fetch %s: ", fetch->name);
    }
    return CLT_OK;
}
