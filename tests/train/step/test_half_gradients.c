/* Gradients in 16 bits: their rounding, their memory, and their exchange between ranks. */
#include "train/whole_numbers.h"

#include <CL/cl.h>

/* bf16: the step is applied, and gradients are rounded as expected. */
static void bf16_on(const char *list, int micro_batches)
{
    make_data(1);
    const clt_trainer_options o = options_for(CLT_BF16, micro_batches);
    lab l = open_lab(list, &o);
    const clt_step_result r = run_step(&l);
    assert_true(r.finite && r.skipped == 0 && r.loss_scale == 1);
    expect_weights(&l, CLT_BF16, micro_batches, 1, list);
    const double norm = expected_norm(CLT_BF16, l.n, micro_batches, 1);
    assert_true(fabs(r.norm - norm) <= 1e-5 * norm);
    lab_close(&l);
}

/* f16: the first scale is too large for these gradients. Steps are skipped and the scale is halved
 * until the gradients fit. Then training continues. */
static void f16_on(const char *list, int micro_batches)
{
    make_data(1);
    clt_trainer_options o = options_for(CLT_F16, micro_batches);
    lab l = open_lab(list, &o);
    double scale = 65536;
    int skipped = 0;
    for (; !all_finite(CLT_F16, l.n, micro_batches, scale); scale /= 2) {
        const clt_step_result r = run_step(&l);
        assert_true(!r.finite && r.loss_scale == scale && r.skipped == ++skipped);
        assert_true(skipped < SKIPS_MOST);
        expect_zero_weights(&l);
    }
    assert_true(skipped > 2);
    const clt_step_result r = run_step(&l);
    assert_true(r.finite && r.loss_scale == scale && r.skipped == skipped);
    expect_weights(&l, CLT_F16, micro_batches, scale, list);
    const double norm = expected_norm(CLT_F16, l.n, micro_batches, scale);
    assert_true(fabs(r.norm - norm) <= 1e-5 * norm);
    lab_close(&l);
}

static void rounded_once(void **state)
{
    (void)state;
    const char *one = clt_test_devices("pocl");
    bf16_on(one, 1);
    bf16_on(one, 2);
    f16_on(one, 1);
    f16_on(one, 4);
}

static void rounded_once_as_gpu(void **state)
{
    (void)state;
    as_gpu = true;
    bf16_on(clt_test_devices("pocl"), 2);
    f16_on(clt_test_devices("pocl"), 2);
    as_gpu = false;
}

static void rounded_once_on_two_devices(void **state)
{
    (void)state;
    const char *two = clt_test_devices("pocl/2");
    bf16_on(two, 1);
    bf16_on(two, 2);
    f16_on(two, 1);
    f16_on(two, 2);
}

/* The parts of a step, and a gradient that is read before the step status is known. */
static void in_parts(void **state)
{
    (void)state;
    make_data(0.001F);
    const clt_trainer_options o = options_for(CLT_F16, 1);
    lab l = open_lab(clt_test_devices("pocl"), &o);
    const clt_step_batch batch = whole_batch();
    float before[WEIGHTS], after[WEIGHTS];
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward(l.trainer));
    ok(clt_trainer_gradient(l.trainer, 0, "w", before, sizeof before));
    ok(clt_trainer_reduce(l.trainer));
    ok(clt_trainer_gradient(l.trainer, 0, "w", after, sizeof after));
    ok(clt_trainer_apply(l.trainer, NULL));
    assert_memory_equal(before, after, sizeof before);
    for (int i = 0; i < WEIGHTS; i++) /* x has rounding errors here */
        assert_true(fabs(after[i] - exact(i, 0, BATCH)) <=
                    0x1p-11 * fabs(exact(i, 0, BATCH)) + 1e-6);
    lab_close(&l);
}

/* --- memory ----------------------------------------------------------------------------------- */

static size_t bytes_of(cl_mem buffer)
{
    size_t bytes = 0;
    assert_int_equal(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL),
                     CL_SUCCESS);
    return bytes;
}

/* Buckets of gradients take half of the parameters' bytes, in memory and in the plan's
 * prediction. */
static void half_the_bytes(void **state)
{
    (void)state;
    make_data(1);
    int64_t planned[2];
    for (int half = 0; half < 2; half++) {
        const clt_trainer_options o = options_for(half ? CLT_BF16 : CLT_F32, 1);
        lab l = open_lab(clt_test_devices("pocl"), &o);
        const clt_replica *r = &l.store->replicas[0];
        const clt_buckets *layout = &l.store->layout;
        assert_true(half ? !r->gradients : !r->half_gradients);
        assert_null(r->gradient_sums);
        for (int b = 0; b < layout->n_buckets; b++)
            assert_int_equal(bytes_of(clt_replica_gradients(r, o.precision)[b]),
                             bytes_of(r->values[b]) / (half ? 2 : 1));
        planned[half] = clt_plan_store_bytes(l.trainer->training->devices[0].plan, 2);
        lab_close(&l);
    }
    assert_int_equal(planned[0] % 4, 0); /* values, gradients and two slots */
    assert_int_equal(planned[1], planned[0] / 4 * 3 + planned[0] / 8);
}

/* Two trainers of different precision on one store do not change each other's gradients. */
static void two_on_one_store(void **state)
{
    (void)state;
    make_data(1);
    clt_trainer_options o = options_for(CLT_F32, 1);
    o.lr = 0;
    lab l = open_lab(clt_test_devices("pocl"), &o);
    clt_trainer *other;
    float before[WEIGHTS], after[WEIGHTS];
    run_step(&l);
    ok(clt_trainer_gradient(l.trainer, 0, "w", before, sizeof before));
    o.precision = CLT_BF16;
    ok(clt_trainer_create(l.graph, l.store, &o, &other));
    const clt_step_batch batch = whole_batch();
    ok(clt_trainer_step(other, &batch, NULL));
    ok(clt_trainer_wait(other));
    ok(clt_trainer_gradient(l.trainer, 0, "w", after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    ok(clt_trainer_gradient(other, 0, "w", after, sizeof after));
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(after[i] == (float)expected(i, CLT_BF16, 1, 1, 1));
    clt_trainer_destroy(other);
    lab_close(&l);
}

/* --- ranks ------------------------------------------------------------------------------------ */

typedef struct rank_plan {
    clt_dtype precision;
    int first, count;
} rank_plan;

/* Sets `numbers`: whether w is minus the gradient of two devices, the skipped steps, and the
 * scale. */
static void train_rank(rank *self)
{
    const rank_plan *p = self->argument;
    clt_trainer_options o = options_for(p->precision, 1);
    lab l = {0};
    float w[WEIGHTS];
    o.world = &self->world;
    o.comm_timeout = 60;
    l.graph = build();
    self->status = clt_devices_open(runtime, "cpu", NULL, &l.devices, &l.n);
    if (self->status == CLT_OK)
        self->status = clt_store_create(l.graph, l.devices, l.n, 1, &l.store);
    if (self->status == CLT_OK)
        self->status = clt_trainer_create(l.graph, l.store, &o, &l.trainer);
    clt_step_result result;
    clt_step_result_init(&result);
    const clt_feed own[] = {{"x", -1, CLT_HOST(xs + p->first * IN)},
                            {"t", -1, CLT_HOST(ts + p->first * OUT)}};
    clt_step_batch batch = whole_batch();
    batch.count = p->count;
    batch.feeds = own;
    for (int s = 0; self->status == CLT_OK && !result.finite && s < SKIPS_MOST; s++) {
        self->status = clt_trainer_step(l.trainer, &batch, NULL);
        if (self->status == CLT_OK)
            self->status = clt_trainer_result(l.trainer, s, &result);
    }
    if (self->status != CLT_OK)
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    else if (HOLDS(self, clt_store_get(l.store, "w", w, sizeof w) == CLT_OK))
        for (int i = 0; i < WEIGHTS; i++)
            if (w[i] == -(float)expected(i, p->precision, 2, 1, result.loss_scale))
                self->numbers[0]++;
    self->numbers[1] = (double)result.skipped;
    self->numbers[2] = result.loss_scale;
    lab_close(&l);
}

static void ranks_agree(void **state)
{
    static const clt_dtype types[] = {CLT_BF16, CLT_F16};
    (void)state;
    make_data(1);
    for (int k = 0; k < 2; k++) {
        rank ranks[2];
        rank_plan plans[] = {{types[k], 0, BATCH / 2}, {types[k], BATCH / 2, BATCH / 2}};
        run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
        double scale = k ? 65536 : 1;
        int skipped = 0;
        for (; !all_finite(types[k], 2, 1, scale); scale /= 2)
            skipped++;
        for (int r = 0; r < 2; r++) {
            if (ranks[r].status != CLT_OK)
                fail_msg("rank %d: %s", r, ranks[r].message);
            assert_true(ranks[r].numbers[0] == WEIGHTS);
            assert_true(ranks[r].numbers[1] == skipped && ranks[r].numbers[2] == scale);
        }
    }
}

static void ranks_of_two_precisions(void **state)
{
    rank ranks[2];
    rank_plan plans[] = {{CLT_BF16, 0, BATCH / 2}, {CLT_F32, BATCH / 2, BATCH / 2}};
    (void)state;
    run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, CLT_MISMATCH);
        assert_non_null(strstr(ranks[r].message, "precision"));
    }
}

/* --- a classifier ----------------------------------------------------------------------------- */

enum { FEATURES = 12, CLASSES = 20, SAMPLES = 24 };

static float features[SAMPLES * FEATURES];
static int32_t classes[SAMPLES];

/* Softmax regression in double: the gradient of its weight w [CLASSES, FEATURES]. Also a
 * first-order bound for roundings of relative size `eps`:
 * - each logit moves by eps of itself, which moves a probability p by at most 2 p eps max|logit|,
 * - the gradient of the logits moves by eps of itself, and so does the final sum,
 * - the total is doubled for the second order and for f32's own errors. */
static void reference(const float *w, const float *b, double eps, double *gradient, double *bound)
{
    memset(gradient, 0, CLASSES * FEATURES * sizeof *gradient);
    memset(bound, 0, CLASSES * FEATURES * sizeof *bound);
    for (int s = 0; s < SAMPLES; s++) {
        const float *x = features + s * FEATURES;
        double logits[CLASSES], sum = 0, most = 0;
        for (int c = 0; c < CLASSES; c++) {
            logits[c] = b[c];
            for (int i = 0; i < FEATURES; i++)
                logits[c] += (double)w[c * FEATURES + i] * x[i];
            sum += exp(logits[c]);
            most = fmax(most, fabs(logits[c]));
        }
        for (int c = 0; c < CLASSES; c++) {
            const double p = exp(logits[c]) / sum, d = (p - (classes[s] == c)) / SAMPLES;
            for (int i = 0; i < FEATURES; i++) {
                gradient[c * FEATURES + i] += d * x[i];
                bound[c * FEATURES + i] +=
                    2 * eps * fabs(x[i]) * (2 * p * most / SAMPLES + fabs(d));
            }
        }
    }
    for (int i = 0; i < CLASSES * FEATURES; i++)
        bound[i] += 2 * eps * fabs(gradient[i]) + 1e-7;
}

/* f16's gradients below 2^-14 / scale lose digits. No gradient here is so small. */
static void classifier_on(const char *list, clt_dtype precision, int micro_batches)
{
    const int64_t in[] = {CLT_BATCH, FEATURES}, one[] = {CLT_BATCH};
    float w[CLASSES * FEATURES], b[CLASSES], g[CLASSES * FEATURES];
    double want[CLASSES * FEATURES], bound[CLASSES * FEATURES];
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_cross_entropy(layer(graph, x, "w", "b", FEATURES, CLASSES), label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    make_samples(features, classes, SAMPLES, FEATURES, CLASSES);
    clt_trainer_options o = options_for(precision, micro_batches);
    o.batch = SAMPLES;
    lab l = lab_on_kept(list);
    lab_store(&l, graph, 5);
    lab_trainer(&l, &o);
    ok(clt_store_get(l.store, "w", w, sizeof w));
    ok(clt_store_get(l.store, "b", b, sizeof b));
    const clt_feed fed[] = {{"x", -1, CLT_HOST(features)}, {"label", -1, CLT_HOST(classes)}};
    clt_step_batch batch = whole_batch();
    batch.count = SAMPLES;
    batch.feeds = fed;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_gradient(l.trainer, 0, "w", g, sizeof g));
    /* Roundings of the sums of micro-batches, of the device, and of all devices. */
    const double eps = precision == CLT_F16 ? 0x1p-11 : 0x1p-8 / 2;
    reference(w, b, eps * (micro_batches > 1 ? 3 : l.n > 1 ? 2 : 1), want, bound);
    bool differs = false;
    for (int i = 0; i < CLASSES * FEATURES; i++) {
        differs = differs || fabs(g[i] - want[i]) > 1e-6;
        if (!(fabs(g[i] - want[i]) <= bound[i]))
            fail_msg("%s, %s, %d micro-batches, element %d: %.9g, not %.9g +- %.3g", list,
                     clt_dtype_name(precision), micro_batches, i, g[i], want[i], bound[i]);
    }
    assert_true(differs); /* otherwise nothing was rounded */
    if (l.n > 1)
        ok(clt_store_check(l.store));
    lab_close(&l);
}

static void within_bounds_of_double(void **state)
{
    static const clt_dtype types[] = {CLT_BF16, CLT_F16};
    (void)state;
    for (int k = 0; k < 2; k++) {
        classifier_on(clt_test_devices("pocl"), types[k], 1);
        classifier_on(clt_test_devices("pocl"), types[k], 3);
        classifier_on(clt_test_devices("pocl/2"), types[k], 1);
        classifier_on(clt_test_devices("pocl/2"), types[k], 2);
    }
}

/* Both types, as much as a simulator computes in a minute. */
static void once_each(void **state)
{
    (void)state;
    bf16_on(clt_test_devices("pocl"), 2);
    in_parts(state);
}

int main(void)
{
    const struct CMUnitTest simulated[] = {cmocka_unit_test(once_each)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_once),
        cmocka_unit_test(rounded_once_as_gpu),
        cmocka_unit_test(rounded_once_on_two_devices),
        cmocka_unit_test(in_parts),
        cmocka_unit_test(half_the_bytes),
        cmocka_unit_test(two_on_one_store),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(ranks_of_two_precisions),
        cmocka_unit_test(within_bounds_of_double),
    };
    return clt_test_oclgrind() ? cmocka_run_group_tests(simulated, open_runtime, close_runtime)
                               : cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
