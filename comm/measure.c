/* clt_measure_all_reduce: a thread a device, the calling thread is the first device's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/comm.h>
#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "comm/internal.h"
#include "comm/measure.h"
#include "device/core/device.h"

/* DELAY: dependent operations, of a nanosecond or two. */
enum { DELAY = 2000000 };
enum { SAMPLES = 16, ITEMS = 512, MOST_BLOCKS = 99, MOST_CALLS = 24, LATENCY_CALLS = 40 };

typedef struct worker {
    struct bench *bench;
    clt_device *device;
    int index;
    pthread_t thread;
    cl_kernel write, read, check;
    cl_mem buffer, sample, wrong;
    double written, read_end; /* in the last call, by the device's clock: the kernels' ends */
    double latency;
    clt_status status;
    char message[400];
} worker;

typedef struct bench {
    clt_all_reduce_options options;
    clt_comm *comm;
    worker *workers;
    int count;
    int64_t elements;
    bool connected; /* with other ranks */
    clt_status status;
    bool one_clock; /* of all devices' events */
    clt_meeting meeting;
    pthread_mutex_t gate; /* held until all threads exist, or not */
    bool given_up;
    clt_sum_loop *loop;
    float *from, *to; /* of options.other */
    int calls;        /* of a block */
    int round;        /* calls so far; all devices count alike */
    clt_all_reduce_time *time;
} bench;

void clt_all_reduce_options_init(clt_all_reduce_options *options)
{
    *options = (clt_all_reduce_options){.struct_size = sizeof *options, .blocks = 9};
}

/* --- a device --------------------------------------------------------------------------------- */

static clt_status set_arg(const worker *w, cl_kernel kernel, cl_uint index, size_t size,
                          const void *value)
{
    CLT_CL(clSetKernelArg(kernel, index, size, value), "clSetKernelArg", w->device);
    return CLT_OK;
}

static clt_status run_kernel(const worker *w, cl_kernel kernel, size_t items, cl_event *event)
{
    CLT_CL(clEnqueueNDRangeKernel(w->device->queue, kernel, 1, NULL, &items, NULL, 0, NULL, event),
           "clEnqueueNDRangeKernel", w->device);
    if (event)
        clt_object_created(CLT_OBJECT_EVENT);
    return CLT_OK;
}

static clt_status end_of(const worker *w, cl_event event, double *seconds)
{
    cl_ulong end = 0;
    CLT_CL(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL),
           "clGetEventProfilingInfo", w->device);
    *seconds = 1e-9 * (double)end;
    return CLT_OK;
}

static clt_status make_kernel(const worker *w, const char *name, cl_mem second, cl_kernel *kernel)
{
    char options[64];
    const cl_long count = w->bench->elements;
    const cl_int total = clt_comm_size(w->bench->comm);
    snprintf(options, sizeof options, "-DCPU=%d -DSAMPLES=%d -DDELAY=%d",
             clt_caps_is_cpu(&w->device->caps), SAMPLES, DELAY);
    CLT_TRY(clt_device_kernel(w->device, "bench/allreduce.cl", options, name, kernel));
    CLT_TRY(set_arg(w, *kernel, 0, sizeof w->buffer, &w->buffer));
    CLT_TRY(set_arg(w, *kernel, 1, sizeof count, &count));
    if (second == w->sample)
        return set_arg(w, *kernel, 2, sizeof second, &second);
    if (second == w->wrong) {
        CLT_TRY(set_arg(w, *kernel, 3, sizeof total, &total));
        return set_arg(w, *kernel, 4, sizeof second, &second);
    }
    return CLT_OK;
}

static clt_status open_worker(worker *w)
{
    const int64_t bytes = w->bench->elements * (int64_t)sizeof(float);
    CLT_TRY(clt_device_buffer_create(w->device, bytes, CL_MEM_READ_WRITE, "all-reduce's buffer",
                                     &w->buffer));
    CLT_TRY(clt_device_buffer_create(w->device, SAMPLES * sizeof(float), CL_MEM_READ_WRITE,
                                     "all-reduce's sample", &w->sample));
    CLT_TRY(clt_device_buffer_create(w->device, ITEMS * sizeof(cl_int), CL_MEM_READ_WRITE,
                                     "all-reduce's errors", &w->wrong));
    CLT_TRY(make_kernel(w, "clt_allreduce_write", NULL, &w->write));
    CLT_TRY(make_kernel(w, "clt_allreduce_read", w->sample, &w->read));
    return make_kernel(w, "clt_allreduce_check", w->wrong, &w->check);
}

static void close_worker(worker *w)
{
    clt_release_kernel(w->write);
    clt_release_kernel(w->read);
    clt_release_kernel(w->check);
    clt_release_buffer(w->buffer);
    clt_release_buffer(w->sample);
    clt_release_buffer(w->wrong);
}

static clt_status set_seeds(const worker *w, int round)
{
    const bench *b = w->bench;
    const cl_int first = round * clt_comm_size(b->comm);
    const cl_int seed = first + clt_comm_participant(b->comm, w->index);
    CLT_TRY(set_arg(w, w->write, 2, sizeof seed, &seed));
    return set_arg(w, w->check, 2, sizeof first, &first);
}

/* Nothing waits between the enqueues, as in a training's step. */
static clt_status enqueue_all(worker *w, cl_event *written, cl_event *read)
{
    clt_comm_op op;
    clt_comm_request *request;
    clt_comm_op_init(&op);
    op.mem = w->buffer;
    op.count = w->bench->elements;
    op.flags = CLT_COMM_QUEUED;
    CLT_TRY(run_kernel(w, w->write, ITEMS, written));
    CLT_TRY(clt_comm_start(w->bench->comm, w->index, -1, &op, 0, NULL, &request));
    CLT_TRY(clt_comm_complete(request, w->index, NULL, NULL));
    CLT_TRY(run_kernel(w, w->read, 1, read));
    return clt_device_finish(w->device);
}

static clt_status reduce(worker *w)
{
    cl_event written = NULL, read = NULL;
    clt_status status = enqueue_all(w, &written, &read);
    if (status == CLT_OK)
        status = end_of(w, written, &w->written);
    if (status == CLT_OK)
        status = end_of(w, read, &w->read_end);
    clt_release_event(written);
    clt_release_event(read);
    return status;
}

static float expected(const bench *b, int round, int64_t element)
{
    const int total = clt_comm_size(b->comm);
    float sum = 0;
    for (int k = 0; k < total; k++)
        sum += (float)(((int)element + (round * total + k) * 37) & 1023);
    return sum;
}

static clt_status verify(worker *w, int round)
{
    const bench *b = w->bench;
    float sample[SAMPLES];
    cl_int wrong[ITEMS];
    int64_t all = 0;
    CLT_TRY(run_kernel(w, w->check, ITEMS, NULL));
    CLT_CL(clEnqueueReadBuffer(w->device->queue, w->sample, CL_TRUE, 0, sizeof sample, sample, 0,
                               NULL, NULL),
           "clEnqueueReadBuffer", w->device);
    CLT_CL(clEnqueueReadBuffer(w->device->queue, w->wrong, CL_TRUE, 0, sizeof wrong, wrong, 0, NULL,
                               NULL),
           "clEnqueueReadBuffer", w->device);
    for (int i = 0; i < ITEMS; i++)
        all += wrong[i];
    for (int k = 0; k < SAMPLES; k++)
        all += sample[k] != expected(b, round, (b->elements - 1) * k / (SAMPLES - 1));
    if (all)
        return clt_fail(CLT_MISMATCH, "all-reduce of %lld floats: %lld elements are wrong on %s",
                        (long long)b->elements, (long long)all, w->device->label);
    return CLT_OK;
}

static clt_status measure_latency(worker *w)
{
    double times[LATENCY_CALLS];
    for (int i = 0; i < LATENCY_CALLS; i++) {
        const double began = clt_measure_now();
        CLT_TRY(run_kernel(w, w->read, 1, NULL));
        CLT_TRY(clt_device_finish(w->device));
        times[i] = clt_measure_now() - began;
    }
    for (int i = 1; i < LATENCY_CALLS; i++)
        for (int k = i; k > 0 && times[k] < times[k - 1]; k--) {
            const double more = times[k - 1];
            times[k - 1] = times[k];
            times[k] = more;
        }
    w->latency = times[LATENCY_CALLS / 2];
    return CLT_OK;
}

/* The first failure of a device ends the communicator, so that nobody waits for it; the threads
 * go on meeting. */
static void note(worker *w, clt_status status)
{
    if (status == CLT_OK || w->status != CLT_OK)
        return;
    w->status = status;
    snprintf(w->message, sizeof w->message, "%s", clt_error_message());
    clt_comm_abort(w->bench->comm, status, w->message);
}

static void call(worker *w, int round)
{
    bench *b = w->bench;
    if (w->status == CLT_OK)
        note(w, set_seeds(w, round));
    clt_meet(&b->meeting);
    if (w->status == CLT_OK)
        note(w, reduce(w));
    if (w->status == CLT_OK)
        note(w, verify(w, round));
}

static void *work(void *arg)
{
    worker *w = arg;
    bench *b = w->bench;
    pthread_mutex_lock(&b->gate);
    const int rounds = b->given_up ? 0 : 1 + b->options.blocks * b->calls;
    pthread_mutex_unlock(&b->gate);
    for (int round = 0; round < rounds; round++) {
        call(w, round);
        clt_meet(&b->meeting);
    }
    return NULL;
}

/* --- blocks ----------------------------------------------------------------------------------- */

static int compare(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* Of all ranks. One that failed is heard of in its next collective. */
static double largest(bench *b, double value)
{
    const clt_world *world = b->options.world;
    double all[CLT_RANKS_MOST];
    if (!b->connected)
        return value;
    if (b->status == CLT_OK)
        b->status = world->gather(world->user, &value, sizeof value, all);
    for (int r = 0; b->status == CLT_OK && r < world->ranks; r++)
        value = all[r] > value ? all[r] : value;
    return value;
}

/* Ranks wait for each other asleep; then, having a clock in common, until a time. */
static void begin_together(bench *b)
{
    const double in = 0.0025;
    const double at = b->connected ? largest(b, clt_measure_now() + in) : 0;
    while (clt_measure_now() < at)
        continue;
}

/* The calling thread's part of a call: the first device's, and the time. Where devices have a clock
 * in common, from the end of the last writing kernel to that of the last reading one; otherwise
 * that of the device for which it took longest, which may include that it waited for others. */
static double call_first(bench *b)
{
    double written = 0, read = 0, longest = 0;
    begin_together(b);
    call(b->workers, b->round++);
    clt_meet(&b->meeting);
    for (int i = 0; i < b->count; i++) {
        const worker *w = &b->workers[i];
        const double took = w->read_end - w->written;
        written = w->written > written ? w->written : written;
        read = w->read_end > read ? w->read_end : read;
        longest = took > longest ? took : longest;
    }
    return b->one_clock ? largest(b, read) - largest(b, written) : largest(b, longest);
}

static double call_other(bench *b)
{
    for (int64_t i = 0; i < b->elements; i++)
        b->from[i] = (float)(i & 1023);
    begin_together(b);
    const double began = clt_measure_now();
    b->options.other(b->options.user, b->from, b->to, b->elements);
    const double ended = clt_measure_now();
    /* Ranks of a node have a clock in common. */
    return largest(b, ended) - largest(b, began);
}

static double block(bench *b, double (*call_one)(bench *b))
{
    double times[MOST_CALLS];
    for (int i = 0; i < b->calls; i++)
        times[i] = call_one(b);
    return median(times, b->calls);
}

static double limit_one(bench *b)
{
    return clt_sum_loop_seconds(b->loop);
}

static void measure_blocks(bench *b)
{
    double ours[MOST_BLOCKS], limit[MOST_BLOCKS], other[MOST_BLOCKS];
    double of_limit[MOST_BLOCKS], of_other[MOST_BLOCKS];
    const int n = b->options.blocks;
    clt_all_reduce_time *t = b->time;
    for (int i = 0; i < n; i++) {
        limit[i] = b->loop ? block(b, limit_one) : 0;
        ours[i] = block(b, call_first);
        other[i] = b->options.other ? block(b, call_other) : 0;
        of_limit[i] = limit[i] / ours[i];
        of_other[i] = other[i] / ours[i];
    }
    t->median = median(ours, n);
    t->least = ours[0];
    t->most = ours[n - 1];
    t->limit = median(limit, n);
    t->limit_least = limit[0];
    t->limit_most = limit[n - 1];
    t->other = median(other, n);
    t->other_least = other[0];
    t->other_most = other[n - 1];
    t->of_limit = median(of_limit, n);
    t->of_other = median(of_other, n);
}

static clt_status first_failure(const bench *b)
{
    const worker *found = NULL;
    for (int i = 0; i < b->count; i++) {
        const worker *w = &b->workers[i];
        /* The others were only aborted. */
        if (w->status != CLT_OK && (!found || found->status == CLT_ABORTED))
            found = w;
    }
    return found ? clt_fail(found->status, "%s", found->message) : CLT_OK;
}

static clt_status run(bench *b)
{
    int started = 1;
    CLT_TRY(clt_meeting_open(&b->meeting, b->count));
    clt_status status = measure_latency(&b->workers[0]);
    pthread_mutex_init(&b->gate, NULL);
    pthread_mutex_lock(&b->gate);
    while (status == CLT_OK && started < b->count)
        if (pthread_create(&b->workers[started].thread, NULL, work, &b->workers[started]))
            status = clt_fail(CLT_OUT_OF_MEMORY, "no thread can be started for %s",
                              b->workers[started].device->label);
        else
            started++;
    b->given_up = status != CLT_OK;
    pthread_mutex_unlock(&b->gate);
    if (status == CLT_OK) {
        call_first(b); /* warms up */
        measure_blocks(b);
    }
    for (int i = 1; i < started; i++)
        pthread_join(b->workers[i].thread, NULL);
    pthread_mutex_destroy(&b->gate);
    if (status == CLT_OK) {
        status = first_failure(b);
        if (status == CLT_OK && b->status != CLT_OK)
            status = b->status;
        b->time->latency = b->workers[0].latency;
        b->time->verified = (int64_t)b->round * b->count;
    }
    clt_meeting_close(&b->meeting);
    return status;
}

static clt_status make_comm(bench *b)
{
    clt_comm_device devices[CLT_COMM_MAX_DEVICES];
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.threads = b->options.threads;
    if (b->options.staged)
        options.path = CLT_COMM_PATH_STAGED;
    if (b->options.peer)
        options.path = CLT_COMM_PATH_PEER;
    for (int i = 0; i < b->count; i++) {
        const clt_device *device = b->workers[i].device;
        clt_comm_device_init(&devices[i]);
        devices[i].context = device->context;
        devices[i].device = device->id;
        devices[i].compute = device->queue;
        if (device->sleep_poll)
            options.wait_poll_us = 100;
    }
    const clt_world *world = b->options.world;
    return b->connected ? world->connect(world->user, devices, b->count, &options, &b->comm)
                        : clt_comm_create(devices, b->count, &options, &b->comm);
}

static clt_status measure(bench *b)
{
    CLT_TRY(make_comm(b));
    snprintf(b->time->way, sizeof b->time->way, "%s", clt_comm_way(b->comm));
    b->one_clock = true;
    for (int i = 0; i < b->count; i++) {
        const clt_device *device = b->workers[i].device;
        CLT_TRY(open_worker(&b->workers[i]));
        b->one_clock &=
            clt_caps_is_cpu(&device->caps) && device->platform == b->workers[0].device->platform;
    }
    if (!b->connected)
        CLT_TRY(clt_sum_loop_open(b->elements, &b->loop));
    if (b->options.other) {
        b->from = clt_calloc((size_t)b->elements, sizeof *b->from);
        b->to = clt_calloc((size_t)b->elements, sizeof *b->to);
        if (!b->from || !b->to)
            return CLT_OUT_OF_MEMORY;
    }
    return run(b);
}

clt_status clt_measure_all_reduce(clt_device *const *devices, int count, int64_t bytes,
                                  const clt_all_reduce_options *options, clt_all_reduce_time *time)
{
    clt_all_reduce_time found = {.bytes = bytes};
    bench b = {.count = count, .elements = bytes / (int64_t)sizeof(float), .time = &found};
    clt_all_reduce_options_init(&b.options);
    if (options)
        CLT_TRY(CLT_CHECK_STRUCT(options, clt_all_reduce_options));
    if (options)
        b.options = *options;
    if (count < 1 || count > CLT_COMM_MAX_DEVICES || b.elements < SAMPLES ||
        b.elements * (int64_t)sizeof(float) != bytes || b.options.blocks < 1 ||
        b.options.blocks > MOST_BLOCKS)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "all-reduce of %lld bytes on %d devices in %d blocks: give a multiple of "
                        "4 of at least %d bytes, 1 to %d devices and 1 to %d blocks",
                        (long long)bytes, count, b.options.blocks, (int)(SAMPLES * sizeof(float)),
                        CLT_COMM_MAX_DEVICES, MOST_BLOCKS);
    b.connected = b.options.world && b.options.world->ranks > 1;
    const int64_t some = (64 << 20) / bytes;
    b.calls = some < 2 ? 2 : some > MOST_CALLS ? MOST_CALLS : (int)some;
    b.workers = clt_calloc((size_t)count, sizeof *b.workers);
    if (!b.workers)
        return CLT_OUT_OF_MEMORY;
    for (int i = 0; i < count; i++) {
        if (!devices[i]->profiling) {
            clt_free(b.workers);
            return clt_fail(CLT_INVALID_ARGUMENT, "%s was not opened for profiling",
                            devices[i]->label);
        }
        b.workers[i].bench = &b;
        b.workers[i].device = devices[i];
        b.workers[i].index = i;
    }
    const clt_status status = measure(&b);
    for (int i = 0; i < count; i++)
        close_worker(&b.workers[i]);
    clt_comm_destroy(b.comm);
    clt_sum_loop_close(b.loop);
    clt_free(b.from);
    clt_free(b.to);
    clt_free(b.workers);
    if (status == CLT_OK)
        *time = found;
    return status;
}
