/* How products are divided on CPUs. For any shape, a work-group has at most as many columns as its
 * panels have room for. There are as many groups as asked for, if possible. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/matmul/gemm_cpu.h"

static const clt_gemm_tile tiles[] = {{8, 3}, {6, 4}, {12, 2}, {14, 2}, {24, 1}};
enum { TILES = sizeof tiles / sizeof *tiles, WIDTH = 16 };

static void check(int64_t m, int64_t n, int64_t most_columns, int64_t least_groups, int64_t asked)
{
    const clt_gemm_work w = {.pairs = 1,
                             .m = m,
                             .n = n,
                             .k = 67,
                             .depth = 67,
                             .pack_b = true,
                             .width = WIDTH,
                             .units = 2,
                             .most_columns = most_columns,
                             .least_groups = least_groups};
    const clt_gemm_division d = clt_gemm_divide(&w, tiles, TILES, 0, asked);
    assert_in_range(d.tile, 0, TILES - 1);
    const int64_t panel = tiles[d.tile].vectors * WIDTH;
    assert_true(d.rows > 0 && d.rows % tiles[d.tile].rows == 0);
    assert_true(d.columns > 0 && d.columns % panel == 0);
    assert_true(d.columns <= most_columns);
    const int64_t groups = ((m + d.rows - 1) / d.rows) * ((n + d.columns - 1) / d.columns);
    /* 64 rows and columns can be cut into at least 4 x 2. */
    if (m >= 64 && n >= 64 && !asked && least_groups <= 6)
        assert_true(groups >= least_groups);
}

static void test_room(void **state)
{
    static const int64_t sizes[] = {1, 5, 17, 64, 67, 130, 321, 521, 800, 4099};
    static const int64_t columns[] = {64, 100, 163, 256, 512};
    enum { SIZES = sizeof sizes / sizeof *sizes, COLUMNS = sizeof columns / sizeof *columns };
    (void)state;
    for (int i = 0; i < SIZES * SIZES * COLUMNS; i++) {
        const int64_t m = sizes[i % SIZES], n = sizes[i / SIZES % SIZES];
        const int64_t most = columns[i / SIZES / SIZES];
        check(m, n, most, 1, 0);
        check(m, n, most, 6, 0);
        check(m, n, most, 32, 0);
        check(m, n, most, 1, most);
    }
}

/* A product that one unit computes does not include the time to wake others. */
static void test_one_unit(void **state)
{
    clt_gemm_work w = {.pairs = 1,
                       .m = 5,
                       .n = 7,
                       .k = 67,
                       .depth = 67,
                       .width = WIDTH,
                       .units = 1,
                       .most_columns = 512,
                       .least_groups = 1};
    (void)state;
    const clt_gemm_division alone = clt_gemm_divide(&w, tiles, TILES, 0, 0);
    w.units = 2;
    const clt_gemm_division beside = clt_gemm_divide(&w, tiles, TILES, 0, 0);
    assert_true(beside.cost == alone.cost);
    /* Seven columns are one vector. Eight rows of it have the least wasted work of these tiles, and
     * fewer accumulators would not be faster. */
    assert_int_equal(beside.tile, 0);
}

int main(void)
{
    const struct CMUnitTest tests_of_it[] = {cmocka_unit_test(test_room),
                                             cmocka_unit_test(test_one_unit)};
    return cmocka_run_group_tests(tests_of_it, NULL, NULL);
}
