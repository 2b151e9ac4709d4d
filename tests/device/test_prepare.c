/* Builds many programs in advance, on several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "device/core/device.h"

enum { PROGRAMS = 12 };

static char options[PROGRAMS][32];
static clt_program_key keys[PROGRAMS];
static clt_runtime *runtime;
static clt_device **devices;
static int count;

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < PROGRAMS; i++) {
        snprintf(options[i], sizeof options[i], "-DNUMBER=%d", i);
        keys[i] = (clt_program_key){"core/philox.clh", options[i], NULL, NULL};
    }
    clt_runtime_options settings;
    clt_runtime_options_init(&settings);
    settings.cache_dir = "";
    return clt_runtime_create(&settings, &runtime) != CLT_OK ||
           clt_devices_open(runtime, NULL, NULL, &devices, &count) != CLT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return 0;
}

static void *prepare_all(void *status)
{
    *(clt_status *)status = clt_device_prepare(devices[0], keys, PROGRAMS);
    return NULL;
}

static void each_program_is_built_once(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    clt_status status[THREADS];
    uint64_t hashes[PROGRAMS], again = 0;
    int64_t before = clt_device_object_count(CLT_OBJECT_PROGRAM);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_all, &status[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(status[i], CLT_OK);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        assert_int_equal(
            clt_device_program_hash(devices[0], keys[i].file, keys[i].options, &hashes[i]), CLT_OK);
        for (int j = 0; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
    }
    assert_int_equal(clt_device_object_count(CLT_OBJECT_PROGRAM), before + PROGRAMS);
    assert_int_equal(clt_device_prepare(devices[0], NULL, 0), CLT_OK);
    assert_int_equal(clt_device_program_hash(devices[0], "core/philox.clh", options[3], &again),
                     CLT_OK);
    assert_true(again == hashes[3]);
}

static void the_first_failure_of_the_list_is_reported(void **state)
{
    (void)state;
    const clt_program_key bad[] = {keys[0],
                                   {"none/first.cl", NULL, NULL, NULL},
                                   keys[1],
                                   {"none/second.cl", NULL, NULL, NULL},
                                   keys[2]};
    assert_int_equal(clt_device_prepare(devices[0], bad, 5), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "none/first.cl"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_program_is_built_once),
        cmocka_unit_test(the_first_failure_of_the_list_is_reported),
    };
    return cmocka_run_group_tests_name("device.prepare", tests, set_up, tear_down);
}
