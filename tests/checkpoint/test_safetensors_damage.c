/* Damaged safetensors files are refused with a message that names them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/scratch.h"

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                         \
    "{\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" first "},"                          \
    "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" second "}}"

static void bad_headers_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *message;
    } cases[] = {
        {"", 0, "does not begin with '{'"},
        {"[1]", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"{", 0, "not valid JSON"},
        {"{}x", 0, "not valid JSON"},
        {"{\"\xff\xfe\":1}", 0, "not valid JSON"},
        {"{\"a\\u0000b\":1}", 0, "not valid JSON"},
        {"{\"w\":99999999999999999999}", 0, "not valid JSON"},
        {"{\"w\":{},\"w\":{}}", 0, "duplicate"},
        {"{}", 1, "0 tensors for 1 bytes"},
        {"{\"__metadata__\":{}}", 1, "1 bytes at its end"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "not a string: a"},
        {"{\"w\":3}", 0, "tensor w: dtype, shape or data_offsets is missing"},
        {"{\"w\\nx\":3}", 0, "tensor w?x: "},
        {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "is missing"},
        {"{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "is missing"},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "is missing"},
        {ONE("7", "[1]", "[0,1]"), 1, "is missing"},
        {ONE("\"Q4\"", "[1]", "[0,1]"), 1, "tensor w: unknown dtype Q4"},
        {ONE("\"f32\"", "[1]", "[0,4]"), 4, "unknown dtype f32"},
        {ONE("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "tensor w: 9 dimensions; 8 are"},
        {ONE("\"U8\"", "[-1]", "[0,1]"), 1, "dimension 0 is not a whole number"},
        {ONE("\"U8\"", "[1,1.0]", "[0,1]"), 1, "dimension 1 is not a whole number"},
        {ONE("\"U8\"", "[\"1\"]", "[0,1]"), 1, "dimension 0 is not a whole number"},
        {ONE("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "is too large"},
        {ONE("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, "is too large"},
        {ONE("\"U8\"", "[1]", "[0]"), 1, "not two whole numbers"},
        {ONE("\"U8\"", "[1]", "[0,1,2]"), 1, "not two whole numbers"},
        {ONE("\"U8\"", "[1]", "[-1,0]"), 1, "not two whole numbers"},
        {ONE("\"U8\"", "[1]", "[0,1.5]"), 1, "not two whole numbers"},
        {ONE("\"U8\"", "[1]", "[1,0]"), 1, "bytes 1 to 0 of a data part of 1"},
        {ONE("\"U8\"", "[4]", "[0,4]"), 3, "bytes 0 to 4 of a data part of 3"},
        {ONE("\"U8\"", "[1]", "[0,9223372036854775807]"), 1, "of a data part of 1"},
        {ONE("\"F32\"", "[2]", "[0,7]"), 7, "tensor w: F32 [2] has 8 bytes but its place 7"},
        {ONE("\"U8\"", "[4]", "[0,4]"), 5, "1 bytes at its end belong to no tensor"},
        {TWO("[0,4]", "[2,6]"), 6, "tensors v and w overlap"},
        {TWO("[0,4]", "[0,4]"), 4, "tensors v and w overlap"},
        {TWO("[0,4]", "[3,7]"), 7, "tensors v and w overlap"},
        {TWO("[0,4]", "[5,9]"), 9, "1 bytes before tensor w"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_tensors *file = (clt_tensors *)&cases;
        const char *path = put_tensors(cases[i].header, cases[i].data_bytes);
        assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
        assert_ptr_equal(file, &cases);
        assert_message_has(cases[i].message);
        assert_message_has(path);
    }
}

static void files_that_are_none_are_refused(void **state)
{
    (void)state;
    const char *path = in_scratch("raw");
    clt_tensors *file;
    put_file(path, "", 0);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    put_file(path, "\2\0\0\0\0\0\0", 7);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    assert_message_has("it has 7 bytes");
    put_file(path, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    assert_message_has("9223372036854775807 bytes and 100000000 are the most");
    put_file(path, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    put_file(path, "\3\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    assert_message_has("would have 3 bytes but the file ends after 10");
    assert_int_equal(clt_tensors_open(scratch, &file), CLT_IO);
    assert_message_has("not a regular file");
    assert_int_equal(clt_tensors_open(in_scratch("none"), &file), CLT_NOT_FOUND);
}

/* A named pipe is refused without waiting for its writer. A file that is shortened while open keeps
 * the content that was read. A mapping would raise SIGBUS. */
static void pipes_and_shortened_files_do_no_harm(void **state)
{
    (void)state;
    enum { FLOATS = 1 << 16 };
    clt_tensors *file;
    char header[128];
    alarm(20);
    unlink(in_scratch("pipe"));
    assert_int_equal(mkfifo(in_scratch("pipe"), 0600), 0);
    assert_int_equal(clt_tensors_open(in_scratch("pipe"), &file), CLT_IO);
    assert_message_has("is not a regular file but a pipe");
    alarm(0);
    snprintf(header, sizeof header, ONE("\"F32\"", "[%d]", "[0,%d]"), FLOATS, 4 * FLOATS);
    const char *path = put_tensors(header, 4 * (size_t)FLOATS);
    const clt_tensor *tensor;
    float sum = 0;
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_int_equal(truncate(path, 16), 0);
    assert_int_equal(clt_tensors_find(file, "w", &tensor), CLT_OK);
    const unsigned char *bytes = tensor->data;
    for (int i = 0; i < 4 * FLOATS; i++)
        sum += bytes[i];
    assert_true(sum >= 0);
    clt_tensors_close(file);
}

/* Overwrites one byte of a file in place. */
static void poke(const char *path, long at, int byte)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, file), byte);
    assert_int_equal(fclose(file), 0);
}

/* Data that stay in the file are read one tensor at a time. A change after the hash is found. */
static void tensors_stay_in_the_file(void **state)
{
    (void)state;
    static const char header[] = TWO("[0,4]", "[4,8]");
    const char *path = put_tensors(header, 8);
    clt_tensors *whole, *apart;
    const clt_tensor *v, *w;
    int64_t bytes, same_bytes;
    uint64_t hash, same_hash;
    const void *data;
    void *owned;
    assert_int_equal(clt_tensors_open(path, &whole), CLT_OK);
    assert_int_equal(clt_tensors_open_apart(path, &apart), CLT_OK);
    assert_int_equal(clt_tensors_find(apart, "v", &v), CLT_OK);
    assert_int_equal(clt_tensors_find(apart, "w", &w), CLT_OK);
    assert_true(!v->data && !w->data);
    assert_int_equal(clt_tensors_load(apart, w, &data, &owned), CLT_OK);
    assert_memory_equal(data, ((const unsigned char[]){4, 5, 6, 7}), 4);
    assert_ptr_equal(data, owned);
    free(owned);
    assert_int_equal(clt_tensors_hash(whole, &bytes, &hash), CLT_OK);
    assert_int_equal(clt_tensors_hash(apart, &same_bytes, &same_hash), CLT_OK);
    assert_true(bytes == same_bytes && hash == same_hash);
    assert_int_equal(clt_tensors_find(whole, "w", &w), CLT_OK);
    assert_int_equal(clt_tensors_load(whole, w, &data, &owned), CLT_OK);
    assert_true(data == w->data && !owned);
    poke(path, (long)(8 + sizeof header - 1 + 5), 99);
    assert_int_equal(clt_tensors_find(apart, "w", &w), CLT_OK);
    assert_int_equal(clt_tensors_load(apart, v, &data, &owned), CLT_OK);
    free(owned);
    assert_int_equal(clt_tensors_load(apart, w, &data, &owned), CLT_IO);
    assert_message_has("tensor w was changed while the file was read");
    assert_int_equal(truncate(path, 16), 0);
    assert_int_equal(clt_tensors_load(apart, v, &data, &owned), CLT_IO);
    clt_tensors_close(whole);
    clt_tensors_close(apart);
}

/* Random damage leads to a refusal at most. An accepted file can be read in full. */
static void damaged_headers_never_crash(void **state)
{
    (void)state;
    enum { ROUNDS = 6000, TOKENS = 14 };
    static const char *const tokens[TOKENS] = {
        "0", "-1",      "9223372036854775807",  "18446744073709551616", "[",  "]", "{", "}", "\"",
        ",", "\"F64\"", "\"__metadata__\":{},", "\"a\":null,",          "1e3"};
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]},"
        "\"c\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[32,37]}}";
    const uint32_t key[2] = {2024, 3};
    int accepted = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        unsigned char bytes[8 + 2 * sizeof header + 64] = {(unsigned char)(sizeof header - 1)};
        size_t used = 8 + sizeof header - 1 + 37;
        memcpy(bytes + 8, header, sizeof header - 1);
        uint32_t changes = 1 + round % 3;
        for (uint32_t change = 0; change < changes; change++) {
            uint32_t r[4];
            clt_philox((const uint32_t[]){round, change, 0, 0}, key, r);
            size_t place = 8 + r[0] % (sizeof header - 1);
            switch (r[1] % 5) {
            case 0:
                bytes[place] = (unsigned char)r[2];
                break;
            case 1:
                bytes[place] = (unsigned char)('0' + r[2] % 10);
                break;
            case 2: {
                const char *token = tokens[r[2] % TOKENS];
                memcpy(bytes + place, token, strlen(token));
                break;
            }
            case 3:
                used = r[2] % 2 ? used - r[3] % 60 : used + r[3] % 20;
                break;
            default:
                bytes[r[2] % 2 ? 0 : r[3] % 8] = (unsigned char)r[0];
                break;
            }
        }
        put_file(in_scratch("fuzz"), bytes, used);
        clt_tensors *file = NULL;
        clt_status status = clt_tensors_open(in_scratch("fuzz"), &file);
        if (status != CLT_OK) {
            assert_int_equal(status, CLT_FORMAT);
            assert_null(strchr(clt_error_message(), '\n'));
            continue;
        }
        accepted++;
        unsigned sum = 0;
        for (int i = 0; i < clt_tensors_count(file); i++) {
            const clt_tensor *item = clt_tensors_at(file, i);
            for (int64_t j = 0; j < clt_tensor_bytes(item); j++)
                sum += ((const unsigned char *)item->data)[j];
            assert_ptr_equal(clt_tensors_lookup(file, item->name), item);
        }
        assert_true(sum < 256 * 64);
        clt_tensors_close(file);
    }
    /* Renamed tensors and the like are valid. Nearly all other damage must be noticed. */
    assert_in_range(accepted, ROUNDS / 200, ROUNDS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipes_and_shortened_files_do_no_harm),
        cmocka_unit_test(bad_headers_are_refused_by_name),
        cmocka_unit_test(files_that_are_none_are_refused),
        cmocka_unit_test(tensors_stay_in_the_file),
        cmocka_unit_test(damaged_headers_never_crash),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
