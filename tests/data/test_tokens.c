/* Files of tokens and text as data sets: windows, splits, vocabularies, and what is wrong with
 * them. */
#include "data/expect.h"
#include "data/files.h"

#include <sys/stat.h>

enum { MAGIC = 20240520, HEADER = 1024, T = 7, VOCABULARY = 4000 };

static const char *const names[] = {"train.bin", "val.bin",        "a_train_0.bin", "a_train_1.bin",
                                    "a_val.bin", "training.bin",   "one.bin",       "one.json",
                                    "text.txt",  "a_train_0.json", "a_train_1.json"};
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
    unsigned char wide[HEADER] = {0};
    const int magic = 20240801;
    for (int i = 0; i < 4; i++)
        wide[i] = (unsigned char)(magic >> 8 * i);
    spill("one.bin", wide, sizeof wide);
    fails("one.bin", T, CLT_UNSUPPORTED, "one.bin", "32 bits");
    write_tokens("one.bin", 5, 300, 0, 0);
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

static void a_token_out_of_the_vocabulary_is_found(void **state)
{
    (void)state;
    write_tokens("one.bin", 5, 300, 0, 0);
    clt_dataset *d = open_tokens("tokens", "one.bin", "train", T, 100);
    int64_t at = 0;
    while (token(5, at) < 100)
        at++;
    char place[64];
    snprintf(place, sizeof place, "token %d at position %lld", token(5, at), (long long)at);
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 20;
    desc.shuffle = 0;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "tokens", CLT_I32, NULL), CLT_OK);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch batch = {.struct_size = sizeof batch};
    EXPECT_FAILURE(clt_loader_next(loader, &batch), CLT_FORMAT, "one.bin", place, "0 to 99");
    clt_loader_free(loader);
    clt_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_have_a_file_or_several_of_each_split),
        cmocka_unit_test(the_last_tenth_of_a_file_is_for_tests),
        cmocka_unit_test(text_is_its_bytes),
        cmocka_unit_test(what_is_wrong_is_said_with_its_file),
        cmocka_unit_test(vocabularies_agree),
        cmocka_unit_test(a_token_out_of_the_vocabulary_is_found),
    };
    return cmocka_run_group_tests(tests, make_folder, end);
}
