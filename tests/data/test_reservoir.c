/* Reservoirs: which samples stay and are drawn, conversions of arrays, counters, bad input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cltrain/reservoir.h>

#include "data/expect.h"
#include "data/reservoir/reservoir.h"
#include "data/reservoir_reference.h"

enum { WIDE = 3, MOST = 4096 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* A reservoir with a field "id" i32 [], and "x" f32 [WIDE], whose numbers follow from the id. */
static clt_dataset *make(int64_t capacity, clt_reservoir_policy policy, uint64_t seed)
{
    const int64_t shape[] = {WIDE};
    clt_reservoir_options options;
    clt_dataset *d;
    clt_reservoir_options_init(&options);
    options.policy = policy;
    options.seed = seed;
    ok(clt_dataset_create_reservoir("box", capacity, &options, &d));
    ok(clt_dataset_add_field(d, "id", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(d, "x", CLT_F32, 1, shape, NULL, CLT_DATA_BORROW, NULL));
    return d;
}

static float number_of(int id, int k)
{
    return (float)id * 0.5f + (float)k;
}

/* Pushes ids[0 .. n) as dense arrays. */
static void push(clt_dataset *d, const int32_t *ids, int64_t n, const double *weights)
{
    static float x[MOST][WIDE];
    const int64_t shape[] = {n, WIDE};
    clt_array fields[2];
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < WIDE; k++)
            x[i][k] = number_of(ids[i], k);
    ok(clt_array_of(&fields[0], ids, CLT_I32, 1, shape));
    ok(clt_array_of(&fields[1], x, CLT_F32, 2, shape));
    ok(clt_dataset_push(d, fields, 2, weights));
}

/* Returns the id at an index, and checks the other field. */
static int id_at(clt_dataset *d, int64_t index)
{
    const clt_reservoir *r = d->payload;
    const int64_t place = r->entries[index].place;
    assert_true(place >= 0);
    const int id = ((const int32_t *)d->fields[0].data)[place];
    for (int k = 0; k < WIDE; k++)
        assert_true(((const float *)d->fields[1].data)[place * WIDE + k] == number_of(id, k));
    return id;
}

static clt_reservoir_stats stats_of(clt_dataset *d)
{
    clt_reservoir_stats s;
    clt_reservoir_stats_init(&s);
    ok(clt_dataset_reservoir_stats(d, &s));
    assert_int_equal(s.seen, s.kept + s.replaced + s.declined + s.dropped);
    assert_int_equal(s.kept, clt_dataset_count(d));
    return s;
}

static void policies_keep_what_the_papers_say(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static const int64_t capacities[] = {1, 2, 7, 100, COUNT, COUNT + 5};
    static const int64_t blocks[] = {1, 7, 64, COUNT}; /* samples of a push */
    static int32_t ids[COUNT];
    static double weights[COUNT];
    static int64_t want[COUNT + 5];
    for (int i = 0; i < COUNT; i++) {
        ids[i] = i;
        weights[i] = i % 11 == 3 ? 0 : 0.01 * (1 + i * 7 % 91);
    }
    for (int policy = 0; policy < 3; policy++)
        for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++)
            for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
                const int64_t capacity = capacities[c];
                const uint64_t seed = 0x123456789ABCDEFu * (c + 1);
                const bool weighted = policy == CLT_RESERVOIR_WEIGHTED;
                clt_dataset *d = make(capacity, (clt_reservoir_policy)policy, seed);
                for (int64_t i = 0; i < COUNT; i += blocks[b])
                    push(d, ids + i, COUNT - i < blocks[b] ? COUNT - i : blocks[b],
                         weighted ? weights + i : NULL);
                int64_t kept = capacity < COUNT ? capacity : COUNT;
                if (policy == CLT_RESERVOIR_UNIFORM)
                    reference_uniform(seed, capacity, COUNT, want);
                else if (policy == CLT_RESERVOIR_NEWEST)
                    reference_newest(capacity, COUNT, want);
                else
                    kept = reference_weighted(seed, capacity, COUNT, weights, want);
                const clt_reservoir_stats s = stats_of(d);
                assert_int_equal(s.kept, kept);
                assert_int_equal(s.seen, COUNT);
                assert_int_equal(s.dropped, 0);
                assert_int_equal(s.capacity, capacity);
                for (int64_t i = 0; i < kept; i++)
                    assert_int_equal(id_at(d, i), want[i]);
                clt_dataset_free(d);
            }
}

/* --- statistics; seeds are fixed, so results are too ------------------------------------------ */

/* Counts in how many of `runs` reservoirs each of `n` samples is, pushed in blocks. `reversed`: the
 * last sample first. counts2[i]: runs that have samples i and i + 1. */
static void count_inclusions(clt_reservoir_policy policy, int runs, int n, int capacity, int block,
                             bool reversed, int *counts, int *counts2)
{
    int32_t ids[MOST];
    for (int i = 0; i < n; i++)
        ids[i] = reversed ? n - 1 - i : i;
    for (int run = 0; run < runs; run++) {
        bool in[MOST] = {false};
        clt_dataset *d = make(capacity, policy, (uint64_t)run * 7919 + 5);
        for (int i = 0; i < n; i += block)
            push(d, ids + i, n - i < block ? n - i : block, NULL);
        for (int i = 0; i < capacity; i++)
            in[id_at(d, i)] = true;
        for (int i = 0; i < n; i++) {
            counts[i] += in[i];
            counts2[i] += in[i] && in[(i + 1) % n];
        }
        clt_dataset_free(d);
    }
}

/* Chi-squared statistic of counts that each have probability p. `factor`: the statistic of samples
 * without replacement is smaller by it. */
static double chi_squared(const int *counts, int n, int runs, double p, double factor)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += pow(counts[i] - runs * p, 2) / (runs * p * (1 - p));
    return sum * factor;
}

static void uniform_passes_chi_squared(void **state)
{
    (void)state;
    enum { N = 200, CAPACITY = 20, RUNS = 4000 };
    const double p = (double)CAPACITY / N, p2 = p * (CAPACITY - 1) / (N - 1);
    static const int blocks[] = {1, 13, N};
    for (int k = 0; k < 6; k++) {
        int counts[N] = {0}, counts2[N] = {0};
        count_inclusions(CLT_RESERVOIR_UNIFORM, RUNS, N, CAPACITY, blocks[k / 2], k % 2, counts,
                         counts2);
        /* The 0.999 quantiles of 199 and (nearly independent) 200 degrees of freedom. */
        assert_true(chi_squared(counts, N, RUNS, p, (N - 1.0) / N) < 266.4);
        assert_true(chi_squared(counts2, N, RUNS, p2, 1) < 267.5);
    }
    /* The test sees another policy. */
    int counts[N] = {0}, counts2[N] = {0};
    count_inclusions(CLT_RESERVOIR_NEWEST, RUNS / 10, N, CAPACITY, N, false, counts, counts2);
    assert_true(chi_squared(counts, N, RUNS / 10, p, 1) > 1000);
}

/* Pairs of 5 samples that stay in a reservoir of 2: the probabilities of picking one after the
 * other, each by its weight among those that are left. */
static void weights_give_exact_probabilities(void **state)
{
    (void)state;
    enum { N = 5, RUNS = 40000 };
    static const double weights[N] = {1, 2, 3, 4, 0.5};
    static const int32_t ids[N] = {0, 1, 2, 3, 4};
    int counts[N][N] = {{0}};
    double sum = 0, statistic = 0, total = 0;
    for (int i = 0; i < N; i++)
        sum += weights[i];
    for (int run = 0; run < RUNS; run++) {
        clt_dataset *d = make(2, CLT_RESERVOIR_WEIGHTED, (uint64_t)run);
        push(d, ids, N, weights);
        const int a = id_at(d, 0), b = id_at(d, 1);
        counts[a < b ? a : b][a < b ? b : a]++;
        clt_dataset_free(d);
    }
    for (int i = 0; i < N; i++)
        for (int j = i + 1; j < N; j++) {
            const double p = weights[i] / sum * weights[j] / (sum - weights[i]) +
                             weights[j] / sum * weights[i] / (sum - weights[j]);
            total += p;
            statistic += pow(counts[i][j] - RUNS * p, 2) / (RUNS * p);
        }
    assert_true(fabs(total - 1) < 1e-12);
    assert_true(statistic < 27.88); /* the 0.999 quantile of 9 degrees of freedom */
}

static void draws_are_the_counters(void **state)
{
    (void)state;
    enum { CAPACITY = 50, BATCH = 1000, STEPS = 40 };
    static int32_t ids[MOST], drawn_ids[BATCH], part[BATCH / 4];
    static double drawn_x[WIDE][BATCH]; /* another type, and strides */
    int counts[CAPACITY] = {0};
    for (int i = 0; i < MOST; i++)
        ids[i] = i;
    clt_dataset *d = make(CAPACITY, CLT_RESERVOIR_UNIFORM, 9);
    const int64_t shape[] = {BATCH}, quarter[] = {BATCH / 4};
    clt_array to[2] = {{.host = 0}};
    ok(clt_array_of(&to[0], drawn_ids, CLT_I32, 1, shape));
    to[1] = (clt_array){.host = drawn_x,
                        .dtype = CLT_F64,
                        .rank = 2,
                        .shape = {BATCH, WIDE},
                        .strides = {sizeof(double), sizeof drawn_x[0]}};
    int64_t drawn = 77;
    ok(clt_dataset_draw(d, 3, 0, 0, BATCH, to, 2, &drawn));
    assert_int_equal(drawn, 0); /* there are none yet */
    push(d, ids, 300, NULL);
    for (int step = 0; step < STEPS; step++) {
        ok(clt_dataset_draw(d, 3, step, 500, BATCH, to, 2, &drawn));
        assert_int_equal(drawn, BATCH);
        for (int i = 0; i < BATCH; i++) {
            const int64_t index = reference_draw(3, step, 500 + i, CAPACITY);
            counts[index]++;
            assert_int_equal(drawn_ids[i], id_at(d, index));
            for (int k = 0; k < WIDE; k++)
                assert_true(drawn_x[k][i] == (double)number_of(drawn_ids[i], k));
        }
        /* A part of the batch has the same samples, whoever draws it. */
        clt_array some[2] = {to[0], to[1]};
        ok(clt_array_of(&some[0], part, CLT_I32, 1, quarter));
        some[1].shape[0] = BATCH / 4;
        ok(clt_dataset_draw(d, 3, step, 600, BATCH / 4, some, 2, &drawn));
        assert_memory_equal(part, drawn_ids + 100, sizeof part);
    }
    /* No step repeats a step of 2^32 steps before. */
    static int32_t early[BATCH];
    for (int64_t high = 0; high < 3; high++) {
        const int64_t step = high << 32 | 5;
        int same = 0;
        ok(clt_dataset_draw(d, 3, step, 500, BATCH, to, 2, &drawn));
        for (int i = 0; i < BATCH; i++) {
            assert_int_equal(drawn_ids[i], id_at(d, reference_draw(3, step, 500 + i, CAPACITY)));
            same += high > 0 && early[i] == drawn_ids[i];
            early[i] = drawn_ids[i];
        }
        assert_true(same < BATCH / 10); /* 1 / CAPACITY of them on average */
    }
    double statistic = 0;
    for (int i = 0; i < CAPACITY; i++)
        statistic += pow(counts[i] - BATCH * STEPS / CAPACITY, 2) / (BATCH * STEPS / CAPACITY);
    assert_true(statistic < 85.4); /* the 0.999 quantile of 49 degrees of freedom */
    clt_dataset_free(d);
}

/* --- arrays ----------------------------------------------------------------------------------- */

/* A table with a sample in each second column from the last one on, as doubles and int64. */
/* Views may begin at their memory's begin or at their first element, as in NumPy. */
static void check_views(bool at_first_element)
{
    enum { N = 5 };
    double table[WIDE][2 * N];
    int64_t ids[3 * N];
    clt_dataset *d = make(N, CLT_RESERVOIR_NEWEST, 0);
    for (int i = 0; i < N; i++) {
        ids[3 * i + 1] = 40 + i;
        for (int k = 0; k < WIDE; k++)
            table[k][2 * (N - 1 - i) + 1] = number_of(40 + i, k);
    }
    clt_array fields[] = {{.host = ids,
                           .offset = sizeof *ids,
                           .bytes = sizeof ids,
                           .dtype = CLT_I64,
                           .rank = 1,
                           .shape = {N},
                           .strides = {3 * sizeof *ids}},
                          {.host = table,
                           .offset = (2 * N - 1) * (int64_t)sizeof(double),
                           .bytes = sizeof table,
                           .dtype = CLT_F64,
                           .rank = 2,
                           .shape = {N, WIDE},
                           .strides = {-2 * (int64_t)sizeof(double), sizeof table[0]}}};
    for (int f = 0; at_first_element && f < 2; f++) {
        fields[f].host = (char *)fields[f].host + fields[f].offset;
        fields[f].offset = fields[f].bytes = 0;
    }
    ok(clt_dataset_push(d, fields, 2, NULL));
    memset(table, 0xFF, sizeof table); /* the memory is the caller's again */
    memset(ids, 0xFF, sizeof ids);
    for (int i = 0; i < N; i++)
        assert_int_equal(id_at(d, i), 40 + i);
    int64_t drawn = 0;
    ok(clt_dataset_draw(d, 1, 0, 0, N, fields, 2, &drawn));
    assert_int_equal(drawn, N);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < WIDE; k++)
            assert_true(table[k][2 * (N - 1 - i) + 1] == number_of((int32_t)ids[3 * i + 1], k));
    clt_dataset_free(d);
}

static void views_are_copied(void **state)
{
    (void)state;
    check_views(false);
    check_views(true);
}

static void memory_is_told(void **state)
{
    (void)state;
    clt_dataset *d = make(1000, CLT_RESERVOIR_UNIFORM, 0);
    const int64_t before = stats_of(d).bytes;
    push(d, (const int32_t[]){1}, 1, NULL);
    assert_int_equal(stats_of(d).bytes, before);
    assert_true(before >= 1256 * (4 + 4 * WIDE)); /* 256 places are spare */
    assert_true(before < 1256 * (4 + 4 * WIDE) + 1256 * 40);
    assert_int_equal(clt_dataset_count(d), 1);
    assert_int_equal(clt_dataset_kind(d), CLT_DATA_RESERVOIR);
    clt_dataset_free(d);
    const int64_t large[] = {((int64_t)1 << 41) - 1}; /* with spare places, 2^63 bytes and more */
    clt_array none = {.host = &d, .dtype = CLT_F32, .rank = 2, .shape = {0, large[0]}};
    ok(clt_dataset_create_reservoir("huge", 1 << 20, NULL, &d));
    ok(clt_dataset_add_field(d, "x", CLT_F32, 1, large, NULL, CLT_DATA_BORROW, NULL));
    EXPECT_FAILURE(clt_dataset_push(d, &none, 1, NULL), CLT_OUT_OF_MEMORY, "'huge'",
                   "1048576 samples", "take a smaller capacity");
    clt_dataset_free(d);
}

/* --- places ----------------------------------------------------------------------------------- */

static clt_dataset *make_small(int64_t capacity, int64_t spare)
{
    clt_reservoir_options options;
    clt_dataset *d;
    clt_reservoir_options_init(&options);
    options.policy = CLT_RESERVOIR_NEWEST;
    options.spare = spare;
    ok(clt_dataset_create_reservoir("small", capacity, &options, &d));
    ok(clt_dataset_add_field(d, "id", CLT_I32, 0, NULL, NULL, CLT_DATA_BORROW, NULL));
    return d;
}

static void push_id(clt_dataset *d, int32_t id)
{
    const int64_t one[] = {1};
    clt_array field;
    ok(clt_array_of(&field, &id, CLT_I32, 1, one));
    ok(clt_dataset_push(d, &field, 1, NULL));
}

/* A reader keeps the samples that it pinned. A push without a free place drops its sample. */
static void readers_keep_places(void **state)
{
    (void)state;
    int64_t places[64];
    clt_dataset *d = make_small(4, 1);
    clt_reservoir *r = d->payload;
    assert_false(clt_reservoir_pin(r, 0, 0, 0, 1, places, NULL));
    for (int i = 0; i < 4; i++)
        push_id(d, 10 + i);
    assert_true(clt_reservoir_pin(r, 0, 0, 0, 64, places, NULL)); /* all four, as it happens */
    const int32_t *ids = d->fields[0].data;
    int32_t before[64];
    for (int i = 0; i < 64; i++)
        before[i] = ids[places[i]];
    for (int i = 0; i < 4; i++)
        push_id(d, 20 + i);
    clt_reservoir_stats s = stats_of(d);
    assert_int_equal(s.replaced, 1); /* the spare place took one */
    assert_int_equal(s.dropped, 3);
    for (int i = 0; i < 64; i++)
        assert_int_equal(ids[places[i]], before[i]);
    clt_reservoir_unpin(r, places, 64);
    for (int i = 0; i < 4; i++)
        push_id(d, 30 + i);
    s = stats_of(d);
    assert_int_equal(s.replaced, 5);
    assert_int_equal(s.dropped, 3);
    /* Dropped samples had no number: the ring went on at index 1. */
    for (int i = 0; i < 4; i++)
        assert_int_equal(ids[r->entries[(1 + i) % 4].place], 30 + i);
    clt_dataset_free(d);
}

/* A sample that is copied slowly does not replace a later one, and an index whose first sample is
 * still being copied is not drawn. */
static void slow_copies_change_nothing(void **state)
{
    (void)state;
    clt_dataset *d = make_small(2, 8);
    clt_reservoir *r = d->payload;
    ok(clt_reservoir_make(d));
    const clt_reservoir_decision first = clt_reservoir_decide(r, 1);
    clt_reservoir_commit(r, &first);
    const int64_t place = r->free[--r->n_free];
    r->seen++;
    push_id(d, 7); /* index 1 */
    int64_t places[100], numbers[100];
    assert_true(clt_reservoir_pin(r, 0, 0, 0, 100, places, numbers));
    for (int i = 0; i < 100; i++)
        assert_int_equal(numbers[i], 2);
    clt_reservoir_unpin(r, places, 100);
    push_id(d, 8); /* index 0, before the first sample is there */
    clt_reservoir_publish(r, first.index, first.number, place);
    assert_int_equal(stats_of(d).replaced, 1);
    assert_int_equal(((const int32_t *)d->fields[0].data)[r->entries[0].place], 8);
    clt_dataset_free(d);
}

/* --- bad input -------------------------------------------------------------------------------- */

static void bad_pushes_take_nothing(void **state)
{
    (void)state;
    const int64_t shape[] = {2, WIDE}, classes = 3;
    float x[2][WIDE] = {{0}};
    int32_t ids[2] = {1, 2};
    int64_t wide[2] = {1, (int64_t)1 << 40};
    unsigned char bytes[2] = {0};
    clt_array good[2], f[2];
    clt_dataset *d = make(8, CLT_RESERVOIR_UNIFORM, 0), *w = make(8, CLT_RESERVOIR_WEIGHTED, 0), *a;
    ok(clt_array_of(&good[0], ids, CLT_I32, 1, shape));
    ok(clt_array_of(&good[1], x, CLT_F32, 2, shape));
    ok(clt_dataset_set_classes(d, 0, classes));
#define REFUSED(field, change, ...)                                                                \
    do {                                                                                           \
        memcpy(f, good, sizeof f);                                                                 \
        change;                                                                                    \
        EXPECT_FAILURE(clt_dataset_push(d, f, 2, NULL), CLT_INVALID_ARGUMENT, "'box'", field,      \
                       __VA_ARGS__);                                                               \
    } while (0)
    REFUSED("'x'", f[1].rank = 1, "is f32 [2]", "must be f32 [2, 3]");
    REFUSED("'x'", f[1].shape[1] = 2, "is f32 [2, 2]");
    REFUSED("'x'", f[1].shape[0] = 1, "is f32 [1, 3]");
    REFUSED("'x'", f[1].dtype = CLT_I32, "is i32", "must be f32 [2, 3] (or f64)");
    REFUSED("'x'", f[1].bytes = 20, "of a memory of 20 bytes");
    REFUSED("'x'", f[1].whole = 1, "needs a shape");
    REFUSED("'x'", f[1].host = NULL, "neither host nor buffer");
    REFUSED("'x'", (f[1].buffer = (void *)x, f[1].host = NULL), "clt_reservoir_options.device");
    REFUSED("'id'", f[0].rank = 0, "needs a shape");
    REFUSED("'id'", ok(clt_array_of(&f[0], bytes, CLT_U8, 1, shape)), "is u8 [2]");
    REFUSED("'id'", ok(clt_array_of(&f[0], wide, CLT_I64, 1, shape)), "element 1",
            "does not fit in 32 bits");
    ids[1] = 3;
    REFUSED("'id'", (void)f, "label 3 of sample 1 of this push is out of range: 0 to 2");
    ids[1] = 2;
    EXPECT_FAILURE(clt_dataset_push(d, good, 1, NULL), CLT_INVALID_ARGUMENT, "has 2 fields",
                   "1 arrays");
    EXPECT_FAILURE(clt_dataset_push(d, NULL, 2, NULL), CLT_INVALID_ARGUMENT, "0 arrays");
    const double ones[] = {1, 1}, nan[] = {1, NAN}, negative[] = {-1, 1},
                 infinite[] = {1, INFINITY};
    EXPECT_FAILURE(clt_dataset_push(d, good, 2, ones), CLT_INVALID_ARGUMENT, "without weights");
    EXPECT_FAILURE(clt_dataset_push(w, good, 2, NULL), CLT_INVALID_ARGUMENT, "give a weight");
    EXPECT_FAILURE(clt_dataset_push(w, good, 2, nan), CLT_INVALID_ARGUMENT, "sample 1", "nan");
    EXPECT_FAILURE(clt_dataset_push(w, good, 2, negative), CLT_INVALID_ARGUMENT, "sample 0", "-1");
    EXPECT_FAILURE(clt_dataset_push(w, good, 2, infinite), CLT_INVALID_ARGUMENT, "sample 1", "inf");
    assert_int_equal(stats_of(d).seen, 0);
    assert_int_equal(stats_of(w).seen, 0);
    ok(clt_dataset_push(d, good, 2, NULL));
    ok(clt_dataset_push(w, good, 2, ones));
    assert_int_equal(stats_of(d).kept, 2);
    assert_int_equal(stats_of(w).kept, 2);

    int64_t drawn;
    EXPECT_FAILURE(clt_dataset_draw(d, 0, 0, 0, 3, good, 2, &drawn), CLT_INVALID_ARGUMENT,
                   "must be i32 [3]");
    EXPECT_FAILURE(clt_dataset_draw(d, 0, -1, 0, 2, good, 2, &drawn), CLT_INVALID_ARGUMENT,
                   "step -1");
    ok(clt_dataset_create_arrays("plain", 2, &a));
    EXPECT_FAILURE(clt_dataset_push(a, good, 2, NULL), CLT_UNSUPPORTED, "'plain' is no reservoir");
    EXPECT_FAILURE(clt_dataset_push(NULL, good, 2, NULL), CLT_INVALID_ARGUMENT, "NULL");
    clt_dataset_free(a);
    clt_dataset_free(d);
    clt_dataset_free(w);
}

static void other_users_are_refused(void **state)
{
    (void)state;
    clt_dataset *d = make(8, CLT_RESERVOIR_UNIFORM, 0), *bad;
    clt_loader_desc desc;
    clt_loader *loader;
    clt_augment augment;
    const void *data;
    const double weights[8] = {1};
    clt_dataset *rest, *part;
    EXPECT_FAILURE(clt_dataset_set_sample_weights(d, weights), CLT_UNSUPPORTED,
                   "'box' is a reservoir");
    EXPECT_FAILURE(clt_dataset_split(d, 0.5, 0, &rest, &part), CLT_UNSUPPORTED,
                   "'box' is a reservoir");
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 2;
    EXPECT_FAILURE(clt_loader_create(&desc, &loader), CLT_UNSUPPORTED, "'box' is a reservoir");
    clt_augment_init(&augment);
    EXPECT_FAILURE(clt_dataset_augment(d, "x", &augment), CLT_UNSUPPORTED, "'box' is a reservoir");
    EXPECT_FAILURE(clt_dataset_field_data(d, 0, &data), CLT_UNSUPPORTED, "'box'");
    float x[WIDE];
    EXPECT_FAILURE(clt_dataset_add_field(d, "y", CLT_F32, 0, NULL, x, CLT_DATA_BORROW, NULL),
                   CLT_INVALID_ARGUMENT, "'y'");
    push(d, (const int32_t[]){1}, 1, NULL);
    EXPECT_FAILURE(clt_dataset_add_field(d, "y", CLT_F32, 0, NULL, NULL, CLT_DATA_BORROW, NULL),
                   CLT_STATE, "'y' comes too late");
    clt_dataset_free(d);

    clt_reservoir_options o;
    clt_reservoir_options_init(&o);
    EXPECT_FAILURE(clt_dataset_create_reservoir("r", 0, &o, &bad), CLT_INVALID_ARGUMENT,
                   "capacity 0");
    o.least = 5;
    EXPECT_FAILURE(clt_dataset_create_reservoir("r", 4, &o, &bad), CLT_INVALID_ARGUMENT, "least 5");
    o.least = 1;
    o.policy = (clt_reservoir_policy)3;
    EXPECT_FAILURE(clt_dataset_create_reservoir("r", 4, &o, &bad), CLT_INVALID_ARGUMENT,
                   "no policy 3");
    ok(clt_dataset_create_reservoir("bare", 4, NULL, &bad));
    EXPECT_FAILURE(clt_dataset_push(bad, NULL, 0, NULL), CLT_STATE, "'bare' has no fields");
    clt_dataset_free(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_keep_what_the_papers_say),
        cmocka_unit_test(uniform_passes_chi_squared),
        cmocka_unit_test(weights_give_exact_probabilities),
        cmocka_unit_test(draws_are_the_counters),
        cmocka_unit_test(views_are_copied),
        cmocka_unit_test(memory_is_told),
        cmocka_unit_test(readers_keep_places),
        cmocka_unit_test(slow_copies_change_nothing),
        cmocka_unit_test(bad_pushes_take_nothing),
        cmocka_unit_test(other_users_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
