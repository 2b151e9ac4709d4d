/* The order of an epoch and the division of a batch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cltrain/data.h>

static void every_epoch_is_a_permutation(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 100, 101, 4096, 9999, 60000, 100003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        int64_t *order = malloc((size_t)n * sizeof *order);
        char *seen = malloc((size_t)n);
        assert_true(order && seen);
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            assert_int_equal(clt_data_order(n, 7, epoch, 1, 0, n, order), CLT_OK);
            memset(seen, 0, (size_t)n);
            for (int i = 0; i < n; i++) {
                assert_in_range((uintmax_t)order[i], 0, (uintmax_t)n - 1);
                assert_false(seen[order[i]]);
                seen[order[i]] = 1;
            }
        }
        free(order);
        free(seen);
    }
}

static void order_depends_on_seed_and_epoch_alone(void **state)
{
    (void)state;
    enum { N = 1000 };
    int64_t whole[N], part[N], other[N];
    assert_int_equal(clt_data_order(N, 1, 3, 1, 0, N, whole), CLT_OK);
    for (int begin = 0; begin < N; begin += 37) {
        int count = begin + 37 < N ? 37 : N - begin;
        assert_int_equal(clt_data_order(N, 1, 3, 1, begin, count, part + begin), CLT_OK);
    }
    assert_memory_equal(whole, part, sizeof whole);
    const int64_t seeds[] = {2, 1, 1, -1}, epochs[] = {3, 4, (int64_t)1 << 32 | 3, 3};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(clt_data_order(N, seeds[i], epochs[i], 1, 0, N, other), CLT_OK);
        int same = 0;
        for (int j = 0; j < N; j++)
            same += whole[j] == other[j];
        assert_true(same < 10); /* two independent permutations share 1 place on average */
    }
    assert_int_equal(clt_data_order(N, 1, 3, 0, 10, 5, other), CLT_OK);
    for (int j = 0; j < 5; j++)
        assert_int_equal(other[j], 10 + j);
    assert_int_equal(clt_data_order(N, 1, 0, 1, N - 4, 5, other), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_data_order(N, 1, -1, 1, 0, 5, other), CLT_INVALID_ARGUMENT);
}

/* Chi-squared tests of the place of each sample, and of the distance of neighbours, over many
 * epochs. */
static void order_is_uniform(void **state)
{
    (void)state;
    static const int sizes[] = {3, 5, 12, 30};
    enum { EPOCHS = 20000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s];
        static int at[32][32], after[32][32];
        memset(at, 0, sizeof at);
        memset(after, 0, sizeof after);
        int64_t order[32];
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            assert_int_equal(clt_data_order(n, 5, epoch, 1, 0, n, order), CLT_OK);
            for (int i = 0; i < n; i++) {
                at[i][order[i]]++;
                if (i + 1 < n)
                    after[order[i]][order[i + 1]]++;
            }
        }
        double chi = 0, chi_after = 0, want = (double)EPOCHS / n;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                chi += (at[i][j] - want) * (at[i][j] - want) / want;
                if (i != j)
                    chi_after += (after[i][j] - want) * (after[i][j] - want) / want;
                else
                    assert_int_equal(after[i][j], 0);
            }
        /* (n-1)^2 degrees of freedom for places, about n(n-1) for pairs. The limit is five standard
         * deviations. */
        double free_at = (n - 1.0) * (n - 1.0), free_after = n * (n - 1.0);
        assert_true(fabs(chi - free_at) < 5 * sqrt(2 * free_at) + 1);
        assert_true(fabs(chi_after - free_after) < 5 * sqrt(2 * free_after) + n);
    }
}

static void split_gives_larger_parts_first(void **state)
{
    (void)state;
    int64_t o[5];
    assert_int_equal(clt_split(257, 2, NULL, 1, o), CLT_OK);
    assert_true(o[0] == 0 && o[1] == 129 && o[2] == 257);
    assert_int_equal(clt_split(11, 4, NULL, 1, o), CLT_OK);
    assert_true(o[1] == 3 && o[2] == 6 && o[3] == 9 && o[4] == 11);
    assert_int_equal(clt_split(2, 4, NULL, 1, o), CLT_OK);
    assert_true(o[1] == 1 && o[2] == 2 && o[3] == 2 && o[4] == 2);
    assert_int_equal(clt_split(0, 2, NULL, 16, o), CLT_OK);
    assert_true(o[0] == 0 && o[1] == 0 && o[2] == 0);
    assert_int_equal(clt_split(257, 3, NULL, 16, o), CLT_OK);
    assert_true(o[1] == 96 && o[2] == 192 && o[3] == 257);
    const double weights[3] = {3, 0, 1};
    assert_int_equal(clt_split(64, 3, weights, 1, o), CLT_OK);
    assert_true(o[1] == 48 && o[2] == 48 && o[3] == 64);
}

static void split_refuses_bad_arguments(void **state)
{
    (void)state;
    int64_t o[3];
    const double negative[2] = {1, -1}, zero[2] = {0, 0}, nan_weight[2] = {NAN, 1};
    assert_int_equal(clt_split(-1, 2, NULL, 1, o), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_split(1, 0, NULL, 1, o), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_split(1, 2, NULL, 0, o), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_split(1, 2, negative, 1, o), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_split(1, 2, zero, 1, o), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_split(1, 2, nan_weight, 1, o), CLT_INVALID_ARGUMENT);
}

/* For many totals and weights a split is complete and within capacity, in multiples of the quantum.
 * Parts with weight zero are empty. No other division makes the slowest part faster. */
static void split_is_complete_and_balanced(void **state)
{
    (void)state;
    static const double sets[][4] = {
        {1, 1, 1, 1}, {3, 1, 0, 2}, {0.1, 0.2, 0.3, 0.4}, {1e-3, 1, 1e3, 7}, {0, 0, 5, 0}};
    static const int64_t quanta[] = {1, 8, 16};
    for (size_t s = 0; s < 5; s++)
        for (size_t q = 0; q < 3; q++) {
            int64_t capacity[4], quantum = quanta[q];
            assert_int_equal(clt_split_capacity(600, 4, sets[s], quantum, capacity), CLT_OK);
            for (int64_t total = 0; total <= 600; total++) {
                int64_t o[5];
                assert_int_equal(clt_split(total, 4, sets[s], quantum, o), CLT_OK);
                assert_int_equal(o[0], 0);
                assert_int_equal(o[4], total);
                double slowest = 0;
                for (int p = 0; p < 4; p++) {
                    int64_t count = o[p + 1] - o[p];
                    assert_true(count >= 0 && count <= capacity[p]);
                    if (sets[s][p] == 0)
                        assert_int_equal(count, 0);
                    if (o[p + 1] < total)
                        assert_int_equal(count % quantum, 0);
                    int64_t units = (count + quantum - 1) / quantum;
                    if (units && (double)units / sets[s][p] > slowest)
                        slowest = (double)units / sets[s][p];
                }
                /* With a lower limit for the slowest part, some units would have no place. */
                int64_t units = (total + quantum - 1) / quantum, places = 0;
                for (int p = 0; p < 4; p++)
                    places += (int64_t)floor(slowest * (1 - 1e-9) * sets[s][p]);
                assert_true(units == 0 || places < units);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_epoch_is_a_permutation),
        cmocka_unit_test(order_depends_on_seed_and_epoch_alone),
        cmocka_unit_test(order_is_uniform),
        cmocka_unit_test(split_gives_larger_parts_first),
        cmocka_unit_test(split_refuses_bad_arguments),
        cmocka_unit_test(split_is_complete_and_balanced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
