/* Measured choices of kernels are recorded, found again and frozen. Wrong candidates are rejected.
 * Variants are selected by name. */
#include "device/program/source_tokens.h"
#include "train/tuning_lab.h"

/* Builds a convolution, which has tiles to try, and a linear layer. */
static clt_graph *build(void)
{
    const int64_t in[] = {CLT_BATCH, 3, SIZE, SIZE}, one[] = {CLT_BATCH};
    const int64_t conv[] = {CHANNELS, 3, 3, 3},
                  linear[] = {CLASSES, CHANNELS * (SIZE - 2) * (SIZE - 2)};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 4, in);
    clt_value *y = clt_relu(clt_conv2d(x, parameter(g, "conv", 4, conv), NULL, NULL));
    y = clt_linear(clt_flatten(y), parameter(g, "linear", 2, linear), NULL);
    clt_cross_entropy(y, clt_input(g, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

/* Builds a linear layer, whose values are plain whatever variants are asked for. */
static clt_graph *build_plain(void)
{
    const int64_t in[] = {CLT_BATCH, 3, SIZE, SIZE}, one[] = {CLT_BATCH};
    const int64_t linear[] = {CLASSES, 3 * SIZE * SIZE};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *x = clt_flatten(clt_input(g, "x", CLT_F32, 4, in));
    clt_cross_entropy(clt_linear(x, parameter(g, "linear", 2, linear), NULL),
                      clt_input(g, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

#ifdef CLT_TESTING
/* Builds two convolutions with pooling. The input of the second has a gradient. Its result has odd
 * sides, and the pooling drops a row and a column. */
static clt_graph *build_pooled(void)
{
    const int64_t in[] = {CLT_BATCH, 3, SIZE, SIZE}, one[] = {CLT_BATCH};
    const int64_t conv1[] = {CHANNELS, 3, 3, 3}, conv2[] = {4, CHANNELS, 3, 3};
    const int64_t bias[] = {CHANNELS}, linear[] = {CLASSES, 4};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *y = clt_conv2d(clt_input(g, "x", CLT_F32, 4, in), parameter(g, "conv", 4, conv1),
                              parameter(g, "bias", 1, bias), NULL);
    y = clt_max_pool2d(clt_relu(y), NULL);
    y = clt_avg_pool2d(clt_relu(clt_conv2d(y, parameter(g, "conv2", 4, conv2), NULL, NULL)), NULL);
    y = clt_linear(clt_flatten(y), parameter(g, "linear", 2, linear), NULL);
    clt_cross_entropy(y, clt_input(g, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}
#endif

static void test_recorded_and_found(void **state)
{
    (void)state;
    remove_record();
    clt_trainer_options options = options_of(0);
    lab plain = lab_open(&options);
    assert_null(node_of(&plain, "conv2d")->tuned);
    lab_close(&plain);

    options = options_of(60);
    lab first = lab_open(&options);
    const clt_plan_node *node = node_of(&first, "conv2d");
    assert_non_null(node->tuned);
    assert_true(node->tuned->seconds > 0);
    assert_string_equal(node->tuned->rejected, "");
    clt_tuning_record record;
    clt_tuning_load(devices[0], &record);
    assert_true(record.count >= 2); /* forward and at least one gradient */
    assert_non_null(clt_tuning_find(&record, "conv2d", node->key, ""));
    /* A second trainer measures nothing and finds the changed record. */
    for (int i = 0; i < record.count; i++)
        record.entries[i].seconds = 1234;
    ok(clt_tuning_save(devices[0], &record));
    lab second = lab_open(&options);
    assert_true(node_of(&second, "conv2d")->tuned->seconds == 1234);
    /* A record is used even without time for measuring. */
    options.tune_seconds = 0;
    lab third = lab_open(&options);
    assert_true(node_of(&third, "conv2d")->tuned->seconds == 1234);
    clt_tuning_free(&record);
    lab_close(&first);
    lab_close(&second);
    lab_close(&third);
}

/* A run that is too short to repay measuring keeps the first choices and leaves measuring for
 * later. A long one measures first. */
static void test_later(void **state)
{
    (void)state;
    int classes, left;
    remove_record();
    clt_trainer_options options = options_of(60);
    options.tune_steps = 1;
    lab shorter = lab_open(&options);
    clt_trainer_tuning(shorter.trainer, &classes, &left);
    assert_true(clt_trainer_tunes_later(shorter.trainer));
    assert_int_equal(classes, 0);
    assert_null(node_of(&shorter, "conv2d")->tuned);
    const int64_t samples = clt_trainer_run_samples(shorter.trainer);
    assert_true(samples > 0 && samples <= BATCH);
    clt_trainer_destroy(shorter.trainer);
    shorter.trainer = NULL;
    ok(clt_kernels_measure(shorter.graph, shorter.store, &options, samples, &classes, &left));
    assert_true(classes > 0);
    assert_int_equal(left, 0);
    /* The next run uses the results. */
    lab next = lab_open(&options);
    assert_non_null(node_of(&next, "conv2d")->tuned);
    lab_close(&next);
    ok(clt_kernels_measure(shorter.graph, shorter.store, &options, samples, &classes, &left));
    assert_int_equal(classes, 0);
    lab_close(&shorter);

    remove_record();
    options.tune_steps = (int64_t)1 << 50;
    lab longer = lab_open(&options);
    assert_false(clt_trainer_tunes_later(longer.trainer));
    assert_non_null(node_of(&longer, "conv2d")->tuned);
    lab_close(&longer);
    remove_record();
}

#ifdef CLT_TESTING
/* Every candidate but the default choice computes wrong results. */
static void test_wrong_candidates(void **state)
{
    (void)state;
    remove_record();
    clt_tuning_testing_spoils = "=";
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_spoils = NULL;
    const clt_plan_node *node = node_of(&l, "conv2d");
    assert_non_null(node->tuned);
    assert_string_equal(node->tuned->options, "");
    assert_non_null(strstr(node->tuned->rejected, "batch_blocked TX="));
    lab_close(&l);
}

/* A candidate that skips some of its outputs is wrong, even though the memory still holds the
 * results of the default choice. */
static void test_candidates_that_skip(void **state)
{
    (void)state;
    remove_record();
    clt_tuning_testing_skips = "=";
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_skips = NULL;
    const clt_plan_node *node = node_of(&l, "conv2d");
    assert_non_null(node->tuned);
    assert_string_equal(node->tuned->options, "");
    assert_non_null(strstr(node->tuned->rejected, "batch_blocked TX="));
    lab_close(&l);
}

/* The default choice differs from the portable kernels. It is not used, however fast, if another
 * candidate agrees with them. */
static void test_wrong_own_choice(void **state)
{
    (void)state;
    remove_record();
    clt_tuning_testing_spoils_own = "conv2d";
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_spoils_own = NULL;
    const clt_tuning_entry *e = node_of(&l, "conv2d")->tuned;
    assert_non_null(e);
    assert_string_not_equal(e->options, "");
    assert_non_null(strstr(e->rejected, "batch_blocked "));
    assert_true(e->seconds > 0 && e->plain_seconds > 0);
    /* All other choices agree. */
    clt_tuning_record record;
    clt_tuning_load(devices[0], &record);
    assert_true(record.count >= 2);
    for (int i = 0; i < record.count; i++)
        if (strcmp(record.entries[i].op, "conv2d") != 0)
            assert_string_equal(record.entries[i].rejected, "");
    clt_tuning_free(&record);
    lab_close(&l);
}

/* Kernels that exist only for batch-blocked layouts have a reference too. Wrong default choices are
 * found, recorded, and replaced by candidates that agree with the reference. */
static void test_wrong_in_batch_blocked(void **state)
{
    static const char *const ops[] = {"conv2d_pool", "conv2d_pool_weight_grad", "unpool2d"};
    (void)state;
    remove_record();
    clt_tuning_testing_spoils_own = "conv2d_pool,conv2d_pool_weight_grad,unpool2d";
    build_graph = build_pooled;
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_spoils_own = NULL;
    build_graph = build;
    for (int i = 0; i < 3; i++) {
        const clt_tuning_entry *e = node_of(&l, ops[i])->tuned;
        assert_non_null(e);
        assert_true(e->seconds > 0 && e->plain_seconds > 0);
        assert_int_equal(strncmp(e->rejected, "batch_blocked ", strlen("batch_blocked ")), 0);
        /* Only the default choice is wrong. The last operator has no other candidate. */
        assert_null(strchr(e->rejected, '='));
        if (i < 2)
            assert_string_not_equal(e->options, "");
    }
    lab_close(&l);
}

/* The candidates are wrong, and the default choices agree with their references. */
static void test_wrong_candidates_in_batch_blocked(void **state)
{
    static const char *const ops[] = {"conv2d_pool", "conv2d_pool_weight_grad"};
    (void)state;
    remove_record();
    clt_tuning_testing_spoils = "=";
    build_graph = build_pooled;
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_spoils = NULL;
    build_graph = build;
    for (int i = 0; i < 2; i++) {
        const clt_tuning_entry *e = node_of(&l, ops[i])->tuned;
        assert_non_null(e);
        assert_string_equal(e->options, "");
        const char *tile = strchr(e->rejected, '=');
        assert_non_null(tile);
        /* The default choice is not rejected: no entry comes before the first tile. */
        assert_true(!strchr(e->rejected, ';') || strchr(e->rejected, ';') > tile);
    }
    assert_string_equal(node_of(&l, "unpool2d")->tuned->rejected, "");
    lab_close(&l);
}

/* Candidates that do not build are skipped, and the record names them. */
static void test_broken_candidates(void **state)
{
    (void)state;
    remove_record();
    clt_tuning_testing_breaks = "=";
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_breaks = NULL;
    const clt_plan_node *node = node_of(&l, "conv2d");
    assert_non_null(node->tuned);
    assert_string_equal(node->tuned->options, "");
    assert_non_null(strstr(node->tuned->rejected, "batch_blocked TX="));
    assert_int_equal(node->tuned->tried, 0);
    lab_close(&l);
}

/* A candidate that was fast by chance is measured again, beside the default choice. */
static void test_lucky_candidates(void **state)
{
    (void)state;
    remove_record();
    clt_tuning_testing_flatters = "=";
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    clt_tuning_testing_flatters = NULL;
    clt_tuning_record record;
    clt_tuning_load(devices[0], &record);
    assert_true(record.count >= 2);
    for (int i = 0; i < record.count; i++) {
        const clt_tuning_entry *e = &record.entries[i];
        assert_true(e->plain_seconds > 0);
        if (e->seconds != e->plain_seconds) /* another candidate than the default choice */
            assert_true(e->seconds < e->plain_seconds && e->seconds > e->plain_seconds / 50);
        assert_true(e->key && e->sources[0] && clt_source_known(e->sources[0]));
    }
    clt_tuning_free(&record);
    lab_close(&l);
}

/* Counts the candidates tried so far. A finished class counts as many. */
static int progress_of(int *unfinished)
{
    clt_tuning_record record;
    int sum = 0;
    clt_tuning_load(devices[0], &record);
    *unfinished = 0;
    for (int i = 0; i < record.count; i++) {
        sum += record.entries[i].tried ? record.entries[i].tried : 1000;
        *unfinished += record.entries[i].tried != 0;
    }
    clt_tuning_free(&record);
    return sum;
}

/* Measurements that the time did not suffice for are continued by the next run, until all
 * candidates were tried. */
static void test_unfinished(void **state)
{
    (void)state;
    int unfinished, before = 0;
    remove_record();
    for (int run = 0; run < 4; run++) {
        const clt_trainer_options options = options_of(1e-6);
        lab l = lab_open(&options);
        const int now = progress_of(&unfinished);
        assert_true(now > before);
        assert_true(run > 0 || unfinished == 1);
        before = now;
        lab_close(&l);
    }
    const clt_trainer_options options = options_of(60);
    lab l = lab_open(&options);
    assert_true(progress_of(&unfinished) > before);
    assert_int_equal(unfinished, 0);
    lab_close(&l);
}

/* An operator with a variant from the options is not measured. */
static void test_asked_for_is_not_measured(void **state)
{
    (void)state;
    remove_record();
    clt_trainer_options options = options_of(60);
    options.variants = "conv2d=portable";
    lab l = lab_open(&options);
    clt_tuning_record record;
    clt_tuning_load(devices[0], &record);
    assert_true(record.count > 0);
    for (int i = 0; i < record.count; i++)
        assert_string_not_equal(record.entries[i].op, "conv2d");
    clt_tuning_free(&record);
    lab_close(&l);
}

/* A shipped record is used if the cache folder has none. The record of the cache folder takes
 * precedence. A shipped record is not copied to the folder, and a new measurement ignores it. */
static void test_shipped(void **state)
{
    (void)state;
    char *text = NULL;
    remove_record();
    clt_trainer_options options = options_of(60);
    lab measured = lab_open(&options);
    lab_close(&measured);
    ok(clt_device_tuning(devices[0], 1, &text));
    remove_record();

    clt_tuning_testing_shipped = text;
    lab shipped = lab_open(&options);
    const clt_tuning_entry *tuned = node_of(&shipped, "conv2d")->tuned;
    assert_non_null(tuned);
    assert_true(tuned->shipped);
    clt_tuning_record record;
    clt_tuning_testing_shipped = NOTHING_SHIPPED;
    clt_tuning_load(devices[0], &record);
    assert_int_equal(record.count, 0);

    clt_tuning_testing_shipped = text;
    options.tune_anew = 1;
    lab own = lab_open(&options);
    assert_false(node_of(&own, "conv2d")->tuned->shipped);
    options.tune_anew = 0;
    lab again = lab_open(&options);
    assert_false(node_of(&again, "conv2d")->tuned->shipped);

    /* A record for another number of cores, or for kernels that have changed since, is not used. */
    remove_record();
    options.tune_seconds = 0;
    char *units = strstr(text, "\"compute_units\": ");
    assert_non_null(units);
    units[1] = 'x';
    lab fewer = lab_open(&options);
    assert_null(node_of(&fewer, "conv2d")->tuned);
    units[1] = 'c';
    for (char *at = text; (at = strstr(at, "\"sources\": [")) != NULL; at++) {
        char *digit = strchr(at + strlen("\"sources\": ["), '"') + 1;
        *digit = *digit == '1' ? '2' : '1';
    }
    lab stale = lab_open(&options);
    assert_null(node_of(&stale, "conv2d")->tuned);

    /* Measured before other variants existed, so measured again. */
    options.tune_seconds = 60;
    clt_tuning_testing_shipped = NOTHING_SHIPPED;
    lab filled = lab_open(&options);
    lab_close(&filled);
    clt_tuning_load(devices[0], &record);
    for (int i = 0; i < record.count; i++) {
        record.entries[i].variants ^= 2;
        record.entries[i].seconds = 1234;
    }
    ok(clt_tuning_save(devices[0], &record));
    clt_tuning_free(&record);
    options.tune_seconds = 0;
    lab before = lab_open(&options);
    assert_null(node_of(&before, "conv2d")->tuned);
    lab_close(&before);
    options.tune_seconds = 60;
    lab after = lab_open(&options);
    assert_true(node_of(&after, "conv2d")->tuned->seconds < 1234);
    lab_close(&after);
    clt_tuning_testing_shipped = NOTHING_SHIPPED;
    lab_close(&shipped);
    lab_close(&own);
    lab_close(&again);
    lab_close(&fewer);
    lab_close(&stale);
    free(text);
}
#endif

static void train_steps(lab *l, const char *name, float *result, size_t bytes)
{
    static float x[BATCH * 3 * SIZE * SIZE];
    static int32_t label[BATCH];
    for (int i = 0; i < BATCH * 3 * SIZE * SIZE; i++)
        x[i] = sinf((float)i * 0.37f);
    for (int i = 0; i < BATCH; i++)
        label[i] = i % CLASSES;
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"label", -1, CLT_HOST(label)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int i = 0; i < 3; i++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_store_get(l->store, name, result, bytes));
}

static char *choices_of(const lab *l)
{
    char *text;
    ok(clt_choices_to_json(l->trainer->choices, l->trainer->training, l->trainer->evaluation,
                           &text));
    return text;
}

/* The choices of a checkpoint are repeated, whatever the record says now. */
static void test_frozen(void **state)
{
    (void)state;
    float before[CHANNELS * 27], after[CHANNELS * 27];
    char *frozen = NULL;
    remove_record();
    clt_trainer_options options = options_of(60);
    lab first = lab_open(&options);
    train_steps(&first, "conv", before, sizeof before);
    frozen = choices_of(&first);
    const clt_plan_node *node = node_of(&first, "conv2d");
    char tile[128];
    snprintf(tile, sizeof tile, "%s", node->tuned->options);
    clt_tuning_record record;
    clt_tuning_load(devices[0], &record);
    for (int i = 0; i < record.count; i++)
        snprintf(record.entries[i].options, sizeof record.entries[i].options, "TX=1,TC=1,TO=1");
    ok(clt_tuning_save(devices[0], &record));

    options = options_of(0);
    lab other = lab_open(&options);
    assert_string_equal(node_of(&other, "conv2d")->tuned->options, "TX=1,TC=1,TO=1");
    options.frozen = frozen;
    lab again = lab_open(&options);
    assert_string_equal(node_of(&again, "conv2d")->tuned->options, tile);
    train_steps(&again, "conv", after, sizeof after);
    assert_memory_equal(before, after, sizeof before);
    /* Choices of another device are not used. */
    char *name = strstr(frozen, devices[0]->caps.name);
    assert_non_null(name);
    name[0] = name[0] == 'x' ? 'y' : 'x';
    lab elsewhere = lab_open(&options);
    assert_string_equal(node_of(&elsewhere, "conv2d")->tuned->options, "TX=1,TC=1,TO=1");
    clt_trainer *none;
    options.frozen = "[not JSON";
    assert_int_equal(clt_trainer_create(first.graph, first.store, &options, &none), CLT_FORMAT);
    clt_tuning_free(&record);
    free(frozen);
    lab_close(&first);
    lab_close(&other);
    lab_close(&again);
    lab_close(&elsewhere);
}

/* Choices that no measurement made are repeated too. The first run takes the portable variants, as
 * a version of the library would whose lists have another order. */
static void test_frozen_defaults(void **state)
{
    (void)state;
    static float before[CLASSES * 3 * SIZE * SIZE], after[CLASSES * 3 * SIZE * SIZE];
    remove_record();
    build_graph = build_plain;
    clt_trainer_options options = options_of(0);
    lab usual = lab_open(&options);
    options.variants = "linear=portable,linear_weight_grad=portable,cross_entropy=portable,"
                       "cross_entropy_grad=portable";
    lab first = lab_open(&options);
    char *frozen = choices_of(&first);
    options.variants = NULL;
    options.frozen = frozen;
    lab again = lab_open(&options);
    build_graph = build;
    const clt_session *sets[][3] = {
        {first.trainer->training, again.trainer->training, usual.trainer->training},
        {first.trainer->evaluation, again.trainer->evaluation, usual.trainer->evaluation}};
    int others = 0;
    for (int s = 0; s < 2; s++) {
        const clt_plan *old = sets[s][0]->devices[0].plan, *now = sets[s][1]->devices[0].plan;
        assert_int_equal(old->n_nodes, now->n_nodes);
        for (int i = 0; i < now->n_nodes; i++) {
            assert_ptr_equal(now->nodes[i].variant, old->nodes[i].variant);
            others += old->nodes[i].variant != sets[s][2]->devices[0].plan->nodes[i].variant;
        }
    }
    assert_true(others >= 4);
    train_steps(&first, "linear", before, sizeof before);
    train_steps(&again, "linear", after, sizeof after);
    assert_memory_equal(before, after, sizeof before);
    char *repeated = choices_of(&again);
    assert_string_equal(repeated, frozen);
    free(repeated);
    free(frozen);
    lab_close(&usual);
    lab_close(&first);
    lab_close(&again);
}

static void test_named_variants(void **state)
{
    (void)state;
    clt_trainer *none;
    clt_trainer_options options = options_of(0);
    options.variants = "conv2d=portable,linear=gemm_cpu";
    lab l = lab_open(&options);
    assert_string_equal(node_of(&l, "conv2d")->variant->name, "portable");
    assert_string_equal(node_of(&l, "linear")->variant->name, "gemm_cpu");
    options.variants = "conv2d=portble";
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &none), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "did you mean portable?"));
    options.variants = "conv2d";
    assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &none), CLT_INVALID_ARGUMENT);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_and_found),
        cmocka_unit_test(test_later),
#ifdef CLT_TESTING
        cmocka_unit_test(test_wrong_candidates),
        cmocka_unit_test(test_candidates_that_skip),
        cmocka_unit_test(test_wrong_own_choice),
        cmocka_unit_test(test_wrong_in_batch_blocked),
        cmocka_unit_test(test_wrong_candidates_in_batch_blocked),
        cmocka_unit_test(test_broken_candidates),
        cmocka_unit_test(test_lucky_candidates),
        cmocka_unit_test(test_unfinished),
        cmocka_unit_test(test_asked_for_is_not_measured),
        cmocka_unit_test(test_shipped),
#endif
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_frozen_defaults),
        cmocka_unit_test(test_named_variants),
    };
    build_graph = build;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
