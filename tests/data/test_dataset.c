/* Data sets of arrays, callbacks and device memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/core/dataset.h"
#include "data/core/digest.h"

static void arrays_are_borrowed_or_copied(void **state)
{
    (void)state;
    float x[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}};
    int32_t y[4] = {0, 1, 2, 0};
    const int64_t shape[1] = {3};
    clt_dataset *d;
    int fx, fy, found, rank;
    int64_t got_shape[CLT_DATA_MAX_RANK], bytes;
    clt_dtype dtype;
    const char *name;
    const void *data;
    assert_int_equal(clt_dataset_create_arrays("mine", 4, &d), CLT_OK);
    assert_int_equal(clt_dataset_add_field(d, "x", CLT_F32, 1, shape, x, CLT_DATA_BORROW, &fx),
                     CLT_OK);
    assert_int_equal(clt_dataset_add_field(d, "y", CLT_I32, 0, NULL, y, CLT_DATA_COPY, &fy),
                     CLT_OK);
    assert_int_equal(clt_dataset_set_classes(d, fy, 3), CLT_OK);
    assert_int_equal(clt_dataset_classes(d, fy), 3);
    y[0] = 99;
    assert_int_equal(clt_dataset_field_data(d, fx, &data), CLT_OK);
    assert_ptr_equal(data, x);
    assert_int_equal(clt_dataset_field_data(d, fy, &data), CLT_OK);
    assert_int_equal(((const int32_t *)data)[0], 0);
    assert_int_equal(clt_dataset_find_field(d, "y", &found), CLT_OK);
    assert_int_equal(found, fy);
    assert_int_equal(clt_dataset_field_info(d, fx, &name, &dtype, &rank, got_shape, &bytes),
                     CLT_OK);
    assert_string_equal(name, "x");
    assert_true(dtype == CLT_F32 && rank == 1 && got_shape[0] == 3 && bytes == 12);
    assert_true(clt_dataset_kind(d) == CLT_DATA_HOST && clt_dataset_count(d) == 4);
    assert_string_equal(clt_dataset_name(d), "mine");
    clt_dataset_free(d);
}

/* Columns of a table of doubles, and every second of some long integers. */
static void arrays_with_gaps_are_copied(void **state)
{
    (void)state;
    double table[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
    int64_t kinds[8] = {0, -1, 1, -1, 2, -1, 1LL << 40, -1};
    clt_array x = {.host = table,
                   .bytes = sizeof table,
                   .dtype = CLT_F64,
                   .rank = 2,
                   .shape = {4, 3},
                   .strides = {8, 32}};
    clt_array y = {.host = kinds,
                   .bytes = sizeof kinds,
                   .dtype = CLT_I64,
                   .rank = 1,
                   .shape = {4},
                   .strides = {16}};
    const void *data;
    clt_dataset *d;
    int field;
    assert_int_equal(clt_dataset_create_arrays("mine", 4, &d), CLT_OK);
    assert_int_equal(clt_dataset_add_array(d, "x", &x, CLT_DATA_BORROW, NULL),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "must be copied"));
    assert_int_equal(clt_dataset_add_array(d, "x", &x, CLT_DATA_COPY, &field), CLT_OK);
    table[0][0] = -5;
    assert_int_equal(clt_dataset_field_data(d, field, &data), CLT_OK);
    for (int i = 0; i < 12; i++)
        assert_true(((const float *)data)[i] == (float)(1 + i / 3 + i % 3 * 4));
    assert_int_equal(clt_dataset_add_array(d, "y", &y, CLT_DATA_COPY, NULL), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "data set 'mine', field 'y': element 3"));
    kinds[6] = 0;
    assert_int_equal(clt_dataset_add_array(d, "y", &y, CLT_DATA_COPY, &field), CLT_OK);
    assert_int_equal(clt_dataset_set_classes(d, field, 3), CLT_OK);
    assert_int_equal(clt_dataset_field_data(d, field, &data), CLT_OK);
    assert_int_equal(((const int32_t *)data)[2], 2);
    y.shape[0] = 3;
    assert_int_equal(clt_dataset_add_array(d, "z", &y, CLT_DATA_COPY, NULL), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "has 3 samples, and the data set 4"));
    const clt_array whole = CLT_HOST(kinds);
    assert_int_equal(clt_dataset_add_array(d, "z", &whole, CLT_DATA_COPY, NULL),
                     CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_dataset_field_count(d), 2);
    clt_dataset_free(d);
}

static void bad_fields_are_refused_by_name(void **state)
{
    (void)state;
    const int64_t zero[2] = {3, 0}, huge[3] = {INT64_MAX / 2, 2, 2},
                  one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float x[4] = {0};
    clt_dataset *d;
    int field;
    assert_int_equal(clt_dataset_create_arrays("mine", 0, &d), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_dataset_create_arrays("mine", 4, &d), CLT_OK);
    const struct {
        const char *name;
        clt_dtype dtype;
        int rank;
        const int64_t *shape;
        const void *data;
        clt_status status;
    } rows[] = {
        {"", CLT_F32, 0, NULL, x, CLT_INVALID_ARGUMENT},
        {"x", (clt_dtype)77, 0, NULL, x, CLT_INVALID_ARGUMENT},
        {"x", CLT_F32, 8, one, x, CLT_SHAPE},
        {"x", CLT_F32, -1, one, x, CLT_SHAPE},
        {"x", CLT_F32, 2, zero, x, CLT_SHAPE},
        {"x", CLT_F32, 3, huge, x, CLT_SHAPE},
        {"x", CLT_F32, 1, huge, x, CLT_SHAPE},
        {"x", CLT_F32, 0, NULL, NULL, CLT_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(clt_dataset_add_field(d, rows[i].name, rows[i].dtype, rows[i].rank,
                                               rows[i].shape, rows[i].data, CLT_DATA_BORROW, NULL),
                         rows[i].status);
        assert_non_null(strstr(clt_error_message(), "'mine'"));
    }
    assert_int_equal(clt_dataset_field_count(d), 0);
    assert_int_equal(clt_dataset_add_field(d, "value", CLT_F32, 0, NULL, x, CLT_DATA_BORROW, NULL),
                     CLT_OK);
    assert_int_equal(clt_dataset_add_field(d, "value", CLT_F32, 0, NULL, x, CLT_DATA_BORROW, NULL),
                     CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_dataset_find_field(d, "vlaues", &field), CLT_NOT_FOUND);
    assert_int_equal(clt_dataset_find_field(d, "valu", &field), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "did you mean 'value'?"));
    assert_int_equal(clt_dataset_set_classes(d, 0, 10), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_dataset_set_classes(d, 1, 10), CLT_INVALID_ARGUMENT);
    /* Fields cannot change once a loader uses the data set. */
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 2;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_dataset_add_field(d, "late", CLT_F32, 0, NULL, x, CLT_DATA_BORROW, NULL),
                     CLT_STATE);
    clt_loader_free(loader);
    clt_dataset_free(d);
}

static int freed;
static void count_free(void *payload)
{
    freed += payload == &freed;
}

static void device_sets_have_fields_without_host_memory(void **state)
{
    (void)state;
    clt_dataset *d;
    const void *data;
    assert_int_equal(clt_dataset_new_device("buffers", 10, &freed, count_free, &d), CLT_OK);
    clt_data_field field;
    int64_t total;
    assert_int_equal(clt_dataset_add_field(d, "x", CLT_F32, 0, NULL, NULL, CLT_DATA_BORROW, NULL),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "clt_dataset_add_buffer"));
    assert_int_equal(clt_dataset_measure_field(d, "x", CLT_F32, 0, NULL, &field, &total), CLT_OK);
    assert_int_equal(total, 40);
    assert_int_equal(clt_dataset_append_field(d, "x", &field, NULL), CLT_OK);
    assert_int_equal(clt_dataset_kind(d), CLT_DATA_DEVICE);
    assert_int_equal(clt_dataset_field_data(d, 0, &data), CLT_UNSUPPORTED);
    clt_loader_desc desc;
    clt_loader *loader;
    clt_loader_desc_init(&desc);
    desc.dataset = d;
    desc.batch = 4;
    desc.shuffle = 0;
    desc.end_epoch = 1;
    assert_int_equal(clt_loader_create(&desc, &loader), CLT_OK);
    assert_int_equal(clt_loader_add_output(loader, "x", CLT_F32, NULL), CLT_UNSUPPORTED);
    assert_int_equal(clt_loader_start(loader), CLT_OK);
    clt_batch b = {.struct_size = sizeof b};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(clt_loader_next(loader, &b), CLT_OK);
        assert_int_equal(b.count, i < 2 ? 4 : 2);
        assert_int_equal(b.weight, b.count);
        for (int j = 0; j < b.count; j++)
            assert_int_equal(b.indices[j], 4 * i + j);
        assert_int_equal(clt_loader_release(loader, b.slot), CLT_OK);
    }
    assert_int_equal(clt_loader_next(loader, &b), CLT_OK);
    assert_int_equal(b.slot, -1);
    clt_loader_free(loader);
    assert_int_equal(freed, 0);
    clt_dataset_free(d);
    assert_int_equal(freed, 1);
}

static uint64_t digest_of(const char *name, const void *x, int64_t elements, const void *labels)
{
    clt_dataset *d;
    uint64_t digest = 0;
    assert_int_equal(clt_dataset_create_arrays("set", 2, &d), CLT_OK);
    assert_int_equal(clt_dataset_add_field(d, name, CLT_U8, 1, &elements, x, CLT_DATA_BORROW, NULL),
                     CLT_OK);
    assert_int_equal(
        clt_dataset_add_field(d, "label", CLT_U8, 0, NULL, labels, CLT_DATA_BORROW, NULL), CLT_OK);
    assert_int_equal(clt_dataset_digest(d, &digest), CLT_OK);
    clt_dataset_free(d);
    return digest;
}

/* Digests depend on every bit of small arrays. Of large arrays they depend on some bits, at both
 * ends too. */
static void digests_tell_samples_apart(void **state)
{
    (void)state;
    unsigned char small[] = {1, 2, 3, 4, 5, 6}, labels[] = {0, 1};
    const uint64_t first = digest_of("x", small, 3, labels);
    assert_true(first == digest_of("x", small, 3, labels));
    assert_true(first != digest_of("y", small, 3, labels));
    for (int i = 0; i < 6 * 8; i++) {
        small[i / 8] ^= (unsigned char)(1 << i % 8);
        assert_true(first != digest_of("x", small, 3, labels));
        small[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    labels[1] = 0;
    assert_true(first != digest_of("x", small, 3, labels));
    const int64_t half = (33 << 20) + 5, block = 1 << 16;
    unsigned char *large = calloc((size_t)half, 2);
    assert_non_null(large);
    const uint64_t zero = digest_of("x", large, half, labels);
    const int64_t places[] = {0, block - 1, 2 * half - block, 2 * half - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        large[places[i]] = 1;
        assert_true(zero != digest_of("x", large, half, labels));
        large[places[i]] = 0;
    }
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_borrowed_or_copied),
        cmocka_unit_test(arrays_with_gaps_are_copied),
        cmocka_unit_test(bad_fields_are_refused_by_name),
        cmocka_unit_test(digests_tell_samples_apart),
        cmocka_unit_test(device_sets_have_fields_without_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
