/*
 * Data sets of OpenCL buffers. clt_fit and clt_evaluate give the same bits as with arrays of the
 * same samples. Buffers are released.
 */
#include "base/alloc.h"
#include "device/core/cl.h"
#include "device/core/device.h"
#include "support/objects.h"
#include "support/references.h"
#include "train/lab.h"
#include <cltrain/opencl.h>

#include "checkpoint/scratch.h" /* after cmocka.h, which lab.h includes */

enum { COUNT = 43, BATCH = 8, CLASSES = 4, MOST_STEPS = 16 };
enum { BYTES = 16, INTS = 10, FLOATS = 8, INPUTS = 3 };
enum { AT_INTS = 1000, AT_FLOATS = 3008 }; /* offsets in the buffer of all numbers */

typedef struct samples {
    unsigned char bytes[COUNT * BYTES], small[COUNT];
    int32_t ints[COUNT * INTS], labels[COUNT];
    float floats[COUNT * FLOATS];
} samples;

static samples all;
static bool as_gpu;

static const int64_t byte_shape[] = {2, 2, 4}, int_shape[] = {2, 5}, float_shape[] = {2, 4};

/* Builds a model whose inputs all have two channels, so all can be normalised. */
static clt_graph *build(void)
{
    static const char *const names[INPUTS] = {"bytes", "ints", "floats"};
    static const int64_t widths[INPUTS] = {BYTES, INTS, FLOATS};
    const int64_t one[] = {CLT_BATCH};
    clt_value *h = NULL, *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    for (int i = 0; i < INPUTS; i++) {
        const int64_t dims[] = {CLT_BATCH, widths[i]};
        char weight_name[32], bias_name[32];
        snprintf(weight_name, sizeof weight_name, "%s.weight", names[i]);
        snprintf(bias_name, sizeof bias_name, "%s.bias", names[i]);
        clt_value *x = clt_input(graph, names[i], CLT_F32, 2, dims);
        clt_value *y = layer(graph, x, weight_name, bias_name, widths[i], 16);
        h = h ? clt_add(h, y) : y;
    }
    clt_value *logits = layer(graph, clt_relu(h), "out.weight", "out.bias", 16, CLASSES);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, label, 1, -100, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    ok(clt_graph_status(graph));
    return graph;
}

static lab lab_open(const char *list, int accumulate)
{
    clt_device_options device_options;
    clt_trainer_options options;
    clt_device_options_init(&device_options);
    clt_trainer_options_init(&options);
    device_options.share_context = 1;
    options.optimizer = CLT_MOMENTUM;
    options.lr = 0.05;
    options.batch = BATCH;
    options.accumulate = accumulate;
    options.poison = 1;
    options.separate = clt_test_oclgrind();
    lab l = lab_on(clt_test_devices(list), &device_options);
    lab_store(&l, build(), 5);
    lab_trainer(&l, &options);
    /* The plan is that of a CPU, which is faster. Only the kernels of the data are a GPU's. */
    for (int d = 0; as_gpu && d < l.n; d++)
        l.devices[d]->caps.kind = CLT_KIND_GPU;
    return l;
}

/* --- data sets ------------------------------------------------------------------------------- */

typedef enum set_kind { ARRAYS, BUFFERS } set_kind;

/* Type of the labels, and whether they are declared. */
typedef enum label_kind { INTS_PLAIN, BYTES_DECLARED } label_kind;

typedef struct set {
    clt_dataset *dataset;
    cl_mem numbers, labels; /* only for BUFFERS */
} set;

static cl_mem make_buffer(cl_context context, size_t bytes)
{
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    return buffer;
}

static void write_buffer(const lab *l, cl_mem buffer, size_t at, const void *from, size_t bytes)
{
    assert_int_equal(clEnqueueWriteBuffer(clt_device_cl_queue(l->devices[0]), buffer, CL_TRUE, at,
                                          bytes, from, 0, NULL, NULL),
                     CL_SUCCESS);
}

/* Declares all numbers but the last as images. Normalisation leaves the last unchanged. */
static void declare_images(clt_dataset *d)
{
    for (int field = 0; field < 2; field++)
        ok(clt_dataset_set_image(d, field));
}

static clt_dataset *arrays(int64_t count, label_kind labels)
{
    clt_dataset *d;
    ok(clt_dataset_create_arrays("arrays", count, &d));
    ok(clt_dataset_add_field(d, "bytes", CLT_U8, 3, byte_shape, all.bytes, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(d, "ints", CLT_I32, 2, int_shape, all.ints, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(d, "floats", CLT_F32, 2, float_shape, all.floats, CLT_DATA_BORROW,
                             NULL));
    const bool bytes = labels == BYTES_DECLARED;
    ok(clt_dataset_add_field(d, "label", bytes ? CLT_U8 : CLT_I32, 0, NULL,
                             bytes ? (const void *)all.small : all.labels, CLT_DATA_BORROW, NULL));
    if (bytes)
        ok(clt_dataset_set_classes(d, 3, CLASSES));
    declare_images(d);
    return d;
}

/* Makes the same data set of buffers: all numbers in one buffer at offsets, the labels in
 * another. */
static set buffers(const lab *l, int64_t count, label_kind labels)
{
    const bool bytes = labels == BYTES_DECLARED;
    const cl_context context = clt_device_cl_context(l->devices[0]);
    int field;
    set s;
    s.numbers = make_buffer(context, AT_FLOATS + sizeof all.floats);
    s.labels = make_buffer(context, sizeof all.labels);
    write_buffer(l, s.numbers, 0, all.bytes, sizeof all.bytes);
    write_buffer(l, s.numbers, AT_INTS, all.ints, sizeof all.ints);
    write_buffer(l, s.numbers, AT_FLOATS, all.floats, sizeof all.floats);
    write_buffer(l, s.labels, 0, bytes ? (const void *)all.small : all.labels,
                 bytes ? sizeof all.small : sizeof all.labels);
    const cl_uint before = references(s.numbers);
    ok(clt_dataset_create_buffers("buffers", count, &s.dataset));
    ok(clt_dataset_add_buffer(s.dataset, "bytes", CLT_U8, 3, byte_shape, s.numbers, 0, NULL));
    ok(clt_dataset_add_buffer(s.dataset, "ints", CLT_I32, 2, int_shape, s.numbers, AT_INTS, NULL));
    ok(clt_dataset_add_buffer(s.dataset, "floats", CLT_F32, 2, float_shape, s.numbers, AT_FLOATS,
                              NULL));
    ok(clt_dataset_add_buffer(s.dataset, "label", bytes ? CLT_U8 : CLT_I32, 0, NULL, s.labels, 0,
                              &field));
    assert_int_equal(field, 3);
    if (bytes)
        ok(clt_dataset_set_classes(s.dataset, field, CLASSES));
    declare_images(s.dataset);
    assert_int_equal(references(s.numbers), before + 3);
    return s;
}

static set set_of(const lab *l, set_kind kind, int64_t count, label_kind labels)
{
    return kind == BUFFERS ? buffers(l, count, labels) : (set){arrays(count, labels), NULL, NULL};
}

static void set_close(set *s)
{
    clt_dataset_free(s->dataset);
    if (s->numbers) {
        assert_int_equal(references_left(s->numbers), 1);
        assert_int_equal(references_left(s->labels), 1);
        clReleaseMemObject(s->numbers);
        clReleaseMemObject(s->labels);
    }
}

/* --- runs ------------------------------------------------------------------------------------ */

typedef struct outcome {
    int64_t steps;
    double losses[MOST_STEPS], norms[MOST_STEPS], test[4];
    float weights[16 * BYTES + 16 * FLOATS];
    double sums[2], counts[2];
} outcome;

static void on_step(void *user, const clt_progress *p)
{
    outcome *o = user;
    o->losses[p->step - 1] = p->loss;
    o->norms[p->step - 1] = p->norm;
    o->steps++;
}

static void on_epoch(void *user, const clt_progress *p)
{
    outcome *o = user;
    o->test[2 * (p->epoch - 1)] = p->test_loss;
    o->test[2 * (p->epoch - 1) + 1] = p->test_metric;
}

static const double mean[] = {0.3, -0.2}, deviation[] = {0.7, 1.9};

/* Oclgrind is slow, and the second epoch launches the same kernels as the first. Later batches do
 * too, except the last one, which has fewer samples. */
static int64_t epochs(void)
{
    return clt_test_oclgrind() ? 1 : 2;
}

static int64_t set_size(void)
{
    return clt_test_oclgrind() ? 2 * BATCH + 3 : COUNT;
}

static clt_fit_options fit_options(outcome *o)
{
    clt_fit_options options;
    clt_fit_options_init(&options);
    options.epochs = epochs();
    options.seed = 9;
    options.channels = 2;
    options.mean = mean;
    options.std = deviation;
    options.on_step = on_step;
    options.on_epoch = on_epoch;
    options.user = o;
    return options;
}

static void collect(lab *l, outcome *o)
{
    ok(clt_store_get(l->store, "bytes.weight", o->weights, 16 * BYTES * sizeof(float)));
    ok(clt_store_get(l->store, "floats.weight", o->weights + 16 * BYTES,
                     16 * FLOATS * sizeof(float)));
}

static outcome train(const char *list, int accumulate, set_kind kind, label_kind labels,
                     const clt_fit_options *like)
{
    outcome o = {0};
    lab l = lab_open(list, accumulate);
    set data = set_of(&l, kind, set_size(), labels),
        test = set_of(&l, kind, set_size() / 2, labels);
    clt_fit_options options = fit_options(&o);
    if (like) {
        options.channels = like->channels;
        options.shuffle = like->shuffle;
        options.ignore_index = like->ignore_index;
    }
    ok(clt_fit(l.trainer, data.dataset, test.dataset, &options));
    ok(clt_evaluate(l.trainer, data.dataset, &options, o.sums, o.counts));
    assert_int_equal(o.steps, epochs() * ((set_size() + BATCH - 1) / BATCH));
    assert_true(o.losses[0] > 0 && o.losses[o.steps - 1] > 0);
    assert_true(o.test[0] > 0 && o.sums[0] > 0 && o.counts[1] > 0);
    collect(&l, &o);
    set_close(&data);
    set_close(&test);
    lab_close(&l);
    assert_int_equal(objects_live(), 0);
    return o;
}

static void same(const char *what, const outcome *a, const outcome *b)
{
    for (int64_t s = 0; s < a->steps; s++)
        if (memcmp(&a->losses[s], &b->losses[s], sizeof *a->losses) ||
            memcmp(&a->norms[s], &b->norms[s], sizeof *a->norms))
            fail_msg("%s, step %lld: loss %.9g and %.9g, norm %.9g and %.9g", what,
                     (long long)s + 1, a->losses[s], b->losses[s], a->norms[s], b->norms[s]);
    assert_memory_equal(a, b, sizeof *a);
}

static void test_as_arrays(void **state)
{
    (void)state;
    for (label_kind labels = INTS_PLAIN; labels <= BYTES_DECLARED; labels++) {
        const outcome a = train("pocl", 1, ARRAYS, labels, NULL);
        const outcome b = train("pocl", 1, BUFFERS, labels, NULL);
        same(labels == INTS_PLAIN ? "i32 labels" : "u8 labels", &a, &b);
    }
}

/* Without normalisation, in order, and with ignored labels. */
static void test_plain(void **state)
{
    (void)state;
    const clt_fit_options like = {.channels = 0, .shuffle = 0, .ignore_index = -100};
    const int32_t kept = all.labels[3];
    all.labels[3] = -100;
    const outcome a = train("pocl", 1, ARRAYS, INTS_PLAIN, &like);
    const outcome b = train("pocl", 1, BUFFERS, INTS_PLAIN, &like);
    all.labels[3] = kept;
    assert_true(a.counts[0] == (double)(set_size() - 1));
    same("plain", &a, &b);
}

/* With the kernels for GPUs: those with vectors, and those for sizes that do not fit vectors. */
static void test_as_gpu(void **state)
{
    as_gpu = true;
    if (!clt_test_oclgrind())
        test_as_arrays(state);
    test_plain(state);
    as_gpu = false;
}

static void test_micro_batches(void **state)
{
    (void)state;
    const outcome a = train("pocl", 3, ARRAYS, INTS_PLAIN, NULL);
    const outcome b = train("pocl", 3, BUFFERS, INTS_PLAIN, NULL);
    same("micro-batches", &a, &b);
}

/* Two parts of a device in one context. The last batch leaves some devices without samples. */
static void test_two_devices(void **state)
{
    (void)state;
    const outcome a = train("pocl/2", 1, ARRAYS, INTS_PLAIN, NULL);
    const outcome b = train("pocl/2", 1, BUFFERS, INTS_PLAIN, NULL);
    same("two devices", &a, &b);
    const outcome again = train("pocl/2", 1, BUFFERS, INTS_PLAIN, NULL);
    same("two devices, again", &b, &again);
}

/* --- resume ---------------------------------------------------------------------------------- */

static void run_to(int64_t steps, int resume, const char *folder, set_kind kind, outcome *o)
{
    lab l = lab_open("pocl", 1);
    set data = set_of(&l, kind, COUNT, INTS_PLAIN);
    clt_fit_options options = fit_options(o);
    options.steps = steps;
    options.resume = resume;
    options.checkpoint_dir = in_scratch(folder);
    ok(clt_fit(l.trainer, data.dataset, NULL, &options));
    collect(&l, o);
    set_close(&data);
    lab_close(&l);
}

/* A run resumes in the middle of an epoch with buffers, whether arrays or buffers began it. */
static void test_resume(void **state)
{
    (void)state;
    static const char *const folders[] = {"from-arrays", "from-buffers"};
    outcome whole = {0};
    run_to(12, 0, "whole", ARRAYS, &whole);
    for (set_kind kind = ARRAYS; kind <= BUFFERS; kind++) {
        outcome parts = {0};
        run_to(4, 0, folders[kind], kind, &parts);
        run_to(9, 1, folders[kind], BUFFERS, &parts);
        run_to(12, 1, folders[kind], BUFFERS, &parts);
        same(folders[kind], &whole, &parts);
    }
}

/* --- objects created in a step ---------------------------------------------------------------- */

static struct counted {
    int64_t objects, made, allocations, steps;
} counted;

static void count_objects(void *user, const clt_progress *p)
{
    (void)user;
    const struct counted now = {clt_device_object_count(CLT_OBJECT_KINDS) -
                                    clt_device_object_count(CLT_OBJECT_EVENT),
                                objects_made(), clt_alloc_count(), p->step};
    if (p->step > 2 && p->step <= COUNT / BATCH) {
        assert_int_equal(now.objects, counted.objects);
        assert_int_equal(now.made, counted.made);
        assert_int_equal(now.allocations, counted.allocations);
    }
    counted = now;
}

static void test_counts(void **state)
{
    (void)state;
    static const char *const lists[] = {"pocl", "pocl/2"};
    for (int i = 0; i < 2; i++) {
        lab l = lab_open(lists[i], 1);
        set data = buffers(&l, COUNT, BYTES_DECLARED);
        clt_fit_options options = fit_options(NULL);
        options.epochs = 1;
        options.on_step = count_objects;
        options.on_epoch = NULL;
        counted.steps = 0;
        ok(clt_fit(l.trainer, data.dataset, NULL, &options));
        assert_int_equal(counted.steps, (COUNT + BATCH - 1) / BATCH);
        set_close(&data);
        lab_close(&l);
        assert_int_equal(objects_live(), 0);
    }
}

/* --- failures -------------------------------------------------------------------------------- */

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("message '%s' does not have '%s'", clt_error_message(), text);
}

static void test_add(void **state)
{
    (void)state;
    lab l = lab_open("pocl", 1);
    cl_context context = clt_device_cl_context(l.devices[0]);
    cl_mem buffer = make_buffer(context, 401);
    cl_int code;
    cl_mem blind = clCreateBuffer(context, CL_MEM_WRITE_ONLY, 400, NULL, &code);
    clt_dataset *d, *host = arrays(COUNT, INTS_PLAIN);
    const int64_t ten[] = {10};
    fails(clt_dataset_create_buffers("b", 0, &d), CLT_INVALID_ARGUMENT, "data set 'b'");
    ok(clt_dataset_create_buffers("b", 10, &d));
    assert_int_equal(clt_dataset_kind(d), CLT_DATA_DEVICE);
    fails(clt_dataset_add_buffer(d, "x", CLT_F32, 1, ten, buffer, 4, NULL), CLT_INVALID_ARGUMENT,
          "data set 'b', field 'x' has a buffer of 401 bytes, and needs 400 from byte 4 on");
    fails(clt_dataset_add_buffer(d, "x", CLT_F32, 1, ten, buffer, -4, NULL), CLT_INVALID_ARGUMENT,
          "from byte -4 on");
    fails(clt_dataset_add_buffer(d, "x", CLT_F32, 1, ten, buffer, 1, NULL), CLT_INVALID_ARGUMENT,
          "begins at byte 1 of its buffer, which is no multiple of the 4 bytes");
    fails(clt_dataset_add_buffer(d, "x", CLT_F32, 1, ten, NULL, 0, NULL), CLT_INVALID_ARGUMENT,
          "data set 'b', field 'x': its buffer is not a valid cl_mem object");
    fails(clt_dataset_add_buffer(d, "x", CLT_F32, 1, ten, blind, 0, NULL), CLT_INVALID_ARGUMENT,
          "CL_MEM_WRITE_ONLY");
    fails(clt_dataset_add_buffer(host, "x", CLT_U8, 0, NULL, buffer, 0, NULL), CLT_INVALID_ARGUMENT,
          "clt_dataset_create_buffers");
    fails(clt_dataset_add_field(d, "x", CLT_U8, 0, NULL, &l, CLT_DATA_BORROW, NULL),
          CLT_INVALID_ARGUMENT, "clt_dataset_add_buffer");
    assert_int_equal(clt_dataset_field_count(d), 0);
    assert_int_equal(references(buffer), 1);
    ok(clt_dataset_add_buffer(d, "x", CLT_F32, 1, ten, buffer, 0, NULL));
    ok(clt_dataset_add_buffer(d, "y", CLT_U8, 1, ten, buffer, 301, NULL));
    fails(clt_dataset_add_buffer(d, "y", CLT_U8, 0, NULL, buffer, 0, NULL), CLT_INVALID_ARGUMENT,
          "has a field 'y' already");
    assert_int_equal(references(buffer), 3);
    clt_dataset_free(d);
    clt_dataset_free(host);
    assert_int_equal(references(buffer), 1);
    clReleaseMemObject(buffer);
    clReleaseMemObject(blind);
    lab_close(&l);
}

static void test_wrong_context(void **state)
{
    (void)state;
    double sums[2], weights[2];
    lab l = lab_open("pocl", 1), other = lab_open("pocl", 1);
    set data = buffers(&other, COUNT, INTS_PLAIN);
    clt_fit_options options = fit_options(NULL);
    char want[300];
    snprintf(want, sizeof want,
             "data set 'buffers', field 'bytes': its buffer is not of the "
             "context of %s",
             clt_device_label(l.devices[0]));
    fails(clt_fit(l.trainer, data.dataset, NULL, &options), CLT_INVALID_ARGUMENT, want);
    fails(clt_evaluate(l.trainer, data.dataset, &options, sums, weights), CLT_INVALID_ARGUMENT,
          want);
    fails(clt_dataset_add_buffer(data.dataset, "late", CLT_U8, 0, NULL, data.labels, 0, NULL),
          CLT_STATE, "comes too late");
    set_close(&data);
    lab_close(&l);
    lab_close(&other);
    assert_int_equal(objects_live(), 0);
}

/* The guard names the step and the input, although the next batch was gathered meanwhile. */
static void guard(const char *list, int accumulate, const char *want)
{
    lab l = lab_open(list, accumulate);
    set data = buffers(&l, set_size(), INTS_PLAIN);
    clt_fit_options options = fit_options(NULL);
    options.shuffle = 0;
    options.on_step = NULL;
    fails(clt_fit(l.trainer, data.dataset, NULL, &options), CLT_NONFINITE, want);
    set_close(&data);
    /* The next step was enqueued too, and its inputs are released with the run. */
    clt_step_result result;
    clt_step_result_init(&result);
    const int64_t next = clt_trainer_steps(l.trainer) + 1;
    clt_step_result_init(&result);
    clt_trainer_set_steps(l.trainer, next + 1);
    fails(clt_trainer_result(l.trainer, next, &result), CLT_NONFINITE, "not finite");
    lab_close(&l);
}

static void test_guard(void **state)
{
    (void)state;
    const int32_t label = all.labels[BATCH + 6];
    all.labels[BATCH + 6] = CLASSES;
    guard("pocl", 1, "step 2: the output of node");
    all.labels[BATCH + 6] = label;
    if (clt_test_oclgrind())
        return;
    const float kept = all.floats[(2 * BATCH + 6) * FLOATS];
    all.floats[(2 * BATCH + 6) * FLOATS] = NAN;
    char where[200];
    snprintf(where, sizeof where,
             "step 3: input floats is not finite in sample 6 of the batch; the weights are those "
             "before this step; the sample is number %d of data set buffers",
             2 * BATCH + 6);
    guard("pocl", 1, where);
    guard("pocl", 3, where);
    guard("pocl/2", 1, where);
    all.floats[(2 * BATCH + 6) * FLOATS] = kept;
}

static int set_up(void **state)
{
    uint32_t random = 1;
    for (int i = 0; i < COUNT * BYTES; i++)
        all.bytes[i] = (unsigned char)((random = random * 1664525u + 1013904223u) >> 24);
    for (int i = 0; i < COUNT * INTS; i++)
        all.ints[i] = (int32_t)((random = random * 1664525u + 1013904223u) >> 29) - 3;
    for (int i = 0; i < COUNT * FLOATS; i++)
        all.floats[i] = (float)((random = random * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
    for (int i = 0; i < COUNT; i++) {
        all.labels[i] = (i * 5 + i / 3) % CLASSES;
        all.small[i] = (unsigned char)all.labels[i];
    }
    return open_runtime(state) || scratch_make(state);
}

static int tear_down(void **state)
{
    scratch_remove(state);
    return close_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_arrays),     cmocka_unit_test(test_plain),
        cmocka_unit_test(test_as_gpu),        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_two_devices),   cmocka_unit_test(test_resume),
        cmocka_unit_test(test_counts),        cmocka_unit_test(test_add),
        cmocka_unit_test(test_wrong_context), cmocka_unit_test(test_guard)};
    /* Only tests with kernels that no other test launches. */
    const struct CMUnitTest simulated[] = {
        cmocka_unit_test(test_as_arrays), cmocka_unit_test(test_plain),
        cmocka_unit_test(test_as_gpu), cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_guard)};
    return clt_test_oclgrind() ? cmocka_run_group_tests(simulated, set_up, tear_down)
                               : cmocka_run_group_tests(tests, set_up, tear_down);
}
