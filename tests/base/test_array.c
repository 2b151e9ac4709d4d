/* Views of a caller's memory: checks, and copies against plain indexing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cltrain/array.h>

enum { MEMORY = 4096, CASES = 2000 };

static void assert_message_has(const char *part)
{
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" is not in the message: %s", part, clt_error_message());
}

static int below(int limit)
{
    return rand() % limit;
}

/* Gives the array strides of its own: its dimensions lie in a random order in memory, with gaps,
 * and some backwards. Returns the bytes that it needs. */
static int64_t lay_out(clt_array *a)
{
    int order[CLT_MAX_RANK];
    int64_t stride = clt_dtype_size(a->dtype) + below(3);
    a->offset = below(9);
    for (int d = 0; d < a->rank; d++) {
        const int other = below(d + 1);
        order[d] = order[other];
        order[other] = d;
    }
    for (int i = 0; i < a->rank; i++) {
        const int d = order[i];
        a->strides[d] = stride;
        stride = stride * a->shape[d] + below(3);
        if (below(4) == 0) {
            a->offset += a->strides[d] * (a->shape[d] - 1);
            a->strides[d] = -a->strides[d];
        }
    }
    return stride + 9;
}

static int64_t place_of(const clt_array *a, int64_t element)
{
    int64_t at = a->offset;
    for (int d = a->rank - 1; d >= 0; d--) {
        at += element % a->shape[d] * a->strides[d];
        element /= a->shape[d];
    }
    return at;
}

static double load(const clt_array *a, int64_t element)
{
    const char *at = (const char *)a->host + place_of(a, element);
    float f;
    double d;
    int32_t i;
    int64_t l;
    switch (a->dtype) {
    case CLT_F32:
        return memcpy(&f, at, sizeof f), (double)f;
    case CLT_F64:
        return memcpy(&d, at, sizeof d), d;
    case CLT_I32:
        return memcpy(&i, at, sizeof i), (double)i;
    case CLT_I64:
        return memcpy(&l, at, sizeof l), (double)l;
    default:
        return *(const unsigned char *)at;
    }
}

static void store(const clt_array *a, int64_t element, double value)
{
    char *at = (char *)a->host + place_of(a, element);
    const float f = (float)value;
    const int32_t i = (int32_t)value;
    const int64_t l = (int64_t)value;
    const unsigned char u = (unsigned char)(int)value;
    switch (a->dtype) {
    case CLT_F32:
        memcpy(at, &f, sizeof f);
        break;
    case CLT_F64:
        memcpy(at, &value, sizeof value);
        break;
    case CLT_I32:
        memcpy(at, &i, sizeof i);
        break;
    case CLT_I64:
        memcpy(at, &l, sizeof l);
        break;
    default:
        memcpy(at, &u, 1);
    }
}

/* Random shapes and strides: each element is copied, and no byte between elements changes. */
static void copies_walk_over_any_strides(void **state)
{
    static const clt_dtype types[][2] = {{CLT_F32, CLT_F32}, {CLT_F64, CLT_F32}, {CLT_F32, CLT_F64},
                                         {CLT_I64, CLT_I32}, {CLT_I32, CLT_I64}, {CLT_U8, CLT_U8},
                                         {CLT_F64, CLT_F64}};
    static char source[MEMORY], target[MEMORY], before[MEMORY];
    (void)state;
    srand(1);
    int tried = 0;
    while (tried < CASES) {
        const int type = below(7);
        clt_array from = {.host = source, .bytes = MEMORY, .dtype = types[type][0]}, to;
        from.rank = below(5);
        int64_t elements = 1;
        for (int d = 0; d < from.rank; d++)
            elements *= from.shape[d] = 1 + below(5);
        to = from;
        to.host = target;
        to.dtype = types[type][1];
        if (lay_out(&from) > MEMORY || lay_out(&to) > MEMORY)
            continue;
        tried++;
        for (int i = 0; i < MEMORY; i++)
            target[i] = (char)below(256);
        memcpy(before, target, sizeof before);
        for (int64_t e = 0; e < elements; e++)
            store(&from, e, below(100) + 0.125);
        assert_int_equal(clt_array_copy(&from, &to), CLT_OK);
        for (int64_t e = 0; e < elements; e++) {
            assert_true(load(&to, e) == load(&from, e));
            const int64_t at = place_of(&to, e);
            memcpy(before + at, target + at, (size_t)clt_dtype_size(to.dtype));
        }
        assert_memory_equal(before, target, MEMORY);
    }
}

static void integers_that_do_not_fit_are_named(void **state)
{
    (void)state;
    const int64_t shape[] = {2, 3}, values[] = {1, INT32_MAX, INT32_MIN, 4, 1LL << 31, 6};
    int32_t out[6] = {0};
    clt_array from, to;
    assert_int_equal(clt_array_of(&from, values, CLT_I64, 2, shape), CLT_OK);
    assert_int_equal(clt_array_of(&to, out, CLT_I32, 2, shape), CLT_OK);
    assert_int_equal(clt_array_copy(&from, &to), CLT_INVALID_ARGUMENT);
    assert_message_has("element 4 (counted row-major) does not fit in 32 bits");
    assert_int_equal(out[1], INT32_MAX);
    assert_int_equal(out[2], INT32_MIN);
    assert_int_equal(out[5], 0);
}

static void refuse(clt_array a, const char *message)
{
    assert_int_equal(clt_array_check(&a, "feed x"), CLT_INVALID_ARGUMENT);
    assert_message_has(message);
}

/* Checks an initializer against the call for any shape. */
static void matrices(void **state)
{
    (void)state;
    double x[6] = {0};
    const int64_t shape[] = {2, 3};
    const clt_array made[] = {CLT_MATRIX(x, CLT_F64, 2, 3), CLT_MATRIX(x, CLT_I64, 2, 3),
                              CLT_MATRIX(x, CLT_F32, 2, 3), CLT_MATRIX(x, CLT_I32, 2, 3)};
    for (int i = 0; i < 4; i++) {
        clt_array want;
        assert_int_equal(clt_array_of(&want, x, made[i].dtype, 2, shape), CLT_OK);
        want.bytes = 0; /* not known */
        assert_memory_equal(&made[i], &want, sizeof want);
    }
}

static void wrong_views_are_refused(void **state)
{
    (void)state;
    float x[6] = {0};
    double y[6] = {0};
    struct _cl_mem *const buffer = (struct _cl_mem *)(void *)x; /* is not looked at */
    const int64_t shape[] = {2, 3}, turned[] = {3, 2};
    clt_array a, b, good;
    assert_int_equal(clt_array_of(&good, x, CLT_F32, 2, shape), CLT_OK);
    assert_int_equal(good.bytes, sizeof x);
    assert_int_equal(clt_array_elements(&good), 6);
    assert_true(clt_array_is_dense(&good));
    assert_int_equal(clt_array_check(&good, "feed x"), CLT_OK);

    a = good, a.bytes = 20;
    refuse(a, "feed x has elements in bytes 0 to 23 of a memory of 20 bytes");
    a = good, a.offset = 4;
    refuse(a, "feed x has elements in bytes 4 to 27 of a memory of 24 bytes");
    a = good, a.strides[0] = -12;
    refuse(a, "feed x has elements in bytes -12 to 11 of a memory of 24 bytes");
    a.offset = 12;
    assert_int_equal(clt_array_check(&a, "feed x"), CLT_OK);
    a = good, a.strides[0] = INT64_MAX / 2, a.shape[0] = 5;
    refuse(a, "feed x: its strides leave the address space");
    a = good, a.shape[1] = -1;
    refuse(a, "feed x has size -1 in dimension 1");
    a = good, a.shape[0] = INT64_MAX / 2, a.strides[0] = 0;
    refuse(a, "the bytes fit in 63 bits");
    a = good, a.rank = 9;
    refuse(a, "feed x has rank 9, which is not in 0 to 8");
    a = good, a.dtype = (clt_dtype)17;
    refuse(a, "feed x has the unknown element type 17");
    a = good, a.host = NULL;
    refuse(a, "feed x has neither host nor buffer");
    a = good, a.buffer = buffer;
    refuse(a, "feed x has host and buffer: set one of them");
    a = good, a.host = NULL, a.buffer = buffer, a.strides[0] = 16, a.bytes = 0;
    refuse(a, "elements of a buffer must be row-major without gaps");

    assert_int_equal(clt_array_of(&a, NULL, CLT_F32, 2, shape), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_array_of(&a, x, CLT_F32, 2, NULL), CLT_INVALID_ARGUMENT);
    assert_message_has("the array has rank 2, and its shape is NULL");
    assert_int_equal(clt_array_of_buffer(&a, buffer, -4, CLT_F32, 2, shape), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_array_of(&b, y, CLT_F64, 2, turned), CLT_OK);
    assert_int_equal(clt_array_copy(&good, &b), CLT_INVALID_ARGUMENT);
    assert_message_has("the source is f32 [2, 3], and must be f64 [3, 2]");
    assert_int_equal(clt_array_of(&b, y, CLT_I32, 2, shape), CLT_OK);
    assert_int_equal(clt_array_copy(&good, &b), CLT_INVALID_ARGUMENT);
    a = (clt_array)CLT_HOST(x);
    assert_int_equal(clt_array_copy(&a, &good), CLT_INVALID_ARGUMENT);
}

static void arrays_without_elements_are_legal(void **state)
{
    (void)state;
    float x = 5;
    const int64_t none[] = {0, 3};
    clt_array a, b;
    assert_int_equal(clt_array_of(&a, NULL, CLT_F32, 2, none), CLT_OK);
    assert_int_equal(clt_array_check(&a, "x"), CLT_OK);
    assert_int_equal(clt_array_of(&a, &x, CLT_F32, 2, none), CLT_OK);
    assert_int_equal(clt_array_of(&b, &x, CLT_F32, 2, none), CLT_OK);
    assert_int_equal(clt_array_check(&a, "x"), CLT_OK);
    assert_int_equal(clt_array_copy(&a, &b), CLT_OK);
    assert_true(clt_array_is_dense(&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices),
        cmocka_unit_test(copies_walk_over_any_strides),
        cmocka_unit_test(integers_that_do_not_fit_are_named),
        cmocka_unit_test(wrong_views_are_refused),
        cmocka_unit_test(arrays_without_elements_are_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
