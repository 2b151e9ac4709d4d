/* Deals batches under every kind of misfortune at random, and counts how often each sample is
 * applied. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/async/coordinator.h"

enum { SAMPLES = 103, BATCH = 8, EPOCHS = 3, WORKERS = 5 };

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static int64_t batches_of(int64_t samples)
{
    return (samples + BATCH - 1) / BATCH;
}

/* Applies a lease: each sample once. */
static void note(int *applied, const clt_deal_lease *lease, int64_t samples)
{
    for (int64_t i = 0; i < lease->batch.count; i++)
        applied[lease->batch.epoch * samples + lease->batch.offset + i]++;
}

/* Workers take, finish, fail and die at random, and sometimes the run is saved and resumed. */
static void run(uint32_t seed, bool drop_last)
{
    const int64_t samples = drop_last ? SAMPLES / BATCH * BATCH : SAMPLES;
    const int64_t total = EPOCHS * batches_of(samples);
    int *applied = calloc((size_t)(EPOCHS * samples), sizeof *applied);
    clt_deal deal;
    clt_deal_lease has[WORKERS] = {0};
    assert_int_equal(clt_deal_make(SAMPLES, BATCH, drop_last, total, &deal), CLT_OK);
    for (clt_dealt dealt = CLT_DEALT; dealt != CLT_DEAL_END;) {
        const uint64_t who = draw(&seed, WORKERS);
        clt_deal_lease *own = &has[who];
        if (!own->lease) {
            assert_int_equal(clt_deal_next(&deal, who, &dealt, own), CLT_OK);
            assert_int_equal(dealt == CLT_DEALT, own->lease != 0);
            continue;
        }
        assert_non_null(clt_deal_find(&deal, who, own->lease));
        assert_null(clt_deal_find(&deal, who + 1, own->lease));
        const uint32_t luck = draw(&seed, 10);
        if (luck < 6) {
            clt_deal_apply(&deal, own->lease);
            note(applied, own, samples);
        } else if (luck < 8) {
            assert_int_equal(clt_deal_give_back(&deal, own->lease, luck == 7), 1);
            assert_int_equal(clt_deal_give_back(&deal, own->lease, luck == 7), 0);
        } else if (luck < 9) {
            assert_int_equal(clt_deal_drop(&deal, who), 1);
        } else { /* all processes end, and the run goes on from what was saved */
            char *text;
            const int64_t done = deal.applied, last = deal.last_lease;
            assert_int_equal(clt_coordinator_deals_text(&deal, &text), CLT_OK);
            clt_deal_free(&deal);
            assert_int_equal(clt_deal_make(SAMPLES, BATCH, drop_last, total, &deal), CLT_OK);
            assert_int_equal(clt_coordinator_read_deals(text, done, &deal), CLT_OK);
            deal.last_lease = last;
            memset(has, 0, sizeof has);
            free(text);
        }
        own->lease = 0;
    }
    for (int64_t i = 0; i < EPOCHS * samples; i++)
        assert_int_equal(applied[i], 1);
    for (int64_t e = 0; e < EPOCHS; e++)
        assert_true(clt_deal_complete(&deal, e));
    assert_int_equal(deal.applied, total);
    clt_deal_free(&deal);
    free(applied);
}

static void test_each_sample_is_applied_once(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 200; seed++)
        run(seed, seed % 3 == 0);
}

static void test_the_position_is_the_first_sample_that_is_not_applied(void **state)
{
    (void)state;
    clt_deal deal;
    clt_deal_lease a, b;
    clt_dealt dealt;
    int64_t epoch, sample;
    assert_int_equal(clt_deal_make(20, 8, false, 6, &deal), CLT_OK);
    assert_int_equal(clt_deal_next(&deal, 1, &dealt, &a), CLT_OK);
    assert_int_equal(clt_deal_next(&deal, 2, &dealt, &b), CLT_OK);
    clt_deal_apply(&deal, b.lease);
    clt_deal_position(&deal, &epoch, &sample);
    assert_int_equal(sample, 0);
    clt_deal_apply(&deal, a.lease);
    clt_deal_position(&deal, &epoch, &sample);
    assert_int_equal(sample, 16);
    assert_int_equal(clt_deal_next(&deal, 1, &dealt, &a), CLT_OK);
    assert_int_equal(a.batch.count, 4); /* the rest of the epoch */
    assert_false(clt_deal_complete(&deal, 0));
    clt_deal_drop(&deal, 1);
    assert_int_equal(clt_deal_next(&deal, 2, &dealt, &b), CLT_OK);
    assert_int_equal(b.batch.offset, 16);
    assert_int_equal(b.batch.tries, 1);
    clt_deal_free(&deal);
}

/* Batches that come back because they are late do not count as not finite. */
static void test_only_gradients_that_are_not_finite_are_counted_so(void **state)
{
    (void)state;
    clt_deal deal;
    clt_deal_lease a;
    clt_dealt dealt;
    assert_int_equal(clt_deal_make(20, 8, false, 6, &deal), CLT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(clt_deal_next(&deal, 1, &dealt, &a), CLT_OK);
        assert_int_equal(a.batch.offset, 0);
        assert_int_equal(a.batch.tries, i);
        assert_int_equal(a.batch.nonfinite, i > 2);
        assert_int_equal(clt_deal_count(&deal, 1), 1);
        assert_int_equal(clt_deal_count(&deal, 2), 0);
        assert_int_equal(clt_deal_give_back(&deal, a.lease, i == 2), 1);
    }
    assert_int_equal(clt_deal_count(&deal, 1), 0);
    clt_deal_free(&deal);
}

static void test_damaged_sections_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"epoch\":0}",
        "{\"epoch\":0,\"offset\":0,\"back\":3}",
        "{\"epoch\":-1,\"offset\":0,\"back\":[]}",
        "{\"epoch\":0,\"offset\":20,\"back\":[]}",
        "{\"epoch\":1,\"offset\":0,\"back\":[[0,0]]}",
        "{\"epoch\":1,\"offset\":0,\"back\":[[0,16,8]]}", /* behind the end of the epoch */
        "{\"epoch\":1,\"offset\":0,\"back\":[[0,0,9]]}",  /* more than a batch */
        "{\"epoch\":1,\"offset\":0,\"back\":[[1,0,8]]}",  /* not dealt yet */
        "{\"epoch\":1,\"offset\":0,\"back\":[[0,0,0]]}"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        clt_deal deal;
        assert_int_equal(clt_deal_make(20, 8, false, 6, &deal), CLT_OK);
        assert_int_equal(clt_coordinator_read_deals(texts[i], 1, &deal), CLT_FORMAT);
        clt_deal_free(&deal);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sample_is_applied_once),
        cmocka_unit_test(test_the_position_is_the_first_sample_that_is_not_applied),
        cmocka_unit_test(test_only_gradients_that_are_not_finite_are_counted_so),
        cmocka_unit_test(test_damaged_sections_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
