/*
 * Training inside a program that owns its OpenCL objects. The program's kernel writes each batch
 * into its cl_mem, and two trainers learn from it there. Their predictions go to another cl_mem of
 * the program, where a second kernel reads them. No data pass through the host, and no call waits
 * for the device. At the end every object has its initial reference count.
 *
 *     embed [PLATFORM]      a number, 0 by default; the first device of the platform is used
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cltrain/cltrain.h>
#include <cltrain/opencl.h>

enum { BATCH = 128, STEPS = 400, HIDDEN = 32, BEFORE = 64 };

/* Points of the square (-1, 1) x (-1, 1). Points inside a ring have label 1. */
static const char *const source =
    "uint hash(uint x) { x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu;\n"
    "                    return x ^ x >> 16; }\n"
    "kernel void make_batch(global float2 *points, global int *labels, uint step)\n"
    "{\n"
    "    const uint i = get_global_id(0), n = get_global_size(0);\n"
    "    const uint a = hash(2 * (step * n + i)), b = hash(2 * (step * n + i) + 1);\n"
    "    const float2 p = (float2)(a >> 8, b >> 8) / 8388608.0f - 1.0f;\n"
    "    const float r = sqrt(p.x * p.x + p.y * p.y);\n"
    "    points[i] = p;\n"
    "    labels[i] = r > 0.4f && r < 0.9f;\n"
    "}\n"
    "kernel void count_right(global const float *logits, int offset, global const int *labels,\n"
    "                        int n, global int *right)\n"
    "{\n"
    "    int count = 0;\n"
    "    for (int i = 0; i < n; i++)\n"
    "        count += (logits[offset + 2 * i + 1] > logits[offset + 2 * i]) == labels[i];\n"
    "    *right = count;\n"
    "}\n";

static void check(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "embed: %s: OpenCL error %d\n", what, error);
    exit(1);
}

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "embed: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

/* The OpenCL objects of the program. */
typedef struct host {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;    /* lent to the library */
    cl_command_queue producer; /* not known to the library */
    cl_program program;
    cl_kernel make_batch, count_right;
    cl_mem points[2], labels[2]; /* used in turn */
    cl_mem logits;               /* BEFORE floats of the program, then the predictions */
    cl_mem right;
} host;

static cl_mem buffer(const host *h, size_t bytes)
{
    cl_int error;
    cl_mem mem = clCreateBuffer(h->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    check(error, "a buffer");
    return mem;
}

static void host_open(host *h, unsigned number)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    cl_int error;
    check(clGetPlatformIDs(16, platforms, &count), "no OpenCL platform");
    check(number < count ? CL_SUCCESS : CL_INVALID_PLATFORM, "the platform's number");
    check(clGetDeviceIDs(platforms[number], CL_DEVICE_TYPE_ALL, 1, &h->device, NULL), "no device");
    h->context = clCreateContext(NULL, 1, &h->device, NULL, NULL, &error);
    check(error, "a context");
    h->queue = clCreateCommandQueue(h->context, h->device, 0, &error);
    check(error, "a queue");
    h->producer = clCreateCommandQueue(h->context, h->device, 0, &error);
    check(error, "a queue");
    h->program = clCreateProgramWithSource(h->context, 1, (const char **)&source, NULL, &error);
    check(error, "a program");
    check(clBuildProgram(h->program, 1, &h->device, "-cl-std=CL1.2", NULL, NULL), "building");
    h->make_batch = clCreateKernel(h->program, "make_batch", &error);
    check(error, "a kernel");
    h->count_right = clCreateKernel(h->program, "count_right", &error);
    check(error, "a kernel");
    for (int i = 0; i < 2; i++) {
        h->points[i] = buffer(h, BATCH * 2 * sizeof(cl_float));
        h->labels[i] = buffer(h, BATCH * sizeof(cl_int));
    }
    h->logits = buffer(h, (BEFORE + 2 * BATCH) * sizeof(cl_float));
    h->right = buffer(h, sizeof(cl_int));
}

static void host_close(host *h)
{
    for (int i = 0; i < 2; i++) {
        clReleaseMemObject(h->points[i]);
        clReleaseMemObject(h->labels[i]);
    }
    clReleaseMemObject(h->logits);
    clReleaseMemObject(h->right);
    clReleaseKernel(h->make_batch);
    clReleaseKernel(h->count_right);
    clReleaseProgram(h->program);
    clReleaseCommandQueue(h->producer);
    clReleaseCommandQueue(h->queue);
    clReleaseContext(h->context);
}

/* Reads all reference counts. A PoCL buffer keeps the last event that wrote it, and that event's
 * queue. So the program first writes to all buffers on its own queue. */
enum { COUNTS = 12 };

static void reference_counts(const host *h, cl_uint *counts)
{
    const cl_mem mems[] = {h->points[0], h->points[1], h->labels[0],
                           h->labels[1], h->logits,    h->right};
    const size_t size = sizeof *counts;
    const cl_int zero = 0;
    cl_uint *next = counts;
    check(clFinish(h->queue), "finishing");
    for (int i = 0; i < 6; i++)
        check(clEnqueueFillBuffer(h->producer, mems[i], &zero, sizeof zero, 0, sizeof zero, 0, NULL,
                                  NULL),
              "clearing");
    check(clFinish(h->producer), "finishing");
    check(clGetContextInfo(h->context, CL_CONTEXT_REFERENCE_COUNT, size, next++, NULL), "asking");
    check(clGetCommandQueueInfo(h->queue, CL_QUEUE_REFERENCE_COUNT, size, next++, NULL), "asking");
    check(clGetCommandQueueInfo(h->producer, CL_QUEUE_REFERENCE_COUNT, size, next++, NULL),
          "asking");
    check(clGetDeviceInfo(h->device, CL_DEVICE_REFERENCE_COUNT, size, next++, NULL), "asking");
    check(clGetProgramInfo(h->program, CL_PROGRAM_REFERENCE_COUNT, size, next++, NULL), "asking");
    check(clGetKernelInfo(h->make_batch, CL_KERNEL_REFERENCE_COUNT, size, next++, NULL), "asking");
    for (int i = 0; i < 6; i++)
        check(clGetMemObjectInfo(mems[i], CL_MEM_REFERENCE_COUNT, size, next++, NULL), "asking");
}

/* Finds the least of each count over some time. PoCL's threads release their references a moment
 * after a command has ended. */
static void least_counts(const host *h, cl_uint *least)
{
    const struct timespec moment = {0, 5000000};
    cl_uint now[COUNTS];
    reference_counts(h, least);
    for (int i = 0; i < 30; i++) {
        nanosleep(&moment, NULL);
        reference_counts(h, now);
        for (int k = 0; k < COUNTS; k++)
            least[k] = now[k] < least[k] ? now[k] : least[k];
    }
}

/* Writes the batch of a step, after `free_since` (NULL: at once). */
static cl_event produce(const host *h, int step, cl_event free_since)
{
    const size_t global = BATCH;
    const cl_uint number = (cl_uint)step;
    cl_event event;
    cl_int error = clSetKernelArg(h->make_batch, 0, sizeof(cl_mem), &h->points[step & 1]);
    error |= clSetKernelArg(h->make_batch, 1, sizeof(cl_mem), &h->labels[step & 1]);
    error |= clSetKernelArg(h->make_batch, 2, sizeof number, &number);
    check(error, "an argument");
    check(clEnqueueNDRangeKernel(h->producer, h->make_batch, 1, NULL, &global, NULL,
                                 free_since ? 1 : 0, free_since ? &free_since : NULL, &event),
          "make_batch");
    check(clFlush(h->producer), "flushing"); /* another queue waits for this event */
    return event;
}

/* Counts the correct logits of the batch, with a kernel of the program on its own queue. */
static int count_right(const host *h, int step, cl_event predicted)
{
    const size_t one = 1;
    const cl_int offset = BEFORE, n = BATCH;
    cl_int right = -1;
    cl_int error = clSetKernelArg(h->count_right, 0, sizeof(cl_mem), &h->logits);
    error |= clSetKernelArg(h->count_right, 1, sizeof offset, &offset);
    error |= clSetKernelArg(h->count_right, 2, sizeof(cl_mem), &h->labels[step & 1]);
    error |= clSetKernelArg(h->count_right, 3, sizeof n, &n);
    error |= clSetKernelArg(h->count_right, 4, sizeof(cl_mem), &h->right);
    check(error, "an argument");
    check(clEnqueueNDRangeKernel(h->producer, h->count_right, 1, NULL, &one, NULL, 1, &predicted,
                                 NULL),
          "count_right");
    check(
        clEnqueueReadBuffer(h->producer, h->right, CL_TRUE, 0, sizeof right, &right, 0, NULL, NULL),
        "reading");
    return right;
}

static clt_value *layer(clt_graph *graph, clt_value *x, const char *weight, const char *bias,
                        int64_t in, int64_t out)
{
    const int64_t dims[] = {out, in};
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt((double)in), 0};
    return clt_linear(x, clt_parameter(graph, weight, 2, dims, init),
                      clt_parameter(graph, bias, 1, dims, init));
}

/* A model with its parameters and trainer. */
typedef struct learner {
    clt_store *store;
    clt_trainer *trainer;
} learner;

static learner learn(clt_device *device, int hidden_layers, clt_optimizer optimizer, double lr)
{
    const int64_t two[] = {CLT_BATCH, 2}, labels[] = {CLT_BATCH};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    learner l;
    must(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "point", CLT_F32, 2, two);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, labels);
    int64_t width = 2;
    if (hidden_layers > 0) {
        x = clt_relu(layer(graph, x, "first.weight", "first.bias", width, HIDDEN));
        width = HIDDEN;
    }
    if (hidden_layers > 1)
        x = clt_relu(layer(graph, x, "second.weight", "second.bias", width, HIDDEN));
    x = clt_output(layer(graph, x, "out.weight", "out.bias", width, 2), "logits");
    clt_cross_entropy(x, label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);

    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = optimizer;
    options.lr = lr;
    options.batch = BATCH;
    must(clt_store_create(graph, &device, 1, 3, &l.store));
    must(clt_trainer_create(graph, l.store, &options, &l.trainer));
    clt_graph_destroy(graph); /* the trainer has a copy */
    return l;
}

static void forget(learner *l)
{
    clt_trainer_destroy(l->trainer);
    clt_store_destroy(l->store);
}

/* Runs one step on the batch in the program's buffers, after the events of the wait list. */
static cl_event step_on(learner *l, const host *h, int step, const cl_event *wait, int n_wait)
{
    const clt_feed feeds[] = {{"point", 0, CLT_BUFFER(h->points[step & 1], 0)},
                              {"label", 0, CLT_BUFFER(h->labels[step & 1], 0)}};
    cl_event done;
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    batch.wait = wait;
    batch.n_wait = n_wait;
    must(clt_trainer_step(l->trainer, &batch, &done));
    return done;
}

/* Writes the logits of the batch into the program's buffer, behind the program's own floats. */
static cl_event predict(learner *l, const host *h, int step, cl_event wait)
{
    const clt_feed point = {"point", 0, CLT_BUFFER(h->points[step & 1], 0)};
    const clt_fetch logits = {"logits", 0, CLT_BUFFER(h->logits, BEFORE * sizeof(cl_float))};
    cl_event done;
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = &point;
    batch.n_feeds = 1;
    batch.fetches = &logits;
    batch.n_fetches = 1;
    batch.wait = &wait;
    batch.n_wait = 1;
    must(clt_trainer_predict(l->trainer, &batch, &done));
    return done;
}

/* Checks that a step returns at once, before the events that it waits for. */
static void check_that_steps_do_not_wait(learner *l, const host *h, int step, cl_event written)
{
    cl_int error, status = -1;
    const cl_event gate = clCreateUserEvent(h->context, &error);
    check(error, "a user event");
    const cl_event wait[] = {written, gate};
    const cl_event done = step_on(l, h, step, wait, 2);
    check(clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL),
          "asking");
    if (status == CL_COMPLETE) {
        fprintf(stderr, "embed: the step did not wait for the event it was given\n");
        exit(1);
    }
    check(clSetUserEventStatus(gate, CL_COMPLETE), "opening the gate");
    clReleaseEvent(gate);
    clReleaseEvent(done);
}

int main(int argc, char **argv)
{
    host h;
    cl_uint before[COUNTS], after[COUNTS];
    host_open(&h, argc > 1 ? (unsigned)atoi(argv[1]) : 0);
    clReleaseEvent(produce(&h, 0, NULL)); /* kernels keep references to their last arguments */
    least_counts(&h, before);

    clt_runtime *runtime;
    clt_device *device;
    must(clt_runtime_create(NULL, &runtime));
    must(clt_device_adopt(runtime, h.context, h.device, h.queue, NULL, &device));
    printf("device %s\n", clt_device_label(device));

    /* Two trainers use one queue, and learn from the same buffers. */
    learner deep = learn(device, 2, CLT_ADAM, 0.01), line = learn(device, 0, CLT_SGD, 0.1);
    cl_event last[2] = {NULL, NULL}; /* of the last step that read the buffers */
    for (int step = 0; step < STEPS; step++) {
        const cl_event written = produce(&h, step, last[step & 1]);
        if (last[step & 1])
            clReleaseEvent(last[step & 1]);
        if (step == 10)
            check_that_steps_do_not_wait(&line, &h, step, written);
        clReleaseEvent(step_on(&deep, &h, step, &written, 1));
        last[step & 1] = step_on(&line, &h, step, &written, 1);
        clReleaseEvent(written);
    }

    int right[2] = {0, 0};
    for (int step = STEPS; step < STEPS + 8; step++) {
        const cl_event written = produce(&h, step, last[step & 1]);
        learner *const learners[] = {&deep, &line};
        for (int i = 0; i < 2; i++) {
            const cl_event predicted = predict(learners[i], &h, step, written);
            right[i] += count_right(&h, step, predicted);
            clReleaseEvent(predicted);
        }
        clReleaseEvent(written);
    }
    clReleaseEvent(last[0]);
    clReleaseEvent(last[1]);
    const double deep_accuracy = right[0] / (8.0 * BATCH), line_accuracy = right[1] / (8.0 * BATCH);
    printf("accuracy: %.3f with hidden layers, %.3f without\n", deep_accuracy, line_accuracy);

    forget(&line);
    forget(&deep);
    clt_device_close(device);
    clt_runtime_destroy(runtime);

    least_counts(&h, after);
    for (int i = 0; i < COUNTS; i++)
        if (before[i] != after[i]) {
            fprintf(stderr, "embed: reference count %d was %u and is %u\n", i, before[i], after[i]);
            return 1;
        }
    printf("reference counts are unchanged\n");
    host_close(&h);
    return deep_accuracy > 0.9 && line_accuracy < 0.75 ? 0 : 1;
}
