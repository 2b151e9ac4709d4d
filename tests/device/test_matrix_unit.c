/* Matrix units, whose instruction is emulated here, and the probe that decides whether a device has
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/discover/probe_matrix.h"
#include "support/devices.h"
#include <cltrain/cltrain.h>

static clt_runtime *runtime;
static clt_device **devices;

static int set_up(void **state)
{
    (void)state;
    int count;
    return clt_runtime_create(NULL, &runtime) != CLT_OK ||
           clt_devices_open(runtime, clt_test_devices("cpu"), NULL, &devices, &count) != CLT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    clt_devices_close(devices, 1);
    clt_runtime_destroy(runtime);
    return 0;
}

/* Kernels load fragments, and find sums in them, as the emulated instruction reads and writes
 * registers. */
static void emulated_products_are_exact(void **state)
{
    (void)state;
    for (clt_matrix_kind kind = CLT_MATRIX_MMA; kind <= CLT_MATRIX_WMMA; kind++)
        for (int f16 = 0; f16 < 2; f16++) {
            const clt_matrix_unit unit = {.kind = kind, .emulated = true};
            char why[256] = "";
            if (!clt_probe_matrix_exact(devices[0], unit, f16 ? CLT_F16 : CLT_BF16, why,
                                        sizeof why))
                fail_msg("unit %d, %s: %s", (int)kind, f16 ? "f16" : "bf16", why);
        }
}

/* --- lane layouts ---------------------------------------------------------------------------- */

enum { MOST_LANES = 64, MOST_ELEMENTS = 16 };
typedef int table[MOST_LANES][MOST_ELEMENTS][2];

/* The places of all elements of A, B and D by the macros that the emulation uses. */
static const char places_text[] =
    "#include \"core/gpu/matrix_unit.clh\"\n"
    "kernel void places(global int *to)\n"
    "{\n"
    "    const int lane = (int)get_global_id(0);\n"
    "    for (int e = 0; e < 16; e++) {\n"
    "        global int *at = to + (lane * 16 + e) * 2;\n"
    "        at[0] = VENDOR_A_ROW(lane, e), at[1] = VENDOR_A_K(lane, e);\n"
    "        at += 64 * 16 * 2;\n"
    "        at[0] = VENDOR_B_K(lane, e), at[1] = VENDOR_B_COLUMN(lane, e);\n"
    "        at += 64 * 16 * 2;\n"
    "        at[0] = VENDOR_D_ROW(lane, e), at[1] = VENDOR_D_COLUMN(lane, e);\n"
    "    }\n"
    "}\n";

static void read_places(const char *options, table *places)
{
    const size_t bytes = 3 * sizeof(table), items = MOST_LANES;
    cl_kernel kernel;
    cl_mem buffer;
    assert_int_equal(
        clt_device_kernel_from_text(devices[0], "places", places_text, options, "places", &kernel),
        CLT_OK);
    assert_int_equal(
        clt_device_buffer_create(devices[0], (int64_t)bytes, CL_MEM_READ_WRITE, "places", &buffer),
        CLT_OK);
    assert_int_equal(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
    assert_int_equal(
        clEnqueueNDRangeKernel(devices[0]->queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL),
        CL_SUCCESS);
    assert_int_equal(
        clEnqueueReadBuffer(devices[0]->queue, buffer, CL_TRUE, 0, bytes, places, 0, NULL, NULL),
        CL_SUCCESS);
    clt_release_buffer(buffer);
    clt_release_kernel(kernel);
}

/* A layout in CUTLASS's notation: the strides of lane % 4, lane / 4, and of the element's bits, in
 * a matrix of 16 or 8 rows that is stored by columns. */
typedef struct strides {
    int rows, lane[2], element[3];
} strides;

static void check_strides(const table places, const strides *s, int elements, bool by_columns)
{
    for (int lane = 0; lane < 32; lane++)
        for (int e = 0; e < elements; e++) {
            const int at = lane % 4 * s->lane[0] + lane / 4 * s->lane[1] + (e & 1) * s->element[0] +
                           (e >> 1 & 1) * s->element[1] + (e >> 2) * s->element[2];
            const int *place = places[lane][e];
            assert_int_equal(place[by_columns ? 1 : 0], at % s->rows);
            assert_int_equal(place[by_columns ? 0 : 1], at / s->rows);
        }
}

/* cute/atom/mma_traits_sm80.hpp, SM80_16x8x16_F32F16F16F32_TN: ALayout, BLayout, CLayout. B is
 * [n][k] there. */
static void nvidias_layout_is_cutlass(void **state)
{
    static const strides a = {16, {32, 1}, {16, 8, 128}}, b = {8, {16, 1}, {8, 64, 0}},
                         c = {16, {32, 1}, {16, 8, 0}};
    static table places[3];
    (void)state;
    read_places("-DUNIT_MMA -DUNIT_T=h -DUNIT_EMULATED", places);
    check_strides(places[0], &a, 8, false);
    check_strides(places[1], &b, 4, true);
    check_strides(places[2], &c, 4, false);
}

/* AMD's calculator, for v_mfma_f32_16x16x16f16 and v_mfma_f32_16x16x16bf16_1k of CDNA2
 * (--register-layout): A[i][k] is in lane 16 (k / 4) + i, B[k][j] in lane 16 (k / 4) + j, both at
 * element k % 4; D[i][j] is in lane 16 (i / 4) + j, register i % 4. */
static void cdnas_layout_is_the_calculators(void **state)
{
    static table places[3];
    (void)state;
    read_places("-DUNIT_MFMA -DUNIT_T=h -DUNIT_EMULATED", places);
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) {
            const int lane = 16 * (k / 4) + i, e = k % 4;
            assert_int_equal(places[0][lane][e][0], i);
            assert_int_equal(places[0][lane][e][1], k);
            assert_int_equal(places[1][lane][e][0], k);
            assert_int_equal(places[1][lane][e][1], i);
            assert_int_equal(places[2][lane][e][0], k);
            assert_int_equal(places[2][lane][e][1], i);
        }
}

/* The same for v_wmma_f32_16x16x16_f16 and _bf16 of RDNA3: A[i][k] is in lanes i and i + 16,
 * B[k][j] in lanes j and j + 16, both at element k; D[i][j] is in lane 16 (i % 2) + j, register i
 * / 2. */
static void rdnas_layout_is_the_calculators(void **state)
{
    static table places[3];
    (void)state;
    read_places("-DUNIT_WMMA -DUNIT_T=h -DUNIT_EMULATED", places);
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) {
            for (int lane = i; lane < 32; lane += 16) {
                assert_int_equal(places[0][lane][k][0], i);
                assert_int_equal(places[0][lane][k][1], k);
                assert_int_equal(places[1][lane][k][0], k);
                assert_int_equal(places[1][lane][k][1], i);
            }
            assert_int_equal(places[2][16 * (i % 2) + k][i / 2][0], i);
            assert_int_equal(places[2][16 * (i % 2) + k][i / 2][1], k);
        }
}

/* --- devices without a unit ------------------------------------------------------------------ */

static int errors;

static void count_errors(void *user, clt_log_level level, const char *text)
{
    (void)user;
    (void)text;
    errors += level == CLT_LOG_ERROR;
}

/* The compiler of a CPU does not know the instruction. That is no error of the user's. */
static void a_cpu_has_no_unit(void **state)
{
    (void)state;
    if (devices[0]->caps.kind != CLT_KIND_CPU)
        skip();
    assert_int_equal(devices[0]->caps.matrix.kind, CLT_MATRIX_NONE);
    assert_string_equal(devices[0]->info.matrix_unit, "");
    clt_log_set(count_errors, NULL, CLT_LOG_ERROR);
    for (clt_matrix_kind kind = CLT_MATRIX_MFMA; kind <= CLT_MATRIX_WMMA; kind++) {
        char why[256] = "";
        assert_false(clt_probe_matrix_exact(devices[0], (clt_matrix_unit){.kind = kind}, CLT_BF16,
                                            why, sizeof why));
        assert_non_null(strstr(why, "core/gpu/matrix_probe.cl"));
    }
    clt_log_set(NULL, NULL, CLT_LOG_ERROR);
    assert_int_equal(errors, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_products_are_exact),
        cmocka_unit_test(nvidias_layout_is_cutlass),
        cmocka_unit_test(cdnas_layout_is_the_calculators),
        cmocka_unit_test(rdnas_layout_is_the_calculators),
        cmocka_unit_test(a_cpu_has_no_unit),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
