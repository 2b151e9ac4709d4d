/* HDF5 files that refer to other files or are damaged. They must be refused with a message that
 * names them. */
#include "data/expect.h"
#include "data/files.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "base/philox.h"
#include "goldens/goldens.h"

#ifdef CLT_HAVE_HDF5

#include <hdf5.h>

enum { SAMPLES = 20, EACH = 6 };

static float values[SAMPLES * EACH];

static hid_t make_file(const char *name)
{
    unlink(path_of(name));
    const hid_t file = H5Fcreate(path_of(name), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

/* Makes an array "x" of this type and storage layout. Closes `plist`. */
static void add_x(hid_t file, hid_t type, hid_t plist)
{
    const hsize_t dims[] = {SAMPLES, EACH};
    const hid_t space = H5Screate_simple(2, dims, NULL);
    const hid_t x = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    assert_true(x >= 0);
    H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(x);
    H5Sclose(space);
    H5Pclose(plist);
}

static hid_t chunked(void)
{
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 2, (const hsize_t[]){7, 4});
    return plist;
}

static void refused(const char *name, clt_status status, const char *a, const char *b)
{
    char spec[160];
    clt_dataset *d = NULL;
    snprintf(spec, sizeof spec, "hdf5:%s", path_of(name));
    EXPECT_FAILURE(clt_dataset_open(spec, NULL, &d), status, name, a, b);
    assert_null(d);
}

static void taken(const char *name)
{
    char spec[160];
    const void *data;
    snprintf(spec, sizeof spec, "hdf5:%s", path_of(name));
    clt_dataset *d = expect_open(spec, "train", NULL);
    assert_int_equal(clt_dataset_count(d), 18);
    assert_int_equal(clt_dataset_field_data(d, expect_field(d, "x", CLT_F32, "[6]"), &data),
                     CLT_OK);
    assert_memory_equal(data, values, 18 * EACH * sizeof *values);
    clt_dataset_free(d);
}

static void elements_in_other_files_are_refused(void **state)
{
    (void)state;
    hid_t file = make_file("other.h5");
    add_x(file, H5T_IEEE_F32LE, H5Pcreate(H5P_DATASET_CREATE));
    H5Fclose(file);
    taken("other.h5");
    spill("raw", values, sizeof values);
    file = make_file("a.h5");
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(plist, path_of("raw"), 0, sizeof values);
    add_x(file, H5T_IEEE_F32LE, plist);
    H5Fclose(file);
    refused("a.h5", CLT_UNSUPPORTED, "'x'", "its elements are in other files");
    file = make_file("a.h5");
    plist = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t dims[] = {SAMPLES, EACH};
    const hid_t space = H5Screate_simple(2, dims, NULL);
    H5Pset_virtual(plist, space, path_of("other.h5"), "x", space);
    H5Sclose(space);
    add_x(file, H5T_IEEE_F32LE, plist);
    H5Fclose(file);
    refused("a.h5", CLT_UNSUPPORTED, "'x'", "a virtual dataset");
}

static void links_out_of_the_file_are_refused(void **state)
{
    (void)state;
    hid_t file = make_file("other.h5");
    add_x(file, H5T_IEEE_F32LE, H5Pcreate(H5P_DATASET_CREATE));
    H5Fclose(file);
    file = make_file("a.h5");
    H5Lcreate_external(path_of("other.h5"), "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    refused("a.h5", CLT_UNSUPPORTED, "'x'", "a link into another file");
    file = make_file("a.h5"); /* through a soft link, whose first part stays in the file */
    const hid_t group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external(path_of("other.h5"), "/", group, "out", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/g/out/x", file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
    H5Fclose(file);
    refused("a.h5", CLT_FORMAT, "'x'", "cannot be opened");
    file = make_file("a.h5"); /* links as the splits */
    H5Lcreate_external(path_of("other.h5"), "/", file, "train", H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "test", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    refused("a.h5", CLT_UNSUPPORTED, "'train'", "a link into another file");
    file = make_file("a.h5"); /* a link within the file is allowed */
    add_x(file, H5T_IEEE_F32LE, H5Pcreate(H5P_DATASET_CREATE));
    H5Lmove(file, "x", file, "y", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/y", file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    taken("a.h5");
}

static void filters_and_types_are_checked_before_reading(void **state)
{
    (void)state;
    hid_t plist = chunked(), file = make_file("a.h5");
    H5Pset_shuffle(plist);
    H5Pset_deflate(plist, 4);
    H5Pset_fletcher32(plist);
    add_x(file, H5T_IEEE_F32BE, plist);
    H5Fclose(file);
    taken("a.h5");
    file = make_file("a.h5");
    plist = chunked();
    H5Pset_scaleoffset(plist, H5Z_SO_FLOAT_DSCALE, 2);
    add_x(file, H5T_IEEE_F32LE, plist);
    H5Fclose(file);
    refused("a.h5", CLT_UNSUPPORTED, "'x': filter 6", "h5repack -f GZIP=4");
    file = make_file("a.h5");
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_ebias(type, 100);
    add_x(file, type, H5Pcreate(H5P_DATASET_CREATE));
    H5Tclose(type);
    H5Fclose(file);
    refused("a.h5", CLT_UNSUPPORTED, "'x'", "f4, unusual bits");
}

/* All combinations of filters, chunks that do not divide the array, and chunks that were never
 * written. */
static void chunks_are_decoded(void **state)
{
    (void)state;
    for (int with = 0; with < 32; with++) {
        const hid_t file = make_file("a.h5"), plist = chunked();
        if (with & 1)
            H5Pset_shuffle(plist);
        if (with & 8)
            H5Pset_fletcher32(plist);
        if (with & 2)
            H5Pset_deflate(plist, 6);
        if (with & 4 && !(with & 8))
            H5Pset_fletcher32(plist);
        add_x(file, with & 16 ? H5T_IEEE_F32BE : H5T_IEEE_F32LE, plist);
        H5Fclose(file);
        taken("a.h5");
    }
    const float seven = 7;
    const hsize_t dims[] = {SAMPLES, EACH}, begin[] = {7, 0}, count[] = {7, 4};
    const hid_t file = make_file("a.h5"), plist = chunked(),
                space = H5Screate_simple(2, dims, NULL);
    H5Pset_fill_value(plist, H5T_NATIVE_FLOAT, &seven);
    const hid_t x = H5Dcreate2(file, "x", H5T_IEEE_F32BE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    const hid_t part = H5Screate_simple(2, count, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL);
    assert_true(H5Dwrite(x, H5T_NATIVE_FLOAT, part, space, H5P_DEFAULT, values) >= 0);
    H5Dclose(x);
    H5Sclose(part);
    H5Sclose(space);
    H5Pclose(plist);
    H5Fclose(file);
    char spec[160];
    const void *data;
    snprintf(spec, sizeof spec, "hdf5:%s", path_of("a.h5"));
    clt_dataset *d = expect_open(spec, "train", NULL);
    assert_int_equal(clt_dataset_field_data(d, expect_field(d, "x", CLT_F32, "[6]"), &data),
                     CLT_OK);
    for (int i = 0; i < 18; i++)
        for (int k = 0; k < EACH; k++) {
            const bool written = i >= 7 && i < 14 && k < 4;
            assert_true(((const float *)data)[i * EACH + k] ==
                        (written ? values[(i - 7) * 4 + k] : seven));
        }
    clt_dataset_free(d);
}

/* Deflated data that end early. libhdf5 would still copy a whole chunk from them. */
static void chunks_of_another_size_are_refused(void **state)
{
    (void)state;
    const unsigned char few[] = {1, 2, 3, 4};
    unsigned char packed[64];
    uLongf bytes = sizeof packed;
    const hsize_t dims[] = {SAMPLES, EACH};
    assert_int_equal(compress(packed, &bytes, few, sizeof few), Z_OK);
    for (int mask = 0; mask < 2; mask++) {
        const hid_t file = make_file("a.h5"), plist = chunked(),
                    space = H5Screate_simple(2, dims, NULL);
        H5Pset_deflate(plist, 6);
        const hid_t x =
            H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
        assert_true(H5Dwrite_chunk(x, H5P_DEFAULT, (uint32_t)mask, (const hsize_t[]){0, 0},
                                   (size_t)bytes, packed) >= 0);
        H5Dclose(x);
        H5Sclose(space);
        H5Pclose(plist);
        H5Fclose(file);
        refused("a.h5", CLT_FORMAT, "'x'", "a chunk has another size than its elements need");
    }
}

/* A chunk that says that it has a byte more than its array's chunks. H5Dread_chunk reads that byte
 * too, behind the memory that it was given. */
static void chunks_that_say_another_size_are_refused(void **state)
{
    (void)state;
    enum { ROOM = 8192, KEY = 24, CHUNK = 7 * 4 * 4 };
    static unsigned char bytes[ROOM];
    const hid_t file = make_file("a.h5");
    add_x(file, H5T_IEEE_F32LE, chunked());
    H5Fclose(file);
    taken("a.h5");
    FILE *f = fopen(path_of("a.h5"), "rb");
    assert_non_null(f);
    const size_t count = fread(bytes, 1, ROOM, f);
    fclose(f);
    for (size_t at = 0; at + KEY < count; at++)
        if (!memcmp(bytes + at, "TREE\1", 5)) {
            assert_int_equal(bytes[at + KEY], CHUNK);
            bytes[at + KEY]++;
        }
    spill("a.h5", bytes, count);
    refused("a.h5", CLT_FORMAT, "'x'", "a chunk cannot be read");
}

/* Makes an array "x" of `count` bytes in chunks of one byte and writes its last `written` bytes. */
static void make_bytes(hsize_t count, hsize_t written)
{
    const hsize_t begin = count - written, one = 1;
    const hid_t file = make_file("a.h5"), plist = H5Pcreate(H5P_DATASET_CREATE),
                space = H5Screate_simple(1, &count, NULL),
                part = H5Screate_simple(1, &written, NULL);
    unsigned char *ones = malloc(written);
    assert_non_null(ones);
    memset(ones, 1, written);
    H5Pset_chunk(plist, 1, &one);
    const hid_t x = H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, &begin, NULL, &written, NULL);
    assert_true(H5Dwrite(x, H5T_NATIVE_UINT8, part, space, H5P_DEFAULT, ones) >= 0);
    free(ones);
    H5Dclose(x);
    H5Sclose(part);
    H5Sclose(space);
    H5Pclose(plist);
    H5Fclose(file);
}

/* The time is in proportion to the number of chunks. A search through all chunks for each one needs
 * twenty times as long as the limit. */
static void many_chunks_are_read_soon(void **state)
{
    (void)state;
    enum { CHUNKS = 50000, MOST_SECONDS = 4 };
    char spec[160];
    const void *data;
    make_bytes(CHUNKS, CHUNKS - 10);
    const clock_t begin = clock();
    snprintf(spec, sizeof spec, "hdf5:%s", path_of("a.h5"));
    clt_dataset *d = expect_open(spec, "train", NULL);
    assert_true(clock() - begin < (clock_t)MOST_SECONDS * CLOCKS_PER_SEC);
    assert_int_equal(clt_dataset_field_data(d, expect_field(d, "x", CLT_U8, "[]"), &data), CLT_OK);
    for (int i = 0; i < CHUNKS * 9 / 10; i++)
        assert_int_equal(((const unsigned char *)data)[i], i >= 10);
    clt_dataset_free(d);
    make_bytes(1 << 26, 1);
    refused("a.h5", CLT_FORMAT, "'x': the file stores 1 of its 67108864 chunks",
            "most of it was never written");
}

static void a_file_that_ends_early_says_how_long_it_should_be(void **state)
{
    (void)state;
    const hid_t file = make_file("a.h5");
    add_x(file, H5T_IEEE_F32LE, H5Pcreate(H5P_DATASET_CREATE));
    H5Fclose(file);
    assert_int_equal(truncate(path_of("a.h5"), 2400), 0);
    refused("a.h5", CLT_FORMAT, "its superblock says that it has", "there are 2400");
    spill("a.h5", "", 0);
    refused("a.h5", CLT_FORMAT, "is no HDF5 file", "");
}

/* Changes one to four places of a golden file: to random bytes, to addresses near 2^64, or to
 * copies of other places. */
static size_t damage(uint64_t seed, unsigned char *bytes, size_t count)
{
    uint32_t draw[4];
    clt_random4(seed, 1, 0, 0, 0, draw);
    const uint32_t changes = 1 + draw[0] % 4;
    for (uint32_t i = 1; i <= changes; i++) {
        clt_random4(seed, 1, 0, 0, i, draw);
        const size_t at = draw[0] % count, from = draw[3] % count;
        for (size_t k = 0; k < 8 && at + k < count && from + k < count; k++)
            if (draw[1] % 4 == 0)
                bytes[at + k] = k ? 0xff : (unsigned char)draw[2];
            else if (draw[1] % 4 == 1)
                bytes[at + k] = bytes[from + k];
            else if (k == 0 && draw[1] % 4 == 2)
                bytes[at] = (unsigned char)draw[2];
            else if (k == 0)
                bytes[at] ^= (unsigned char)(1u << draw[2] % 8);
    }
    return draw[3] % 16 ? count : count / 2 + draw[2] % (count / 2);
}

/* Damaged files are refused or read. None may end the process or keep it busy. libhdf5's usual
 * driver crashes on some of these files, for example on addresses near 2^64. */
static void damage_does_not_end_the_process(void **state)
{
    (void)state;
    static const char *const names[] = {"arrays/counts.h5", "arrays/split.h5", "arrays/narrow.h5"};
    enum { MOST = 1 << 16, CASES = 300 };
    unsigned char *bytes = malloc(MOST);
    char path[4200], spec[160];
    assert_non_null(bytes);
    for (uint64_t seed = 0; seed < CASES; seed++) {
        golden_path(names[seed % 3], path, sizeof path);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        const size_t count = fread(bytes, 1, MOST, f);
        fclose(f);
        spill("a.h5", bytes, damage(seed, bytes, count));
        snprintf(spec, sizeof spec, "hdf5:%s", path_of("a.h5"));
        const pid_t child = fork();
        if (child == 0) {
            clt_dataset *d;
            setrlimit(RLIMIT_CPU, &(struct rlimit){20, 20});
            signal(SIGSEGV, SIG_DFL); /* cmocka's handler would continue */
            _exit(clt_dataset_open(spec, NULL, &d) != CLT_OK);
        }
        int code;
        assert_int_equal(waitpid(child, &code, 0), child);
        if (WIFSIGNALED(code))
            fail_msg("seed %llu: signal %d", (unsigned long long)seed, WTERMSIG(code));
    }
    free(bytes);
}

static int begin(void **state)
{
    for (int i = 0; i < SAMPLES * EACH; i++)
        values[i] = (float)i * 0.5f;
    return make_folder(state);
}

static int end(void **state)
{
    unlink(path_of("a.h5"));
    unlink(path_of("other.h5"));
    unlink(path_of("raw"));
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_in_other_files_are_refused),
        cmocka_unit_test(links_out_of_the_file_are_refused),
        cmocka_unit_test(filters_and_types_are_checked_before_reading),
        cmocka_unit_test(chunks_are_decoded),
        cmocka_unit_test(chunks_of_another_size_are_refused),
        cmocka_unit_test(chunks_that_say_another_size_are_refused),
        cmocka_unit_test(many_chunks_are_read_soon),
        cmocka_unit_test(a_file_that_ends_early_says_how_long_it_should_be),
        cmocka_unit_test(damage_does_not_end_the_process),
    };
    return cmocka_run_group_tests(tests, begin, end);
}

#else

int main(void)
{
    puts("built without HDF5");
    return 77;
}

#endif
