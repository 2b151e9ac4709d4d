/* Kernels are built with the declarations of clkernels/core/builtins.clh if the driver's header is
 * long. They are built with the header if these declarations do not suffice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "device/program/program.h"
#include <cltrain/log.h>
#include <cltrain/unstable.h>

static clt_runtime *runtime;
static clt_device **devices;
static int count;
static int warnings;

static void note(void *user, clt_log_level level, const char *line)
{
    (void)user;
    warnings += level == CLT_LOG_WARN && strstr(line, "the driver's header only") != NULL;
}

static int set_up(void **state)
{
    (void)state;
    warnings = 0;
    return clt_runtime_create(NULL, &runtime) != CLT_OK ||
           clt_devices_open(runtime, "cpu", NULL, &devices, &count) != CLT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return 0;
}

static bool is_set(void)
{
    return (devices[0]->quirks & CLT_QUIRK_OWN_DECLARATIONS) != 0;
}

static clt_status build(const char *body)
{
    cl_program program;
    return clt_program_get(devices[0], "elementwise/portable/elementwise.cl", NULL, body, &program,
                           NULL);
}

static void the_hash_is_that_of_the_source(void **state)
{
    const char *options = "-DN_IN=1 -DBODY=OUT(a*p0)";
    uint64_t own = 0, header = 1;
    (void)state;
    if (!is_set())
        skip();
    assert_int_equal(clt_program_get(devices[0], "elementwise/portable/elementwise.cl", NULL,
                                     options, NULL, &own),
                     CLT_OK);
    assert_true(is_set());
    clt_devices_close(devices, count);
    assert_int_equal(clt_devices_open(runtime, "cpu", NULL, &devices, &count), CLT_OK);
    devices[0]->quirks &= ~CLT_QUIRK_OWN_DECLARATIONS;
    assert_int_equal(clt_program_get(devices[0], "elementwise/portable/elementwise.cl", NULL,
                                     options, NULL, &header),
                     CLT_OK);
    assert_true(own == header);
}

/* The kernels that the operators' tests do not build. op_teardown of tests/ops/harness/harness.h
 * checks those. */
static void they_are_enough_for_all_kernels(void **state)
{
    static const char *const files[][2] = {
        {"train/portable/update.cl", ""},
        {"train/portable/update.cl", "-DCLT_FP64"},
        {"train/portable/checksum.cl", ""},
        {"comm/reduce.cl", ""},
        {"comm/reduce.cl", "-DCLT_FP64"},
        {"bench/allreduce.cl", "-DCPU=1 -DSAMPLES=8 -DDELAY=100"},
        {"bench/limits.cl", "-DVW=8 -DCHAINS=12 -DCPU=1 -DAHEAD=0"}};
    (void)state;
    if (!is_set())
        skip();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        cl_program program;
        if (clt_program_get(devices[0], files[i][0], NULL, files[i][1], &program, NULL) != CLT_OK)
            fail_msg("%s", clt_error_message());
        if (!is_set())
            fail_msg("%s with %s needs the driver's header", files[i][0], files[i][1]);
    }
}

static void what_is_not_declared_takes_the_header(void **state)
{
    (void)state;
    if (!is_set())
        skip();
    clt_log_set(note, NULL, CLT_LOG_WARN);
    assert_int_equal(build("-DN_IN=1 -DBODY=OUT(log1p(a))"), CLT_OK);
    assert_true(is_set());
    assert_int_equal(build("-DN_IN=1 -DBODY=OUT(lgamma(a))"), CLT_OK);
    assert_false(is_set());
    assert_int_equal(warnings, 1);
    assert_int_equal(build("-DN_IN=1 -DBODY=OUT(tgamma(a))"), CLT_OK);
    clt_log_set(NULL, NULL, CLT_LOG_WARN);
    assert_int_equal(warnings, 1);
}

/* A mistake in a kernel is reported as an error. The declarations stay in use. */
static void an_error_stays_an_error(void **state)
{
    (void)state;
    if (!is_set())
        skip();
    assert_int_equal(build("-DN_IN=1 -DBODY=OUT(a*not_there)"), CLT_BUILD);
    assert_non_null(strstr(clt_error_message(), "not_there"));
    assert_true(is_set());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_hash_is_that_of_the_source, set_up, tear_down),
        cmocka_unit_test_setup_teardown(they_are_enough_for_all_kernels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_declared_takes_the_header, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_error_stays_an_error, set_up, tear_down)};
    return cmocka_run_group_tests_name("device.declarations", tests, NULL, NULL);
}
