/* clt_measure_all_reduce runs an all-reduce as a training step does. It uses a trainer's table of
 * collectives, threads of devices, request and kind of buffer. */
#include <stdatomic.h>
#include <stdio.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "device/core/device.h"
#include "exec/timed_kernel.h"
#include "train/core/device_threads.h"
#include "base/clock.h"
#include "train/planner/host_sum.h"
#include "train/ranks/connect.h"
#include "train/ranks/world.h"

/* DELAY: number of dependent operations, of one or two nanoseconds each. */
enum { DELAY = 2000000 };
enum { SAMPLES = 16, ITEMS = 512, MOST_BLOCKS = 99, MOST_CALLS = 24, LATENCY_CALLS = 40 };
enum { MOST_RANKS = 64 }; /* the communicator's limit */

typedef struct worker {
    struct bench *bench;
    clt_device *device;
    cl_kernel write, read, check;
    cl_mem buffer, sample, wrong;
    double written, read_end; /* ends of the kernels of the last call, by the device's clock */
} worker;

/* What a device does between the kernel that writes its buffer and the kernel that reads it. */
typedef clt_status (*exchange)(worker *w);

typedef struct bench {
    clt_all_reduce_options options;
    clt_collectives collectives;
    clt_device_threads *threads;
    worker *workers;
    int count;
    int first, total; /* this rank's first participant, and the number of all participants */
    int64_t elements;
    bool connected;    /* there are other ranks */
    bool one_node;     /* all ranks are on this node and share its clock */
    clt_status status; /* the first failure of a call; `told`: of telling other ranks */
    clt_status told;
    char message[400];
    bool one_clock; /* all devices' events use one clock */
    clt_sum_loop *loop;
    float *from, *to; /* buffers of options.other */
    exchange exchange;
    atomic_int arrived; /* devices that have come to the present meeting, plus those of earlier
                           meetings */
    int calls;          /* calls in a block */
    atomic_bool failed; /* a device's call failed, so others do not wait for it */
    int round;          /* calls so far, the same on all devices */
    clt_all_reduce_time *time;
} bench;

CLT_STRUCT_INIT(clt_all_reduce_options, .blocks = 9, .timeout = 60)

/* --- a device --------------------------------------------------------------------------------- */

static clt_status make_kernel(const worker *w, const char *name, cl_mem second, cl_kernel *kernel)
{
    char options[64];
    const cl_long count = w->bench->elements;
    const cl_int total = w->bench->total;
    snprintf(options, sizeof options, "-DCPU=%d -DSAMPLES=%d -DDELAY=%d",
             clt_caps_is_cpu(&w->device->caps), SAMPLES, DELAY);
    CLT_TRY(clt_device_kernel(w->device, "bench/allreduce.cl", options, name, kernel));
    CLT_TRY(clt_timed_set_arg(w->device, *kernel, 0, sizeof w->buffer, &w->buffer));
    CLT_TRY(clt_timed_set_arg(w->device, *kernel, 1, sizeof count, &count));
    if (second == w->sample)
        return clt_timed_set_arg(w->device, *kernel, 2, sizeof second, &second);
    if (second == w->wrong) {
        CLT_TRY(clt_timed_set_arg(w->device, *kernel, 3, sizeof total, &total));
        return clt_timed_set_arg(w->device, *kernel, 4, sizeof second, &second);
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
    const cl_int first = round * b->total;
    const cl_int seed = first + b->first + (cl_int)(w - b->workers);
    CLT_TRY(clt_timed_set_arg(w->device, w->write, 2, sizeof seed, &seed));
    return clt_timed_set_arg(w->device, w->check, 2, sizeof first, &first);
}

static clt_collective collective_of(const worker *w)
{
    return (clt_collective){.kind = CLT_COLLECTIVE_ALL_REDUCE,
                            .buffer = w->buffer,
                            .count = w->bench->elements,
                            .dtype = CLT_F32,
                            .whole = true,
                            .measure = true,
                            .label = "measured all-reduce"};
}

/* Enqueues the same commands as the reduction of a bucket of gradients in step/step_exchange.c. */
static clt_status collective(worker *w)
{
    const clt_collectives *c = &w->bench->collectives;
    const int d = (int)(w - w->bench->workers);
    const clt_collective what = collective_of(w);
    clt_collective_request request;
    clt_collective_result result;
    CLT_TRY(c->start(c->self, d, &what, 0, NULL, &request));
    return c->complete(c->self, d, &request, &result);
}

/* What a host program does that has no communicator: it maps its device's buffer and calls
 * options.other. */
static clt_status mapped(worker *w)
{
    const bench *b = w->bench;
    void *host;
    CLT_TRY(clt_timed_map(w->device, w->buffer, (size_t)b->elements * sizeof(float), &host));
    b->options.other(b->options.user, host, host, b->elements);
    return clt_timed_unmap(w->device, w->buffer, host);
}

/* The devices of this process meet with their buffers mapped. Nothing is summed, and the threads
 * are awake when the other one comes. */
static clt_status meet(worker *w)
{
    bench *b = w->bench;
    void *host;
    CLT_TRY(clt_timed_map(w->device, w->buffer, (size_t)b->elements * sizeof(float), &host));
    const int all = (atomic_fetch_add(&b->arrived, 1) / b->count + 1) * b->count;
    while (atomic_load(&b->arrived) < all && !atomic_load(&b->failed))
        continue;
    return clt_timed_unmap(w->device, w->buffer, host);
}

static clt_status enqueue_all(worker *w, cl_event *written, cl_event *read)
{
    CLT_TRY(clt_timed_run(w->device, w->write, ITEMS, written));
    CLT_TRY(w->bench->exchange(w));
    CLT_TRY(clt_timed_run(w->device, w->read, 1, read));
    return clt_device_finish(w->device);
}

static clt_status reduce(worker *w)
{
    cl_event written = NULL, read = NULL;
    clt_status status = enqueue_all(w, &written, &read);
    CLT_NEXT(status, clt_timed_end(w->device, written, &w->written));
    CLT_NEXT(status, clt_timed_end(w->device, read, &w->read_end));
    clt_release_event(written);
    clt_release_event(read);
    return status;
}

static float expected(const bench *b, int round, int64_t element)
{
    float sum = 0;
    for (int k = 0; k < b->total; k++)
        sum += (float)(((int)element + (round * b->total + k) * 37) & 1023);
    return sum;
}

static clt_status verify(worker *w, int round)
{
    const bench *b = w->bench;
    float sample[SAMPLES];
    cl_int wrong[ITEMS];
    int64_t all = 0;
    CLT_TRY(clt_timed_run(w->device, w->check, ITEMS, NULL));
    CLT_TRY(clt_timed_read(w->device, w->sample, sizeof sample, sample));
    CLT_TRY(clt_timed_read(w->device, w->wrong, sizeof wrong, wrong));
    for (int i = 0; i < ITEMS; i++)
        all += wrong[i];
    for (int k = 0; k < SAMPLES; k++)
        all += sample[k] != expected(b, round, (b->elements - 1) * k / (SAMPLES - 1));
    if (all)
        return clt_fail(CLT_MISMATCH, "all-reduce of %lld floats: %lld elements are wrong on %s",
                        (long long)b->elements, (long long)all, w->device->label);
    return CLT_OK;
}

static clt_status measure_latency(const worker *w, double *latency)
{
    double times[LATENCY_CALLS];
    for (int i = 0; i < LATENCY_CALLS; i++) {
        const double began = clt_clock();
        CLT_TRY(clt_timed_run(w->device, w->read, 1, NULL));
        CLT_TRY(clt_device_finish(w->device));
        times[i] = clt_clock() - began;
    }
    *latency = clt_clock_median(times, LATENCY_CALLS);
    return CLT_OK;
}

/* Runs on a device's thread. A failure aborts the collectives, so that no other device waits for
 * this one. */
static clt_status reduce_on(void *arg, int device)
{
    bench *b = arg;
    worker *w = &b->workers[device];
    clt_status status = set_seeds(w, b->round);
    CLT_NEXT(status, reduce(w));
    if (status != CLT_OK) {
        atomic_store(&b->failed, true);
        b->collectives.stop(b->collectives.self, status, clt_error_message());
    }
    return status;
}

static clt_status verify_on(void *arg, int device)
{
    bench *b = arg;
    return verify(&b->workers[device], b->round);
}

/* Records the first failure. After a failure, only calls that all ranks must make are made. */
static void note(bench *b, clt_status status)
{
    if (status == CLT_OK || b->status != CLT_OK)
        return;
    b->status = status;
    snprintf(b->message, sizeof b->message, "%s", clt_error_message());
    b->collectives.stop(b->collectives.self, status, b->message);
}

/* --- blocks ----------------------------------------------------------------------------------- */

static double median(double *values, int count)
{
    clt_clock_median(values, count); /* sorts */
    return 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

/* Returns the largest value of all ranks. A failure of a rank is reported by the next collective.
 */
static double largest(bench *b, double value)
{
    const clt_world *world = b->options.world;
    double all[MOST_RANKS];
    if (!b->connected)
        return value;
    if (b->told == CLT_OK) {
        b->told = world->gather(world->user, &value, sizeof value, all);
        note(b, b->told);
    }
    for (int r = 0; b->told == CLT_OK && r < world->ranks; r++)
        value = all[r] > value ? all[r] : value;
    return value;
}

/* Ranks sleep until all have arrived. On one node they then spin until an agreed time. Clocks of
 * several nodes count from different times, so a time of another node means nothing here. */
static void begin_together(bench *b)
{
    const double in = 0.0025;
    const double at = b->connected ? largest(b, clt_clock() + in) : 0;
    while (b->one_node && clt_clock() < at)
        continue;
}

/* Runs `made` on all devices and returns its time. If devices share a clock, this is the time from
 * the end of the last writing kernel to the end of the last reading kernel. Otherwise it is the
 * time of the slowest device, which may include waiting for others. */
static double call(bench *b, exchange made)
{
    double written = 0, read = 0, longest = 0;
    begin_together(b);
    b->exchange = made;
    if (b->status == CLT_OK)
        note(b, clt_device_threads_run(b->threads, reduce_on, b));
    if (b->status == CLT_OK && made != meet)
        note(b, clt_device_threads_run(b->threads, verify_on, b));
    b->time->verified += made == meet ? 0 : b->count;
    b->round++;
    for (int i = 0; i < b->count; i++) {
        const worker *w = &b->workers[i];
        const double took = w->read_end - w->written;
        written = w->written > written ? w->written : written;
        read = w->read_end > read ? w->read_end : read;
        longest = took > longest ? took : longest;
    }
    return b->one_clock ? largest(b, read) - largest(b, written) : largest(b, longest);
}

static double call_first(bench *b)
{
    return call(b, collective);
}

static double call_mapped(bench *b)
{
    return call(b, mapped);
}

static double call_meet(bench *b)
{
    return call(b, meet);
}

static double call_other(bench *b)
{
    for (int64_t i = 0; i < b->elements; i++)
        b->from[i] = (float)(i & 1023);
    begin_together(b);
    const double began = clt_clock();
    b->options.other(b->options.user, b->from, b->to, b->elements);
    const double ended = clt_clock();
    return b->one_node ? largest(b, ended) - largest(b, began) : largest(b, ended - began);
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

/* Sets the median, least and most of the blocks' times, and their ratio to ours. Sorts `times`. */
static void summarize(double *times, const double *ours, int n, clt_all_reduce_span *span)
{
    double shares[MOST_BLOCKS];
    for (int i = 0; i < n; i++)
        shares[i] = times[i] / ours[i];
    span->ratio = median(shares, n);
    span->median = median(times, n);
    span->least = times[0];
    span->most = times[n - 1];
}

static void measure_blocks(bench *b)
{
    const bool one_each = b->total == (b->connected ? b->options.world->ranks : 1);
    const struct {
        bool measured;
        double (*call)(bench *b);
        clt_all_reduce_span *span;
    } all[] = {{true, call_first, &b->time->ours},
               {b->loop != NULL, limit_one, &b->time->limit},
               {b->options.other != NULL, call_other, &b->time->other},
               {b->options.other && one_each, call_mapped, &b->time->mapped},
               {b->count > 1 && !b->connected, call_meet, &b->time->floor}};
    enum { ALL = sizeof all / sizeof *all };
    double times[ALL][MOST_BLOCKS];
    const int n = b->options.blocks;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < ALL; k++)
            times[k][i] = all[k].measured ? block(b, all[k].call) : 0;
    for (int k = ALL - 1; k >= 0; k--)
        if (all[k].measured)
            summarize(times[k], times[0], n, all[k].span);
}

static clt_status run(bench *b)
{
    CLT_TRY(measure_latency(&b->workers[0], &b->time->latency));
    call_first(b); /* warms up */
    measure_blocks(b);
    if (b->status != CLT_OK)
        return clt_fail(b->status, "%s", b->message);
    return b->connected ? b->collectives.finish(b->collectives.self) : CLT_OK;
}

static clt_status connect_devices(bench *b, clt_device *const *devices)
{
    const clt_all_reduce_options *o = &b->options;
    const clt_connect_path path = o->staged ? CLT_CONNECT_STAGED
                                  : o->peer ? CLT_CONNECT_PEER
                                            : CLT_CONNECT_AUTO;
    CLT_TRY(clt_world_count(o->world, b->count, &b->first, &b->total));
    CLT_TRY(clt_device_threads_create(b->count, &b->threads));
    CLT_TRY(clt_collectives_open(devices, b->count, o->world, o->timeout, path, &b->collectives));
    if (b->collectives.progress)
        clt_device_threads_while_waiting(b->threads, b->collectives.progress, b->collectives.self);
    return CLT_OK;
}

static clt_status explain(bench *b)
{
    const clt_collective what = collective_of(&b->workers[0]);
    clt_str text = {0};
    b->collectives.explain(b->collectives.self, &what, &text);
    const clt_status status = text.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    snprintf(b->time->transports, sizeof b->time->transports, "%s", clt_str_text(&text));
    clt_str_free(&text);
    return status;
}

static clt_status measure(bench *b, clt_device *const *devices)
{
    CLT_TRY(connect_devices(b, devices));
    b->one_clock = b->one_node;
    for (int i = 0; i < b->count; i++) {
        const clt_device *device = b->workers[i].device;
        CLT_TRY(open_worker(&b->workers[i]));
        b->one_clock &=
            clt_caps_is_cpu(&device->caps) && device->platform == b->workers[0].device->platform;
    }
    CLT_TRY(explain(b));
    if (!b->connected)
        CLT_TRY(clt_sum_loop_open(b->elements, &b->loop));
    if (b->options.other) {
        b->from = clt_calloc((size_t)b->elements, sizeof *b->from);
        b->to = clt_calloc((size_t)b->elements, sizeof *b->to);
        CLT_TRY_MEMORY(b->from && b->to);
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
    if (count < 1 || count > CLT_MOST_DEVICES || b.elements < SAMPLES ||
        b.elements * (int64_t)sizeof(float) != bytes || b.options.blocks < 1 ||
        b.options.blocks > MOST_BLOCKS)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "all-reduce of %lld bytes on %d devices in %d blocks: give a multiple of "
                        "4 of at least %d bytes, 1 to %d devices and 1 to %d blocks",
                        (long long)bytes, count, b.options.blocks, (int)(SAMPLES * sizeof(float)),
                        CLT_MOST_DEVICES, MOST_BLOCKS);
    b.connected = b.options.world && b.options.world->ranks > 1;
    b.one_node = !b.connected || b.options.world->node_ranks == b.options.world->ranks;
    const int64_t some = (64 << 20) / bytes;
    b.calls = some < 2 ? 2 : some > MOST_CALLS ? MOST_CALLS : (int)some;
    b.workers = clt_calloc((size_t)count, sizeof *b.workers);
    CLT_TRY_MEMORY(b.workers);
    for (int i = 0; i < count; i++) {
        if (!devices[i]->profiling) {
            clt_free(b.workers);
            return clt_fail(CLT_INVALID_ARGUMENT, "%s was not opened for profiling",
                            devices[i]->label);
        }
        b.workers[i].bench = &b;
        b.workers[i].device = devices[i];
    }
    const clt_status status = measure(&b, devices);
    for (int i = 0; i < count; i++)
        close_worker(&b.workers[i]);
    clt_collectives_close(&b.collectives);
    clt_device_threads_destroy(b.threads);
    clt_sum_loop_close(b.loop);
    CLT_FREE(b.from, b.to, b.workers);
    if (status == CLT_OK)
        *time = found;
    return status;
}
