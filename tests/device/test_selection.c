/* The notation of --devices, on tables of devices that need not exist. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/caps.h"
#include "base/str.h"
#include "base/vec.h"
#include "device/discover/selection.h"

static clt_device_info make_row(const char *suffix, const char *platform, const char *vendor,
                                int kind, int units, int place)
{
    clt_device_info row;
    clt_device_info_init(&row);
    row.platform_index = place;
    row.kind = kind;
    row.compute_units = units;
    row.usable = 1;
    row.splittable = kind == CLT_KIND_CPU;
    snprintf(row.suffix, sizeof row.suffix, "%s", suffix);
    snprintf(row.platform, sizeof row.platform, "%s", platform);
    snprintf(row.platform_vendor, sizeof row.platform_vendor, "%s", vendor);
    snprintf(row.name, sizeof row.name, "%s device %d", suffix, place);
    return row;
}

enum { POCL, INTEL, NV0, NV1, AMD, POCL_GPU, BROKEN, ROWS };

static clt_device_info rows[ROWS];

static int set_up(void **state)
{
    (void)state;
    rows[POCL] =
        make_row("pocl", "Portable Computing Language", "The pocl project", CLT_KIND_CPU, 8, 0);
    rows[INTEL] = make_row("intel", "Intel(R) OpenCL", "Intel(R) Corporation", CLT_KIND_CPU, 8, 0);
    rows[NV0] = make_row("nv", "NVIDIA CUDA", "NVIDIA Corporation", CLT_KIND_GPU, 100, 0);
    rows[NV1] = make_row("nv", "NVIDIA CUDA", "NVIDIA Corporation", CLT_KIND_GPU, 100, 1);
    rows[AMD] = make_row("amd", "AMD Accelerated Parallel Processing",
                         "Advanced Micro Devices, Inc.", CLT_KIND_GPU, 120, 0);
    rows[POCL_GPU] =
        make_row("pocl", "Portable Computing Language", "The pocl project", CLT_KIND_GPU, 100, 1);
    rows[BROKEN] = make_row("acme", "Acme", "Acme Ltd", CLT_KIND_GPU, 500, 0);
    for (int i = 0; i < ROWS; i++)
        rows[i].index = i;
    rows[INTEL].duplicate_of = POCL;
    rows[POCL_GPU].duplicate_of = NV0;
    rows[BROKEN].usable = 0;
    snprintf(rows[BROKEN].skip, sizeof rows[BROKEN].skip, "the driver has no compiler");
    return 0;
}

/* Compares the selected units with "row" or "row@cores", separated by spaces. */
static void expect_units(const clt_device_info *table, int count, const char *list,
                         const char *want)
{
    clt_selection s = {0};
    clt_str got = {0};
    clt_status status = clt_selection_parse(table, count, "", list, &s);
    if (status != CLT_OK)
        fail_msg("'%s': %s", list ? list : "NULL", clt_error_message());
    for (int i = 0; i < s.count; i++) {
        clt_str_add(&got, "%s%d", i ? " " : "", s.units[i].row);
        if (s.units[i].cores)
            clt_str_add(&got, "@%d", s.units[i].cores);
    }
    assert_string_equal(clt_str_text(&got), want);
    clt_str_free(&got);
    clt_free(s.units);
}

static void every_item_of_the_notation_is_understood(void **state)
{
    (void)state;
    static const struct {
        const char *list, *want;
    } cases[] = {
        {NULL, "2 3"},           /* two devices of 100 units together beat one of 120 */
        {"", "2 3"},             /* same as no list */
        {"all", "0 2 3 4"},      /* without duplicates and unusable devices */
        {"gpu", "2 3 4"},        /**/
        {"GPU", "2 3 4"},        /**/
        {"cpu", "0"},            /**/
        {"pocl", "0 5"},         /* an explicit name does not merge duplicates */
        {"pocl:0", "0"},         /**/
        {"pocl:1", "5"},         /**/
        {"PoCL:0", "0"},         /**/
        {"intel", "1"},          /**/
        {"nvidia", "2 3"},       /* part of the name */
        {"Advanced Micro", "4"}, /* part of the vendor */
        {"a", "0 1 2 3 4 5"},    /* part of many names; the broken device is left out */
        {"1", "1"},
        {"5,0", "5 0"},
        {" pocl:0 , nv:1 ", "0 3"},
        {"pocl:0/2", "0@4 0@4"},
        {"pocl:0/3", "0@2 0@2 0@2"},
        {"pocl:0/1", "0"},
        {"pocl:0@8", "0"},
        {"pocl:0@3", "0@3"},
        {"0/4", "0@2 0@2 0@2 0@2"},
        {"cpu/2,gpu", "0@4 0@4 2 3 4"},
        {"pocl:0@1,intel", "0@1 1"},
        {"0,0", "0 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_units(rows, ROWS, cases[i].list, cases[i].want);
}

static void the_default_is_gpus_of_one_platform_or_one_cpu(void **state)
{
    (void)state;
    expect_units(rows, 2, NULL, "0");
    clt_device_info two[2] = {rows[INTEL], rows[AMD]};
    two[0].duplicate_of = -1;
    expect_units(two, 2, NULL, "1");
    clt_device_info single[2] = {rows[BROKEN], rows[POCL]};
    expect_units(single, 2, NULL, "1");
}

static void parts_get_disjoint_cores_while_there_are_enough(void **state)
{
    (void)state;
    clt_selection s = {0};
    assert_int_equal(
        clt_selection_parse(rows, ROWS, "", "pocl:0@3,intel@2,pocl:0@3,pocl:0/4,pocl:0@5", &s),
        CLT_OK);
    assert_int_equal(s.count, 8);
    /* Groups of row 0 are {3, 3, 2}, {2, 2, 2} and {5}. The part of row 1 is counted separately. */
    static const clt_unit want[] = {{0, 3, 0, 0, 0}, {1, 2, 0, 0, 0}, {0, 3, 0, 1, 1},
                                    {0, 2, 0, 2, 2}, {0, 2, 1, 0, 3}, {0, 2, 1, 1, 4},
                                    {0, 2, 1, 2, 5}, {0, 5, 2, 0, 6}};
    for (int i = 0; i < s.count; i++) {
        assert_int_equal(s.units[i].row, want[i].row);
        assert_int_equal(s.units[i].cores, want[i].cores);
        assert_int_equal(s.units[i].group, want[i].group);
        assert_int_equal(s.units[i].place, want[i].place);
        assert_int_equal(s.units[i].part, want[i].part);
    }
    clt_free(s.units);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        clt_status status;
        const char *part; /* of the message */
    } cases[] = {
        {"pcl", CLT_NOT_FOUND, "did you mean 'pocl'?"},
        {"gpus", CLT_NOT_FOUND, "did you mean 'gpu'?"},
        {"intle", CLT_NOT_FOUND, "found: pocl (Portable Computing Language), intel"},
        {"7", CLT_NOT_FOUND, "rows are 0 to 6"},
        {"99999999999", CLT_NOT_FOUND, "there is no device 99999999999"},
        {"nv:2", CLT_NOT_FOUND, "has no device 2"},
        {"nv:x", CLT_INVALID_ARGUMENT, "'nv:x'"},
        {"gpu:0", CLT_INVALID_ARGUMENT, "needs a platform"},
        {":0", CLT_INVALID_ARGUMENT, "names no device"},
        {"/2", CLT_INVALID_ARGUMENT, "names no device"},
        {"pocl/0", CLT_INVALID_ARGUMENT, "/N makes N equal parts"},
        {"pocl@", CLT_INVALID_ARGUMENT, "@C is a part of C cores"},
        {"pocl@2/2", CLT_INVALID_ARGUMENT, "'pocl@2/2'"},
        {"pocl:0/9", CLT_INVALID_ARGUMENT, "has 8 cores"},
        {"pocl:0@9", CLT_INVALID_ARGUMENT, "has 8 cores"},
        {"nv:0/2", CLT_UNSUPPORTED, "cannot be split"},
        {"acme", CLT_NO_DEVICE, "the driver has no compiler"},
        {"6", CLT_NO_DEVICE, "the driver has no compiler"},
        {"pocl,,nv", CLT_INVALID_ARGUMENT, "is empty"},
        {"pocl,", CLT_INVALID_ARGUMENT, "is empty"},
        {" ", CLT_INVALID_ARGUMENT, "is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clt_selection s = {0};
        assert_int_equal(clt_selection_parse(rows, ROWS, "", cases[i].list, &s), cases[i].status);
        if (!strstr(clt_error_message(), cases[i].part))
            fail_msg("'%s': '%s' is not in: %s", cases[i].list, cases[i].part, clt_error_message());
        assert_null(s.units);
    }
    clt_selection s = {0};
    assert_int_equal(clt_selection_parse(rows, 2, "", "gpu", &s), CLT_NO_DEVICE);
    assert_int_equal(clt_selection_parse(rows, 0, "install something", "cpu", &s), CLT_NO_DEVICE);
    assert_string_equal(clt_error_message(), "install something");
    assert_int_equal(clt_selection_parse(&rows[BROKEN], 1, "", NULL, &s), CLT_NO_DEVICE);
    char long_list[600];
    memset(long_list, 'x', sizeof long_list - 1);
    long_list[sizeof long_list - 1] = '\0';
    assert_int_equal(clt_selection_parse(rows, ROWS, "", long_list, &s), CLT_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_of_the_notation_is_understood),
        cmocka_unit_test(the_default_is_gpus_of_one_platform_or_one_cpu),
        cmocka_unit_test(parts_get_disjoint_cores_while_there_are_enough),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("device.selection", tests, set_up, NULL);
}
