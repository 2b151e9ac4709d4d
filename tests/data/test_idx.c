/* Valid and invalid IDX files, and the notation that names data sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "data/files.h"
#include "data/formats/open_dataset.h"

static clt_status open_idx(const char *split, int64_t classes, int background, clt_dataset **out)
{
    char spec[80];
    snprintf(spec, sizeof spec, "idx:%s", folder);
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.split = split;
    options.classes = classes;
    options.background = background;
    return clt_dataset_open(spec, &options, out);
}

/* Checks that opening fails with this status and a message with all words. */
static void fails(const char *split, int64_t classes, clt_status want, const char *const *words)
{
    clt_dataset *d = NULL;
    assert_int_equal(open_idx(split, classes, 0, &d), want);
    assert_null(d);
    for (; *words; words++)
        if (!strstr(clt_error_message(), *words))
            fail_msg("'%s' lacks '%s'", clt_error_message(), *words);
    assert_null(strchr(clt_error_message(), '\n'));
}
#define FAILS(split, classes, status, ...)                                                         \
    fails(split, classes, status, (const char *const[]){__VA_ARGS__, NULL})

static void check_pair(clt_dataset *d, int count)
{
    int image, label, rank;
    int64_t shape[CLT_DATA_MAX_RANK], bytes;
    clt_dtype dtype;
    const void *data;
    assert_int_equal(clt_dataset_count(d), count);
    assert_int_equal(clt_dataset_field_count(d), 2);
    assert_int_equal(clt_dataset_find_field(d, "image", &image), CLT_OK);
    assert_int_equal(clt_dataset_find_field(d, "label", &label), CLT_OK);
    assert_int_equal(clt_dataset_field_info(d, image, NULL, &dtype, &rank, shape, &bytes), CLT_OK);
    assert_int_equal(dtype, CLT_U8);
    assert_int_equal(rank, 3);
    assert_int_equal(shape[0], 1);
    assert_int_equal(shape[1], ROWS);
    assert_int_equal(shape[2], COLUMNS);
    assert_int_equal(bytes, PIXELS);
    assert_int_equal(clt_dataset_field_data(d, image, &data), CLT_OK);
    for (int s = 0; s < count; s++)
        for (int i = 0; i < PIXELS; i++)
            assert_int_equal(((const unsigned char *)data)[s * PIXELS + i], pixel(s, i));
    assert_int_equal(clt_dataset_field_info(d, label, NULL, &dtype, &rank, NULL, &bytes), CLT_OK);
    assert_int_equal(rank, 0);
    assert_int_equal(bytes, 1);
    assert_int_equal(clt_dataset_field_data(d, label, &data), CLT_OK);
    for (int s = 0; s < count; s++)
        assert_int_equal(((const unsigned char *)data)[s], s % 10);
}

static void reads_plain_and_gzip_in_the_foreground_and_background(void **state)
{
    (void)state;
    remove_files();
    write_pair("train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", 101);
    write_pair("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte", 7);
    for (int background = 0; background < 2; background++) {
        clt_dataset *train, *test;
        assert_int_equal(open_idx("train", 0, background, &train), CLT_OK);
        assert_int_equal(open_idx("test", 10, background, &test), CLT_OK);
        assert_int_equal(clt_dataset_classes(train, 1), 10);
        assert_int_equal(clt_dataset_classes(train, 0), 0);
        check_pair(test, 7);
        check_pair(train, 101);
        clt_dataset_free(train);
        clt_dataset_free(test);
        /* Freed without a wait for the background thread. */
        assert_int_equal(open_idx("train", 0, background, &train), CLT_OK);
        clt_dataset_free(train);
    }
}

static void reads_gzip_of_several_members(void **state)
{
    (void)state;
    remove_files();
    write_pair("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 20);
    size_t plain_bytes, first, second;
    unsigned char *plain = slurp("train-images-idx3-ubyte", &plain_bytes);
    write_file("train-images-idx3-ubyte.gz", plain, 100);
    unsigned char *a = slurp("train-images-idx3-ubyte.gz", &first);
    write_file("train-images-idx3-ubyte.gz", plain + 100, plain_bytes - 100);
    unsigned char *b = slurp("train-images-idx3-ubyte.gz", &second);
    memcpy(a + first, b, second);
    remove_files();
    write_pair("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 20);
    unlink(path_of("train-images-idx3-ubyte"));
    spill("train-images-idx3-ubyte.gz", a, first + second);
    clt_dataset *d;
    assert_int_equal(open_idx("train", 10, 0, &d), CLT_OK);
    check_pair(d, 20);
    clt_dataset_free(d);
    free(plain);
    free(a);
    free(b);
}

static void missing_files_are_named(void **state)
{
    (void)state;
    remove_files();
    FAILS("train", 0, CLT_NOT_FOUND, "train-images-idx3-ubyte", "not found");
    write_pair("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
    unlink(path_of("train-labels-idx1-ubyte"));
    FAILS("train", 0, CLT_NOT_FOUND, "train-labels-idx1-ubyte", folder);
    FAILS("test", 0, CLT_NOT_FOUND, "t10k-images-idx3-ubyte");
    FAILS("tets", 0, CLT_INVALID_ARGUMENT, "tets", "train", "test");
}

static void truncated_files_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz",
                                        "train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz"};
    for (int n = 0; n < 4; n++) {
        remove_files();
        write_pair(n < 2 ? names[n] : names[0], n < 2 ? names[2] : names[n], 40);
        size_t count;
        unsigned char *bytes = slurp(names[n], &count);
        for (size_t keep = 0; keep < count; keep += keep < 20 ? 1 : 13) {
            spill(names[n], bytes, keep);
            FAILS("train", 0, CLT_FORMAT, names[n], n % 2 && keep < 2 ? "not a gzip" : "truncated");
        }
        spill(names[n], bytes, count - 1);
        FAILS("train", 0, CLT_FORMAT, names[n], "truncated");
        free(bytes);
    }
}

static void damaged_headers_are_refused_before_memory_is_taken(void **state)
{
    (void)state;
    static const char *const images[] = {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"};
    static const uint32_t absurd[][3] = {
        {0xFFFFFFFFu, 0xFFFFFFFFu, 0xFFFFFFFFu},
        {0x80000000u, 0x80000000u, 4},
        {0, 3, 5},
        {40, 0, 5},
        {0x7FFFFFFFu, 28, 28},
        {1u << 20, 64, 64},
    };
    for (int n = 0; n < 2; n++) {
        for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
            remove_files();
            write_pair(images[n], "train-labels-idx1-ubyte", 40);
            unsigned char bytes[16 + 40 * PIXELS] = {0};
            put_header(bytes, 3, absurd[i]);
            write_file(images[n], bytes, sizeof bytes);
            FAILS("train", 0, CLT_FORMAT, images[n], "announces", "at most");
        }
        remove_files();
        write_pair(images[n], "train-labels-idx1-ubyte", 40);
        const unsigned char wrong[20] = {0, 0, 8, 1, 0, 0, 0, 4};
        write_file(images[n], wrong, sizeof wrong);
        FAILS("train", 0, CLT_FORMAT, images[n], "wrong magic", "00000801", "00000803");
        const unsigned char floats[20] = {0, 0, 0xD, 3, 0, 0, 0, 4};
        write_file(images[n], floats, sizeof floats);
        FAILS("train", 0, CLT_FORMAT, images[n], "wrong magic", "00000d03");
    }
}

static void pairs_that_disagree_are_refused(void **state)
{
    (void)state;
    remove_files();
    write_pair("t10k-images-idx3-ubyte", "train-labels-idx1-ubyte", 41);
    write_pair("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 40);
    FAILS("train", 0, CLT_FORMAT, "train-images-idx3-ubyte", "40 images", "41 labels");
}

static void labels_out_of_range_are_refused(void **state)
{
    (void)state;
    remove_files();
    write_pair("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 12);
    FAILS("train", 9, CLT_FORMAT, "train-labels-idx1-ubyte", "label 9", "sample 9", "0 to 8");
}

static void corrupt_and_trailing_bytes_are_refused(void **state)
{
    (void)state;
    const char *gz = "train-images-idx3-ubyte.gz", *plain = "t10k-images-idx3-ubyte";
    remove_files();
    write_pair(gz, "train-labels-idx1-ubyte", 200);
    write_pair(plain, "t10k-labels-idx1-ubyte", 200);
    size_t count;
    unsigned char *bytes = slurp(gz, &count);
    clt_dataset *d;
    int refused = 0;
    for (size_t at = 10; at < count; at++) {
        bytes[at] ^= 0x41;
        spill(gz, bytes, count);
        assert_int_equal(open_idx("train", 0, 0, &d), CLT_FORMAT);
        assert_non_null(strstr(clt_error_message(), gz));
        refused += strstr(clt_error_message(), "corrupt gzip") != NULL;
        bytes[at] ^= 0x41;
    }
    assert_true(refused > (int)count / 2);
    memcpy(bytes + count, "x", 2);
    spill(gz, bytes, count + 1);
    FAILS("train", 0, CLT_FORMAT, gz, "trailing bytes");
    /* In the background every wait returns the same failure. */
    assert_int_equal(open_idx("train", 0, 1, &d), CLT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(clt_dataset_wait(d), CLT_FORMAT);
        assert_non_null(strstr(clt_error_message(), "trailing bytes"));
    }
    clt_dataset_free(d);
    free(bytes);
    bytes = slurp(plain, &count);
    spill(plain, bytes, count + 3);
    FAILS("test", 0, CLT_FORMAT, plain, "trailing bytes");
    /* The gzip data hold more than the header announces. */
    write_file(gz, bytes, count + 3);
    FAILS("train", 0, CLT_FORMAT, gz, "trailing bytes");
    spill(gz, bytes, count);
    FAILS("train", 0, CLT_FORMAT, gz, "not a gzip file", "00 00", "1f 8b");
    free(bytes);
}

static void the_notation_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        clt_status status;
        const char *word;
    } rows[] = {
        {"fashion-mnits", CLT_NOT_FOUND, "did you mean 'fashion-mnist'?"},
        {"idxx:/data", CLT_INVALID_ARGUMENT, "did you mean 'idx:'?"},
        {"something", CLT_NOT_FOUND, "there are: fashion-mnist, idx:DIR, cifar10:DIR"},
        {"idx", CLT_INVALID_ARGUMENT, "idx:PATH"},
        {"idx:", CLT_INVALID_ARGUMENT, "missing"},
        {"", CLT_INVALID_ARGUMENT, "not named"},
        {"/data/mnist", CLT_NOT_FOUND, "idx:/data/mnist"},
        {"idx:/does/not/exist", CLT_NOT_FOUND, "/does/not/exist/train-images-idx3-ubyte"},
    };
    clt_dataset *d;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(clt_dataset_open(rows[i].spec, NULL, &d), rows[i].status);
        if (!strstr(clt_error_message(), rows[i].word))
            fail_msg("'%s' lacks '%s'", clt_error_message(), rows[i].word);
    }
    assert_int_equal(clt_dataset_open_below(folder, "fashion-mnist", NULL, &d), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "apt install dataset-fashion-mnist"));
}

static void fashion_mnist_is_found_where_it_is_installed(void **state)
{
    (void)state;
    if (access("/usr/share/datasets/fashion-mnist", R_OK))
        skip();
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.background = 1;
    clt_dataset *train, *test;
    assert_int_equal(clt_dataset_open("fashion-mnist", &options, &train), CLT_OK);
    options.split = "test";
    assert_int_equal(clt_dataset_open("fashion-mnist", &options, &test), CLT_OK);
    assert_int_equal(clt_dataset_count(train), 60000);
    assert_int_equal(clt_dataset_count(test), 10000);
    assert_int_equal(clt_dataset_wait(train), CLT_OK);
    assert_int_equal(clt_dataset_wait(test), CLT_OK);
    /* Every class has the same number of samples. */
    const void *data;
    int per_class[10] = {0};
    assert_int_equal(clt_dataset_field_data(train, 1, &data), CLT_OK);
    for (int i = 0; i < 60000; i++)
        per_class[((const unsigned char *)data)[i]]++;
    for (int c = 0; c < 10; c++)
        assert_int_equal(per_class[c], 6000);
    clt_dataset_free(train);
    clt_dataset_free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_and_gzip_in_the_foreground_and_background),
        cmocka_unit_test(reads_gzip_of_several_members),
        cmocka_unit_test(missing_files_are_named),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(damaged_headers_are_refused_before_memory_is_taken),
        cmocka_unit_test(pairs_that_disagree_are_refused),
        cmocka_unit_test(labels_out_of_range_are_refused),
        cmocka_unit_test(corrupt_and_trailing_bytes_are_refused),
        cmocka_unit_test(the_notation_names_what_is_wrong),
        cmocka_unit_test(fashion_mnist_is_found_where_it_is_installed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
