/* Eight threads push into a reservoir while others draw from it. Run it under ThreadSanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cltrain/reservoir.h>

enum { PUSHERS = 8, READERS = 2, BLOCK = 5, WIDE = 33, BATCH = 64 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { PUSHES = 2000 };
#else
enum { PUSHES = 20000 };
#endif

/* Only the test's thread may assert. */
typedef struct shared {
    clt_dataset *reservoir;
    bool weighted;
    _Atomic int pushing;
    _Atomic int64_t failed, drawn;
    _Atomic int64_t next; /* id */
} shared;

/* All numbers of a sample follow from its id, so a torn sample shows. */
static double number_of(int32_t id, int k)
{
    return (double)(id % 100003) + k;
}

static void *push_all(void *user)
{
    shared *s = user;
    int32_t ids[BLOCK] = {0};
    double x[BLOCK][WIDE] = {{0}}, weights[BLOCK];
    const int64_t shape[] = {BLOCK, WIDE};
    clt_array fields[2];
    if (clt_array_of(&fields[0], ids, CLT_I32, 1, shape) != CLT_OK ||
        clt_array_of(&fields[1], x, CLT_F64, 2, shape) != CLT_OK)
        s->failed++;
    for (int n = 0; n < PUSHES; n++) {
        for (int i = 0; i < BLOCK; i++) {
            ids[i] = (int32_t)atomic_fetch_add(&s->next, 1);
            weights[i] = 1 + ids[i] % 5;
            for (int k = 0; k < WIDE; k++)
                x[i][k] = number_of(ids[i], k);
        }
        if (clt_dataset_push(s->reservoir, fields, 2, s->weighted ? weights : NULL) != CLT_OK)
            s->failed++;
        memset(x, 0xFF, sizeof x); /* the memory is this thread's again */
    }
    s->pushing--;
    return NULL;
}

static int64_t torn(const int32_t *ids, float x[][WIDE], int64_t count)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < WIDE; k++)
            bad += x[i][k] != (float)number_of(ids[i], k);
    return bad;
}

static void *draw_all(void *user)
{
    shared *s = user;
    int32_t ids[BATCH] = {0};
    float x[BATCH][WIDE] = {{0}};
    const int64_t shape[] = {BATCH, WIDE};
    clt_array fields[2];
    clt_reservoir_stats stats;
    clt_reservoir_stats_init(&stats);
    if (clt_array_of(&fields[0], ids, CLT_I32, 1, shape) != CLT_OK ||
        clt_array_of(&fields[1], x, CLT_F32, 2, shape) != CLT_OK)
        s->failed++;
    for (int64_t step = 0; s->pushing > 0; step++) {
        int64_t drawn = 0;
        if (clt_dataset_draw(s->reservoir, 1, step, 0, BATCH, fields, 2, &drawn) != CLT_OK)
            s->failed++;
        s->failed += torn(ids, x, drawn);
        s->drawn += drawn;
        if (clt_dataset_reservoir_stats(s->reservoir, &stats) != CLT_OK ||
            stats.kept + stats.replaced + stats.declined + stats.dropped > stats.seen)
            s->failed++;
    }
    return NULL;
}

static void run(clt_reservoir_policy policy, int64_t capacity, int64_t spare)
{
    const int64_t shape[] = {WIDE}, all[] = {capacity, WIDE};
    const int64_t total = (int64_t)PUSHERS * PUSHES * BLOCK;
    clt_reservoir_options options;
    shared s = {.weighted = policy == CLT_RESERVOIR_WEIGHTED, .pushing = PUSHERS};
    pthread_t threads[PUSHERS + READERS];
    clt_reservoir_options_init(&options);
    options.policy = policy;
    options.spare = spare;
    assert_int_equal(clt_dataset_create_reservoir("busy", capacity, &options, &s.reservoir),
                     CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(s.reservoir, "id", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL),
        CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(s.reservoir, "x", CLT_F32, 1, shape, NULL, CLT_DATA_BORROW, NULL),
        CLT_OK);
    for (int t = 0; t < PUSHERS + READERS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, t < PUSHERS ? push_all : draw_all, &s),
                         0);
    for (int t = 0; t < PUSHERS + READERS; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(s.failed, 0);

    clt_reservoir_stats stats;
    clt_reservoir_stats_init(&stats);
    assert_int_equal(clt_dataset_reservoir_stats(s.reservoir, &stats), CLT_OK);
    assert_int_equal(stats.seen, total);
    assert_int_equal(stats.kept, capacity);
    assert_int_equal(stats.seen, stats.kept + stats.replaced + stats.declined + stats.dropped);
    print_message("capacity %lld: %lld drawn, %lld replaced, %lld declined, %lld dropped\n",
                  (long long)capacity, (long long)s.drawn, (long long)stats.replaced,
                  (long long)stats.declined, (long long)stats.dropped);

    /* Draws find all samples that are there, each of them whole, and no sample twice. */
    int32_t *ids = calloc((size_t)capacity, sizeof *ids);
    float(*x)[WIDE] = calloc((size_t)capacity, sizeof *x);
    char *seen = calloc((size_t)total, 1);
    int64_t different = 0, drawn;
    clt_array fields[2];
    assert_true(ids && x && seen);
    assert_int_equal(clt_array_of(&fields[0], ids, CLT_I32, 1, all), CLT_OK);
    assert_int_equal(clt_array_of(&fields[1], x, CLT_F32, 2, all), CLT_OK);
    for (int64_t step = 0; step < 40; step++) {
        assert_int_equal(clt_dataset_draw(s.reservoir, 2, step, 0, capacity, fields, 2, &drawn),
                         CLT_OK);
        assert_int_equal(drawn, capacity);
        assert_int_equal(torn(ids, x, drawn), 0);
        for (int64_t i = 0; i < drawn; i++) {
            different += !seen[ids[i]];
            seen[ids[i]] = 1;
        }
    }
    assert_int_equal(different, capacity);
    free(ids);
    free(x);
    free(seen);
    clt_dataset_free(s.reservoir);
}

static void uniform(void **state)
{
    (void)state;
    run(CLT_RESERVOIR_UNIFORM, 1000, 0);
}

static void newest(void **state)
{
    (void)state;
    run(CLT_RESERVOIR_NEWEST, 100, 0);
}

static void weighted(void **state)
{
    (void)state;
    run(CLT_RESERVOIR_WEIGHTED, 300, 0);
}

static void few_places(void **state)
{
    (void)state;
    run(CLT_RESERVOIR_NEWEST, 10, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform),
        cmocka_unit_test(newest),
        cmocka_unit_test(weighted),
        cmocka_unit_test(few_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
