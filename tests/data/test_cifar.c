/* Valid and invalid binary files of CIFAR. */
#include "data/expect.h"
#include "data/files.h"

#include <sys/stat.h>

enum { IMAGE = 3072, PER_FILE = 300 };

static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
                                    "train.bin",        "test.bin",         "batches.meta.txt"};
static char spec10[96], spec100[96];

static int begin(void **state)
{
    const int failed = make_folder(state);
    snprintf(spec10, sizeof spec10, "cifar10:%s", folder);
    snprintf(spec100, sizeof spec100, "cifar100:%s", folder);
    return failed;
}

static int end(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    return remove_folder(state);
}

/* Returns byte i of record r of file f. */
static unsigned char byte_of(int f, int r, int i, int labels)
{
    if (i < labels)
        return (unsigned char)((f + r * 7 + i * 3) % (i + 1 < labels ? 20
                                                      : labels == 2  ? 100
                                                                     : 10));
    return (unsigned char)(f * 50 + r * 31 + (i - labels) * 7);
}

static void write_records(int f, int labels, int count, int extra)
{
    const int bytes = labels + IMAGE;
    unsigned char *data = calloc((size_t)count * (size_t)bytes + (size_t)extra, 1);
    assert_non_null(data);
    for (int r = 0; r < count; r++)
        for (int i = 0; i < bytes; i++)
            data[r * bytes + i] = byte_of(f, r, i, labels);
    spill(names[f], data, (size_t)(count * bytes + extra));
    free(data);
}

/* Checks that sample s of `d` is record r of file f. */
static void expect_record(clt_dataset *d, int s, int f, int r, int labels)
{
    const void *images, *label, *coarse;
    const int image = expect_field(d, "image", CLT_U8, "[3,32,32]");
    assert_int_equal(clt_dataset_field_data(d, image, &images), CLT_OK);
    for (int i = 0; i < IMAGE; i++)
        assert_int_equal(((const unsigned char *)images)[s * IMAGE + i],
                         byte_of(f, r, labels + i, labels));
    assert_int_equal(clt_dataset_field_data(d, expect_field(d, "label", CLT_U8, "[]"), &label),
                     CLT_OK);
    assert_int_equal(((const unsigned char *)label)[s], byte_of(f, r, labels - 1, labels));
    if (labels == 1)
        return;
    const int field = expect_field(d, "coarse_label", CLT_U8, "[]");
    assert_int_equal(clt_dataset_field_data(d, field, &coarse), CLT_OK);
    assert_int_equal(((const unsigned char *)coarse)[s], byte_of(f, r, 0, labels));
    assert_int_equal(clt_dataset_classes(d, field), 20);
}

static void cifar10_is_five_files_and_one(void **state)
{
    (void)state;
    for (int f = 0; f < 6; f++)
        write_records(f, 1, f == 4 ? 2 : PER_FILE, 0);
    spill("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n", 21);
    clt_dataset *d = expect_open(spec10, "train", NULL);
    assert_int_equal(clt_dataset_count(d), 4 * PER_FILE + 2);
    assert_int_equal(clt_dataset_classes(d, 1), 10);
    assert_string_equal(clt_dataset_class_name(d, 1, 9), "j");
    assert_null(clt_dataset_class_name(d, 1, 10));
    for (int f = 0; f < 5; f++)
        for (int r = 0; r < (f == 4 ? 2 : PER_FILE); r += 1 + r / 2)
            expect_record(d, f * PER_FILE + r, f, r, 1);
    clt_dataset_free(d);
    d = expect_open(spec10, "test", NULL);
    assert_int_equal(clt_dataset_count(d), PER_FILE);
    expect_record(d, PER_FILE - 1, 5, PER_FILE - 1, 1);
    clt_dataset_free(d);
}

static void cifar100_has_fine_and_coarse_labels(void **state)
{
    (void)state;
    write_records(6, 2, PER_FILE, 0);
    write_records(7, 2, 3, 0);
    clt_dataset *d = expect_open(spec100, "train", NULL);
    assert_int_equal(clt_dataset_count(d), PER_FILE);
    assert_int_equal(clt_dataset_classes(d, 1), 100);
    assert_null(clt_dataset_class_name(d, 1, 0));
    expect_record(d, 0, 6, 0, 2);
    expect_record(d, PER_FILE - 1, 6, PER_FILE - 1, 2);
    clt_dataset_free(d);
    d = expect_open(spec100, "test", NULL);
    assert_int_equal(clt_dataset_count(d), 3);
    expect_record(d, 2, 7, 2, 2);
    clt_dataset_free(d);
}

static void what_is_wrong_is_said_with_its_file(void **state)
{
    (void)state;
    clt_dataset *d = NULL;
    for (int f = 0; f < 6; f++)
        write_records(f, 1, 3, 0);
    write_records(2, 1, 3, 5);
    EXPECT_FAILURE(clt_dataset_open(spec10, NULL, &d), CLT_FORMAT, names[2], "9224", "3073");
    spill(names[2], "", 0);
    EXPECT_FAILURE(clt_dataset_open(spec10, NULL, &d), CLT_FORMAT, names[2], "0 bytes");
    unlink(path_of(names[2]));
    EXPECT_FAILURE(clt_dataset_open(spec10, NULL, &d), CLT_NOT_FOUND, names[2], "not found",
                   "https://");
    unsigned char *wrong = calloc(2, 1 + IMAGE);
    wrong[1 + IMAGE] = 10;
    spill(names[2], wrong, 2 * (1 + IMAGE));
    EXPECT_FAILURE(clt_dataset_open(spec10, NULL, &d), CLT_FORMAT, names[2], "record 1", "label 10",
                   "0 to 9");
    wrong[1 + IMAGE] = 9;
    spill(names[2], wrong, 2 * (1 + IMAGE));
    free(wrong);
    spill("batches.meta.txt", "one\ntwo\n", 8);
    EXPECT_FAILURE(clt_dataset_open(spec10, NULL, &d), CLT_FORMAT, "batches.meta.txt", "2 classes");
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.classes = 11;
    EXPECT_FAILURE(clt_dataset_open(spec10, &options, &d), CLT_INVALID_ARGUMENT, "11 classes");
    EXPECT_FAILURE(clt_dataset_open("cifar10:/does/not/exist", NULL, &d), CLT_NOT_FOUND,
                   "/does/not/exist/data_batch_1.bin");
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cifar10_is_five_files_and_one),
        cmocka_unit_test(cifar100_has_fine_and_coarse_labels),
        cmocka_unit_test(what_is_wrong_is_said_with_its_file),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
