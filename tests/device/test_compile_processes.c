/* clt_compile_processes: a process has one set of helpers at a time, and may end it. Their work is
 * tested by cli.first_step. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "device/program/compile_helpers.h"
#include <cltrain/device.h>

static int reported;

static void note(void *user, int number, int finished)
{
    (void)user;
    (void)number;
    reported = finished;
}

static void test_numbers(void **state)
{
    (void)state;
    assert_int_equal(clt_compile_processes(-1), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_compile_processes(17), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_helpers_count(), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(clt_compile_processes(3), CLT_OK);
        assert_int_equal(clt_helpers_count(), 3);
        assert_int_equal(clt_compile_processes(1), CLT_STATE);
        assert_int_equal(clt_compile_processes(0), CLT_OK);
        assert_int_equal(clt_helpers_count(), 0);
        /* They have ended and were waited for. */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
}

/* A request for a device that is not there fails, and its helper serves the next one. */
static void test_no_device(void **state)
{
    (void)state;
    const char *const requests[] = {"4\nnone\n4\nnone\n0\n\n0\n\n0",
                                    "4\nnone\n4\nnone\n0\n\n0\n\n0",
                                    "4\nnone\n4\nnone\n0\n\n0\n\n0"};
    bool done[] = {true, true, true};
    assert_int_equal(clt_compile_processes(2), CLT_OK);
    clt_helpers_serve(requests, 3, done, note, NULL);
    assert_int_equal(reported, 3);
    for (int i = 0; i < 3; i++)
        assert_false(done[i]);
    assert_int_equal(clt_helpers_count(), 2);
    assert_int_equal(clt_compile_processes(0), CLT_OK);
    /* Without helpers nothing is done, and nothing is waited for. */
    clt_helpers_serve(requests, 3, done, note, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_no_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
