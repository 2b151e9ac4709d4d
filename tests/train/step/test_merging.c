/* Small launches that become one: results do not change by a bit, in whatever way a step is run. */
#include "device/program/merge_source.h"
#include "train/model_runs.h"

static void set_up(clt_trainer_options *options, const kind *k, clt_merging merging)
{
    clt_trainer_options_init(options);
    options->optimizer = CLT_ADAM;
    options->lr = 0.002;
    options->batch = k->batch;
    options->seed = 5;
    options->clip_norm = 1;
    options->poison = 1;
    options->merge_launches = merging;
}

/* What a run has besides its model. */
typedef struct way {
    const char *name, *devices;
    int parts, accumulate, recompute, separate, portable;
    clt_dtype precision;
    int64_t steps; /* of the whole run */
} way;

static outcome run_so(const kind *k, const way *w, clt_merging merging)
{
    clt_trainer_options options;
    set_up(&options, k, merging);
    options.accumulate = w->accumulate ? w->accumulate : 1;
    options.recompute = w->recompute;
    options.separate = w->separate;
    options.portable = w->portable;
    options.precision = w->precision;
    options.merge_steps = w->steps;
    return run(k, clt_test_devices(w->devices), &options, w->parts);
}

static void compare(const kind *k, const way *w)
{
    outcome apart = run_so(k, w, CLT_MERGE_OFF), merged = run_so(k, w, CLT_MERGE_ON);
    assert_int_equal(apart.merges, 0);
    if (!merged.merges)
        fail_msg("%s, %s: nothing is merged", k->model, w->name);
    same(k, w->devices, w->name, &apart, &merged);
    free(apart.bytes);
    free(merged.bytes);
}

static const kind mlp = {"mlp:40,36,32", 1, 8, 0, MOST_BATCH};

static void test_models(void **state)
{
    static const kind kinds[] = {{"mlp:40,36,32", 1, 8, 0, MOST_BATCH},
                                 {"lenet", 1, 28, 0, 1},
                                 {"gpt2:layers=1,heads=2,width=24,dropout=0.2", 0, 0, T, 6},
                                 {"lstm:hidden=20,layers=1", 0, 0, T, 6}};
    const kind tiny = {"mlp:12,11", 1, 4, 0, 5};
    const way plain = {"a step", "cpu@1", .parts = 0};
    (void)state;
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds) && !clt_test_oclgrind(); i++)
        compare(&kinds[i], &plain);
    if (clt_test_oclgrind())
        compare(&tiny, &plain);
}

static void test_ways(void **state)
{
    static const way ways[] = {
        {"parts of a step", "cpu@1", .parts = 1},     {"micro-batches", "cpu@1", .accumulate = 2},
        {"recomputation", "cpu@1", .recompute = 1},   {"separate buffers", "cpu@1", .separate = 1},
        {"portable kernels", "cpu@1", .portable = 1}, {"two devices", "cpu/2", .parts = 0},
    };
    (void)state;
    if (clt_test_oclgrind())
        skip();
    /* Merged portable kernels differ in last bits on Intel's runtime, probably because its compiler
     * fuses other multiplications and additions. The other kernels say where to fuse. */
    const bool intel = !strncmp(clt_test_devices(""), "intel", 5);
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++)
        if (!(ways[i].portable && intel))
            compare(&mlp, &ways[i]);
}

static void test_precisions(void **state)
{
    static const kind small = {"mlp:40,36", 1, 8, 0, MOST_BATCH};
    static const kind gpt = {"gpt2:layers=1,heads=2,width=24", 0, 0, T, 4};
    static const way ways[] = {{"f16", "cpu@1", .precision = CLT_F16},
                               {"bf16", "cpu@1", .precision = CLT_BF16},
                               {"bf16 on two devices", "cpu/2", .precision = CLT_BF16}};
    (void)state;
    if (clt_test_oclgrind())
        skip();
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++)
        compare(&small, &ways[i]);
    compare(&gpt, &ways[1]);
}

/* Without a wish, launches merge only where they take a part of the step that counts, and where
 * the run repays compiling. */
static void test_auto(void **state)
{
    const kind large = {"mlp:2048,2048", 3, 32, 0, MOST_BATCH};
    const way plain = {"a step", "cpu@1", .parts = 0};
    const way brief = {"a step of few", "cpu@1", .steps = 100};
    const way lasting = {"a step of many", "cpu@1", .steps = 1000000};
    (void)state;
    if (clt_test_oclgrind())
        skip();
    outcome of_few = run_so(&mlp, &brief, CLT_MERGE_AUTO);
    outcome of_many = run_so(&mlp, &lasting, CLT_MERGE_AUTO);
    assert_int_equal(of_few.merges, 0);
    assert_in_range(of_many.merges, 1, INT64_MAX);
    free(of_few.bytes);
    free(of_many.bytes);
    outcome small = run_so(&mlp, &plain, CLT_MERGE_AUTO);
    outcome other = run_so(&large, &plain, CLT_MERGE_AUTO);
    assert_in_range(small.merges, 1, INT64_MAX);
    assert_int_equal(other.merges, 0);
    free(small.bytes);
    free(other.bytes);
}

/* The norm, the step status and the optimizer of a small model are one launch, also of a step in
 * parts. Those of a larger model stay apart. */
static void test_endings(void **state)
{
    static const kind tiny = {"mlp:12,11", 1, 4, 0, 5};
    static const way ways[] = {{"a step", "cpu@1", .parts = 0},
                               {"parts of a step", "cpu@1", .parts = 1},
                               {"f16", "cpu@1", .precision = CLT_F16}};
    (void)state;
    for (int i = 0; i < (clt_test_oclgrind() ? 1 : 3); i++) {
        compare(&tiny, &ways[i]);
        outcome o = run_so(&tiny, &ways[i], CLT_MERGE_ON);
        assert_true(o.ends);
        free(o.bytes);
    }
    if (clt_test_oclgrind())
        return;
    outcome large = run_so(&mlp, &ways[0], CLT_MERGE_ON);
    assert_false(large.ends);
    free(large.bytes);
}

/* The kernel of ReLU's gradient, declined in place of a CPU kernel that has a barrier. */
static char declined[64];

static bool accepts_all_but_one(const char *file, const char *options, const char *kernel,
                                char *why)
{
    (void)file;
    (void)options;
    if (strcmp(kernel, declined))
        return true;
    snprintf(why, CLT_PLAN_WHY, "it calls barrier");
    return false;
}

/* A kernel that cannot be part of another one ends a run, and the plan says why. */
static void test_declined(void **state)
{
    const bool asks[] = {false, true};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    lab l = lab_on_kept("cpu@1");
    clt_graph *g = build(&mlp);
    clt_buckets buckets;
    (void)state;
    ok(clt_buckets_create(g, &sizes, &buckets));
    for (int i = 0; i < 2; i++) {
        clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, 8);
        clt_plan *plan;
        clt_str text = {0};
        options.merge = CLT_MERGE_ON;
        options.merges = asks[i] ? accepts_all_but_one : clt_merge_accepts_kernel;
        ok(clt_plan_create(g, &buckets, &l.devices[0]->caps, NULL, &options, &plan));
        clt_plan_print(plan, true, &text);
        assert_true(plan->n_merges > asks[i]);
        for (int n = 0; n < plan->n_nodes; n++)
            if (!strcmp(plan->nodes[n].node->op->name, "relu_grad"))
                snprintf(declined, sizeof declined, "%s",
                         plan->nodes[n].program.launches[0].kernel);
        for (int m = 0; m < plan->n_merges; m++)
            for (int n = plan->merges[m].first; asks[i] && n < plan->merges[m].end; n++)
                assert_string_not_equal(plan->nodes[n].node->op->name, "relu_grad");
        assert_int_equal(strstr(clt_str_text(&text), ": it calls barrier") != NULL, asks[i]);
        clt_str_free(&text);
        clt_plan_destroy(plan);
    }
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
    lab_close(&l);
}

/* What kernels of GPUs need of their groups, and compiler options that others lack. */
static void test_refused(void **state)
{
    static const struct {
        const char *file, *options, *kernel, *why;
    } cases[] = {{"train/gpu/update.cl", "", "square_sum", "it calls"},
                 {"train/portable/update.cl", "-cl-fast-relaxed-math", "sgd", "compiler options"},
                 {"none.cl", "", "none", "not known"}};
    char why[CLT_MERGE_WHY];
    (void)state;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        assert_false(
            clt_merge_accepts_kernel(cases[i].file, cases[i].options, cases[i].kernel, why));
        assert_non_null(strstr(why, cases[i].why));
    }
    assert_true(clt_merge_accepts_kernel("train/portable/update.cl", "-DCLT_FP64", "sgd", why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),     cmocka_unit_test(test_ways),
        cmocka_unit_test(test_precisions), cmocka_unit_test(test_auto),
        cmocka_unit_test(test_endings),    cmocka_unit_test(test_declined),
        cmocka_unit_test(test_refused),
    };
    make_data();
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
