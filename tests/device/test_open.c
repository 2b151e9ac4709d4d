/* Opens and adopts devices of this machine, builds kernels and makes buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "device/discover/open.h"
#include "device/program/program.h"

static clt_runtime *runtime;

static int set_up(void **state)
{
    (void)state;
    clt_runtime_options options;
    clt_runtime_options_init(&options);
    options.cache_dir = "";
    return clt_runtime_create(&options, &runtime) != CLT_OK || runtime->count == 0;
}

static int tear_down(void **state)
{
    (void)state;
    clt_runtime_destroy(runtime);
    return 0;
}

static clt_device *open_first(void)
{
    clt_device *device = NULL;
    assert_int_equal(clt_device_open_row(runtime, 0, NULL, &device), CLT_OK);
    return device;
}

static void rows_describe_what_was_found(void **state)
{
    (void)state;
    assert_true(clt_runtime_device_count(runtime) > 0);
    assert_string_equal(clt_runtime_remark(runtime), "");
    for (int i = 0; i < runtime->count; i++) {
        clt_device_info info;
        clt_device_info_init(&info);
        assert_int_equal(clt_runtime_device_info(runtime, i, &info), CLT_OK);
        assert_int_equal(info.index, i);
        assert_true(strlen(info.platform) > 0 && strlen(info.name) > 0);
        assert_true(info.compute_units > 0 && info.memory_bytes > 0);
        assert_true(info.usable == (strlen(info.skip) == 0));
        const clt_caps *caps = &runtime->rows[i].caps;
        assert_true(caps->vector_width >= 1 && caps->max_work_group > 0 && caps->align_bytes > 0);
        if (caps->kind == CLT_KIND_CPU) {
            assert_true(caps->vector_width == 4 || caps->vector_width == 8 ||
                        caps->vector_width == 16);
            assert_true(caps->vector_registers == 16 || caps->vector_registers == 32);
            assert_string_equal(info.identity, "host");
        }
    }
    clt_device_info info = {0};
    assert_int_equal(clt_runtime_device_info(runtime, 0, &info), CLT_INVALID_ARGUMENT);
    clt_device_info_init(&info);
    assert_int_equal(clt_runtime_device_info(runtime, runtime->count, &info), CLT_INVALID_ARGUMENT);
}

static void a_kernel_runs_and_everything_is_released(void **state)
{
    (void)state;
    int64_t live = clt_device_object_live(CLT_OBJECT_KINDS);
    clt_device *device = open_first();
    cl_mem buffer = NULL;
    const int64_t bytes = 1000 * sizeof(float);
    assert_int_equal(clt_device_buffer_create(device, bytes, CL_MEM_READ_WRITE, "test", &buffer),
                     CLT_OK);
    float values[1000];
    memset(values, 0xFF, sizeof values);
    assert_int_equal(clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, sizeof values, values,
                                         0, NULL, NULL),
                     CL_SUCCESS);
    for (int i = 0; i < 1000; i++)
        assert_true(values[i] == 0.0f);

    const char *text = "kernel void fill(global float *x)\n"
                       "{\n    x[get_global_id(0)] = SCALE * (float)get_global_id(0);\n}\n";
    cl_kernel kernel = NULL, again = NULL;
    int64_t programs = clt_device_object_count(CLT_OBJECT_PROGRAM);
    assert_int_equal(
        clt_device_kernel_from_text(device, "fill", text, "-DSCALE=3.0f", "fill", &kernel), CLT_OK);
    assert_int_equal(
        clt_device_kernel_from_text(device, "fill", text, "-DSCALE=3.0f", "fill", &again), CLT_OK);
    assert_ptr_not_equal(kernel, again);
    assert_int_equal(clt_device_object_count(CLT_OBJECT_PROGRAM), programs + 1);
    clt_release_kernel(again);
    assert_int_equal(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
    const size_t global = 1000;
    cl_event event = NULL;
    assert_int_equal(
        clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, NULL, 0, NULL, &event),
        CL_SUCCESS);
    clt_object_created(CLT_OBJECT_EVENT);
    assert_int_equal(clt_device_wait(device, 1, &event), CLT_OK);
    clt_release_event(event);
    assert_int_equal(clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, sizeof values, values,
                                         0, NULL, NULL),
                     CL_SUCCESS);
    for (int i = 0; i < 1000; i++)
        assert_true(values[i] == 3.0f * (float)i);
    assert_int_equal(
        clt_device_kernel_from_text(device, "fill", text, "-DSCALE=3.0f", "none", &again),
        CLT_NOT_FOUND);
    clt_release_kernel(kernel);
    clt_release_buffer(buffer);
    clt_device_close(device);
    assert_int_equal(clt_device_object_live(CLT_OBJECT_KINDS), live);
}

static void a_build_failure_names_device_file_and_line(void **state)
{
    (void)state;
    clt_device *device = open_first();
    const char *text = "kernel void broken(global float *x)\n{\n    x[0] = unknown_name;\n}\n";
    cl_kernel kernel = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            clt_device_kernel_from_text(device, "broken.cl", text, NULL, "broken", &kernel),
            CLT_BUILD);
        /* Oclgrind ignores #line. */
        assert_non_null(strstr(clt_error_message(),
                               strstr(device->caps.platform, "Oclgrind") ? ":4:" : "broken.cl:3"));
        assert_non_null(strstr(clt_error_message(), "unknown_name"));
        assert_non_null(strstr(clt_error_message(), clt_device_label(device)));
        assert_null(strchr(clt_error_message(), '\n'));
    }
    assert_null(kernel);
    assert_int_equal(clt_device_kernel(device, "none/none.cl", NULL, "x", &kernel), CLT_NOT_FOUND);
    clt_device_close(device);
}

static void too_large_a_buffer_says_what_there_is(void **state)
{
    (void)state;
    clt_device *device = open_first();
    cl_mem buffer = NULL;
    const int64_t most = device->caps.max_alloc_bytes;
    assert_int_equal(
        clt_device_buffer_create(device, most + 4, CL_MEM_READ_WRITE, "slab 0", &buffer),
        CLT_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(clt_error_message(), "slab 0"));
    assert_non_null(strstr(clt_error_message(), "MiB are needed"));
    assert_int_equal(clt_device_buffer_create(device, 0, CL_MEM_READ_WRITE, "slab 0", &buffer),
                     CLT_INVALID_ARGUMENT);
    assert_null(buffer);
    assert_true(clt_device_memory_available(device) > 0);
    clt_device_close(device);
}

static cl_uint context_references(cl_context context)
{
    cl_uint count = 0;
    assert_int_equal(
        clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL),
        CL_SUCCESS);
    return count;
}

static cl_uint queue_references(cl_command_queue queue)
{
    cl_uint count = 0;
    assert_int_equal(
        clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL),
        CL_SUCCESS);
    return count;
}

static void adopted_objects_keep_their_reference_counts(void **state)
{
    (void)state;
    cl_int code = CL_SUCCESS;
    cl_device_id id = runtime->rows[0].id;
    cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, id, CL_QUEUE_PROFILING_ENABLE, &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_uint contexts = context_references(context), queues = queue_references(queue);
    for (int with_queue = 0; with_queue < 2; with_queue++) {
        clt_device *device = NULL;
        int64_t made = clt_device_object_count(CLT_OBJECT_QUEUE);
        assert_int_equal(
            clt_device_adopt(runtime, context, id, with_queue ? queue : NULL, NULL, &device),
            CLT_OK);
        assert_ptr_equal(clt_device_cl_context(device), context);
        if (with_queue) {
            assert_ptr_equal(clt_device_cl_queue(device), queue);
            assert_int_equal(clt_device_object_count(CLT_OBJECT_QUEUE), made);
            assert_true(device->profiling);
        }
        cl_mem buffer = NULL;
        cl_kernel kernel = NULL;
        assert_int_equal(clt_device_buffer_create(device, 64, CL_MEM_READ_WRITE, "b", &buffer),
                         CLT_OK);
        assert_int_equal(
            clt_device_kernel_from_text(device, "k", "kernel void k(){}", NULL, "k", &kernel),
            CLT_OK);
        clt_release_kernel(kernel);
        clt_release_buffer(buffer);
        clt_device_close(device);
        assert_int_equal(context_references(context), contexts);
        assert_int_equal(queue_references(queue), queues);
    }
    clt_device *device = NULL; /* the library's own runtime serves too */
    assert_int_equal(clt_device_adopt(NULL, context, id, queue, NULL, &device), CLT_OK);
    clt_device_info info;
    clt_device_info_init(&info);
    assert_int_equal(clt_device_get_info(device, &info), CLT_OK);
    assert_int_equal(info.index, runtime->rows[0].info.index);
    clt_device_close(device);
    clReleaseCommandQueue(queue);
    cl_command_queue loose =
        clCreateCommandQueue(context, id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code);
    if (code == CL_SUCCESS) {
        device = NULL;
        assert_int_equal(clt_device_adopt(runtime, context, id, loose, NULL, &device),
                         CLT_UNSUPPORTED);
        assert_non_null(strstr(clt_error_message(), "out-of-order"));
        assert_null(device);
        clReleaseCommandQueue(loose);
    }
    clReleaseContext(context);
}

/* A part of a part has the whole device as its root, as the two checks of parts and the cache of
 * programs expect. */
static void a_part_of_a_part_belongs_to_the_whole_device(void **state)
{
    (void)state;
    cl_device_id whole = runtime->rows[0].id, part = NULL, inner = NULL;
    const cl_device_partition_property one[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1,
                                                CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    const cl_device_partition_property all[] = {CL_DEVICE_PARTITION_BY_COUNTS,
                                                runtime->rows[0].info.compute_units,
                                                CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    if (clCreateSubDevices(whole, all, 1, &part, NULL) != CL_SUCCESS)
        skip();
    if (clCreateSubDevices(part, one, 1, &inner, NULL) != CL_SUCCESS) {
        clReleaseDevice(part);
        skip();
    }
    cl_int code = CL_SUCCESS;
    cl_context context = clCreateContext(NULL, 1, &inner, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, inner, 0, &code);
    assert_int_equal(code, CL_SUCCESS);
    for (int with_queue = 0; with_queue < 2; with_queue++) {
        clt_device *device = NULL;
        assert_int_equal(
            clt_device_adopt(runtime, context, inner, with_queue ? queue : NULL, NULL, &device),
            CLT_OK);
        assert_ptr_equal(device->root, whole);
        assert_int_equal(device->caps.compute_units, 1);
        clt_device_close(device);
    }
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    clReleaseDevice(inner);
    clReleaseDevice(part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_describe_what_was_found),
        cmocka_unit_test(a_kernel_runs_and_everything_is_released),
        cmocka_unit_test(a_build_failure_names_device_file_and_line),
        cmocka_unit_test(too_large_a_buffer_says_what_there_is),
        cmocka_unit_test(adopted_objects_keep_their_reference_counts),
        cmocka_unit_test(a_part_of_a_part_belongs_to_the_whole_device),
    };
    return cmocka_run_group_tests_name("device.open", tests, set_up, tear_down);
}
