/* Opening of device lists: parts of devices, shared contexts, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "device/discover/sub_devices.h"

static const char *self;
static clt_runtime *runtime;
static int split_row = -1; /* row of a CPU that can be split */

static int set_up(void **state)
{
    (void)state;
    clt_runtime_options options;
    clt_runtime_options_init(&options);
    options.cache_dir = "";
    if (clt_runtime_create(&options, &runtime) != CLT_OK)
        return 1;
    for (int i = 0; i < runtime->count && split_row < 0; i++) {
        const clt_device_info *info = &runtime->rows[i].info;
        if (info->usable && info->splittable && info->compute_units > 1 &&
            !(runtime->rows[i].quirks & CLT_QUIRK_HOST_WORKS))
            split_row = i;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clt_runtime_destroy(runtime);
    return 0;
}

static void the_default_opens_something(void **state)
{
    (void)state;
    int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    clt_device **devices = NULL;
    int count = 0;
    assert_int_equal(clt_devices_open(runtime, NULL, NULL, &devices, &count), CLT_OK);
    assert_true(count >= 1);
    for (int i = 0; i < count; i++) {
        clt_device_info info;
        clt_device_info_init(&info);
        assert_int_equal(clt_device_get_info(devices[i], &info), CLT_OK);
        assert_int_equal(info.index, devices[i]->row);
        assert_int_equal(info.compute_units, devices[i]->caps.compute_units);
        assert_true((devices[i]->transfer == devices[i]->queue) == (info.kind == CLT_KIND_CPU));
    }
    clt_devices_close(devices, count);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
}

static void open_list(const char *list, const clt_device_options *options, clt_device ***devices,
                      int *count)
{
    if (clt_devices_open(runtime, list, options, devices, count) != CLT_OK)
        fail_msg("%s: %s", list, clt_error_message());
}

static void parts_have_their_cores_and_labels(void **state)
{
    (void)state;
    if (split_row < 0)
        skip();
    int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    const int whole = runtime->rows[split_row].info.compute_units;
    clt_device **devices = NULL;
    int count = 0;
    char list[64];
    snprintf(list, sizeof list, "%d/2", split_row);
    open_list(list, NULL, &devices, &count);
    assert_int_equal(count, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(devices[i]->caps.compute_units, whole / 2);
        assert_ptr_not_equal(devices[i]->id, devices[i]->root);
        assert_ptr_equal(devices[i]->root, runtime->rows[split_row].id);
    }
    assert_ptr_not_equal(devices[0]->id, devices[1]->id);
    assert_ptr_not_equal(devices[0]->context, devices[1]->context);
    assert_string_not_equal(devices[0]->label, devices[1]->label);
    clt_devices_close(devices, count);

    snprintf(list, sizeof list, "%d@1,%d@1,%d", split_row, split_row, split_row);
    open_list(list, NULL, &devices, &count);
    assert_int_equal(count, 3);
    assert_int_equal(devices[0]->caps.compute_units, 1);
    assert_int_equal(devices[1]->caps.compute_units, 1);
    assert_int_equal(devices[2]->caps.compute_units, whole);
    clt_devices_close(devices, count);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
}

static void a_shared_context_serves_both_parts(void **state)
{
    (void)state;
    if (split_row < 0)
        skip();
    int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    clt_device_options options;
    clt_device_options_init(&options);
    options.share_context = 1;
    options.profiling = 1;
    clt_device **devices = NULL;
    int count = 0;
    char list[64];
    snprintf(list, sizeof list, "%d/2", split_row);
    open_list(list, &options, &devices, &count);
    assert_ptr_equal(devices[0]->context, devices[1]->context);
    const char *text = "kernel void put(global int *x, int v) { x[get_global_id(0)] = v; }";
    cl_mem buffer = NULL;
    assert_int_equal(clt_device_buffer_create(devices[0], 64, CL_MEM_READ_WRITE, "b", &buffer),
                     CLT_OK);
    assert_int_equal(clt_device_finish(devices[0]), CLT_OK);
    for (int i = 0; i < 2; i++) {
        cl_kernel kernel = NULL;
        const int value = 7 + i;
        int got[16];
        const size_t global = 16;
        assert_int_equal(clt_device_kernel_from_text(devices[i], "put", text, NULL, "put", &kernel),
                         CLT_OK);
        clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
        clSetKernelArg(kernel, 1, sizeof value, &value);
        assert_int_equal(clEnqueueNDRangeKernel(devices[i]->queue, kernel, 1, NULL, &global, NULL,
                                                0, NULL, NULL),
                         CL_SUCCESS);
        assert_int_equal(clEnqueueReadBuffer(devices[i]->queue, buffer, CL_TRUE, 0, sizeof got, got,
                                             0, NULL, NULL),
                         CL_SUCCESS);
        for (int j = 0; j < 16; j++)
            assert_int_equal(got[j], value);
        clt_release_kernel(kernel);
    }
    clt_release_buffer(buffer);
    clt_devices_close(devices, count);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
}

static void drivers_that_ignore_parts_are_refused(void **state)
{
    (void)state;
    bool found = false;
    for (int i = 0; i < runtime->count; i++) {
        const clt_device_row *row = &runtime->rows[i];
        if (!(row->quirks & CLT_QUIRK_HOST_WORKS) || row->info.compute_units < 2)
            continue;
        found = true;
        clt_device **devices = NULL;
        int count = 0;
        char list[64];
        snprintf(list, sizeof list, "%d@1", i);
        assert_int_equal(clt_devices_open(runtime, list, NULL, &devices, &count), CLT_UNSUPPORTED);
        assert_non_null(strstr(clt_error_message(), "use the device whole"));
        assert_null(devices);
    }
    if (!found)
        skip();
}

static void mistakes_open_nothing(void **state)
{
    (void)state;
    int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    clt_device **devices = NULL;
    int count = -1;
    assert_int_equal(clt_devices_open(runtime, "nowhere", NULL, &devices, &count), CLT_NOT_FOUND);
    const clt_device_options wrong = {0};
    assert_int_equal(clt_devices_open(runtime, NULL, &wrong, &devices, &count),
                     CLT_INVALID_ARGUMENT);
    assert_null(devices);
    assert_int_equal(count, -1);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
}

static int run_without_drivers(void)
{
    clt_runtime *none = NULL;
    clt_device **devices = NULL;
    int count = 0;
    if (clt_runtime_create(NULL, &none) != CLT_OK || clt_runtime_device_count(none) != 0)
        return 1;
    if (clt_devices_open(none, NULL, NULL, &devices, &count) != CLT_NO_DEVICE)
        return 2;
    if (!strstr(clt_error_message(), "pocl-opencl-icd") ||
        strcmp(clt_error_message(), clt_runtime_remark(none)) != 0)
        return 3;
    clt_runtime_destroy(none);
    return 0;
}

static void without_a_driver_the_message_says_what_to_install(void **state)
{
    (void)state;
    if (getenv("LD_PRELOAD")) /* a driver that needs no ICD */
        skip();
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
        execl(self, self, "child", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void *open_and_close(void *argument)
{
    intptr_t *failures = argument;
    for (int i = 0; i < 5; i++) {
        clt_runtime *own = NULL;
        clt_device **devices = NULL;
        int count = 0;
        char list[64];
        snprintf(list, sizeof list, split_row < 0 ? "0" : "%d/2", split_row);
        if (clt_runtime_create(NULL, &own) != CLT_OK) {
            ++*failures;
            continue;
        }
        if (clt_devices_open(own, list, NULL, &devices, &count) == CLT_OK)
            clt_devices_close(devices, count);
        else
            ++*failures;
        clt_runtime_destroy(own);
    }
    return NULL;
}

static void threads_may_discover_and_split_at_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    intptr_t failures[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, &failures[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1 && !strcmp(argv[1], "child"))
        return run_without_drivers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_opens_something),
        cmocka_unit_test(parts_have_their_cores_and_labels),
        cmocka_unit_test(a_shared_context_serves_both_parts),
        cmocka_unit_test(drivers_that_ignore_parts_are_refused),
        cmocka_unit_test(mistakes_open_nothing),
        cmocka_unit_test(without_a_driver_the_message_says_what_to_install),
        cmocka_unit_test(threads_may_discover_and_split_at_once),
    };
    return cmocka_run_group_tests_name("device.devices", tests, set_up, tear_down);
}
