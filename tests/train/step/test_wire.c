/*
 * Gradients in 16 bits with error feedback. Each step's roundings and residuals are computed again
 * here, from the f32 gradients that the devices keep, and compared bit by bit.
 */
#include "train/step/wire_lab.h"

#include "support/rounding.h"

/* The f32 gradients of a device, before rounding. */
static void read_gradients(const lab *l, int device, int bucket, float *data)
{
    const clt_replica *r = &l->store->replicas[device];
    const cl_mem *from = l->trainer->options.precision == CLT_F32 ? r->gradients : r->gradient_sums;
    ok(clt_replica_read(r, from[bucket], 0, count_of(l, bucket) * 4, data));
}

static void equal(float a, float b, const char *what, int bucket, int64_t i)
{
    if (memcmp(&a, &b, sizeof a))
        fail_msg("%s, bucket %d, element %d: %.9g, not %.9g", what, bucket, (int)i, (double)a,
                 (double)b);
}

/* Compares a bucket with the residuals before the step. Devices from `senders` on sent nothing. */
static void check_bucket(const lab *l, const setting *s, int bucket, const residuals *before,
                         int senders)
{
    static residuals after;
    static float gradient[MOST][FLOATS];
    static uint16_t sums[MOST][FLOATS];
    const clt_bucket *b = &l->store->layout.buckets[bucket];
    read_residuals(l, bucket, &after);
    for (int d = 0; d < l->n; d++) {
        const clt_replica *r = &l->store->replicas[d];
        read_gradients(l, d, bucket, gradient[d]);
        ok(clt_replica_read(r, r->half_gradients[bucket], 0, count_of(l, bucket) * 2, sums[d]));
    }
    for (int64_t i = 0; i < count_of(l, bucket); i++) {
        float sum = 0;
        for (int d = 0; d < l->n; d++) {
            const float v = gradient[d][i] + before->device[d][i], sent = nearest(s->wire, v);
            equal(after.device[d][i], d < senders ? v - sent : before->device[d][i],
                  "a device's residual", bucket, i);
            if (d < senders) {
                equal(sent + after.device[d][i], v, "what a device sent and kept", bucket, i);
                sum += sent;
            }
        }
        const float w = sum + before->sum[i], result = nearest(s->wire, w);
        equal(after.sum[i], w - result, "the owner's residual", bucket, i);
        for (int d = 0; d < l->n; d++) {
            const int64_t begin = clt_shard_begin(b, d, l->n) / 4;
            if (!s->zero || (i >= begin && i < begin + clt_shard_size(b, d, l->n) / 4))
                equal(float_of(s->wire, sums[d][i]), result, "the sum", bucket, i);
        }
    }
}

static void check_steps(const setting *s, int64_t count, int senders)
{
    static residuals before[MOST];
    lab l = lab_of(s);
    double largest = 0;
    if (l.n < 2) {
        lab_close(&l);
        skip();
    }
    assert_true(buckets_of(&l) > 1 && buckets_of(&l) <= MOST);
    for (int step = 0; step < 4; step++) {
        for (int b = 0; b < buckets_of(&l); b++)
            if (!is_state(&l, b))
                read_residuals(&l, b, &before[b]);
        assert_true(run_step(&l, step == 2 ? count : COUNT).finite);
        for (int b = 0; b < buckets_of(&l); b++)
            if (!is_state(&l, b)) {
                check_bucket(&l, s, b, &before[b], step == 2 ? senders : l.n);
                largest = fmax(largest, fabs((double)before[b].device[0][0]));
            }
    }
    assert_true(largest > 0);
    lab_close(&l);
}

static void residuals_are_what_was_rounded(void **state)
{
    static const setting settings[] = {
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 1},
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 2},
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .zero = 1},
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .no_guard = 1},
        {.devices = "cpu/2", CLT_BF16, CLT_BF16, 2},
        {.devices = "cpu/2,cpu@1", CLT_F32, CLT_BF16, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check_steps(&settings[i], COUNT, MOST);
}

/* --- other axes that divide samples ------------------------------------------------------------
 */

static clt_value *filter(clt_graph *g, const char *name, int64_t out, int64_t in, int64_t kernel)
{
    const int64_t dims[] = {out, in, kernel, kernel};
    return clt_parameter(g, name, 4, dims, (clt_init){CLT_INIT_UNIFORM, 0.3, 0});
}

/* Rows of images of 6 x 6 lie on several devices. */
static clt_graph *images(void)
{
    const int64_t dims[] = {CLT_BATCH, 1, 6, 6};
    clt_value *sum = NULL, *weight = NULL;
    clt_conv2d_options same;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_conv2d_options_init(&same);
    same.padding[0] = same.padding[1] = 1;
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
    clt_shard_value(x, CLT_AXIS_SPACE, 2);
    clt_value *h = clt_relu(clt_conv2d(x, filter(g, "a", 8, 1, 3), NULL, &same));
    h = clt_relu(clt_conv2d(h, filter(g, "b", 12, 8, 3), NULL, &same));
    h = clt_conv2d(h, filter(g, "c", 1, 12, 3), NULL, &same);
    clt_mse(h, clt_scale(x, 0.5), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

/* Positions of sequences lie on several devices. */
static clt_graph *sequences(void)
{
    enum { T = 12, WIDTH = 3, HIDDEN_UNITS = 16 };
    const int64_t dims[] = {CLT_BATCH, T, WIDTH};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, dims);
    clt_shard_value(x, CLT_AXIS_TIME, 1);
    clt_value *h = clt_relu(layer(g, x, "a.weight", "a.bias", WIDTH, HIDDEN_UNITS));
    h = clt_relu(layer(g, h, "b.weight", "b.bias", HIDDEN_UNITS, 5 * HIDDEN_UNITS));
    h = layer(g, h, "c.weight", "c.bias", 5 * HIDDEN_UNITS, WIDTH);
    clt_mse(h, clt_scale(x, 0.5), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

static void residuals_along_space_and_time(void **state)
{
    static const setting settings[] = {
        {.devices = "cpu/2",
         CLT_F32,
         CLT_BF16,
         1,
         .parallel = "space=2",
         .build = images,
         .input = "x"},
        {.devices = "cpu/2",
         CLT_F32,
         CLT_BF16,
         2,
         .parallel = "time=2",
         .build = sequences,
         .input = "x"},
        {.devices = "cpu/2",
         CLT_F32,
         CLT_BF16,
         1,
         .zero = 1,
         .parallel = "space=2",
         .build = images,
         .input = "x"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check_steps(&settings[i], COUNT, MOST);
}

static void residuals_on_gpu_kernels(void **state)
{
    (void)state;
    check_steps(&(setting){.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .as_gpu = 1}, COUNT, MOST);
}

/* One sample: the other device has none and sends nothing. */
static void a_device_without_samples_keeps_its_residuals(void **state)
{
    (void)state;
    check_steps(&(setting){.devices = "cpu/2", CLT_F32, CLT_BF16, 1}, 1, 1);
}

/* One sample is one micro-batch, whose gradient has 16 bits already. Nothing is rounded. */
static void a_single_micro_batch_keeps_the_residuals(void **state)
{
    static residuals before[MOST], after;
    (void)state;
    for (int guard = 0; guard < 2; guard++) {
        const setting s = {.devices = "cpu/2", CLT_BF16, CLT_BF16, 2, .no_guard = !guard};
        lab l = lab_of(&s);
        double largest = 0;
        if (l.n < 2) {
            lab_close(&l);
            skip();
        }
        for (int step = 0; step < 4; step++) {
            for (int b = 0; b < buckets_of(&l); b++)
                if (!is_state(&l, b))
                    read_residuals(&l, b, &before[b]);
            run_step(&l, step == 2 ? 1 : COUNT);
            for (int b = 0; b < buckets_of(&l) && step == 2; b++) {
                if (is_state(&l, b))
                    continue;
                read_residuals(&l, b, &after);
                for (int64_t i = 0; i < FLOATS; i++)
                    largest = fmax(largest, fabs((double)after.device[0][i]));
                assert_memory_equal(after.device, before[b].device, sizeof after.device);
            }
        }
        assert_true(largest > 0);
        lab_close(&l);
    }
}

/* After the reduction the gradient is the sum in 16 bits, however it is read. */
static void copies_are_of_the_sum(void **state)
{
    static float own[HIDDEN * IN], read[HIDDEN * IN], copied[HIDDEN * IN];
    const setting s = {.devices = "cpu/2", CLT_F32, CLT_BF16, 1};
    clt_step_batch batch;
    clt_tensor_copy copy;
    (void)state;
    lab l = lab_of(&s);
    if (l.n < 2) {
        lab_close(&l);
        skip();
    }
    clt_step_batch_init(&batch);
    batch.count = COUNT;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    clt_tensor_copy_init(&copy);
    copy.of = CLT_COPY_GRADIENT;
    copy.name = "a.weight";
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward(l.trainer));
    copy.array = (clt_array)CLT_HOST(own);
    ok(clt_trainer_copy_out(l.trainer, &copy, NULL));
    ok(clt_trainer_gradient(l.trainer, 0, copy.name, read, sizeof read));
    assert_memory_equal(own, read, sizeof own);
    ok(clt_trainer_reduce(l.trainer));
    copy.array = (clt_array)CLT_HOST(copied);
    ok(clt_trainer_copy_out(l.trainer, &copy, NULL));
    ok(clt_trainer_gradient(l.trainer, 0, copy.name, read, sizeof read));
    assert_memory_equal(copied, read, sizeof copied);
    assert_memory_not_equal(copied, own, sizeof copied);
    for (int i = 0; i < HIDDEN * IN; i++)
        equal(copied[i], nearest(CLT_BF16, copied[i]), "a gradient", 0, i);
    ok(clt_trainer_apply(l.trainer, NULL));
    lab_close(&l);
}

/* Trainers of one store share the devices' residuals, which stay until the last one goes. */
static void another_trainer_leaves_the_residuals(void **state)
{
    static residuals before, after;
    const setting s = {.devices = "cpu/2", CLT_F32, CLT_BF16, 1};
    clt_trainer_options options = options_of(&s);
    clt_trainer *other;
    (void)state;
    lab l = lab_of(&s);
    if (l.n < 2) {
        lab_close(&l);
        skip();
    }
    run_step(&l, COUNT);
    read_residuals(&l, 0, &before);
    ok(clt_trainer_create(l.graph, l.store, &options, &other));
    clt_trainer_destroy(other);
    options.optimizer = CLT_ADAM;
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &other), CLT_UNSUPPORTED);
    read_residuals(&l, 0, &after);
    assert_memory_equal(&before, &after, sizeof before);
    run_step(&l, COUNT);
    clt_trainer_destroy(l.trainer);
    l.trainer = NULL;
    assert_null(l.store->replicas[0].residuals);
    lab_close(&l);
}

/* --- loss scaling ------------------------------------------------------------------------------
 */

/* In f16 gradients are 16 bits already, so only the owner rounds. Its residual is kept without the
 * loss scale, whatever scale the steps have. Steps in parts show the gradients before the sum. */
static void loss_scaling(void **state)
{
    static uint16_t given[MOST][2][FLOATS], sums[FLOATS];
    static residuals before[MOST], after;
    const setting s = {.devices = "cpu/2", CLT_F16, CLT_F16, 1};
    lab l = lab_of(&s);
    clt_step_batch batch;
    int rounded = 0;
    (void)state;
    clt_step_batch_init(&batch);
    batch.count = COUNT;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    if (l.n < 2) {
        lab_close(&l);
        skip();
    }
    for (int step = 0; step < 6; step++) {
        /* Scales change between steps, and the first is too large. */
        const clt_scaling scaling = {.scale = step ? ldexpf(1, 6 + step) : 0x1p30f};
        ok(clt_trainer_set_scaling(l.trainer, &scaling));
        ok(clt_trainer_forward(l.trainer, &batch));
        ok(clt_trainer_backward(l.trainer));
        ok(clt_trainer_wait(l.trainer));
        for (int b = 0; b < buckets_of(&l); b++) {
            if (is_state(&l, b))
                continue;
            read_residuals(&l, b, &before[b]);
            for (int d = 0; d < 2; d++)
                ok(clt_replica_read(&l.store->replicas[d], l.store->replicas[d].half_gradients[b],
                                    0, count_of(&l, b) * 2, given[b][d]));
        }
        ok(clt_trainer_reduce(l.trainer));
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_trainer_wait(l.trainer));
        for (int b = 0; b < buckets_of(&l); b++) {
            if (is_state(&l, b))
                continue;
            read_residuals(&l, b, &after);
            ok(clt_replica_read(&l.store->replicas[1], l.store->replicas[1].half_gradients[b], 0,
                                count_of(&l, b) * 2, sums));
            for (int64_t i = 0; i < count_of(&l, b); i++) {
                const float w = float_of(CLT_F16, given[b][0][i]) +
                                float_of(CLT_F16, given[b][1][i]) +
                                scaling.scale * before[b].sum[i];
                const float sent = nearest(CLT_F16, w);
                equal(after.sum[i], step ? (w - sent) / scaling.scale : 0, "the residual", b, i);
                if (step)
                    equal(float_of(CLT_F16, sums[i]), sent, "the sum", b, i);
                rounded += after.sum[i] != 0;
            }
        }
    }
    assert_true(rounded > 100);
    lab_close(&l);
}

static void read_all(const lab *l, residuals *all)
{
    for (int b = 0; b < buckets_of(l); b++)
        if (!is_state(l, b))
            read_residuals(l, b, &all[b]);
}

/* Counts the residuals that are not zero. All are finite. */
static int count_residuals(const lab *l)
{
    static residuals now[MOST];
    int count = 0;
    read_all(l, now);
    for (int b = 0; b < buckets_of(l); b++)
        for (int64_t i = 0; !is_state(l, b) && i < count_of(l, b); i++) {
            assert_true(isfinite(now[b].sum[i]));
            count += now[b].sum[i] != 0;
            for (int d = 0; d < l->n; d++) {
                assert_true(isfinite(now[b].device[d][i]));
                count += now[b].device[d][i] != 0;
            }
        }
    return count;
}

/* Samples nearly repeat, so all micro-batches and devices have nearly equal gradients. The scale
 * grows until a sum of them is too large for f16, while each of them is not. The step is skipped,
 * and no residual becomes infinite. */
static void a_sum_that_overflows_changes_no_residual(void **state)
{
    static residuals before[MOST], after[MOST];
    (void)state;
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        const setting s = {.devices = "cpu/2", CLT_F16, CLT_F16, accumulate};
        clt_scaling scaling = {.scale = 0x1p14f};
        bool finite = true;
        lab l = lab_of(&s);
        for (int i = 6; i < COUNT; i++) {
            for (int k = 0; k < IN; k++)
                xs[i * IN + k] = 1.01f * xs[(i - 6) * IN + k];
            labels[i] = labels[i - 6];
        }
        for (; l.n == 2 && finite; scaling.scale *= 2) {
            assert_true(scaling.scale < 0x1p40f);
            ok(clt_trainer_set_scaling(l.trainer, &scaling));
            memset(before, 0, sizeof before);
            read_all(&l, before);
            finite = run_step(&l, COUNT).finite;
        }
        if (l.n == 2) {
            memset(after, 0, sizeof after);
            read_all(&l, after);
            assert_memory_equal(after, before, sizeof after);
            assert_true(count_residuals(&l) > 0);
            for (int step = 0; step < 3; step++) {
                assert_true(run_step(&l, COUNT).finite);
                assert_true(count_residuals(&l) > 0);
            }
            read_all(&l, after);
            assert_memory_not_equal(after, before, sizeof after);
        }
        lab_close(&l);
    }
    make_samples(xs, labels, COUNT, IN, CLASSES);
}

/* --- steps that do not count -------------------------------------------------------------------
 */

static void try_step(lab *l, clt_status expected)
{
    clt_step_batch batch;
    clt_step_result result;
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = COUNT;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    assert_int_equal(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result),
                     expected);
    ok(clt_trainer_wait(l->trainer));
}

static void a_step_that_is_not_finite_changes_no_residual(void **state)
{
    static residuals before[MOST], after;
    (void)state;
    for (int guard = 0; guard < 2; guard++) {
        const setting s = {.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .no_guard = !guard};
        lab l = lab_of(&s);
        if (l.n == 2) {
            run_step(&l, COUNT);
            run_step(&l, COUNT);
            for (int b = 0; b < buckets_of(&l); b++)
                if (!is_state(&l, b))
                    read_residuals(&l, b, &before[b]);
            xs[5] = INFINITY;
            try_step(&l, guard ? CLT_NONFINITE : CLT_OK);
            make_samples(xs, labels, COUNT, IN, CLASSES);
            /* Without the guard each bucket is updated when its sum is there: a finite one counts.
             */
            for (int b = 0; b < buckets_of(&l) && guard; b++) {
                if (is_state(&l, b))
                    continue;
                read_residuals(&l, b, &after);
                assert_memory_equal(&after, &before[b], sizeof after);
            }
            for (int b = 0; b < buckets_of(&l); b++) {
                if (is_state(&l, b))
                    continue;
                read_residuals(&l, b, &after);
                for (int64_t i = 0; i < count_of(&l, b); i++)
                    assert_true(isfinite(after.device[0][i]) && isfinite(after.sum[i]));
            }
        }
        lab_close(&l);
    }
}

/* --- refused -----------------------------------------------------------------------------------
 */

static void refuse(const char *parallel, int zero, int offload, clt_dtype precision, clt_dtype wire,
                   clt_status status, const char *text)
{
    const setting s = {.devices = "cpu/2", precision, wire, 2, zero};
    const clt_trainer_options options = options_of(&s);
    clt_store_options stored;
    clt_store_options_init(&stored);
    stored.parallel = parallel;
    stored.zero = zero == 3 ? 3 : 0;
    stored.offload = offload;
    lab l = lab_on_kept(clt_test_devices(s.devices));
    l.graph = classifier(IN, HIDDEN, CLASSES);
    if (l.n == 2) {
        ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
        assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer), status);
        if (!strstr(clt_error_message(), text))
            fail_msg("\"%s\" lacks \"%s\"", clt_error_message(), text);
    }
    lab_close(&l);
}

static void what_does_not_work_is_refused(void **state)
{
    (void)state;
    refuse(NULL, 0, 0, CLT_F32, CLT_F16, CLT_INVALID_ARGUMENT, "wire f16 needs losses that are");
    refuse(NULL, 0, 0, CLT_BF16, CLT_F16, CLT_INVALID_ARGUMENT, "wire f16 needs losses that are");
    refuse(NULL, 0, 0, CLT_F16, CLT_BF16, CLT_INVALID_ARGUMENT, "gradients are f16 already");
    refuse(NULL, 0, 0, CLT_F32, CLT_I32, CLT_INVALID_ARGUMENT, "wire i32 is not possible");
    refuse("dp=2", 3, 0, CLT_F32, CLT_BF16, CLT_UNSUPPORTED, "wire bf16 does not work with zero 3");
    refuse(NULL, 0, 1, CLT_F32, CLT_BF16, CLT_UNSUPPORTED, "wire bf16 does not work with offload");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_are_what_was_rounded),
        cmocka_unit_test(residuals_along_space_and_time),
        cmocka_unit_test(residuals_on_gpu_kernels),
        cmocka_unit_test(a_device_without_samples_keeps_its_residuals),
        cmocka_unit_test(a_single_micro_batch_keeps_the_residuals),
        cmocka_unit_test(copies_are_of_the_sum),
        cmocka_unit_test(another_trainer_leaves_the_residuals),
        cmocka_unit_test(loss_scaling),
        cmocka_unit_test(a_sum_that_overflows_changes_no_residual),
        cmocka_unit_test(a_step_that_is_not_finite_changes_no_residual),
        cmocka_unit_test(what_does_not_work_is_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
