/* safetensors files: written files are read again unchanged. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "checkpoint/outfile.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/scratch.h"
#include "checkpoint/tensor.h"

static void every_type_comes_back(void **state)
{
    (void)state;
    unsigned char data[15][48];
    char names[15][8];
    clt_tensor tensors[15], empty;
    for (int i = 0; i < 15; i++) {
        for (int j = 0; j < 48; j++)
            data[i][j] = (unsigned char)(7 * i + j);
        snprintf(names[i], sizeof names[i], "t%d", i);
        assert_int_equal(clt_tensor_init(&tensors[i], names[i], (clt_file_dtype)i, 2,
                                         (int64_t[]){3, 2}, data[i]),
                         CLT_OK);
    }
    const char *const metadata[] = {"format", "pt", "made by", "a \"test\"\n"};
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    desc.tensors = tensors;
    desc.count = 15;
    desc.metadata = metadata;
    desc.metadata_pairs = 2;
    const char *path = in_scratch("all.safetensors");
    assert_int_equal(clt_tensors_save(path, &desc), CLT_OK);
    size_t bytes;
    unsigned char *raw = get_file(path, &bytes);
    assert_int_equal((8 + raw[0] + 256 * raw[1]) % 64, 0);
    free(raw);
    clt_tensors *file;
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_int_equal(clt_tensors_count(file), 15);
    for (int i = 0; i < 15; i++) {
        const clt_tensor *found = NULL;
        clt_status status = clt_tensors_find(file, names[i], &found);
        if (i > CLT_FILE_I64) {
            assert_int_equal(status, CLT_UNSUPPORTED);
            assert_message_has(names[i]);
            assert_message_has(clt_file_dtype_name((clt_file_dtype)i));
            found = clt_tensors_lookup(file, names[i]);
        }
        assert_non_null(found);
        assert_int_equal(found->dtype, i);
        assert_int_equal(found->rank, 2);
        assert_int_equal(found->dims[0], 3);
        assert_int_equal(found->dims[1], 2);
        int size = clt_file_dtype_size(found->dtype);
        assert_int_equal((uintptr_t)found->data % (uintptr_t)size, 0);
        assert_memory_equal(found->data, data[i], 6 * (size_t)size);
    }
    assert_string_equal(clt_tensors_metadata(file, "made by"), "a \"test\"\n");
    assert_null(clt_tensors_metadata(file, "none"));
    assert_null(clt_tensors_at(file, 15));
    assert_null(clt_tensors_at(file, -1));
    clt_tensors_close(file);
    assert_int_equal(clt_tensor_init(&empty, "e", (clt_file_dtype)15, 0, NULL, NULL),
                     CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_tensor_init(&empty, "e", CLT_FILE_F32, 9, NULL, NULL),
                     CLT_INVALID_ARGUMENT);
    assert_int_equal(
        clt_tensor_init(&empty, "e", CLT_FILE_F64, 2, (int64_t[]){INT64_MAX / 8, 2}, NULL),
        CLT_INVALID_ARGUMENT);
}

static void scalars_empty_tensors_and_empty_files_are_legal(void **state)
{
    (void)state;
    const char *path = in_scratch("small.safetensors");
    float one = 1.5f;
    clt_tensor tensors[2];
    assert_int_equal(clt_tensor_init(&tensors[0], "scalar", CLT_FILE_F32, 0, NULL, &one), CLT_OK);
    assert_int_equal(clt_tensor_init(&tensors[1], "", CLT_FILE_F64, 8,
                                     (int64_t[]){1, 2, 3, 0, 1 << 30, 5, 7, 8}, NULL),
                     CLT_OK);
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    desc.tensors = tensors;
    desc.count = 2;
    clt_tensors *file;
    const clt_tensor *found;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_OK);
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_int_equal(clt_tensors_find(file, "scalar", &found), CLT_OK);
    assert_int_equal(clt_tensor_bytes(found), 4);
    assert_memory_equal(found->data, &one, 4);
    assert_int_equal(clt_tensors_find(file, "", &found), CLT_OK);
    assert_int_equal(clt_tensor_bytes(found), 0);
    assert_int_equal(found->dims[4], 1 << 30);
    clt_tensors_close(file);
    desc.count = 0;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_OK);
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_int_equal(clt_tensors_count(file), 0);
    assert_int_equal(clt_tensors_find(file, "x", &found), CLT_NOT_FOUND);
    clt_tensors_close(file);
}

/* Files as torch.save writes them now, and as it did before PyTorch 1.6. */
static void files_of_pytorch_are_told_how_to_be_converted(void **state)
{
    (void)state;
    static const char zip[] = "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0"
                              "archive/data.pklxxxxxxxx";
    static const char pickle[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19.";
    static const char other[] =
        "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0x.npyxxx";
    const char *path = in_scratch("model.v1.pth");
    clt_tensors *file;
    for (int old = 0; old < 2; old++) {
        put_file(path, old ? pickle : zip, old ? sizeof pickle - 1 : sizeof zip - 1);
        assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
        assert_non_null(strstr(clt_error_message(), "it is a file of PyTorch"));
        assert_non_null(strstr(clt_error_message(), "python3 -c \"import sys, torch"));
        assert_non_null(strstr(clt_error_message(), "model.v1.pth' '"));
        assert_non_null(strstr(clt_error_message(), "model.v1.safetensors'"));
    }
    put_file(path, other, sizeof other - 1);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    assert_null(strstr(clt_error_message(), "PyTorch"));
    path = in_scratch("it's.pth"); /* a name that shell quotes cannot hold */
    put_file(path, zip, sizeof zip - 1);
    assert_int_equal(clt_tensors_open(path, &file), CLT_FORMAT);
    assert_non_null(strstr(clt_error_message(), "'FILE.pth' 'FILE.safetensors'"));
}

/* Files written by safetensors 0.8.0 (Python). */
static void files_of_the_reference_implementation_are_read(void **state)
{
    (void)state;
    static const char golden[] =
        "\x08\x01\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"format\":\"pt\"},\"n\":{\"dtype\":"
        "\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"fc.weight\":{\"dtype\":\"F32\",\"shape\":"
        "[2,3],\"data_offsets\":[8,32]},\"e\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":"
        "[32,32]},\"m\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[32,35]}}   "
        "\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@\0\0\xa0@\1\0\1";
    const char *path = in_scratch("golden.safetensors");
    put_file(path, golden, sizeof golden - 1);
    clt_tensors *file;
    const clt_tensor *found;
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_string_equal(clt_tensors_metadata(file, "format"), "pt");
    assert_int_equal(clt_tensors_find(file, "n", &found), CLT_OK);
    assert_int_equal(*(const int64_t *)found->data, 7);
    assert_int_equal(clt_tensors_find(file, "fc.weight", &found), CLT_OK);
    for (int i = 0; i < 6; i++)
        assert_true(((const float *)found->data)[i] == (float)i);
    assert_int_equal(clt_tensors_find(file, "m", &found), CLT_UNSUPPORTED);
    assert_int_equal(clt_tensors_find(file, "fc.weights", &found), CLT_NOT_FOUND);
    assert_message_has("the nearest is fc.weight");
    clt_tensors_close(file);
}

static void unaligned_tensors_are_copied(void **state)
{
    (void)state;
    const char *path =
        put_tensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                    "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[1,9]},"
                    "\"c\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[9,13]}}",
                    13);
    clt_tensors *file;
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    const clt_tensor *b = clt_tensors_at(file, 1), *c = clt_tensors_at(file, 2);
    assert_int_equal((uintptr_t)b->data % 8, 0);
    assert_int_equal((uintptr_t)c->data % 4, 0);
    assert_memory_equal(b->data, "\1\2\3\4\5\6\7\10", 8);
    assert_memory_equal(c->data, "\11\12\13\14", 4);
    clt_tensors_close(file);
}

static void lists_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    const char *path = in_scratch("never.safetensors");
    int64_t two[] = {2};
    float data[2] = {1, 2};
    clt_tensor t[2];
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    desc.tensors = t;
    desc.count = 2;
    assert_int_equal(clt_tensor_init(&t[0], "a", CLT_FILE_F32, 1, two, data), CLT_OK);
    t[1] = t[0];
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    assert_message_has("two tensors are called a");
    t[1].name = "\xc3(";
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    assert_message_has("not UTF-8");
    t[1].name = "__metadata__";
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    t[1].name = "b";
    t[1].data = NULL;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    assert_message_has("tensor b has no data");
    t[1].dims[0] = -1;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    assert_message_has("tensor b: F32 [-1]");
    t[1].dtype = (clt_file_dtype)99;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    desc.count = 1;
    const char *const metadata[] = {"k", "\xff"};
    desc.metadata = metadata;
    desc.metadata_pairs = 1;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    desc.metadata_pairs = 0;
    desc.struct_size = 3;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_INVALID_ARGUMENT);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(in_scratch(".never.safetensors.tmp"), F_OK), -1);
}

static clt_status fetch(void *user, const clt_tensor *tensor, const void **data)
{
    static int32_t staging[4];
    if (strcmp(tensor->name, user) == 0)
        return CLT_DEVICE_LOST;
    for (int i = 0; i < 4; i++)
        staging[i] = tensor->name[0] * 10 + i;
    *data = staging;
    return CLT_OK;
}

static void data_can_be_fetched_tensor_by_tensor(void **state)
{
    (void)state;
    const char *path = in_scratch("fetched.safetensors");
    clt_tensor t[2];
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    desc.tensors = t;
    desc.count = 2;
    desc.fetch = fetch;
    desc.fetch_user = "none";
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            clt_tensor_init(&t[i], i ? "b" : "a", CLT_FILE_I32, 1, (int64_t[]){4}, NULL), CLT_OK);
    assert_int_equal(clt_tensors_save(path, &desc), CLT_OK);
    clt_tensors *file;
    const clt_tensor *found;
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_int_equal(clt_tensors_find(file, "b", &found), CLT_OK);
    assert_int_equal(((const int32_t *)found->data)[3], 'b' * 10 + 3);
    desc.fetch_user = "b";
    assert_int_equal(clt_tensors_save(path, &desc), CLT_DEVICE_LOST);
    assert_message_has("tensor b: ");
    /* The old file is still in place and open. */
    assert_int_equal(((const int32_t *)found->data)[3], 'b' * 10 + 3);
    clt_tensors_close(file);
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    clt_tensors_close(file);
}

static void a_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/full.safetensors", scratch);
    static float data[20000];
    clt_tensor tensor;
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    desc.tensors = &tensor;
    desc.count = 1;
    assert_int_equal(clt_tensor_init(&tensor, "a", CLT_FILE_F32, 1, (int64_t[]){20000}, data),
                     CLT_OK);
    data[0] = 1;
    assert_int_equal(clt_tensors_save(path, &desc), CLT_OK);
    data[0] = 2;
    struct rlimit old, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (rlim_t most = 0; most < 80000; most += 7777) {
        limit.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        clt_status status = clt_tensors_save(path, &desc);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(status, CLT_IO);
        assert_message_has("File too large");
        assert_message_has(path);
        clt_tensors *file;
        assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
        assert_true(*(const float *)clt_tensors_at(file, 0)->data == 1);
        clt_tensors_close(file);
        assert_int_equal(access(in_scratch(".full.safetensors.tmp"), F_OK), -1);
    }
    signal(SIGXFSZ, handler);
    clt_outfile *file;
    assert_int_equal(clt_outfile_create(AT_FDCWD, "/dev/full", &file), CLT_OK);
    assert_int_equal(clt_tensors_write(file, &desc), CLT_IO);
    assert_message_has("No space left on device");
    clt_outfile_abandon(file);
    assert_int_equal(clt_tensors_save("/proc/none/x.safetensors", &desc), CLT_IO);
    assert_message_has("cannot create");
}

static void another_model_is_named_with_both_shapes(void **state)
{
    (void)state;
    const char *path =
        put_tensors("{\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                    "\"conv1.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]}}",
                    12);
    clt_tensors *file;
    clt_tensor want[3];
    assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
    assert_int_equal(
        clt_tensor_init(&want[0], "conv1.weight", CLT_FILE_F32, 2, (int64_t[]){2, 1}, NULL),
        CLT_OK);
    assert_int_equal(clt_tensor_init(&want[1], "conv1.bias", CLT_FILE_F16, 1, (int64_t[]){2}, NULL),
                     CLT_OK);
    assert_int_equal(clt_tensor_init(&want[2], "fc.bias", CLT_FILE_F32, 1, (int64_t[]){10}, NULL),
                     CLT_OK);
    assert_int_equal(clt_tensors_match(file, want, 2, CLT_MATCH_EXACT), CLT_OK);
    assert_int_equal(clt_tensors_match(file, want, 3, CLT_MATCH_EXTRA), CLT_MISMATCH);
    assert_message_has("tensor fc.bias, F32 [10] in the model, is not in the file");
    assert_int_equal(clt_tensors_match(file, want, 1, CLT_MATCH_EXTRA), CLT_OK);
    assert_int_equal(clt_tensors_match(file, want, 1, CLT_MATCH_EXACT), CLT_MISMATCH);
    assert_message_has("tensor conv1.bias, F16 [2], is not part of the model");
    assert_int_equal(clt_tensors_match(file, NULL, 0, CLT_MATCH_EXACT), CLT_MISMATCH);
    want[1].dtype = CLT_FILE_F32;
    assert_int_equal(clt_tensors_match(file, want, 2, CLT_MATCH_FLOATS), CLT_OK);
    assert_int_equal(clt_tensors_match(file, want, 2, CLT_MATCH_EXACT), CLT_MISMATCH);
    want[1].dtype = CLT_FILE_I32;
    assert_int_equal(clt_tensors_match(file, want, 2, CLT_MATCH_FLOATS), CLT_MISMATCH);
    want[0].dims[1] = 3;
    assert_int_equal(clt_tensors_match(file, want, 2, CLT_MATCH_EXACT), CLT_MISMATCH);
    assert_message_has("tensor conv1.weight is F32 [2, 1] in the file and F32 [2, 3] in the model");
    want[1].dtype = CLT_FILE_F16;
    want[0].dims[1] = 1;
    want[0].rank = 1;
    assert_int_equal(clt_tensors_match(file, want, 2, CLT_MATCH_EXACT), CLT_MISMATCH);
    clt_tensors_close(file);
}

static void other_floats_become_f32(void **state)
{
    (void)state;
    uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x8001, 0x03ff, 0x7bff, 0x7c00, 0xfc00, 0};
    const float half_want[] = {1,     -2,       0x1p-24f,  -0x1p-24f, 0x1.ff8p-15f,
                               65504, INFINITY, -INFINITY, 0};
    const uint16_t brain[] = {0x3f80, 0xc000, 0xff80};
    const double wide[] = {1.0 / 3, 1e300};
    clt_tensor t;
    float out[9];
    assert_int_equal(clt_tensor_init(&t, "h", CLT_FILE_F16, 1, (int64_t[]){9}, half), CLT_OK);
    assert_int_equal(clt_tensor_to_f32(&t, 9, out), CLT_OK);
    for (int i = 0; i < 9; i++)
        assert_true(out[i] == half_want[i]);
    half[0] = 0x7e01;
    assert_int_equal(clt_tensor_to_f32(&t, 9, out), CLT_OK);
    assert_true(isnan(out[0]));
    assert_int_equal(clt_tensor_to_f32(&t, 8, out), CLT_SHAPE);
    assert_int_equal(clt_tensor_init(&t, "b", CLT_FILE_BF16, 1, (int64_t[]){3}, brain), CLT_OK);
    assert_int_equal(clt_tensor_to_f32(&t, 3, out), CLT_OK);
    assert_true(out[0] == 1 && out[1] == -2 && out[2] == -INFINITY);
    assert_int_equal(clt_tensor_init(&t, "d", CLT_FILE_F64, 1, (int64_t[]){2}, wide), CLT_OK);
    assert_int_equal(clt_tensor_to_f32(&t, 2, out), CLT_OK);
    assert_true(out[0] == 1.0f / 3 && out[1] == INFINITY);
    t.dtype = CLT_FILE_I64;
    assert_int_equal(clt_tensor_to_f32(&t, 2, out), CLT_UNSUPPORTED);
}

static void integers_become_i32_where_they_fit(void **state)
{
    (void)state;
    const int64_t good[] = {7, INT32_MIN, INT32_MAX}, narrow_dims = 3;
    const int32_t narrow[] = {-1, 2, 3};
    clt_tensor wide, want, t;
    int32_t out[3];
    assert_int_equal(clt_tensor_init(&wide, "n", CLT_FILE_I64, 1, &narrow_dims, good), CLT_OK);
    assert_int_equal(clt_tensor_init(&want, "n", CLT_FILE_I32, 1, &narrow_dims, NULL), CLT_OK);
    assert_int_equal(clt_tensor_to_i32(&wide, 3, out), CLT_OK);
    assert_true(out[0] == 7 && out[1] == INT32_MIN && out[2] == INT32_MAX);
    assert_int_equal(clt_tensor_to_i32(&wide, 2, out), CLT_SHAPE);
    assert_int_equal(clt_tensor_init(&t, "n", CLT_FILE_I32, 1, &narrow_dims, narrow), CLT_OK);
    assert_int_equal(clt_tensor_to_i32(&t, 3, out), CLT_OK);
    assert_memory_equal(out, narrow, sizeof narrow);
    t.dtype = CLT_FILE_F32;
    assert_int_equal(clt_tensor_to_i32(&t, 3, out), CLT_UNSUPPORTED);

    const struct {
        int64_t last;
        clt_status status;
    } files[] = {{INT32_MAX, CLT_OK},
                 {(int64_t)INT32_MAX + 1, CLT_MISMATCH},
                 {(int64_t)INT32_MIN - 1, CLT_MISMATCH}};
    for (int i = 0; i < 3; i++) {
        const char *path = in_scratch("integers.safetensors");
        const int64_t values[] = {0, 1, files[i].last};
        clt_tensors_desc desc;
        clt_tensors *file;
        clt_tensors_desc_init(&desc);
        wide.data = values;
        desc.tensors = &wide;
        desc.count = 1;
        assert_int_equal(clt_tensors_save(path, &desc), CLT_OK);
        assert_int_equal(clt_tensors_open(path, &file), CLT_OK);
        assert_int_equal(clt_tensors_match(file, &want, 1, CLT_MATCH_INTEGERS), files[i].status);
        if (files[i].status != CLT_OK) {
            assert_message_has("integers.safetensors: tensor n, I64 [3]: element 2 is");
            assert_message_has("which I32 cannot hold");
            assert_int_equal(clt_tensor_to_i32(&wide, 3, out), CLT_MISMATCH);
        }
        assert_int_equal(clt_tensors_match(file, &want, 1, CLT_MATCH_FLOATS), CLT_MISMATCH);
        assert_message_has("is I64 [3] in the file and I32 [3] in the model");
        clt_tensors_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_comes_back),
        cmocka_unit_test(scalars_empty_tensors_and_empty_files_are_legal),
        cmocka_unit_test(files_of_pytorch_are_told_how_to_be_converted),
        cmocka_unit_test(files_of_the_reference_implementation_are_read),
        cmocka_unit_test(unaligned_tensors_are_copied),
        cmocka_unit_test(lists_that_cannot_be_written_are_refused),
        cmocka_unit_test(data_can_be_fetched_tensor_by_tensor),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(another_model_is_named_with_both_shapes),
        cmocka_unit_test(other_floats_become_f32),
        cmocka_unit_test(integers_become_i32_where_they_fit),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
