/* Where the windows of samples begin in the tokens: shifted, random and continued windows. */
#include "data/token_files.h"

/* --- windows ---------------------------------------------------------------------------------- */

enum { SEED = 5, LONG_COUNT = 20 * T + 4, SHORT_COUNT = 3 * T };

/* Finds where the samples of an epoch begin. Files hold rising numbers, so tokens tell their
 * place. */
static void read_begins(clt_windows windows, int64_t epoch, int threads, int parts, int64_t n,
                        int64_t *begin)
{
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = T;
    options.windows = windows;
    clt_dataset *d = expect_open(spec_of("tokens", "a_train_*.bin"), "train", &options);
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 3;
    desc.seed = SEED;
    desc.epoch = epoch;
    desc.end_epoch = epoch + 1;
    desc.min_threads = desc.max_threads = threads;
    desc.parts = parts;
    assert_int_equal(clt_dataset_count(d), n);
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "tokens", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "targets", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch b = {.struct_size = sizeof b};
    while (clt_loader_next(loader, &b) == CLT_OK && b.slot >= 0) {
        for (int p = 0; p < parts; p++)
            for (int64_t i = b.offsets[p]; i < b.offsets[p + 1]; i++) {
                const int32_t *in =
                    (int32_t *)clt_loader_memory(loader, b.slot, p, 0) + (i - b.offsets[p]) * T;
                const int32_t *out =
                    (int32_t *)clt_loader_memory(loader, b.slot, p, 1) + (i - b.offsets[p]) * T;
                for (int k = 0; k < T; k++) {
                    assert_int_equal(in[k], in[0] + k);
                    assert_int_equal(out[k], in[0] + k + 1);
                }
                begin[b.indices[i]] = in[0];
            }
        assert_int_equal(clt_loader_release(loader, b.slot), CLT_OK);
    }
    clt_loader_free(loader);
    clt_dataset_free(d);
}

/* Writes two files. The first holds 0, 1 and so on, the second continues from 1000. */
static int64_t write_rising(void)
{
    uint16_t numbers[LONG_COUNT];
    unlink(path_of("a_train_0.json"));
    unlink(path_of("a_train_1.json"));
    for (uint16_t i = 0; i < LONG_COUNT; i++)
        numbers[i] = i;
    spill("a_train_0.bin", numbers, LONG_COUNT * 2);
    for (uint16_t i = 0; i < SHORT_COUNT; i++)
        numbers[i] = (uint16_t)(1000 + i);
    spill("a_train_1.bin", numbers, SHORT_COUNT * 2);
    return (LONG_COUNT - 1) / T + (SHORT_COUNT - 1) / T;
}

static void shifted_windows_see_every_token_about_once(void **state)
{
    (void)state;
    const int64_t n = write_rising(), in_first = (LONG_COUNT - 1) / T;
    int64_t begin[64], again[64], shifts[2][T] = {{0}};
    for (int64_t epoch = 0; epoch < 60; epoch++) {
        read_begins(CLT_WINDOWS_SHIFTED, epoch, 1, 1, n, begin);
        for (int file = 0; file < 2; file++) {
            const int64_t first = file ? in_first : 0, count = file ? n - in_first : in_first;
            const int64_t base = file ? 1000 : 0, end = base + (file ? SHORT_COUNT : LONG_COUNT);
            const int64_t shift = begin[first] - base;
            assert_in_range(shift, 0, T - 1);
            shifts[file][shift]++;
            for (int64_t k = 0; k < count; k++) {
                const int64_t at = base + shift + k * T;
                assert_int_equal(begin[first + k], at + T < end ? at : base);
            }
        }
        if (epoch < 3) {
            read_begins(CLT_WINDOWS_SHIFTED, epoch, 4, 3, n, again);
            assert_memory_equal(begin, again, (size_t)n * sizeof *begin);
        }
    }
    for (int i = 0; i < T; i++) /* 8.6 samples are expected */
        assert_true(shifts[0][i] && shifts[1][i]);
}

static void random_windows_lie_anywhere(void **state)
{
    (void)state;
    enum { PLACES = LONG_COUNT + SHORT_COUNT - 2 * T, EPOCHS = 100 };
    const int64_t n = write_rising();
    int64_t begin[64], again[64], seen[PLACES] = {0};
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        read_begins(CLT_WINDOWS_RANDOM, epoch, 1, 1, n, begin);
        for (int64_t i = 0; i < n; i++) {
            const int64_t place = begin[i] < 1000 ? begin[i] : begin[i] - 1000 + LONG_COUNT - T;
            assert_in_range(place, 0, PLACES - 1);
            seen[place]++;
        }
        if (epoch < 3) {
            read_begins(CLT_WINDOWS_RANDOM, epoch, 4, 3, n, again);
            assert_memory_equal(begin, again, (size_t)n * sizeof *begin);
        }
    }
    /* No epoch repeats one of 2^32 epochs before. */
    read_begins(CLT_WINDOWS_RANDOM, 3, 1, 1, n, begin);
    read_begins(CLT_WINDOWS_RANDOM, (int64_t)1 << 32 | 3, 1, 1, n, again);
    assert_memory_not_equal(begin, again, (size_t)n * sizeof *begin);
    const double each = (double)(EPOCHS * n) / PLACES;
    double squares = 0;
    for (int i = 0; i < PLACES; i++) {
        assert_true(seen[i]);
        squares += ((double)seen[i] - each) * ((double)seen[i] - each) / each;
    }
    /* Chi-squared has the mean PLACES - 1 and the deviation sqrt(2 (PLACES - 1)), about 17. */
    assert_true(squares > PLACES - 100 && squares < PLACES + 100);
}

/* Training windows do not reach into the last tenth, and test windows do not change. */
static void windows_of_a_split_stay_in_it(void **state)
{
    (void)state;
    static const clt_windows ways[] = {CLT_WINDOWS_SHIFTED, CLT_WINDOWS_RANDOM};
    write_tokens("one.bin", 5, 21 * T + 1, 0, 0);
    int file[3] = {5, 5, 5};
    const int64_t begin[3] = {18 * T, 19 * T, 20 * T};
    uint16_t numbers[21 * T + 1];
    for (uint16_t i = 0; i <= 21 * T; i++)
        numbers[i] = i;
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = T;
    options.classes = VOCABULARY;
    for (int w = 0; w < 2; w++) {
        options.windows = ways[w];
        clt_dataset *d = expect_open(spec_of("tokens", "one.bin"), "test", &options);
        expect_windows(d, T, file, begin);
        clt_dataset_free(d);
    }
    spill("a_train_0.bin", numbers, sizeof numbers);
    unlink(path_of("a_train_1.bin"));
    for (int w = 0; w < 2; w++)
        for (int64_t epoch = 0; epoch < 30; epoch++) {
            int32_t tokens[T];
            void *fields[] = {tokens, NULL};
            const clt_sample_key key = {SEED, epoch};
            options.windows = ways[w];
            clt_dataset *d = expect_open(spec_of("tokens", "a_train_0.bin"), "train", &options);
            assert_int_equal(clt_dataset_count(d), 18);
            for (int64_t i = 0; i < 18; i++) {
                assert_int_equal(clt_dataset_fill(d, &key, &i, 1, fields), CLT_OK);
                assert_in_range(tokens[0], 0, 17 * T);
            }
            clt_dataset_free(d);
        }
}

/* The text has as many parts as a batch has samples, side by side. A window never spans two
 * files. */
static void continued_windows_go_on_in_the_next_batch(void **state)
{
    (void)state;
    enum { BESIDE = 3, EACH = 7, IN_FIRST = (LONG_COUNT - 1) / T };
    assert_int_equal(write_rising() / BESIDE, EACH);
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = T;
    clt_dataset *d;
    options.windows = (clt_windows)(CLT_WINDOWS_CONTINUED + 1);
    EXPECT_FAILURE(clt_dataset_open(spec_of("tokens", "a_train_*.bin"), &options, &d),
                   CLT_INVALID_ARGUMENT, "windows 4: a clt_windows is 0 to 3");
    options.windows = CLT_WINDOWS_CONTINUED;
    EXPECT_FAILURE(clt_dataset_open(spec_of("tokens", "a_train_*.bin"), &options, &d),
                   CLT_INVALID_ARGUMENT, "give the batch size");
    /* For validation no window continues. */
    options.split = "all";
    d = expect_open(spec_of("tokens", "a_train_*.bin"), "all", &options);
    assert_int_equal(clt_dataset_count(d), write_rising());
    for (int64_t i = 0; i < clt_dataset_count(d); i++) {
        int32_t tokens[T];
        float continues = -1;
        void *fields[] = {tokens, NULL, &continues};
        assert_int_equal(clt_dataset_fill(d, &(clt_sample_key){SEED, 0}, &i, 1, fields), CLT_OK);
        assert_int_equal(tokens[0], i < IN_FIRST ? i * T : 1000 + (i - IN_FIRST) * T);
        assert_true(continues == 0);
    }
    clt_dataset_free(d);
    options.split = "train";
    options.rows = 23;
    EXPECT_FAILURE(clt_dataset_open(spec_of("tokens", "a_train_*.bin"), &options, &d), CLT_FORMAT,
                   "22 samples of 7 tokens are fewer than a batch of 23");
    options.rows = BESIDE;
    d = expect_open(spec_of("tokens", "a_train_*.bin"), "train", &options);
    assert_int_equal(clt_dataset_count(d), BESIDE * EACH);
    for (int64_t i = 0; i < BESIDE * EACH; i++) {
        int32_t tokens[T], targets[T];
        float continues = -1;
        void *fields[] = {tokens, targets, &continues};
        const int64_t window = i % BESIDE * EACH + i / BESIDE;
        const clt_sample_key key = {SEED, 0};
        assert_int_equal(clt_dataset_fill(d, &key, &i, 1, fields), CLT_OK);
        assert_int_equal(tokens[0],
                         window < IN_FIRST ? window * T : 1000 + (window - IN_FIRST) * T);
        assert_int_equal(targets[T - 1], tokens[0] + T);
        assert_true(continues == (i >= BESIDE && window != IN_FIRST));
    }
    clt_dataset_free(d);
    /* The same for a file that holds both splits. */
    write_tokens("one.bin", 5, 21 * T + 1, 0, 0);
    options.classes = VOCABULARY;
    for (int test = 0; test < 2; test++) {
        d = expect_open(spec_of("tokens", "one.bin"), test ? "test" : "train", &options);
        assert_int_equal(clt_dataset_count(d), test ? 3 : 18);
        for (int64_t i = 0; i < (test ? 3 : 18); i++) {
            int32_t tokens[T];
            float continues = -1;
            void *fields[] = {tokens, NULL, &continues};
            const clt_sample_key key = {SEED, 0};
            assert_int_equal(clt_dataset_fill(d, &key, &i, 1, fields), CLT_OK);
            const int64_t begin = test ? (18 + i) * T : (i % BESIDE * 6 + i / BESIDE) * T;
            for (int64_t k = 0; k < T; k++)
                assert_int_equal(tokens[k], token(5, begin + k));
            assert_true(continues == (!test && i >= BESIDE));
        }
        clt_dataset_free(d);
    }
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shifted_windows_see_every_token_about_once),
        cmocka_unit_test(random_windows_lie_anywhere),
        cmocka_unit_test(windows_of_a_split_stay_in_it),
        cmocka_unit_test(continued_windows_go_on_in_the_next_batch),
    };
    return cmocka_run_group_tests(tests, make_folder, end);
}
