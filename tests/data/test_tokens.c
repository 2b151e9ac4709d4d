/* Data sets of token files and text files: splits, vocabularies, and invalid files. */
#include "data/token_files.h"

static void folders_have_a_file_or_several_of_each_split(void **state)
{
    (void)state;
    const int file[] = {1, 1, 2}, single[] = {3};
    const int64_t begin[] = {0, T, 0}, first[] = {0};
    /* The first file has 2 windows and 6 more tokens. The second has exactly 1 window. The third
     * has too few tokens: the last target is missing. */
    write_tokens("a_train_0.bin", 1, 2 * T + 7, 1, 2 * T + 7);
    write_tokens("a_train_1.bin", 2, T + 1, 0, 0);
    write_tokens("train.bin", 4, T, 0, 0);
    write_tokens("a_val.bin", 3, T + 2, 1, T + 2);
    write_tokens("training.bin", 9, 100, 0, 0); /* not the word "train" */
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

/* Whole samples are divided, and the number of test samples is rounded up: one of two, two of
 * eleven. */
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
        /* Tokens that do not fill a sample are at the end of the file, and belong to no split. */
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
                   CLT_INVALID_ARGUMENT, "128", "too small for bytes: at least 256");
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

/* Files that are shortened or replaced while in use give an error message. A mapping would raise
 * SIGBUS. Only some of many files stay open. */
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
    fails("one.bin", 30, CLT_FORMAT, "one.bin: 30 tokens", "a sample needs 31");
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

/* The files of a folder must have the same vocabulary. */
static void vocabularies_agree(void **state)
{
    (void)state;
    write_tokens("a_train_0.bin", 1, 30, 0, 0);
    write_tokens("a_train_1.bin", 2, 30, 0, 0);
    spill("a_train_0.json", "{\"vocab_size\": 5000}", 20);
    spill("a_train_1.json", "{\"vocab_size\": 5001}", 20);
    fails("", T, CLT_FORMAT, "a_train_1.bin: its vocabulary has 5001", "5000");
}

/* The token is found before the first sample is read, also in the other split of a folder. */
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

/* Tokens of 32 bits behind llm.c's header for Llama 3. */
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
    };
    return cmocka_run_group_tests(tests, make_folder, end);
}
