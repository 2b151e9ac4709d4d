/* Measured kernels whose sums cancel. Right kernels must be accepted and wrong ones rejected. */
#include "train/tuning_lab.h"

#ifdef CLT_TESTING
/* Builds a convolution whose bias has no influence, because batch norm follows. The running
 * statistics are zero. */
static clt_graph *build_normed(void)
{
    const int64_t in[] = {CLT_BATCH, 3, SIZE, SIZE}, one[] = {CLT_BATCH};
    const int64_t conv[] = {CHANNELS, 3, 3, 3}, channels[] = {CHANNELS};
    const int64_t linear[] = {CLASSES, CHANNELS * (SIZE - 2) * (SIZE - 2)};
    const clt_init zero = {CLT_INIT_CONSTANT, 0, 0};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *y = clt_conv2d(clt_input(g, "x", CLT_F32, 4, in), parameter(g, "conv", 4, conv),
                              parameter(g, "conv bias", 1, channels), NULL);
    y = clt_batch_norm(y, parameter(g, "scale", 1, channels), parameter(g, "shift", 1, channels),
                       clt_state(g, "mean", CLT_F32, 1, channels, zero),
                       clt_state(g, "var", CLT_F32, 1, channels, zero), NULL, NULL);
    y = clt_linear(clt_flatten(clt_relu(y)), parameter(g, "linear", 2, linear), NULL);
    clt_cross_entropy(y, clt_input(g, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

/* Builds a three-dimensional convolution before two layers of batch norm, and the mean of the
 * second. The gradients of biases before batch norm and this mean are zero. */
static clt_graph *build_normed_twice(void)
{
    enum { DEPTH = 4, LEFT = (DEPTH - 2) * (SIZE - 2) * (SIZE - 2) };
    const int64_t in[] = {CLT_BATCH, 3, DEPTH, SIZE, SIZE}, one[] = {CLT_BATCH};
    const int64_t conv[] = {CHANNELS, 3, 3, 3, 3}, channels[] = {CHANNELS};
    const int64_t linear[] = {CLASSES, CHANNELS * LEFT};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *y = clt_conv3d(clt_input(g, "x", CLT_F32, 5, in), parameter(g, "conv", 5, conv),
                              parameter(g, "conv bias", 1, channels), NULL);
    y = clt_batch_norm(y, parameter(g, "scale", 1, channels), parameter(g, "shift", 1, channels),
                       NULL, NULL, NULL, NULL);
    y = clt_batch_norm(y, NULL, NULL, NULL, NULL, NULL, NULL);
    y = clt_add(y, clt_reduce_mean(y, (int[]){0, 2, 3, 4}, 4, 1));
    y = clt_linear(clt_flatten(y), parameter(g, "linear", 2, linear), NULL);
    clt_cross_entropy(y, clt_input(g, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

static void test_sums_that_cancel(void **state)
{
    static const char *const ops[] = {"conv3d_weight_grad", "batch_norm_moments",
                                      "batch_norm_grad_sums", "mean"};
    clt_tuning_record record;
    bool measured[4] = {false};
    (void)state;
    build_graph = build_normed_twice;
    remove_record();
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_load(devices[0], &record);
    for (int i = 0; i < record.count; i++) {
        if (*record.entries[i].rejected)
            fail_msg("%s: %s", record.entries[i].op, record.entries[i].rejected);
        for (int k = 0; k < 4; k++)
            measured[k] |= !strcmp(record.entries[i].op, ops[k]);
    }
    for (int k = 0; k < 4; k++)
        if (!measured[k])
            fail_msg("%s was not measured", ops[k]);
    clt_tuning_free(&record);
    lab_close(&l);
    build_graph = build_normed;
}

/* The gradient of the bias before batch norm is zero up to rounding. Right kernels compute other
 * rounding errors and are accepted, including batch norm in batch-blocked layouts. Wrong candidates
 * are rejected. */
static void test_before_batch_norm(void **state)
{
    (void)state;
    remove_record();
    const clt_trainer_options options = options_of(60);
    lab right = lab_open(&options);
    clt_tuning_record record;
    clt_tuning_load(devices[0], &record);
    assert_true(record.count >= 5);
    bool compared = false;
    for (int i = 0; i < record.count; i++) {
        assert_string_equal(record.entries[i].rejected, "");
        compared |= !strcmp(record.entries[i].op, "batch_norm");
    }
    assert_true(compared);
    clt_tuning_free(&record);
    lab_close(&right);

    remove_record();
    clt_tuning_testing_spoils = "=";
    clt_tuning_testing_spoils_own = "batch_norm";
    lab wrong = lab_open(&options);
    clt_tuning_testing_spoils = clt_tuning_testing_spoils_own = NULL;
    const clt_tuning_entry *e = node_of(&wrong, "conv2d_weight_grad")->tuned;
    assert_non_null(e);
    assert_string_equal(e->options, "");
    /* Candidates are rejected, and the default choice is not: it would come first. */
    const char *tile = strchr(e->rejected, '=');
    assert_non_null(tile);
    assert_true(!strchr(e->rejected, ';') || strchr(e->rejected, ';') > tile);
    assert_non_null(strstr(node_of(&wrong, "batch_norm")->tuned->rejected, "batch_blocked"));
    lab_close(&wrong);
}
#endif

int main(void)
{
#ifdef CLT_TESTING
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_before_batch_norm),
                                       cmocka_unit_test(test_sums_that_cancel)};
    build_graph = build_normed;
    return cmocka_run_group_tests(tests, set_up, tear_down);
#else
    return 77; /* only a build with the tests' hooks can make wrong candidates */
#endif
}
