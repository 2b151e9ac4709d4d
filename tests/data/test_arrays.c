/* Valid and invalid NPZ and HDF5 files, written by numpy and h5py (goldens/make_arrays.py). */
#include "data/expect.h"
#include "data/files.h"
#include "goldens/goldens.h"

enum { COUNT = 25, TESTED = 3 };

static char spec[4300];

static const char *spec_of(const char *kind, const char *name)
{
    char path[4200], inner[64];
    snprintf(inner, sizeof inner, "arrays/%s", name);
    golden_path(inner, path, sizeof path);
    snprintf(spec, sizeof spec, "%s:%s", kind, path);
    return spec;
}

static const void *data_of(clt_dataset *d, const char *name, clt_dtype dtype, const char *shape)
{
    const void *data;
    assert_int_equal(clt_dataset_field_data(d, expect_field(d, name, dtype, shape), &data), CLT_OK);
    return data;
}

/* Checks samples [first, first + count) of the script's arrays. */
static void expect_arrays(clt_dataset *d, int first, int count, clt_dtype label)
{
    int field;
    assert_int_equal(clt_dataset_count(d), count);
    assert_int_equal(clt_dataset_field_count(d), 4);
    const float *x = data_of(d, "x", CLT_F32, "[2,3]");
    const int32_t *n = data_of(d, "n", CLT_I32, "[4]");
    const unsigned char *byte = data_of(d, "byte", CLT_U8, "[2]");
    const void *labels = data_of(d, "label", label, "[]");
    for (int i = 0; i < count * 6; i++)
        assert_true(x[i] == (float)(first * 6 + i) * 0.25f - 3);
    for (int i = 0; i < count * 4; i++)
        assert_int_equal(n[i], (first * 4 + i) * 7 - 20);
    for (int i = 0; i < count * 2; i++)
        assert_int_equal(byte[i], (first * 2 + i) * 5 % 256);
    for (int i = 0; i < count; i++)
        assert_int_equal(label == CLT_U8 ? ((const unsigned char *)labels)[i]
                                         : ((const int32_t *)labels)[i],
                         (first + i) % 3);
    assert_int_equal(clt_dataset_find_field(d, "label", &field), CLT_OK);
    assert_int_equal(clt_dataset_classes(d, field), 3);
    clt_dataset_free(d);
}

static void expect_file(const char *kind, const char *name, clt_dtype label)
{
    expect_arrays(expect_open(spec_of(kind, name), "train", NULL), 0, COUNT - TESTED, label);
    expect_arrays(expect_open(spec_of(kind, name), "test", NULL), COUNT - TESTED, TESTED, label);
}

static void fails(const char *kind, const char *name, clt_status status, const char *a,
                  const char *b)
{
    clt_dataset *d = NULL;
    EXPECT_FAILURE(clt_dataset_open(spec_of(kind, name), NULL, &d), status, name, a, b);
    assert_null(d);
}

static void npz_is_read_stored_and_deflated(void **state)
{
    (void)state;
    expect_file("npz", "stored.npz", CLT_I32);
    expect_file("npz", "deflated.npz", CLT_U8);
    clt_dataset_options options;
    clt_dataset_options_init(&options);
    options.classes = 7;
    clt_dataset *d = expect_open(spec_of("npz", "stored.npz"), "train", &options);
    assert_int_equal(clt_dataset_classes(d, expect_field(d, "label", CLT_I32, "[]")), 7);
    clt_dataset_free(d);
    options.classes = 2;
    options.split = "train";
    EXPECT_FAILURE(clt_dataset_open(spec_of("npz", "stored.npz"), &options, &d), CLT_FORMAT,
                   "stored.npz", "'label'", "label 2 of sample 2");
}

static void names_tell_splits(void **state)
{
    (void)state;
    for (int test = 0; test < 2; test++) {
        clt_dataset *d = expect_open(spec_of("npz", "named.npz"), test ? "test" : "train", NULL);
        assert_int_equal(clt_dataset_count(d), test ? 3 : 5);
        assert_int_equal(clt_dataset_field_count(d), 2);
        const float *x = data_of(d, "x", CLT_F32, "[2]");
        for (int i = 0; i < (test ? 6 : 10); i++)
            assert_true(x[i] == (float)i * 0.25f - 3);
        expect_field(d, "label", CLT_I32, "[]");
        clt_dataset_free(d);
    }
    fails("npz", "half_named.npz", CLT_FORMAT, "'y'", "must end in _train or _test");
}

static void a_folder_has_a_file_a_split(void **state)
{
    (void)state;
    char own[96], path[4200];
    size_t count;
    golden_path("arrays/stored.npz", path, sizeof path);
    FILE *f = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 16);
    assert_non_null(f);
    assert_non_null(bytes);
    count = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    spill("test.npz", bytes, count);
    free(bytes);
    snprintf(own, sizeof own, "npz:%s", folder);
    expect_arrays(expect_open(own, "test", NULL), 0, COUNT, CLT_I32);
    clt_dataset *d;
    EXPECT_FAILURE(clt_dataset_open(own, NULL, &d), CLT_NOT_FOUND, "train.npz", "cannot be opened");
    clt_dataset_options all;
    clt_dataset_options_init(&all);
    all.split = "all";
    EXPECT_FAILURE(clt_dataset_open(own, &all, &d), CLT_INVALID_ARGUMENT, folder, "needs one file");
}

static void wrong_arrays_are_named(void **state)
{
    (void)state;
    fails("npz", "counts.npz", CLT_FORMAT, "'y' has 6 samples", "'x' has 5");
    fails("npz", "complex.npz", CLT_UNSUPPORTED, "'x'", "type <c8");
    fails("npz", "big.npz", CLT_UNSUPPORTED, "'x'", "type >f4");
    fails("npz", "fortran.npz", CLT_UNSUPPORTED, "'x'", "ascontiguousarray");
    fails("npz", "scalar.npz", CLT_FORMAT, "'x'", "0 axes");
    fails("npz", "large.npz", CLT_FORMAT, "'n'", "2147483648 in sample 3");
    fails("npz", "negative.npz", CLT_FORMAT, "'label'", "label -3 of sample 2");
    fails("npz", "missing.npz", CLT_NOT_FOUND, "cannot be opened", "");
    fails("npz", "wide.h5", CLT_FORMAT, "is not a zip archive, or is damaged", "");
}

/* Flips every byte of a file, and cuts the file at every length. Each result must be an error
 * message or the same samples, never a crash. */
static void damage_is_found(void **state)
{
    (void)state;
    static const char *const files[] = {"stored.npz", "deflated.npz"};
    char own[96], path[4200], inner[64];
    snprintf(own, sizeof own, "npz:%s/damaged.npz", folder);
    for (int k = 0; k < 2; k++) {
        snprintf(inner, sizeof inner, "arrays/%s", files[k]);
        golden_path(inner, path, sizeof path);
        FILE *f = fopen(path, "rb");
        unsigned char *bytes = malloc(1 << 16);
        assert_non_null(f);
        assert_non_null(bytes);
        const size_t count = fread(bytes, 1, 1 << 16, f);
        fclose(f);
        int refused = 0, tried = 0;
        for (size_t i = 0; i < count; i += 3) {
            clt_dataset *d = NULL;
            bytes[i] ^= 0x41;
            spill("damaged.npz", bytes, count);
            bytes[i] ^= 0x41;
            tried++;
            const clt_status status = clt_dataset_open(own, NULL, &d);
            if (status == CLT_OK)
                clt_dataset_free(d); /* a date or a flag that nothing reads */
            else
                expect_words((const char *const[]){"damaged.npz", NULL});
            refused += status != CLT_OK;
        }
        assert_true(refused > tried / 2);
        for (size_t length = 0; length < count; length += 13) {
            clt_dataset *d = NULL;
            spill("damaged.npz", bytes, length);
            EXPECT_FAILURE(clt_dataset_open(own, NULL, &d), CLT_FORMAT, "damaged.npz");
        }
        free(bytes);
    }
}

static void hdf5_is_read(void **state)
{
    (void)state;
#ifdef CLT_HAVE_HDF5
    expect_file("hdf5", "wide.h5", CLT_I32);
    expect_file("hdf5", "narrow.h5", CLT_U8);
    expect_arrays(expect_open(spec_of("hdf5", "split.h5"), "train", NULL), 0, 5, CLT_U8);
    expect_arrays(expect_open(spec_of("hdf5", "split.h5"), "test", NULL), 0, 3, CLT_U8);
    clt_dataset_options all;
    clt_dataset_options_init(&all);
    expect_arrays(expect_open(spec_of("hdf5", "wide.h5"), "all", &all), 0, COUNT, CLT_I32);
    clt_dataset *d;
    EXPECT_FAILURE(clt_dataset_open(spec_of("hdf5", "split.h5"), &all, &d), CLT_INVALID_ARGUMENT,
                   "split.h5", "groups train and test");
    fails("hdf5", "text.h5", CLT_UNSUPPORTED, "'words'", "string");
    fails("hdf5", "counts.h5", CLT_FORMAT, "'y' has 6 samples", "'x' has 5");
    fails("hdf5", "sparse.h5", CLT_FORMAT, "'x'", "3136000000000 bytes, of which the file stores");
    fails("hdf5", "stored.npz", CLT_FORMAT, "no HDF5 file", "");
    fails("hdf5", "missing.h5", CLT_NOT_FOUND, "cannot be opened", "");
#else
    fails("hdf5", "wide.h5", CLT_UNSUPPORTED, "no HDF5", "libhdf5-dev");
#endif
}

static int end(void **state)
{
    unlink(path_of("test.npz"));
    unlink(path_of("damaged.npz"));
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npz_is_read_stored_and_deflated),
        cmocka_unit_test(names_tell_splits),
        cmocka_unit_test(a_folder_has_a_file_a_split),
        cmocka_unit_test(wrong_arrays_are_named),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(hdf5_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, end);
}
