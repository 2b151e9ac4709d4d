/* Files of tokens and text as data sets: windows, splits, vocabularies, and what is wrong with
 * them. */
#include "data/expect.h"
#include "data/dataset.h"
#include "data/files.h"

#include <sys/stat.h>

enum { MAGIC = 20240520, HEADER = 1024, T = 7, VOCABULARY = 4000 };

static const char *const names[] = {"train.bin",      "val.bin",        "a_train_0.bin",
                                    "a_train_1.bin",  "a_val.bin",      "training.bin",
                                    "one.bin",        "one.json",       "text.txt",
                                    "a_train_0.json", "a_train_1.json", "b_validation.bin"};
static char spec[160];

static int end(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    return remove_folder(state);
}

static const char *spec_of(const char *kind, const char *name)
{
    snprintf(spec, sizeof spec, "%s:%s%s%s", kind, folder, *name ? "/" : "", name);
    return spec;
}

static int token(int file, int64_t i)
{
    return (int)((i * i * 31 + file * 977 + i * 13) % VOCABULARY);
}

/* With llm.c's header, which may announce another number, or without one. */
static void write_tokens(const char *name, int file, int count, int header, int announced)
{
    unsigned char *bytes = calloc(1, HEADER + 2 * (size_t)count + 1), *p = bytes;
    assert_non_null(bytes);
    const int numbers[] = {MAGIC, 1, announced};
    for (int i = 0; header && i < 12; i++)
        p[i] = (unsigned char)(numbers[i / 4] >> 8 * (i % 4));
    p += header ? HEADER : 0;
    for (int i = 0; i < count; i++, p += 2) {
        p[0] = (unsigned char)token(file, i);
        p[1] = (unsigned char)(token(file, i) >> 8);
    }
    spill(name, bytes, (size_t)(p - bytes));
    free(bytes);
}

static clt_dataset *open_tokens(const char *kind, const char *name, const char *split,
                                int64_t sequence, int64_t classes)
{
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = sequence;
    options.classes = classes;
    return expect_open(spec_of(kind, name), split, &options);
}

/* The batches of one pass in order; sample s must be the window at `begin[s]` of its file. */
static void expect_windows(clt_dataset *d, int64_t t, const int *file, const int64_t *begin)
{
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 3;
    desc.shuffle = 0;
    desc.end_epoch = 1;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "targets", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "tokens", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch batch = {.struct_size = sizeof batch};
    int64_t seen = 0;
    for (;;) {
        assert_int_equal(clt_loader_next(loader, &batch), CLT_OK);
        if (batch.slot < 0)
            break;
        const int32_t *targets = clt_loader_memory(loader, batch.slot, 0, 0);
        const int32_t *tokens = clt_loader_memory(loader, batch.slot, 0, 1);
        for (int64_t s = 0; s < batch.count; s++, seen++)
            for (int64_t i = 0; i < t; i++) {
                assert_int_equal(tokens[s * t + i], token(file[seen], begin[seen] + i));
                assert_int_equal(targets[s * t + i], token(file[seen], begin[seen] + i + 1));
            }
        assert_int_equal(clt_loader_release(loader, batch.slot), CLT_OK);
    }
    assert_int_equal(seen, clt_dataset_count(d));
    clt_loader_free(loader);
}

static void folders_have_a_file_or_several_of_each_split(void **state)
{
    (void)state;
    const int file[] = {1, 1, 2}, single[] = {3};
    const int64_t begin[] = {0, T, 0}, first[] = {0};
    /* 2 windows and 6 tokens more; 1 window and nothing more; too few for any: it lacks a target.
     */
    write_tokens("a_train_0.bin", 1, 2 * T + 7, 1, 2 * T + 7);
    write_tokens("a_train_1.bin", 2, T + 1, 0, 0);
    write_tokens("train.bin", 4, T, 0, 0);
    write_tokens("a_val.bin", 3, T + 2, 1, T + 2);
    write_tokens("training.bin", 9, 100, 0, 0); /* not the word */
    clt_dataset *d = open_tokens("tokens", "", "train", T, VOCABULARY);
    assert_int_equal(clt_dataset_count(d), 3);
    const int field = expect_field(d, "tokens", CLT_I32, "[7]");
    assert_int_equal(clt_dataset_classes(d, field), VOCABULARY);
    assert_int_equal(clt_dataset_classes(d, expect_field(d, "targets", CLT_I32, "[7]")),
                     VOCABULARY);
    expect_windows(d, T, file, begin);
    clt_dataset_free(d);
    d = open_tokens("tokens", "", "test", T, 0);
    assert_int_equal(clt_dataset_count(d), 1);
    int64_t largest = 0;
    for (int i = 0; i < T + 2; i++)
        largest = token(3, i) > largest ? token(3, i) : largest;
    assert_int_equal(clt_dataset_classes(d, 0), largest + 1);
    expect_windows(d, T, single, first);
    clt_dataset_free(d);
}

static void the_last_tenth_of_a_file_is_for_tests(void **state)
{
    (void)state;
    int file[21];
    int64_t begin[21];
    write_tokens("one.bin", 5, 21 * T + 1, 0, 0);
    for (int i = 0; i < 21; i++) {
        file[i] = 5;
        begin[i] = i * T;
    }
    spill("one.json", "{\"vocab_size\": 5000}", 20);
    clt_dataset *d = open_tokens("tokens", "one.bin", "train", T, 0);
    assert_int_equal(clt_dataset_count(d), 18);
    assert_int_equal(clt_dataset_classes(d, 0), 5000);
    expect_windows(d, T, file, begin);
    clt_dataset_free(d);
    d = open_tokens("tokens", "one.bin", "test", T, 4500);
    assert_int_equal(clt_dataset_count(d), 3);
    assert_int_equal(clt_dataset_classes(d, 0), 4500);
    expect_windows(d, T, file, begin + 18);
    clt_dataset_free(d);
}

/* Whole samples are divided, the tests' share rounded up: one of two, and two of eleven. */
static void tenths_are_of_whole_samples(void **state)
{
    (void)state;
    static const int windows[] = {2, 10, 11, 20}, tests[] = {1, 1, 2, 2};
    for (int i = 0; i < 4; i++) {
        int file[20];
        int64_t begin[20];
        for (int w = 0; w < windows[i]; w++) {
            file[w] = 6;
            begin[w] = w * T;
        }
        /* What fills no sample is at the file's end, so no test has it either. */
        write_tokens("one.bin", 6, windows[i] * T + T, 0, 0);
        clt_dataset *d = open_tokens("tokens", "one.bin", "train", T, VOCABULARY);
        assert_int_equal(clt_dataset_count(d), windows[i] - tests[i]);
        expect_windows(d, T, file, begin);
        clt_dataset_free(d);
        d = open_tokens("tokens", "one.bin", "test", T, VOCABULARY);
        assert_int_equal(clt_dataset_count(d), tests[i]);
        expect_windows(d, T, file, begin + windows[i] - tests[i]);
        clt_dataset_free(d);
    }
}

static void validation_is_a_word_of_tests_too(void **state)
{
    (void)state;
    const int file[] = {8};
    const int64_t begin[] = {0};
    write_tokens("b_validation.bin", 8, T + 1, 0, 0);
    clt_dataset *d = open_tokens("tokens", "b_*.bin", "test", T, VOCABULARY);
    expect_windows(d, T, file, begin);
    clt_dataset_free(d);
    unlink(path_of("b_validation.bin"));
}

static void text_is_its_bytes(void **state)
{
    (void)state;
    unsigned char bytes[10 * T + 1];
    for (int i = 0; i < 10 * T + 1; i++)
        bytes[i] = (unsigned char)(i * 37);
    spill("text.txt", bytes, sizeof bytes);
    clt_dataset *d = open_tokens("text", "text.txt", "test", T, 0);
    assert_int_equal(clt_dataset_count(d), 1);
    assert_int_equal(clt_dataset_classes(d, 1), 256);
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 1;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "tokens", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch batch = {.struct_size = sizeof batch};
    assert_int_equal(clt_loader_next(loader, &batch), CLT_OK);
    const int32_t *tokens = clt_loader_memory(loader, batch.slot, 0, 0);
    for (int i = 0; i < T; i++)
        assert_int_equal(tokens[i], bytes[9 * T + i]);
    clt_loader_free(loader);
    clt_dataset_free(d);
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = T;
    options.classes = 128;
    EXPECT_FAILURE(clt_dataset_open(spec_of("text", "text.txt"), &options, &d),
                   CLT_INVALID_ARGUMENT, "128", "bytes have 256");
}

static void fails(const char *name, int64_t sequence, clt_status status, const char *a,
                  const char *b)
{
    clt_dataset *d = NULL;
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = sequence;
    EXPECT_FAILURE(clt_dataset_open(spec_of("tokens", name), &options, &d), status, a, b);
    assert_null(d);
}

static clt_status fetch_one(clt_dataset *d, int64_t index)
{
    int32_t inputs[T], targets[T];
    return d->fetch(d, &(clt_sample_key){0}, index, (void *const[]){inputs, targets, NULL});
}

/* Files that are shortened or replaced while they are in use: a message, where a mapping would
 * raise SIGBUS. Of many files only some stay open. */
static void files_may_change_while_they_are_open(void **state)
{
    (void)state;
    enum { MANY = 300, EACH = 10 * T + 1 };
    char name[32];
    unlink(path_of("one.json"));
    write_tokens("one.bin", 5, 40000, 0, 0);
    clt_dataset *d = open_tokens("tokens", "one.bin", "train", T, 0);
    assert_int_equal(fetch_one(d, 5000), CLT_OK);
    assert_int_equal(truncate(path_of("one.bin"), 4000), 0);
    EXPECT_FAILURE(fetch_one(d, 5000), CLT_IO, "one.bin: was shortened while it was read");
    assert_int_equal(fetch_one(d, 0), CLT_OK);
    clt_dataset_free(d);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many_train_%03d.bin", i);
        write_tokens(name, i, EACH, 0, 0);
    }
    d = open_tokens("tokens", "many_train_*.bin", "train", T, VOCABULARY);
    assert_int_equal(clt_dataset_count(d), MANY * 10);
    int32_t inputs[T], targets[T];
    for (int64_t i = 0; i < MANY * 10; i++) {
        assert_int_equal(
            d->fetch(d, &(clt_sample_key){0}, i, (void *const[]){inputs, targets, NULL}), CLT_OK);
        for (int k = 0; k < T; k++) {
            assert_int_equal(inputs[k], token((int)(i / 10), i % 10 * T + k));
            assert_int_equal(targets[k], token((int)(i / 10), i % 10 * T + k + 1));
        }
    }
    write_tokens("many_train_299.bin", 0, EACH, 0, 0);
    EXPECT_FAILURE(fetch_one(d, MANY * 10 - 1), CLT_IO, "299.bin: was changed or replaced");
    clt_dataset_free(d);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many_train_%03d.bin", i);
        unlink(path_of(name));
    }
}

static void what_is_wrong_is_said_with_its_file(void **state)
{
    (void)state;
    unlink(path_of("one.json"));
    write_tokens("one.bin", 5, 30, 1, 31);
    fails("one.bin", T, CLT_FORMAT, "one.bin: truncated", "31 tokens");
    write_tokens("one.bin", 5, 30, 1, 29);
    fails("one.bin", T, CLT_FORMAT, "one.bin: trailing bytes", "29 tokens");
    write_tokens("one.bin", 5, 30, 0, 0);
    fails("one.bin", 30, CLT_FORMAT, "one.bin: 30 tokens are fewer", "a sample of 30");
    fails("one.bin", 29, CLT_FORMAT, "one.bin", "too few to divide");
    spill("one.bin", "abc", 3);
    fails("one.bin", T, CLT_FORMAT, "one.bin: 3 bytes", "16-bit");
    spill("one.bin", "", 0);
    fails("one.bin", T, CLT_FORMAT, "one.bin: 0 tokens", "");
    fails("none.bin", T, CLT_NOT_FOUND, "none.bin", "cannot be opened");
    fails("", INT64_MAX, CLT_INVALID_ARGUMENT, "samples of", "tokens");
    mkfifo(path_of("val.bin"), 0600);
    fails("val.bin", T, CLT_IO, "val.bin", "not a regular file");
    unlink(path_of("val.bin"));
    write_tokens("one.bin", 5, 300, 0, 0);
    mkfifo(path_of("one.json"), 0600);
    alarm(20);
    fails("one.bin", T, CLT_IO, "one.json", "not a regular file");
    alarm(0);
    spill("one.json", "{\"vocab_size\": 0}", 17);
    fails("one.bin", T, CLT_FORMAT, "one.json", "vocab_size");
    spill("one.json", "{\n\"vocab_size\" 9}", 17);
    fails("one.bin", T, CLT_FORMAT, "one.json: line 2", "");
    unlink(path_of("one.json"));
    for (size_t i = 0; i < 6; i++)
        unlink(path_of(names[i]));
    fails("", T, CLT_NOT_FOUND, "word train", ".bin");
}

/* In the files of a folder, vocabularies must agree. */
static void vocabularies_agree(void **state)
{
    (void)state;
    write_tokens("a_train_0.bin", 1, 30, 0, 0);
    write_tokens("a_train_1.bin", 2, 30, 0, 0);
    spill("a_train_0.json", "{\"vocab_size\": 5000}", 20);
    spill("a_train_1.json", "{\"vocab_size\": 5001}", 20);
    fails("", T, CLT_FORMAT, "a_train_1.bin: vocabulary of 5001", "5000");
}

/* Before the first sample is read; also in the other split of a folder. */
static void a_token_out_of_the_vocabulary_is_found(void **state)
{
    (void)state;
    write_tokens("one.bin", 5, 300, 0, 0);
    int64_t at = 0;
    while (token(5, at) < 100)
        at++;
    char place[64];
    snprintf(place, sizeof place, "token %d at position %lld", token(5, at), (long long)at);
    clt_dataset *d = NULL;
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = T;
    options.classes = 100;
    EXPECT_FAILURE(clt_dataset_open(spec_of("tokens", "one.bin"), &options, &d), CLT_FORMAT,
                   "one.bin", place, "0 to 99");
    assert_null(d);
}

/* Numbers of 32 bits behind llm.c's header for Llama 3. */
static void wide_tokens(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    uint32_t file[HEADER / 4 + COUNT] = {20240801, 7, COUNT};
    for (uint32_t i = 0; i < COUNT; i++)
        file[HEADER / 4 + i] = i * 3000;
    spill("one.bin", file, sizeof file);
    clt_dataset *d = open_tokens("tokens", "one.bin", "train", 3, 0);
    assert_int_equal(clt_dataset_count(d), 11);
    assert_int_equal(clt_dataset_classes(d, 0), (COUNT - 1) * 3000 + 1);
    clt_dataset_free(d);
    file[HEADER / 4 + 7] = 1u << 31;
    spill("one.bin", file, sizeof file);
    fails("one.bin", T, CLT_FORMAT, "one.bin: token 2147483648", "31 bits");
    file[1] = 1;
    spill("one.bin", file, sizeof file);
    fails("one.bin", T, CLT_FORMAT, "one.bin: version 1", "not 7");
    file[1] = 7;
    file[2]++;
    spill("one.bin", file, sizeof file);
    fails("one.bin", T, CLT_FORMAT, "one.bin: truncated", "41 tokens of 4 bytes");
}

static void patterns_name_files(void **state)
{
    (void)state;
    write_tokens("a_train_0.bin", 1, 2 * T + 1, 0, 0);
    write_tokens("a_train_1.bin", 2, T + 1, 1, T + 1);
    write_tokens("train.bin", 4, 5 * T + 1, 0, 0);
    write_tokens("a_val.bin", 3, T + 1, 0, 0);
    const int file[] = {1, 1, 2};
    const int64_t begin[] = {0, T, 0};
    clt_dataset *d = open_tokens("tokens", "a_*.bin", "train", T, VOCABULARY);
    expect_windows(d, T, file, begin);
    clt_dataset_free(d);
    d = open_tokens("tokens", "{a_train_0,a_val}.bin", "test", T, VOCABULARY);
    assert_int_equal(clt_dataset_count(d), 1);
    clt_dataset_free(d);
    fails("b*", T, CLT_NOT_FOUND, "b*: no file's name has the word train", ".bin");
}

/* --- windows ---------------------------------------------------------------------------------- */

enum { SEED = 5, LONG_COUNT = 20 * T + 4, SHORT_COUNT = 3 * T };

/* Where the samples of an epoch begin: files hold rising numbers, so that their tokens tell. */
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

/* The first file holds 0, 1 and so on, the second goes on from 1000. */
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
    for (int i = 0; i < T; i++) /* expected: 8.6 */
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
    const double each = (double)(EPOCHS * n) / PLACES;
    double squares = 0;
    for (int i = 0; i < PLACES; i++) {
        assert_true(seen[i]);
        squares += ((double)seen[i] - each) * ((double)seen[i] - each) / each;
    }
    /* Chi-squared: mean PLACES - 1, deviation sqrt(2 (PLACES - 1)), about 17. */
    assert_true(squares > PLACES - 100 && squares < PLACES + 100);
}

/* Those for training do not reach into the last tenth, and tests stay as they are. */
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

/* As many parts of the text as a batch has samples, side by side; a file's begin is none's end. */
static void continued_windows_go_on_in_the_next_batch(void **state)
{
    (void)state;
    enum { BESIDE = 3, EACH = 7, IN_FIRST = (LONG_COUNT - 1) / T };
    assert_int_equal(write_rising() / BESIDE, EACH);
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.sequence = T;
    options.windows = CLT_WINDOWS_CONTINUED;
    clt_dataset *d;
    EXPECT_FAILURE(clt_dataset_open(spec_of("tokens", "a_train_*.bin"), &options, &d),
                   CLT_INVALID_ARGUMENT, "need the samples of a batch");
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
    /* Of a file with both splits. */
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
        cmocka_unit_test(folders_have_a_file_or_several_of_each_split),
        cmocka_unit_test(the_last_tenth_of_a_file_is_for_tests),
        cmocka_unit_test(tenths_are_of_whole_samples),
        cmocka_unit_test(validation_is_a_word_of_tests_too),
        cmocka_unit_test(text_is_its_bytes),
        cmocka_unit_test(files_may_change_while_they_are_open),
        cmocka_unit_test(what_is_wrong_is_said_with_its_file),
        cmocka_unit_test(vocabularies_agree),
        cmocka_unit_test(a_token_out_of_the_vocabulary_is_found),
        cmocka_unit_test(wide_tokens),
        cmocka_unit_test(patterns_name_files),
        cmocka_unit_test(shifted_windows_see_every_token_about_once),
        cmocka_unit_test(random_windows_lie_anywhere),
        cmocka_unit_test(windows_of_a_split_stay_in_it),
        cmocka_unit_test(continued_windows_go_on_in_the_next_batch),
    };
    return cmocka_run_group_tests(tests, make_folder, end);
}
