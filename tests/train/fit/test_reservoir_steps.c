/* Steps on samples of a reservoir: in a loop of the program's own, and by clt_fit. */
#include "base/alloc.h"
#include "device/core/cl.h"
#include "train/fit/reservoir_lab.h"
#include <cltrain/opencl.h>

enum { STEPS = 12, CAPACITY = 40, PUSHED = 9 };

/* A run that draws a batch into arrays for each step. Pushes come before each step. */
static learnt by_hand(const char *list)
{
    lab l = lab_open(list);
    const clt_reservoir_options options = reservoir_options();
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    static float x[STEPS][BATCH][IN];
    static int32_t labels[STEPS][BATCH];
    for (int s = 0; s < STEPS; s++) {
        const int64_t shape[] = {BATCH, IN};
        clt_array fields[2];
        int64_t drawn;
        ok(push_made_up(d, s * PUSHED, PUSHED));
        ok(clt_array_of(&fields[0], x[s], CLT_F32, 2, shape));
        ok(clt_array_of(&fields[1], labels[s], CLT_I32, 1, shape));
        ok(clt_dataset_draw(d, 11, s, 0, BATCH, fields, 2, &drawn));
        assert_int_equal(drawn, BATCH);
        const clt_feed feeds[] = {{"x", -1, CLT_HOST(x[s])}, {"label", -1, CLT_HOST(labels[s])}};
        const clt_step_batch batch = lab_batch(feeds, BATCH);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    }
    ok(clt_trainer_wait(l.trainer));
    const learnt w = read_learnt(&l);
    lab_close(&l);
    clt_dataset_free(d);
    return w;
}

/* Steps neither allocate nor create objects but events, as those on other data. */
static int64_t objects_made(void)
{
    return clt_device_object_count(CLT_OBJECT_KINDS) - clt_device_object_count(CLT_OBJECT_EVENT);
}

static learnt by_steps(const char *list)
{
    lab l = lab_open(list);
    const clt_reservoir_options options = reservoir_options();
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    double loss = 5;
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_step_reservoir(l.trainer, 3, &loss)); /* there are no samples */
    assert_true(isnan(loss));
    assert_int_equal(clt_trainer_steps(l.trainer), 0);
    for (int s = 0; s < STEPS; s++) {
        ok(push_made_up(d, s * PUSHED, PUSHED));
        const int64_t allocations = clt_alloc_count(), made = objects_made();
        ok(clt_step_reservoir(l.trainer, 1, s % 2 ? &loss : NULL));
        if (s >= 2) {
            assert_int_equal(clt_alloc_count(), allocations);
            assert_int_equal(objects_made(), made);
        }
    }
    assert_int_equal(clt_trainer_steps(l.trainer), STEPS);
    assert_true(isfinite(loss));
    ok(clt_trainer_wait(l.trainer));
    const learnt w = read_learnt(&l);
    assert_int_equal(stats_of(d).seen, STEPS * PUSHED);
    assert_int_equal(stats_of(d).dropped, 0);
    lab_close(&l);
    clt_dataset_free(d);
    return w;
}

/* What callbacks of clt_fit use. */
typedef struct pushing {
    clt_dataset *d;
    int64_t pushed;
    int steps, epochs;
    clt_progress last;
} pushing;

static int push_after_step(void *user)
{
    pushing *p = user;
    ok(push_made_up(p->d, p->pushed, PUSHED));
    p->pushed += PUSHED;
    return 0;
}

static void on_step(void *user, const clt_progress *progress)
{
    pushing *p = user;
    assert_int_equal(progress->step, ++p->steps);
    assert_int_equal(progress->epoch, 1);
    assert_int_equal(progress->samples, BATCH);
}

static void on_epoch(void *user, const clt_progress *progress)
{
    pushing *p = user;
    p->epochs++;
    p->last = *progress;
}

static learnt by_fit(const char *list)
{
    lab l = lab_open(list);
    const clt_reservoir_options options = reservoir_options();
    float xs[8 * IN];
    int32_t labels[8];
    clt_fit_options fit;
    clt_dataset *test;
    pushing p = {.d = reservoir_open(CAPACITY, &options), .pushed = PUSHED};
    make_samples(xs, labels, 8, IN, CLASSES);
    ok(lab_samples(8, IN, xs, labels, CLASSES, &test));
    ok(push_made_up(p.d, 0, PUSHED));
    clt_fit_options_init(&fit);
    fit.steps = STEPS;
    fit.seed = 11;
    fit.should_stop = push_after_step;
    fit.on_step = on_step;
    fit.on_epoch = on_epoch;
    fit.user = &p;
    ok(clt_fit(l.trainer, p.d, test, &fit));
    const learnt w = read_learnt(&l);
    assert_int_equal(p.steps, STEPS);
    /* The run is one epoch. */
    assert_int_equal(p.epochs, 1);
    assert_int_equal(p.last.samples, STEPS * BATCH);
    assert_true(isfinite(p.last.test_loss) && isfinite(p.last.loss));
    /* Another run on the same trainer goes on. */
    fit.steps = STEPS + 2;
    ok(clt_fit(l.trainer, p.d, NULL, &fit));
    assert_int_equal(p.epochs, 2);
    assert_int_equal(clt_trainer_steps(l.trainer), STEPS + 2);
    lab_close(&l);
    clt_dataset_free(p.d);
    clt_dataset_free(test);
    return w;
}

static void all_ways_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const lists[] = {"cpu@1", "cpu@1,cpu@1"};
    for (int i = 0; i < 2; i++) {
        const learnt hand = by_hand(lists[i]), steps = by_steps(lists[i]), fit = by_fit(lists[i]);
        same_learnt(&hand, &steps);
        same_learnt(&hand, &fit);
    }
}

static void options_of_steps_count(void **state)
{
    (void)state;
    lab l = lab_open("cpu@1");
    const clt_reservoir_options options = reservoir_options();
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    clt_fit_options fit;
    clt_step_result result;
    clt_fit_options_init(&fit);
    clt_step_result_init(&result);
    fit.batch = 7;
    ok(push_made_up(d, 0, 20));
    ok(clt_trainer_set_reservoir(l.trainer, d, &fit));
    ok(clt_step_reservoir(l.trainer, 1, NULL));
    ok(clt_trainer_result(l.trainer, 0, &result));
    assert_int_equal(result.samples, 7);
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_step_reservoir(l.trainer, 2, NULL));
    ok(clt_trainer_result(l.trainer, 2, &result));
    assert_int_equal(result.samples, BATCH);
    ok(clt_trainer_set_reservoir(l.trainer, NULL, NULL));
    assert_int_equal(clt_step_reservoir(l.trainer, 1, NULL), CLT_STATE);
    fit.batch = BATCH + 1;
    assert_int_equal(clt_trainer_set_reservoir(l.trainer, d, &fit), CLT_INVALID_ARGUMENT);
    lab_close(&l);
    clt_dataset_free(d);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    lab l = lab_open("cpu@1");
    const clt_reservoir_options options = reservoir_options();
    clt_dataset *d = reservoir_open(CAPACITY, &options), *other, *plain;
    float xs[8 * IN];
    int32_t labels[8];
    double sums[2], weights[2];
    clt_fit_options fit;
    make_samples(xs, labels, 8, IN, CLASSES);
    ok(lab_samples(8, IN, xs, labels, CLASSES, &plain));
    ok(push_made_up(d, 0, 20));
#define REFUSED(call, status, words)                                                               \
    do {                                                                                           \
        assert_int_equal(call, status);                                                            \
        if (!strstr(clt_error_message(), words))                                                   \
            fail_msg("'%s' lacks '%s'", clt_error_message(), words);                               \
    } while (0)
    clt_fit_options_init(&fit);
    REFUSED(clt_fit(l.trainer, d, NULL, &fit), CLT_INVALID_ARGUMENT,
            "'live' has no epochs: set clt_fit_options.steps");
    fit.steps = 2;
    fit.shuffle = 0;
    REFUSED(clt_fit(l.trainer, d, NULL, &fit), CLT_INVALID_ARGUMENT, "shuffle at 1");
    fit.shuffle = 1;
    fit.schedule_batch = 4;
    REFUSED(clt_fit(l.trainer, d, NULL, &fit), CLT_INVALID_ARGUMENT, "schedule_batch");
    fit.schedule_batch = 0;
    REFUSED(clt_fit(l.trainer, plain, d, &fit), CLT_UNSUPPORTED, "'live' is a reservoir");
    REFUSED(clt_evaluate(l.trainer, d, &fit, sums, weights), CLT_UNSUPPORTED,
            "'live' is a reservoir");
    REFUSED(clt_trainer_set_reservoir(l.trainer, plain, NULL), CLT_UNSUPPORTED, "no reservoir");
    ok(clt_dataset_create_reservoir("bare", 4, NULL, &other));
    ok(clt_dataset_add_field(other, "x", CLT_F32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    REFUSED(clt_trainer_set_reservoir(l.trainer, other, NULL), CLT_SHAPE,
            "a sample of bare has 1 elements there");
    REFUSED(clt_step_reservoir(l.trainer, 1, NULL), CLT_STATE, "clt_trainer_set_reservoir");
    clt_dataset_free(other);
    assert_int_equal(clt_trainer_steps(l.trainer), 0);
    ok(clt_fit(l.trainer, d, NULL, &fit));

    /* A sample that is not finite is named by its push. */
    float bad[IN] = {0, NAN};
    int32_t label = 1;
    const int64_t one[] = {1, IN};
    clt_array fields[2];
    ok(clt_array_of(&fields[0], bad, CLT_F32, 2, one));
    ok(clt_array_of(&fields[1], &label, CLT_I32, 1, one));
    ok(clt_dataset_push(d, fields, 2, NULL));
    fit.steps = 500;
    REFUSED(clt_fit(l.trainer, d, NULL, &fit), CLT_NONFINITE,
            "the sample is number 21 that was pushed into live");
    lab_close(&l);
    clt_dataset_free(d);
    clt_dataset_free(plain);
}

/* Ignored labels may be pushed if the reservoir knows them, and do not count. */
static void ignored_labels_do_not_count(void **state)
{
    (void)state;
    clt_reservoir_options options = reservoir_options();
    const int64_t shape[] = {2, IN};
    float x[2][IN] = {{1, 2}, {3, 4}};
    int32_t labels[] = {2, -100};
    clt_array fields[2];
    double loss;
    ok(clt_array_of(&fields[0], x, CLT_F32, 2, shape));
    ok(clt_array_of(&fields[1], labels, CLT_I32, 1, shape));
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    assert_int_equal(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT);
    clt_dataset_free(d);
    options.ignore_index = -100;
    d = reservoir_open(CAPACITY, &options);
    ok(clt_dataset_push(d, fields, 2, NULL));

    lab l = lab_on_kept("cpu@1,cpu@1");
    const clt_trainer_options trainer = trainer_options();
    const int64_t dims[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    const int ignored = -100;
    clt_cross_entropy_options cross;
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_cross_entropy_options_init(&cross);
    cross.ignore_index = ignored;
    clt_value *logits =
        layer(graph, clt_input(graph, "x", CLT_F32, 2, dims), "a.weight", "a.bias", IN, CLASSES);
    clt_cross_entropy(logits, clt_input(graph, "label", CLT_I32, 1, one), &cross, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    lab_store(&l, graph, 4);
    lab_trainer(&l, &trainer);
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_step_reservoir(l.trainer, 1, &loss));
    /* The loss is the mean over copies of the one sample that counts. */
    float w[CLASSES][IN], b[CLASSES];
    lab fresh = lab_on_kept("cpu@1");
    ok(clt_graph_create(&graph));
    layer(graph, clt_input(graph, "x", CLT_F32, 2, dims), "a.weight", "a.bias", IN, CLASSES);
    lab_store(&fresh, graph, 4);
    ok(clt_store_get(fresh.store, "a.weight", w, sizeof w));
    ok(clt_store_get(fresh.store, "a.bias", b, sizeof b));
    double z[CLASSES], all = 0;
    for (int c = 0; c < CLASSES; c++) {
        z[c] = b[c];
        for (int k = 0; k < IN; k++)
            z[c] += (double)w[c][k] * x[0][k];
        all += exp(z[c]);
    }
    assert_true(fabs(loss - (log(all) - z[2])) < 1e-5);
    lab_close(&fresh);
    lab_close(&l);
    clt_dataset_free(d);
}

/* --- buffers ---------------------------------------------------------------------------------- */

static cl_mem buffer_of(cl_context context, size_t bytes, void *data)
{
    cl_int code;
    cl_mem mem =
        clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes, data, &code);
    assert_int_equal(code, CL_SUCCESS);
    return mem;
}

static void buffers_are_copied(void **state)
{
    (void)state;
    enum { WIDE = 300000, N = 11, OFFSET = 40 }; /* 1.2 MB a sample: several pieces */
    lab l = lab_on("cpu@1", NULL), other = lab_on("cpu@1", NULL);
    clt_reservoir_options options = reservoir_options();
    const int64_t shape[] = {WIDE}, all[] = {N, WIDE};
    float *x = malloc((size_t)N * WIDE * sizeof *x + OFFSET), *drawn = malloc(N * WIDE * sizeof *x);
    int32_t ids[N], drawn_ids[N];
    int64_t count;
    clt_dataset *d;
    clt_array fields[2], to[2];
    assert_true(x && drawn);
    for (int i = 0; i < N; i++) {
        ids[i] = 100 + i;
        for (int k = 0; k < WIDE; k++)
            x[OFFSET / 4 + i * WIDE + k] = (float)(i * WIDE + k);
    }
    const cl_context context = clt_device_cl_context(l.devices[0]);
    const cl_mem mem = buffer_of(context, (size_t)N * WIDE * 4 + OFFSET, x);
    const cl_mem alien =
        buffer_of(clt_device_cl_context(other.devices[0]), (size_t)N * WIDE * 4 + OFFSET, x);
    const int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    options.device = l.devices[0];
    options.policy = CLT_RESERVOIR_NEWEST;
    ok(clt_dataset_create_reservoir("large", N, &options, &d));
    ok(clt_dataset_add_field(d, "id", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(d, "x", CLT_F32, 1, shape, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_array_of(&fields[0], ids, CLT_I32, 1, all));
    ok(clt_array_of_buffer(&fields[1], alien, OFFSET, CLT_F32, 2, all));
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT, "of another context than");
    fields[1].buffer = mem;
    fields[1].offset = OFFSET + 4;
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT,
            "has a buffer of 13200040 bytes, and needs 13200000 from byte 44 on");
    fields[1].offset = OFFSET;
    fields[1].strides[0] += 4;
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT, "row-major without gaps");
    fields[1].strides[0] -= 4;
    fields[1].dtype = CLT_I32;
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT, "in a buffer");
    fields[1].dtype = CLT_F32;
    assert_int_equal(stats_of(d).seen, 0);
    ok(clt_dataset_push(d, fields, 2, NULL));
    const float zero = 0; /* the buffer is the caller's again */
    cl_command_queue queue = clt_device_cl_queue(l.devices[0]);
    assert_int_equal(clEnqueueFillBuffer(queue, mem, &zero, sizeof zero, 0,
                                         (size_t)N * WIDE * 4 + OFFSET, 0, NULL, NULL),
                     CL_SUCCESS);
    assert_int_equal(clFinish(queue), CL_SUCCESS);
    ok(clt_array_of(&to[0], drawn_ids, CLT_I32, 1, all));
    ok(clt_array_of(&to[1], drawn, CLT_F32, 2, all));
    ok(clt_dataset_draw(d, 1, 0, 0, N, to, 2, &count));
    for (int i = 0; i < N; i++)
        assert_memory_equal(drawn + i * WIDE, x + OFFSET / 4 + (drawn_ids[i] - 100) * WIDE,
                            WIDE * sizeof *x);
    clt_dataset_free(d);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
    clReleaseMemObject(mem);
    clReleaseMemObject(alien);
    free(x);
    free(drawn);
    lab_close(&other);
    lab_close(&l);
}

/* A reservoir without options has the inputs of the trainer's graph as fields, and reads buffers
 * through the trainer's device, as long as the trainer has it. */
static void a_trainer_gives_fields_and_device(void **state)
{
    (void)state;
    enum { N = 7 };
    lab l = lab_open("cpu@1"), other = lab_on("cpu@1", NULL);
    clt_dataset *d, *early;
    float x[N][IN], drawn[N][IN];
    int32_t labels[N], drawn_labels[N];
    int64_t count;
    double loss;
    clt_array fields[2], to[2];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < IN; k++)
            x[i][k] = made_up(i, k);
        labels[i] = i % CLASSES;
    }
    const cl_mem mem = buffer_of(clt_device_cl_context(l.devices[0]), sizeof x, x);
    const cl_mem alien = buffer_of(clt_device_cl_context(other.devices[0]), sizeof x, x);
    ok(clt_array_of_buffer(&fields[0], mem, 0, CLT_F32, 2, (int64_t[]){N, IN}));
    ok(clt_array_of(&fields[1], labels, CLT_I32, 1, (int64_t[]){N}));

    ok(clt_dataset_create_reservoir("plain", N, NULL, &d));
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_STATE, "has no fields");
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    assert_int_equal(clt_dataset_field_count(d), 2);
    ok(clt_dataset_push(d, fields, 2, NULL));
    ok(clt_array_of(&to[0], drawn, CLT_F32, 2, (int64_t[]){N, IN}));
    ok(clt_array_of(&to[1], drawn_labels, CLT_I32, 1, (int64_t[]){N}));
    ok(clt_dataset_draw(d, 11, 0, 0, N, to, 2, &count));
    assert_int_equal(count, N);
    for (int i = 0; i < N; i++) {
        int same = 0;
        for (int j = 0; j < N; j++)
            same |= !memcmp(drawn[i], x[j], sizeof x[j]) && drawn_labels[i] == labels[j];
        assert_true(same);
    }
    ok(clt_step_reservoir(l.trainer, 1, &loss));
    assert_true(isfinite(loss));
    fields[0].buffer = alien;
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT, "of another context than");
    fields[0].buffer = mem;
    /* A reservoir that failed to become the trainer's leaves the device with the one before. */
    clt_fit_options wrong;
    clt_fit_options_init(&wrong);
    wrong.batch = -1;
    assert_int_not_equal(clt_trainer_set_reservoir(l.trainer, d, &wrong), CLT_OK);
    ok(clt_dataset_push(d, fields, 2, NULL));

    ok(clt_trainer_set_reservoir(l.trainer, NULL, NULL));
    REFUSED(clt_dataset_push(d, fields, 2, NULL), CLT_INVALID_ARGUMENT,
            "no trainer has the reservoir");
    assert_int_equal(stats_of(d).seen, 2 * N);
    clt_dataset_free(d);
    /* Handles of C++ are freed in any order. */
    ok(clt_dataset_create_reservoir("early", N, NULL, &early));
    ok(clt_trainer_set_reservoir(l.trainer, early, NULL));
    clt_dataset_free(early);
    clReleaseMemObject(mem);
    clReleaseMemObject(alien);
    lab_close(&other);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_give_the_same_bits),
        cmocka_unit_test(options_of_steps_count),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(ignored_labels_do_not_count),
        cmocka_unit_test(buffers_are_copied),
        cmocka_unit_test(a_trainer_gives_fields_and_device),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
