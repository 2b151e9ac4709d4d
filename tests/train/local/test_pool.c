/* The samples that are left of an epoch: every position is dealt and claimed exactly once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "train/local/pool.h"

enum { SAMPLES = 997, RANKS = 3, REPLICAS = 2 };

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % below;
}

static void lists_join_and_split(void **state)
{
    clt_spans list = {0}, rest = {0}, dealt[2] = {{0}};
    const double speeds[] = {3, 1}, none[] = {0, 0};
    (void)state;
    assert_int_equal(clt_spans_add(&list, 10, 5), CLT_OK);
    assert_int_equal(clt_spans_add(&list, 15, 5), CLT_OK); /* joins */
    assert_int_equal(clt_spans_add(&list, 30, 10), CLT_OK);
    assert_int_equal(clt_spans_add(&list, 50, 0), CLT_OK); /* nothing */
    assert_int_equal(list.n, 2);
    assert_int_equal(clt_spans_total(&list), 20);
    assert_int_equal(clt_spans_rest(&rest, &list, 12), CLT_OK);
    assert_int_equal(rest.n, 1);
    assert_int_equal(rest.of[0].begin, 32);
    assert_int_equal(rest.of[0].count, 8);
    /* Fifteen and five, in multiples of four: sixteen and four. */
    assert_int_equal(clt_spans_deal(&list, 2, speeds, 4, dealt), CLT_OK);
    assert_int_equal(clt_spans_total(&dealt[0]), 16);
    assert_int_equal(clt_spans_total(&dealt[1]), 4);
    assert_int_equal(dealt[1].of[0].begin, 36);
    assert_int_equal(clt_spans_deal(&list, 2, none, 1, dealt), CLT_OK);
    assert_int_equal(clt_spans_total(&dealt[0]), 10);
    clt_free(list.of);
    clt_free(rest.of);
    clt_free(dealt[0].of);
    clt_free(dealt[1].of);
}

/* Ranks claim at random speeds, and what is left is dealt anew, until nothing is left. */
static void each_position_is_claimed_once(void **state)
{
    clt_pool pools[RANKS];
    int seen[SAMPLES] = {0};
    uint32_t random = 1;
    double speeds[RANKS] = {0};
    clt_spans left = {0};
    int rounds = 0;
    (void)state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(clt_pool_create(r, RANKS, REPLICAS, &pools[r]), CLT_OK);
    assert_int_equal(clt_spans_add(&left, 0, SAMPLES), CLT_OK);
    for (; clt_spans_total(&left); rounds++) {
        clt_spans next = {0};
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(clt_pool_deal(&pools[r], 4, &left, speeds, 7, INT64_MAX), CLT_OK);
        for (int r = 0; r < RANKS; r++) {
            const int claims = (int)draw(&random, 12);
            for (int k = 0; k < claims; k++) {
                clt_loader_claim claim;
                const int replica = k % REPLICAS;
                if (!clt_pool_claim(&pools[r], replica, 7, &claim))
                    break;
                assert_true(claim.epoch == 4 && claim.count >= 1 && claim.count <= 7);
                for (int64_t i = 0; i < claim.count; i++)
                    seen[claim.begin + i]++;
                clt_pool_finish(&pools[r], replica);
            }
            speeds[r] = 1 + (double)claims;
        }
        for (int r = 0; r < RANKS; r++) /* all ranks compute the same lists */
            assert_int_equal(clt_spans_rest(&next, &pools[0].dealt[r], pools[r].taken), CLT_OK);
        clt_free(left.of);
        left = next;
    }
    for (int i = 0; i < SAMPLES; i++)
        assert_int_equal(seen[i], 1);
    assert_true(rounds > 3);
    clt_free(left.of);
    for (int r = 0; r < RANKS; r++)
        clt_pool_free(&pools[r], RANKS);
}

/* Claims end while ranks are synchronised, and what a replica holds is known. */
static void a_closed_pool_keeps_what_is_held(void **state)
{
    clt_pool pool;
    clt_spans left = {0};
    clt_loader_claim claim;
    const double speed = 1;
    (void)state;
    assert_int_equal(clt_pool_create(0, 1, REPLICAS, &pool), CLT_OK);
    assert_false(clt_pool_claim(&pool, 0, 5, &claim));
    assert_int_equal(clt_spans_add(&left, 0, 20), CLT_OK);
    assert_int_equal(clt_pool_deal(&pool, 0, &left, &speed, 5, INT64_MAX), CLT_OK);
    assert_true(clt_pool_claim(&pool, 0, 5, &claim));
    assert_true(clt_pool_claim(&pool, 1, 5, &claim));
    assert_true(clt_pool_claim(&pool, 0, 5, &claim));
    clt_pool_finish(&pool, 0);
    clt_pool_close(&pool);
    assert_false(clt_pool_claim(&pool, 0, 5, &claim));
    assert_int_equal(pool.taken, 15);
    assert_int_equal(pool.held[0].n, 1);
    assert_int_equal(pool.held[0].of[0].begin, 10);
    assert_int_equal(pool.held[1].of[0].begin, 5);
    clt_free(left.of);
    clt_pool_free(&pool, 1);
}

/* Ranks claim exactly as many batches as a deal allows, or all, whatever stretches are left. */
static void claims_end_at_the_number_of_batches(void **state)
{
    const clt_span stretches[] = {{0, 3}, {10, 14}, {40, 7}, {60, 1}};
    const double speeds[] = {1, 5, 2};
    clt_spans left = {0};
    (void)state;
    for (size_t i = 0; i < sizeof stretches / sizeof *stretches; i++)
        assert_int_equal(clt_spans_add(&left, stretches[i].begin, stretches[i].count), CLT_OK);
    for (int64_t wanted = 0; wanted < 12; wanted++) {
        int64_t claimed = 0, samples = 0;
        for (int r = 0; r < RANKS; r++) {
            clt_pool pool;
            clt_loader_claim claim;
            assert_int_equal(clt_pool_create(r, RANKS, 1, &pool), CLT_OK);
            assert_int_equal(clt_pool_deal(&pool, 0, &left, speeds, 5, wanted), CLT_OK);
            for (; clt_pool_claim(&pool, 0, 5, &claim); claimed++) {
                samples += claim.count;
                clt_pool_finish(&pool, 0);
            }
            clt_pool_free(&pool, RANKS);
        }
        if (samples < clt_spans_total(&left))
            assert_int_equal(claimed, wanted);
        else
            assert_true(claimed <= wanted);
    }
    clt_free(left.of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_join_and_split),
        cmocka_unit_test(each_position_is_claimed_once),
        cmocka_unit_test(a_closed_pool_keeps_what_is_held),
        cmocka_unit_test(claims_end_at_the_number_of_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
