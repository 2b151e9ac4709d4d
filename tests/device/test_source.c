/* Insertion of included files, compiler messages, and the device's copy of the random number
 * generator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/philox.h"
#include "device/program/kernel_source.h"
#include "device/program/program.h"

static int occurrences(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        found++;
    return found;
}

static void includes_come_once_and_lines_stay_known(void **state)
{
    (void)state;
    clt_str out = {0};
    const char *text = "int a;\n#include \"core/philox.clh\"\n  #  include\t\"core/philox.clh\" /* "
                       "again */\nint b;";
    assert_int_equal(clt_source_resolve("cpu/none.cl", text, &out), CLT_OK);
    const char *all = clt_str_text(&out);
    assert_int_equal(occurrences(all, "uint4 clt_philox("), 1);
    assert_int_equal(occurrences(all, "#include"), 0);
    assert_int_equal(occurrences(all, "#line 1 \"core/philox.clh\"\n"), 1);
    const char *rest = strstr(all, "#line 3 \"cpu/none.cl\"\n#line 4 \"cpu/none.cl\"\nint b;\n");
    assert_non_null(rest);
    assert_memory_equal(all, "#line 1 \"cpu/none.cl\"\nint a;\n#line 1 \"core/philox.clh\"\n", 30);
    clt_str_clear(&out);
    assert_int_equal(clt_source_resolve("x.cl", "\n#include \"none.clh\"\n", &out), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "x.cl, line 2"));
    assert_non_null(strstr(clt_error_message(), "none.clh"));
    clt_str_clear(&out);
    assert_int_equal(clt_source_resolve("none/none.cl", NULL, &out), CLT_NOT_FOUND);
    clt_str_free(&out);
}

static void every_embedded_file_resolves(void **state)
{
    (void)state;
    int files = 0;
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++, files++) {
        clt_str out = {0};
        assert_ptr_equal(clt_source_find(s->name), s->text);
        if (clt_source_resolve(s->name, NULL, &out) != CLT_OK)
            fail_msg("%s: %s", s->name, clt_error_message());
        assert_true(out.length >= strlen(s->text) / 2);
        clt_str_free(&out);
    }
    assert_true(files > 0);
    assert_null(clt_source_find("none/none.cl"));
}

static void a_log_becomes_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *log, *want;
    } cases[] = {
        {"", "the compiler gave no log"},
        {"\n \n", "the compiler gave no log"},
        {"a.cl:1:2: warning: w\na.cl:3:4: error: e\r\n  code\na.cl:5:6: error: f\n",
         "a.cl:3:4: error: e | a.cl:5:6: error: f"},
        {"Error in line 3\nmore\n", "Error in line 3 | more"},
        {"error: 1\nerror: 2\nerror: 3\nerror: 4\n", "error: 1 | error: 2 | error: 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clt_str out = {0};
        clt_program_log_summary(cases[i].log, &out);
        assert_string_equal(clt_str_text(&out), cases[i].want);
        clt_str_free(&out);
    }
}

static void devices_draw_the_hosts_random_numbers(void **state)
{
    (void)state;
    enum { BLOCKS = 500 };
    const char *text = "#include \"core/philox.clh\"\n"
                       "kernel void draw(global uint4 *out, ulong seed, ulong first)\n"
                       "{\n"
                       "    const size_t i = get_global_id(0);\n"
                       "    out[i] = clt_random4(seed, 3, 7, 11, first + i);\n"
                       "}\n";
    clt_runtime *runtime = NULL;
    clt_device **devices = NULL;
    int count = 0;
    assert_int_equal(clt_runtime_create(NULL, &runtime), CLT_OK);
    assert_int_equal(clt_devices_open(runtime, "all", NULL, &devices, &count), CLT_OK);
    for (int d = 0; d < count; d++) {
        clt_device *device = devices[d];
        const cl_ulong seed = 0x123456789ABCDEFull, first = 0xFFFFFF00ull;
        const size_t global = BLOCKS;
        uint32_t got[BLOCKS][4];
        cl_kernel kernel = NULL;
        cl_mem buffer = NULL;
        if (clt_device_kernel_from_text(device, "draw", text, NULL, "draw", &kernel) != CLT_OK)
            fail_msg("%s", clt_error_message());
        assert_int_equal(
            clt_device_buffer_create(device, sizeof got, CL_MEM_READ_WRITE, "b", &buffer), CLT_OK);
        assert_int_equal(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
        assert_int_equal(clSetKernelArg(kernel, 1, sizeof seed, &seed), CL_SUCCESS);
        assert_int_equal(clSetKernelArg(kernel, 2, sizeof first, &first), CL_SUCCESS);
        assert_int_equal(
            clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, NULL, 0, NULL, NULL),
            CL_SUCCESS);
        assert_int_equal(
            clEnqueueReadBuffer(device->queue, buffer, CL_TRUE, 0, sizeof got, got, 0, NULL, NULL),
            CL_SUCCESS);
        for (int i = 0; i < BLOCKS; i++) {
            uint32_t want[4];
            clt_random4(seed, CLT_STREAM_DROPOUT, 7, 11, first + (uint64_t)i, want);
            assert_memory_equal(got[i], want, sizeof want);
        }
        clt_release_kernel(kernel);
        clt_release_buffer(buffer);
    }
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(includes_come_once_and_lines_stay_known),
        cmocka_unit_test(every_embedded_file_resolves),
        cmocka_unit_test(a_log_becomes_one_line),
        cmocka_unit_test(devices_draw_the_hosts_random_numbers),
    };
    return cmocka_run_group_tests_name("device.source", tests, NULL, NULL);
}
