/* The parameters of CLBlast's kernels are measured, recorded, and the same in all products of a
 * plan. Wrong sets are rejected. The test treats a CPU as a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "device/discover/clblast.h"
#include "device/program/tuning_file.h"
#include "ops/matmul/gemm.h"
#include "plan/plan.h"
#include "support/devices.h"
#include "tune/tune.h"
#include <cltrain/cltrain.h>

static clt_runtime *runtime;
static clt_device **devices;
static int n_devices;

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* Builds two products of different classes. */
static clt_graph *build(void)
{
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 65});
    clt_value *y = clt_input(g, "y", CLT_F32, 2, (int64_t[]){65, 34});
    clt_value *z = clt_input(g, "z", CLT_F32, 2, (int64_t[]){34, 12});
    clt_output(clt_matmul(clt_matmul(x, y, 0, 0), z, 0, 0), "out");
    ok(clt_graph_status(g));
    return g;
}

static clt_plan *plan_of(const clt_graph *g, const clt_tuning_record *record, const char *variants)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_EVALUATE, 40);
    clt_buckets buckets;
    clt_plan *plan;
    options.variants = variants;
    ok(clt_buckets_create(g, &sizes, &buckets));
    ok(clt_plan_create(g, &buckets, &devices[0]->caps, record, &options, &plan));
    clt_buckets_free(&buckets);
    return plan;
}

static const clt_blas_gemm *product_of(const clt_plan *plan, int index)
{
    for (int i = 0; i < plan->n_nodes; i++)
        if (!strcmp(plan->nodes[i].node->op->name, "matmul") && !index--) {
            assert_string_equal(plan->nodes[i].variant->name, "clblast");
            return plan->nodes[i].program.launches[0].blas;
        }
    fail_msg("the plan has too few products");
    return NULL;
}

#ifdef CLT_TESTING
static clt_tune_report tune(const clt_graph *g, double seconds, clt_tuning_record *record)
{
    const clt_plan_options options = clt_plan_options_default(CLT_PLAN_EVALUATE, 40);
    const clt_tune_limits limits = {.seconds = seconds};
    clt_tune_report report;
    ok(clt_tune_plan(g, devices[0], &options, &limits, record, &report));
    return report;
}

/* In the first run the time suffices for one set of each kernel. The next run continues behind this
 * set. */
static void sets_are_recorded_and_taken(void **state)
{
    (void)state;
    clt_graph *g = build();
    clt_tuning_record record = {.count = 0};
    clt_blas_set measured[CLT_BLAS_KERNELS];
    clt_tuning_testing_spoils = "WGD=8";
    const clt_tune_report begun = tune(g, 0.02, &record);
    assert_in_range(begun.classes, CLT_BLAS_KERNELS, 2 + CLT_BLAS_KERNELS);
    const clt_tuning_entry *packed = clt_gemm_clblast_tuned(&record, CLT_BLAS_PACKED);
    assert_non_null(packed);
    assert_in_range(packed->tried, 1, 2);
    const clt_tune_report report = tune(g, 1e6, &record);
    clt_tuning_testing_spoils = NULL;
    assert_int_equal(report.measured, report.classes);
    assert_true(begun.rejected + report.rejected >= 1);
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++) {
        const clt_tuning_entry *e = clt_gemm_clblast_tuned(&record, kernel);
        assert_non_null(e);
        assert_int_equal(e->tried, 0);
        assert_true(e->seconds > 0 && e->seconds <= e->plain_seconds);
        assert_true(clt_blas_set_read(kernel, e->options, &measured[kernel]));
        assert_true(clt_blas_set_fits(kernel, &measured[kernel], &devices[0]->caps));
        if (kernel == CLT_BLAS_DIRECT) {
            assert_non_null(strstr(e->rejected, "a wrong result"));
            assert_null(strstr(e->options, "WGD=8"));
        }
    }
    /* The record passes through the text of a file. */
    char *text;
    clt_tuning_record again;
    ok(clt_tuning_to_json(&record, &text));
    ok(clt_tuning_from_json(text, &again));
    clt_free(text);
    clt_plan *plan = plan_of(g, &again, "matmul=clblast");
    for (int i = 0; i < 2; i++)
        assert_memory_equal(product_of(plan, i)->sets, measured, sizeof measured);
    clt_plan_destroy(plan);
    /* Nothing is left to measure. */
    const clt_tune_report rest = tune(g, 1e6, &again);
    assert_int_equal(rest.classes, 0);
    assert_int_equal(rest.candidates, 0);
    clt_tuning_free(&again);
    clt_tuning_free(&record);
    clt_graph_destroy(g);
}
#endif

/* A record's set is ignored if the device cannot run it or if it is not valid. */
static void unfit_sets_are_not_taken(void **state)
{
    static const char *const texts[] = {
        "KWID=2,MDIMAD=8,MDIMCD=7,NDIMBD=8,NDIMCD=8,PADA=1,PADB=1,VWMD=1,VWND=1,WGD=8",
        "KWID=2,MDIMAD=8,MDIMCD=8,NDIMBD=8,NDIMCD=8,PADA=1,PADB=1,VWMD=1,VWND=1,WGD=4096",
        "KWID=2,MDIMAD=8,MDIMCD=8,NDIMBD=8,NDIMCD=8,PADA=1,PADB=1,VWMD=1,VWND=1", "KWID=2", ""};
    (void)state;
    clt_graph *g = build();
    clt_blas_set first, read;
    assert_true(clt_blas_set_choice(CLT_BLAS_DIRECT, 0, &devices[0]->caps, &first));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        clt_tuning_entry entry = {.op = CLT_BLAS_OP, .key = clt_blas_key(CLT_BLAS_DIRECT)};
        snprintf(entry.options, sizeof entry.options, "%s", texts[i]);
        const clt_tuning_record record = {.entries = &entry, .count = 1};
        clt_plan *plan = plan_of(g, &record, "matmul=clblast");
        assert_memory_equal(&product_of(plan, 0)->sets[CLT_BLAS_DIRECT], &first, sizeof first);
        clt_plan_destroy(plan);
    }
    /* All sets that are tried can be written and read. Devices without enough resources decline. */
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++)
        for (int i = 0; clt_blas_set_choice(kernel, i, &devices[0]->caps, &first); i++) {
            char text[CLT_BLAS_TEXT];
            clt_blas_set_write(kernel, &first, text);
            assert_true(strlen(text) < CLT_BLAS_TEXT - 1);
            assert_true(clt_blas_set_read(kernel, text, &read));
            assert_memory_equal(&first, &read, sizeof first);
        }
    clt_caps tiny = devices[0]->caps;
    tiny.max_work_group = 32;
    assert_false(clt_blas_set_choice(CLT_BLAS_DIRECT, 0, &tiny, &first));
    clt_graph_destroy(g);
}

static int set_up(void **state)
{
    (void)state;
    clt_runtime_options options;
    clt_runtime_options_init(&options);
    options.cache_dir = "";
    if (clt_runtime_create(&options, &runtime) != CLT_OK ||
        clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &devices, &n_devices) != CLT_OK)
        return -1;
    devices[0]->caps.kind = CLT_KIND_GPU;
    devices[0]->caps.clblast = true;
    /* Compiling a set takes seconds. Five of the fifteen sets fit into this local memory. */
    if (!getenv("CLT_TEST_ALL"))
        devices[0]->caps.local_bytes = 8192;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clt_devices_close(devices, n_devices);
    clt_runtime_destroy(runtime);
    return 0;
}

int main(void)
{
    if (!clt_clblast_found() || !strcmp(clt_test_devices("pocl"), "pocl")) {
        puts("without libclblast.so.1, or on PoCL, which takes a minute to compile each set's "
             "program");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unfit_sets_are_not_taken),
#ifdef CLT_TESTING
        cmocka_unit_test(sets_are_recorded_and_taken),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
