/* Which results a tuner takes for equal. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tune/compare.h"

enum { MANY = 4000 };

static bool floats_equal(float a, float b)
{
    const float x[] = {1, a, -2}, y[] = {1, b, -2};
    return clt_values_equal(CLT_F32, x, y, 3);
}

static void test_floats(void **state)
{
    (void)state;
    assert_true(floats_equal(0.5f, 0.5f));
    assert_true(floats_equal(0.5f, 0.5001f));
    assert_false(floats_equal(0.5f, 0.501f));
    assert_false(floats_equal(0, -1));
    const float zeros[2] = {0, 0}, tiny[2] = {0, FLT_MIN};
    assert_false(clt_values_equal(CLT_F32, zeros, tiny, 2));
}

/* An infinite difference is not within a share of an infinite magnitude. */
static void test_not_finite(void **state)
{
    (void)state;
    float unwritten;
    const uint32_t bits = 0x7fa00000u;
    memcpy(&unwritten, &bits, sizeof unwritten);
    assert_true(floats_equal(INFINITY, INFINITY));
    assert_true(floats_equal(NAN, NAN));
    assert_true(floats_equal(NAN, -NAN));
    assert_false(floats_equal(INFINITY, -INFINITY));
    assert_false(floats_equal(INFINITY, 3));
    assert_false(floats_equal(3, INFINITY));
    assert_false(floats_equal(INFINITY, NAN));
    assert_false(floats_equal(NAN, 3));
    assert_false(floats_equal(INFINITY, FLT_MAX));
    /* An equal element does not excuse the others. */
    const float a[] = {INFINITY, 1, 2}, b[] = {INFINITY, 1, 7};
    assert_false(clt_values_equal(CLT_F32, a, b, 3));
    /* The bits before writing are no result, although they are a NaN. */
    assert_false(floats_equal(NAN, unwritten));
    const double c[] = {INFINITY, 1}, d[] = {-INFINITY, 1}, e[] = {INFINITY, 1.00001};
    assert_false(clt_values_equal(CLT_F64, c, d, 2));
    assert_true(clt_values_equal(CLT_F64, c, e, 2));
}

static void test_integers_and_masks(void **state)
{
    (void)state;
    int32_t a[] = {1, -7, 1 << 30}, b[] = {1, -7, (1 << 30) + 1};
    assert_true(clt_values_equal(CLT_I32, a, a, 3));
    assert_false(clt_values_equal(CLT_I32, a, b, 3));
    uint16_t halves[] = {0x3c00, 0x3c01};
    assert_false(clt_values_equal(CLT_F16, &halves[0], &halves[1], 1));
    uint8_t mask[MANY] = {0}, other[MANY] = {0};
    assert_true(clt_values_equal(CLT_U8, mask, other, MANY));
    for (int i = 0; i < 4; i++)
        other[i * 700] = 1;
    assert_true(clt_values_equal(CLT_U8, mask, other, MANY));
    assert_false(clt_values_equal(CLT_U8, mask, other, 900));
    other[3] = 1;
    assert_false(clt_values_equal(CLT_U8, mask, other, MANY));
    memset(other, 0, sizeof other);
    other[9] = 0xa7; /* unwritten */
    assert_false(clt_values_equal(CLT_U8, mask, other, MANY));
}

static void test_batch_blocked(void **state)
{
    (void)state;
    /* Five images of three elements in batch blocks of four: the second block has one image. */
    int32_t blocked[2 * 3 * 4], plain[5 * 3];
    for (int i = 0; i < 2 * 3 * 4; i++)
        blocked[i] = -1;
    for (int n = 0; n < 5; n++)
        for (int i = 0; i < 3; i++)
            blocked[(n / 4 * 3 + i) * 4 + n % 4] = 10 * n + i;
    clt_batch_blocked_to_plain((const char *)blocked, 5, 3, 4, 4, (char *)plain);
    for (int n = 0; n < 5; n++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(plain[n * 3 + i], 10 * n + i);
}

/* Sums whose true value is zero: every difference is large compared with the largest value. */
static void test_cancelled_sums(void **state)
{
    (void)state;
    const float a[] = {3e-6f, -2e-6f, 1e-6f}, b[] = {-1e-6f, 2e-6f, 2e-6f};
    const float magnitudes[] = {40, 50, 60}, none[] = {0, 0, 0};
    assert_false(clt_values_equal(CLT_F32, a, b, 3));
    assert_true(clt_sums_equal(a, b, magnitudes, 1e-6, 3));
    assert_false(clt_sums_equal(a, b, magnitudes, 1e-8, 3));
    assert_false(clt_sums_equal(a, b, none, 1e-6, 3));
    /* A wrong element among right ones, and an element that nothing wrote. */
    float wrong[] = {-1e-6f, 1e-3f, 2e-6f};
    assert_false(clt_sums_equal(a, wrong, magnitudes, 1e-6, 3));
    const uint32_t unwritten = 0x7fa00000u;
    memcpy(&wrong[1], &unwritten, sizeof unwritten);
    assert_false(clt_sums_equal(a, wrong, magnitudes, 1e-6, 3));
    /* A magnitude that is not finite excuses nothing. */
    const float infinite[] = {INFINITY, NAN, INFINITY};
    assert_false(clt_sums_equal(a, b, infinite, 1e-6, 3));
}

/* Means of batch norm beside large counts. Each row has its own largest element. */
static void test_rows(void **state)
{
    (void)state;
    float right[] = {0.5f, -2, 3e4f, 4e4f, 1e6f, 1e6f},
          wrong[] = {0.5f, -2.5f, 3e4f, 4e4f, 1e6f, 1e6f};
    clt_outcome a = {{(char *)right}, {6}, {CLT_F32}, {3}},
                b = {{(char *)wrong}, {6}, {CLT_F32}, {3}};
    assert_false(clt_outcome_equal(&a, &b, NULL, 0));
    wrong[1] = -2.0001f;
    assert_true(clt_outcome_equal(&a, &b, NULL, 0));
    /* Means that cancel. */
    float magnitudes[] = {10, 10, 0, 0, 0, 0};
    const clt_outcome m = {{(char *)magnitudes}, {6}, {CLT_F32}, {3}};
    right[0] = right[1] = 1e-6f;
    wrong[0] = wrong[1] = -1e-6f;
    assert_false(clt_outcome_equal(&a, &b, NULL, 0));
    assert_true(clt_outcome_equal(&a, &b, &m, 1e-6));
    assert_false(clt_outcome_equal(&a, &b, &m, 1e-8));
    wrong[5] = 0.99e6f;
    assert_false(clt_outcome_equal(&a, &b, &m, 1e-6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_integers_and_masks),
        cmocka_unit_test(test_batch_blocked),
        cmocka_unit_test(test_cancelled_sums),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
