/* Gradients of inputs (clt_input_gradient) in the caller's hands. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "train/core/feed.h"
#include "train/core/trainer.h"

/* Where the gradient of an input goes: the part of a device, or the batch of this rank. */
typedef struct reading {
    const clt_trainer *trainer;
    const char *name;
    int device; /* -1: all */
    const clt_value *input;
    int64_t samples;
} reading;

static const clt_kept *kept_on(const reading *r, int d)
{
    const clt_session_device *sd = &r->trainer->training->devices[d];
    for (int i = 0; sd->kept && i < sd->plan->n_inputs; i++)
        if (sd->kept[i].gradient && !strcmp(sd->plan->inputs[i]->name, r->name))
            return &sd->kept[i];
    return NULL;
}

static clt_status unknown(const reading *r)
{
    const clt_graph *graph = r->trainer->graph;
    const char **names = clt_calloc((size_t)graph->n_values + 1, sizeof *names);
    int n = 0;
    CLT_TRY_MEMORY(names);
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT && graph->values[i]->input_gradient)
            names[n++] = graph->values[i]->name;
    const char *near = n ? clt_nearest(r->name, names, n) : NULL;
    const clt_status status = clt_fail(
        CLT_NOT_FOUND,
        "the trainer has no gradient of an input %s%s%s: call clt_input_gradient on the graph "
        "before the trainer is made",
        r->name, near ? "; the nearest name is " : "", near ? near : "");
    clt_free(names);
    return status;
}

static clt_status find_input(reading *r)
{
    const clt_trainer *t = r->trainer;
    for (int i = 0; i < t->graph->n_values; i++) {
        const clt_value *v = t->graph->values[i];
        if (v->kind == CLT_VALUE_INPUT && v->input_gradient && !strcmp(v->name, r->name))
            r->input = v;
    }
    if (!r->input)
        return unknown(r);
    if (r->device < -1 || r->device >= t->all.own)
        return clt_fail(CLT_INVALID_ARGUMENT, "gradient of input %s: device %d; there are %d",
                        r->name, r->device, t->all.own);
    if (!t->kept)
        return clt_fail(CLT_STATE, "gradient of input %s: backward has not run on the last batch",
                        r->name);
    r->samples =
        r->device < 0 ? t->training->kept_count : t->training->devices[r->device].kept_count;
    return CLT_OK;
}

static bool has_batch(const reading *r)
{
    return clt_type_has_batch(&r->input->type);
}

static int64_t bytes_of(const reading *r, int64_t samples)
{
    return clt_type_elements(&r->input->type, samples) * (int64_t)sizeof(float);
}

/* The first device with a part of the batch has its gradient, unless other ranks do. */
static bool is_read(const reading *r, int d)
{
    const clt_shares *shares = &r->trainer->shares;
    bool first = r->device < 0 || r->device == d;
    for (int e = 0; r->device < 0 && e < d; e++)
        first = first && !(shares->part[e] == shares->part[d] && kept_on(r, e));
    return first && kept_on(r, d);
}

static clt_status check_whole(const reading *r)
{
    int64_t found = 0;
    for (int d = 0; d < r->trainer->all.own; d++)
        if (is_read(r, d))
            found += r->trainer->training->devices[d].kept_count;
    return found == r->samples
               ? CLT_OK
               : clt_fail(CLT_UNSUPPORTED,
                          "gradient of input %s: devices that belong to another stage or rank "
                          "have it",
                          r->name);
}

static clt_status descale(const reading *r, int d, float *values, int64_t count)
{
    float scale;
    CLT_TRY(clt_gradients_scale(r->trainer, d, r->trainer->kept_updated, &scale));
    for (int64_t i = 0; scale != 1 && i < count; i++)
        values[i] /= scale;
    return CLT_OK;
}

/* Reads the samples of each device to their places. */
static clt_status read_samples(const reading *r, float *to)
{
    const int64_t sample = bytes_of(r, 1) / (int64_t)sizeof(float);
    for (int d = 0; d < r->trainer->all.own; d++) {
        const clt_session_device *sd = &r->trainer->training->devices[d];
        float *part = to + (r->device < 0 ? sd->kept_begin : 0) * sample;
        if (!is_read(r, d) || !sd->kept_count)
            continue;
        CLT_TRY(clt_replica_read(&r->trainer->store->replicas[d], kept_on(r, d)->buffer, 0,
                                 bytes_of(r, sd->kept_count), part));
        CLT_TRY(descale(r, d, part, sd->kept_count * sample));
    }
    return CLT_OK;
}

/* Adds up the gradient of an input without samples over the devices, in their order. */
static clt_status read_sum(const reading *r, float *to)
{
    const int64_t count = bytes_of(r, 0) / (int64_t)sizeof(float);
    float *term = clt_alloc((size_t)bytes_of(r, 0) + 1);
    double *sum = clt_calloc((size_t)count + 1, sizeof *sum);
    clt_status status = term && sum ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int d = 0; status == CLT_OK && d < r->trainer->all.own; d++) {
        if (!is_read(r, d) || !r->trainer->training->devices[d].kept_count)
            continue;
        status = clt_replica_read(&r->trainer->store->replicas[d], kept_on(r, d)->buffer, 0,
                                  bytes_of(r, 0), term);
        CLT_NEXT(status, descale(r, d, term, count));
        for (int64_t i = 0; status == CLT_OK && i < count; i++)
            sum[i] += (double)term[i];
    }
    for (int64_t i = 0; status == CLT_OK && i < count; i++)
        to[i] = (float)sum[i];
    CLT_FREE(term, sum);
    return status;
}

static clt_status read_to_host(const reading *r, float *to)
{
    return has_batch(r) ? read_samples(r, to) : read_sum(r, to);
}

/* Fills a buffer on its device. The gradient passes over the host if it must be computed there. */
static clt_status fill_buffer(const reading *r, const clt_array *to)
{
    const int d = r->device < 0 ? 0 : r->device;
    clt_device *device = r->trainer->store->replicas[d].device;
    const clt_view place = {to->buffer, to->offset};
    const int64_t bytes = bytes_of(r, r->samples);
    const bool there = kept_on(r, d) && (r->samples || !has_batch(r)) &&
                       r->trainer->training->devices[d].kept_count &&
                       r->trainer->options.precision != CLT_F16;
    if (r->device < 0 && r->trainer->all.own > 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "gradient of input %s: a buffer belongs to one of the %d devices; name it",
                        r->name, r->trainer->all.own);
    if (there) {
        CLT_TRY(clt_enqueue_copy(device, (clt_view){kept_on(r, d)->buffer, 0}, place, bytes));
        return clt_device_finish(device);
    }
    float *host = clt_calloc((size_t)bytes + 1, 1);
    CLT_TRY_MEMORY(host);
    clt_status status = read_to_host(r, host);
    CLT_NEXT(status, clt_enqueue_upload(device, place, host, bytes));
    const clt_status end = clt_device_finish(device);
    clt_free(host);
    return status == CLT_OK ? end : status;
}

static clt_status fill_host(const reading *r, const clt_array *to)
{
    clt_array dense = clt_session_dense(r->input, r->samples, to->host);
    if (clt_array_in_place(to, CLT_F32))
        return read_to_host(r, (float *)(void *)((char *)to->host + to->offset));
    dense.host = clt_calloc((size_t)dense.bytes + 1, 1);
    CLT_TRY_MEMORY(dense.host);
    clt_status status = read_to_host(r, dense.host);
    CLT_NEXT(status, clt_array_copy(&dense, to));
    clt_free(dense.host);
    return status;
}

clt_status clt_trainer_input_gradient(clt_trainer *t, int device, const char *name,
                                      const clt_array *to)
{
    reading r = {.trainer = t, .name = name, .device = device};
    char what[200];
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(find_input(&r));
    snprintf(what, sizeof what, "gradient of input %s", name);
    CLT_TRY(clt_session_check_array(t->training, r.input, what, to, r.samples,
                                    device < 0 ? 0 : device, false));
    CLT_TRY(check_whole(&r));
    return to->buffer ? fill_buffer(&r, to) : fill_host(&r, to);
}
