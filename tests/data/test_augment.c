/* Random crops and flips: what they compute, that they are uniform, and that only seed, epoch and
 * sample select them. */
#include "data/expect.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    N = 600,
    C = 2,
    H = 5,
    W = 7,
    BYTES = C * H * W,
    PAD = 2,
    PLACES = (2 * PAD + 1) * (2 * PAD + 1)
};

static unsigned char samples[N * BYTES];
static float floats[N * BYTES];

static clt_dataset *make(const char *text, int as_float)
{
    static const int64_t shape[] = {C, H, W};
    clt_dataset *d;
    clt_augment a;
    for (int i = 0; i < N * BYTES; i++) {
        samples[i] = (unsigned char)(1 + (i * 131 + i / BYTES) % 255);
        floats[i] = samples[i];
    }
    assert_int_equal(clt_dataset_create_arrays("made", N, &d), CLT_OK);
    assert_int_equal(clt_dataset_add_field(d, "image", as_float ? CLT_F32 : CLT_U8, 3, shape,
                                           as_float ? (void *)floats : samples, CLT_DATA_BORROW,
                                           NULL),
                     CLT_OK);
    if (text) {
        assert_int_equal(clt_augment_parse(text, &a), CLT_OK);
        assert_int_equal(clt_dataset_augment(d, "image", &a), CLT_OK);
    }
    return d;
}

/* Returns an epoch's samples as floats, ordered by sample number. */
static float *read_epoch(clt_dataset *d, int64_t seed, int64_t epoch, int64_t batch, int threads,
                         int parts)
{
    clt_loader_desc desc;
    clt_loader *loader;
    float *all = calloc(N, BYTES * sizeof *all);
    assert_non_null(all);
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = batch;
    desc.seed = seed;
    desc.epoch = epoch;
    desc.end_epoch = epoch + 1;
    desc.parts = parts;
    desc.max_threads = desc.min_threads = threads;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "image", CLT_F32, NULL), CLT_OK);
    assert_int_equal(clt_loader_normalize(loader, 0, 1, 1, NULL, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch b = {.struct_size = sizeof b};
    for (;;) {
        if (clt_loader_next(loader, &b) != CLT_OK)
            fail_msg("%s", clt_error_message());
        if (b.slot < 0)
            break;
        for (int p = 0; p < parts; p++)
            for (int64_t i = b.offsets[p]; i < b.offsets[p + 1]; i++)
                memcpy(all + b.indices[i] * BYTES,
                       (float *)clt_loader_memory(loader, b.slot, p, 0) +
                           (i - b.offsets[p]) * BYTES,
                       BYTES * sizeof *all);
        assert_int_equal(clt_loader_release(loader, b.slot), CLT_OK);
    }
    clt_loader_free(loader);
    return all;
}

/* Returns which of the windows and flips this is, or -1. */
static int find_change(const float *got, int sample, int padding)
{
    const unsigned char *from = samples + sample * BYTES;
    const int n = 2 * padding + 1;
    for (int change = 0; change < 2 * n * n; change++) {
        const int down = change / 2 / n - padding, right = change / 2 % n - padding;
        int same = 1;
        for (int i = 0; same && i < BYTES; i++) {
            const int c = i / (H * W), y = i / W % H + down;
            const int x = (change & 1 ? W - 1 - i % W : i % W) + right;
            const int inside = y >= 0 && y < H && x >= 0 && x < W;
            same = got[i] == (inside ? from[(c * H + y) * W + x] : 0);
        }
        if (same)
            return change;
    }
    return -1;
}

/* Every window and flip comes equally often: chi-squared is below its quantile of about 0.9999. */
static void all_windows_and_flips_come_equally_often(void **state)
{
    (void)state;
    for (int as_float = 0; as_float < 2; as_float++) {
        clt_dataset *d = make("crop:2,flip", as_float);
        double counts[2 * PLACES] = {0}, chi = 0;
        for (int epoch = 0; epoch < 10; epoch++) {
            float *got = read_epoch(d, 1, epoch, 64, 2, 1);
            for (int s = 0; s < N; s++) {
                const int change = find_change(got + s * BYTES, s, PAD);
                assert_true(change >= 0);
                counts[change]++;
            }
            free(got);
        }
        const double want = 10.0 * N / (2 * PLACES), k = 2 * PLACES - 1;
        for (int i = 0; i < 2 * PLACES; i++)
            chi += (counts[i] - want) * (counts[i] - want) / want;
        /* Wilson and Hilferty's approximation of the quantile, at 3.7 standard deviations. */
        const double z = 1 - 2 / (9 * k) + 3.7 * sqrt(2 / (9 * k));
        assert_true(chi < k * z * z * z);
        clt_dataset_free(d);
    }
}

static void seed_epoch_and_sample_decide_alone(void **state)
{
    (void)state;
    clt_dataset *d = make("crop,flip", 0);
    float *first = read_epoch(d, 7, 3, 32, 1, 1);
    static const struct {
        int64_t batch;
        int threads, parts;
    } ways[] = {{32, 3, 1}, {50, 2, 3}, {600, 4, 2}, {1, 1, 1}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        float *again = read_epoch(d, 7, 3, ways[i].batch, ways[i].threads, ways[i].parts);
        assert_memory_equal(again, first, N * BYTES * sizeof *again);
        free(again);
    }
    float *other_epoch = read_epoch(d, 7, 4, 32, 1, 1), *other_seed = read_epoch(d, 8, 3, 32, 1, 1);
    float *late = read_epoch(d, 7, (int64_t)1 << 32 | 3, 32, 1, 1); /* the same low 32 bits */
    assert_memory_not_equal(other_epoch, first, N * BYTES * sizeof *first);
    assert_memory_not_equal(late, first, N * BYTES * sizeof *first);
    assert_memory_not_equal(other_seed, first, N * BYTES * sizeof *first);
    for (int s = 0; s < N; s++)
        assert_true(find_change(first + s * BYTES, s, 4) >= 0); /* 4 is the default padding */
    free(other_epoch);
    free(late);
    free(other_seed);
    free(first);
    clt_dataset_free(d);
}

static void a_padding_beyond_the_sample_gives_zeros_too(void **state)
{
    (void)state;
    clt_dataset *d = make("crop:9", 0);
    float *got = read_epoch(d, 1, 0, 64, 2, 1);
    int empty = 0;
    for (int s = 0; s < N; s++) {
        int zeros = 1;
        for (int i = 0; zeros && i < BYTES; i++)
            zeros = got[s * BYTES + i] == 0;
        empty += zeros;
        assert_true(zeros || find_change(got + s * BYTES, s, 9) >= 0);
    }
    assert_true(empty > 0 && empty < N);
    free(got);
    clt_dataset_free(d);
}

/* Writes samples in a callback. They go directly into an output of the same type that is not
 * augmented. */
static clt_status fill(void *user, const int64_t *indices, int64_t count, void *const *fields)
{
    (void)user;
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)fields[0] + i * BYTES, samples + indices[i] * BYTES, BYTES);
    return CLT_OK;
}

static void samples_of_callbacks_are_changed_too(void **state)
{
    (void)state;
    static const int64_t shape[] = {C, H, W};
    clt_dataset *plain = make("crop:2,flip", 0), *d;
    clt_augment a;
    assert_int_equal(clt_augment_parse("crop:2,flip", &a), CLT_OK);
    assert_int_equal(clt_dataset_create_callback("called", N, fill, NULL, 0, &d), CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "image", CLT_U8, 3, shape, NULL, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(clt_dataset_augment(d, "image", &a), CLT_OK);
    float *want = read_epoch(plain, 5, 2, 64, 2, 1), *got = read_epoch(d, 5, 2, 64, 2, 1);
    assert_memory_equal(got, want, N * BYTES * sizeof *got);
    free(want);
    free(got);
    clt_dataset_free(plain);
    clt_dataset_free(d);
    /* An output of u8 keeps its type. */
    clt_loader_desc desc;
    clt_loader *loader;
    d = make("flip", 0);
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = N;
    desc.shuffle = 0;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "image", CLT_U8, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch b = {.struct_size = sizeof b};
    assert_int_equal(clt_loader_next(loader, &b), CLT_OK);
    const unsigned char *bytes = clt_loader_memory(loader, b.slot, 0, 0);
    int flipped = 0;
    for (int s = 0; s < N; s++) {
        const int flips = memcmp(bytes + s * BYTES, samples + s * BYTES, BYTES) != 0;
        for (int i = 0; i < BYTES; i++)
            assert_int_equal(bytes[s * BYTES + i],
                             samples[s * BYTES + (flips ? i - i % W + W - 1 - i % W : i)]);
        flipped += flips;
    }
    assert_true(flipped > N / 3 && flipped < N * 2 / 3);
    clt_loader_free(loader);
    clt_dataset_free(d);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",        "crp",       "crop,",          ",flip",
                                        "crop:-1", "crop:x",    "crop:",          "flip:1",
                                        "crop:4x", "flip,flip", "resized-crop:0", "resized-crop:2"};
    clt_augment a;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT_FAILURE(clt_augment_parse(wrong[i], &a), CLT_INVALID_ARGUMENT, "augment",
                       "crop:PADDING");
    EXPECT_FAILURE(clt_augment_parse("crop,resized-crop", &a), CLT_INVALID_ARGUMENT, "not both");
    clt_dataset *d = make(NULL, 0);
    unsigned char label[N] = {0};
    assert_int_equal(
        clt_dataset_add_field(d, "label", CLT_U8, 0, NULL, label, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(clt_augment_parse("resized-crop", &a), CLT_OK);
    EXPECT_FAILURE(clt_dataset_augment(d, "image", &a), CLT_UNSUPPORTED, "made",
                   "folders of images");
    assert_int_equal(clt_augment_parse("flip", &a), CLT_OK);
    EXPECT_FAILURE(clt_dataset_augment(d, "label", &a), CLT_UNSUPPORTED, "label", "rank 0");
    EXPECT_FAILURE(clt_dataset_augment(d, "imag", &a), CLT_NOT_FOUND, "did you mean 'image'");
    a.struct_size = 0;
    EXPECT_FAILURE(clt_dataset_augment(d, "image", &a), CLT_INVALID_ARGUMENT, "clt_augment_init");
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_windows_and_flips_come_equally_often),
        cmocka_unit_test(seed_epoch_and_sample_decide_alone),
        cmocka_unit_test(a_padding_beyond_the_sample_gives_zeros_too),
        cmocka_unit_test(samples_of_callbacks_are_changed_too),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
