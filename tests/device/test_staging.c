/* Staging memory is aligned, usable for transfers, and freed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "device/core/staging.h"

static void transfers_go_through_staging(void **state)
{
    (void)state;
    int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    clt_runtime *runtime = NULL;
    clt_device **devices = NULL;
    int count = 0;
    assert_int_equal(clt_runtime_create(NULL, &runtime), CLT_OK);
    assert_int_equal(clt_devices_open(runtime, "all", NULL, &devices, &count), CLT_OK);
    for (int d = 0; d < count; d++) {
        clt_device *device = devices[d];
        enum { COUNT = 5000 };
        clt_staging up = {0}, down = {0};
        cl_mem buffer = NULL;
        assert_int_equal(clt_staging_create(device, COUNT * 4, "up", &up), CLT_OK);
        assert_int_equal(clt_staging_create(device, COUNT * 4, "down", &down), CLT_OK);
        assert_int_equal((uintptr_t)up.data % 4096, 0);
        assert_int_equal((uintptr_t)down.data % 4096, 0);
        assert_int_equal(up.bytes, COUNT * 4);
        assert_int_equal(
            clt_device_buffer_create(device, COUNT * 4, CL_MEM_READ_WRITE, "b", &buffer), CLT_OK);
        int *source = up.data, *target = down.data;
        for (int i = 0; i < COUNT; i++) {
            source[i] = i * 3 + d;
            target[i] = -1;
        }
        assert_int_equal(clEnqueueWriteBuffer(device->queue, buffer, CL_FALSE, 0, COUNT * 4, source,
                                              0, NULL, NULL),
                         CL_SUCCESS);
        assert_int_equal(clEnqueueReadBuffer(device->queue, buffer, CL_FALSE, 0, COUNT * 4, target,
                                             0, NULL, NULL),
                         CL_SUCCESS);
        assert_int_equal(clt_device_finish(device), CLT_OK);
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(target[i], i * 3 + d);
        assert_int_equal(clt_staging_create(device, 0, "none", &up), CLT_INVALID_ARGUMENT);
        clt_staging_destroy(&up);
        clt_staging_destroy(&down);
        clt_staging_destroy(&down);
        assert_null(up.data);
        clt_release_buffer(buffer);
    }
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_go_through_staging),
    };
    return cmocka_run_group_tests_name("device.staging", tests, NULL, NULL);
}
