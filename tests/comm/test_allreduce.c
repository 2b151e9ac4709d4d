/* All-reduce and broadcast between devices of a process: values, bits, order and options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <math.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "comm/fixture.h"

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* Returns element i of device d in round r. It has few bits, so sums are exact. */
static int value(int r, int d, int64_t i)
{
    return (int)((i * 7 + d * 1003 + r * 31) % 2001) - 1000;
}

static void put(clt_dtype dtype, void *x, int64_t i, int v)
{
    if (dtype == CLT_F32)
        ((float *)x)[i] = (float)v;
    else if (dtype == CLT_F64)
        ((double *)x)[i] = v;
    else
        ((int32_t *)x)[i] = v;
}

typedef struct setting {
    int devices;
    bool one_context, transfer_queues;
    clt_comm_path path;
    int threads;
    clt_dtype dtype;
    int64_t count, offset; /* elements; with an offset the buffer is larger */
    int empty;             /* this device has no data; -1 for none */
    bool apart;            /* the result has its own buffer */
} setting;

static void fill(const fixture *f, const setting *s, int r, int d, cl_mem mem, size_t elements)
{
    size_t size = (size_t)clt_dtype_size(s->dtype);
    char *x = malloc(elements * size);
    assert_non_null(x);
    for (int64_t i = 0; i < (int64_t)elements; i++)
        put(s->dtype, x, i, value(r, d, i - s->offset));
    /* The buffer of an empty device has signalling NaN, since it must not be read. */
    if (d == s->empty)
        memset(x, 0x7f, elements * size);
    FIXTURE_CL(
        clEnqueueWriteBuffer(f->queues[d], mem, CL_TRUE, 0, elements * size, x, 0, NULL, NULL));
    free(x);
}

static void check_sum(const fixture *f, const setting *s, int r, cl_mem *out, cl_event *arrived)
{
    size_t size = (size_t)clt_dtype_size(s->dtype), bytes = (size_t)s->count * size;
    char *want = malloc(bytes + 1), *got = malloc(bytes + 1);
    assert_true(want && got);
    for (int64_t i = 0; i < s->count; i++) {
        int sum = 0;
        for (int d = 0; d < s->devices; d++)
            sum += d == s->empty ? 0 : value(r, d, i);
        put(s->dtype, want, i, sum);
    }
    for (int d = 0; d < s->devices; d++) {
        if (bytes)
            FIXTURE_CL(clEnqueueReadBuffer(f->queues[d], out[d], CL_TRUE, (size_t)s->offset * size,
                                           bytes, got, 1, &arrived[d], NULL));
        assert_memory_equal(got, want, bytes);
    }
    free(want);
    free(got);
}

static void run_setting(const setting *s)
{
    fixture f;
    clt_comm *comm;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.path = s->path;
    options.threads = s->threads;
    fixture_open(&f, s->devices, s->one_context, s->transfer_queues);
    ok(fixture_comm(&f, &options, &comm));
    assert_int_equal(clt_comm_size(comm), s->devices);
    size_t elements = (size_t)(s->count + 2 * s->offset) + (s->count == 0);
    size_t bytes = elements * (size_t)clt_dtype_size(s->dtype);
    cl_mem mem[FIXTURE_MAX], out[FIXTURE_MAX];
    for (int d = 0; d < s->devices; d++) {
        mem[d] = fixture_buffer(&f, d, bytes);
        out[d] = s->apart ? fixture_buffer(&f, d, bytes) : mem[d];
    }
    for (int r = 0; r < 3; r++) {
        clt_comm_request *requests[FIXTURE_MAX];
        cl_event arrived[FIXTURE_MAX];
        for (int d = 0; d < s->devices; d++) {
            clt_comm_op op;
            cl_event written;
            fill(&f, s, r, d, mem[d], elements);
            FIXTURE_CL(clEnqueueMarkerWithWaitList(f.queues[d], 0, NULL, &written));
            clt_comm_op_init(&op);
            op.dtype = s->dtype;
            op.count = s->count;
            op.mem = mem[d];
            op.offset = s->offset;
            op.out = s->apart ? out[d] : NULL;
            op.out_offset = s->offset;
            op.flags = CLT_COMM_MEASURE + (d == s->empty ? CLT_COMM_EMPTY : 0);
            ok(clt_comm_start(comm, d, r, &op, 1, &written, &requests[d]));
            clReleaseEvent(written);
        }
        double squares = 0;
        for (int d = 0; d < s->devices; d++) {
            clt_comm_result result;
            clt_comm_result_init(&result);
            ok(clt_comm_complete(requests[d], d, &result, &arrived[d]));
            assert_true(result.finite);
            assert_int_equal(result.contributors, s->devices - (s->empty >= 0));
            if (d == 0)
                squares = result.sum_squares;
            assert_memory_equal(&squares, &result.sum_squares, sizeof squares);
        }
        check_sum(&f, s, r, out, arrived);
        double want = 0;
        for (int64_t i = 0; i < s->count; i++) {
            double sum = 0;
            for (int d = 0; d < s->devices; d++)
                sum += d == s->empty ? 0 : value(r, d, i);
            want += sum * sum; /* integers below 2^53: exact in any order */
        }
        assert_true(squares == want);
        for (int d = 0; d < s->devices; d++)
            clReleaseEvent(arrived[d]);
    }
    clt_comm_destroy(comm);
    for (int d = 0; d < s->devices; d++) {
        clReleaseMemObject(mem[d]);
        if (s->apart)
            clReleaseMemObject(out[d]);
    }
    fixture_close(&f);
}

static void sums_are_exact_on_every_path(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 2, 17, 4099, 16384, 16385, 1 << 20};
    const clt_dtype dtypes[] = {CLT_F32, CLT_F64, CLT_I32};
    for (int c = 0; c < 7; c++) {
        for (int path = CLT_COMM_PATH_AUTO; path <= CLT_COMM_PATH_STAGED; path++) {
            setting s = {2,          c % 2,
                         c % 3 == 0, (clt_comm_path)path,
                         1 + c % 2,  dtypes[(c + path) % 3],
                         counts[c],  0,
                         -1,         false};
            run_setting(&s);
        }
    }
}

static void other_numbers_of_devices_take_part(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 5; devices++) {
        for (int one = 0; one <= 1; one++) {
            for (int path = CLT_COMM_PATH_AUTO; path <= CLT_COMM_PATH_STAGED; path++) {
                setting s = {devices, one, one,  (clt_comm_path)path, 2, CLT_F32, 70001,
                             0,       -1,  false};
                run_setting(&s);
            }
        }
    }
}

static void parts_of_buffers_and_outputs_apart(void **state)
{
    (void)state;
    setting part = {2, false, false, CLT_COMM_PATH_AUTO, 1, CLT_F32, 1013, 37, -1, false};
    run_setting(&part);
    setting apart = {3, false, false, CLT_COMM_PATH_AUTO, 1, CLT_F64, 1013, 5, -1, true};
    run_setting(&apart);
}

static void an_empty_device_gets_the_sum_of_the_others(void **state)
{
    (void)state;
    for (int path = CLT_COMM_PATH_AUTO; path <= CLT_COMM_PATH_STAGED; path++) {
        for (int empty = 0; empty < 2; empty++) {
            setting s = {2 + empty, false, false, (clt_comm_path)path, 1, CLT_F32, 50021,
                         0,         empty, false};
            run_setting(&s);
        }
        setting alone = {1, false, false, (clt_comm_path)path, 1, CLT_F32, 129, 0, 0, false};
        run_setting(&alone);
    }
}

static void no_elements_are_legal(void **state)
{
    (void)state;
    setting s = {2, false, false, CLT_COMM_PATH_AUTO, 1, CLT_F32, 0, 0, -1, false};
    run_setting(&s);
}

/* Real numbers whose sum depends on the order. All devices, paths, thread counts and runs must give
 * the bits of ((x0 + x1) + x2) and the same sum of squares. */
static void bits_depend_on_nothing_but_the_data(void **state)
{
    (void)state;
    enum { N = 100003, DEVICES = 3 };
    fixture f;
    fixture_open(&f, DEVICES, false, false);
    float *x[DEVICES], *want = malloc(N * sizeof *want), *got = malloc(N * sizeof *got);
    cl_mem mem[DEVICES];
    uint32_t random = 12345;
    for (int d = 0; d < DEVICES; d++) {
        x[d] = malloc(N * sizeof(float));
        mem[d] = fixture_buffer(&f, d, N * sizeof(float));
        for (int i = 0; i < N; i++) {
            random = random * 1664525u + 1013904223u;
            x[d][i] = ldexpf((float)(int32_t)random, (int)(random % 40) - 50);
        }
    }
    for (int i = 0; i < N; i++) {
        volatile float sum = x[0][i] + x[1][i];
        want[i] = sum + x[2][i];
    }
    double squares = -1;
    for (int run = 0; run < 12; run++) {
        clt_comm *comm;
        clt_comm_options options;
        clt_comm_options_init(&options);
        options.path = run % 2 ? CLT_COMM_PATH_MAPPED : CLT_COMM_PATH_STAGED;
        options.threads = 1 + run % 3;
        ok(fixture_comm(&f, &options, &comm));
        clt_comm_request *requests[DEVICES];
        for (int k = 0; k < DEVICES; k++) {
            int d = (k + run) % DEVICES; /* devices arrive in different orders */
            FIXTURE_CL(clEnqueueWriteBuffer(f.queues[d], mem[d], CL_TRUE, 0, N * sizeof(float),
                                            x[d], 0, NULL, NULL));
            clt_comm_op op;
            clt_comm_op_init(&op);
            op.mem = mem[d];
            op.count = N;
            op.flags = CLT_COMM_MEASURE;
            ok(clt_comm_start(comm, d, -1, &op, 0, NULL, &requests[d]));
        }
        for (int d = 0; d < DEVICES; d++) {
            clt_comm_result result;
            clt_comm_result_init(&result);
            ok(clt_comm_complete(requests[d], d, &result, NULL));
            FIXTURE_CL(clEnqueueReadBuffer(f.queues[d], mem[d], CL_TRUE, 0, N * sizeof(float), got,
                                           0, NULL, NULL));
            assert_memory_equal(got, want, N * sizeof(float));
            if (squares < 0)
                squares = result.sum_squares;
            assert_memory_equal(&squares, &result.sum_squares, sizeof squares);
        }
        clt_comm_destroy(comm);
    }
    double want_squares = 0;
    for (int i = 0; i < N; i++)
        want_squares += (double)want[i] * want[i];
    assert_true(fabs(squares - want_squares) <= 1e-12 * want_squares);
    for (int d = 0; d < DEVICES; d++) {
        clReleaseMemObject(mem[d]);
        free(x[d]);
    }
    free(want);
    free(got);
    fixture_close(&f);
}

static void one_value(clt_dtype dtype, double bad, bool *finite, double *squares)
{
    fixture f;
    clt_comm *comm;
    fixture_open(&f, 2, false, false);
    ok(fixture_comm(&f, NULL, &comm));
    enum { N = 20011 };
    clt_comm_request *requests[2];
    cl_mem mem[2];
    for (int d = 0; d < 2; d++) {
        size_t size = (size_t)clt_dtype_size(dtype);
        mem[d] = fixture_buffer(&f, d, N * size);
        char *x = calloc(N, size);
        for (int64_t i = 0; i < N; i++)
            put(dtype, x, i, 1);
        if (d == 1 && dtype == CLT_F32)
            ((float *)x)[N - 2] = (float)bad;
        if (d == 1 && dtype == CLT_F64)
            ((double *)x)[N - 2] = bad;
        FIXTURE_CL(
            clEnqueueWriteBuffer(f.queues[d], mem[d], CL_TRUE, 0, N * size, x, 0, NULL, NULL));
        free(x);
        clt_comm_op op;
        clt_comm_op_init(&op);
        op.dtype = dtype;
        op.mem = mem[d];
        op.count = N;
        op.flags = CLT_COMM_MEASURE;
        ok(clt_comm_start(comm, d, -1, &op, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < 2; d++) {
        clt_comm_result result;
        clt_comm_result_init(&result);
        ok(clt_comm_complete(requests[d], d, &result, NULL));
        *finite = result.finite;
        *squares = result.sum_squares;
        FIXTURE_CL(clFinish(f.queues[d]));
        clReleaseMemObject(mem[d]);
    }
    clt_comm_destroy(comm);
    fixture_close(&f);
}

static void non_finite_sums_are_reported(void **state)
{
    (void)state;
    bool finite;
    double squares;
    one_value(CLT_F32, 1.0, &finite, &squares);
    assert_true(finite && squares == 4 * 20011.0);
    one_value(CLT_F32, NAN, &finite, &squares);
    assert_false(finite);
    one_value(CLT_F32, -INFINITY, &finite, &squares);
    assert_false(finite);
    one_value(CLT_F32, 3e38, &finite, &squares);
    assert_true(finite);
    one_value(CLT_F64, 1e300, &finite, &squares); /* finite, although its square is not */
    assert_true(finite);
    one_value(CLT_F64, NAN, &finite, &squares);
    assert_false(finite);
}

static void broadcast_copies_the_root(void **state)
{
    (void)state;
    enum { N = 70003 }; /* bytes; odd, and more than one piece */
    for (int root = 0; root < 3; root++) {
        fixture f;
        clt_comm *comm;
        clt_comm_options options;
        clt_comm_options_init(&options);
        options.path = root == 1 ? CLT_COMM_PATH_STAGED : CLT_COMM_PATH_AUTO;
        fixture_open(&f, 3, root == 2, false);
        ok(fixture_comm(&f, &options, &comm));
        static unsigned char x[3][N], got[N];
        cl_mem mem[3];
        clt_comm_request *requests[3];
        for (int d = 0; d < 3; d++) {
            for (int i = 0; i < N; i++)
                x[d][i] = (unsigned char)(i * (d + 3) + d);
            mem[d] = fixture_buffer(&f, d, N);
            FIXTURE_CL(
                clEnqueueWriteBuffer(f.queues[d], mem[d], CL_TRUE, 0, N, x[d], 0, NULL, NULL));
            clt_comm_op op;
            clt_comm_op_init(&op);
            op.kind = CLT_COMM_BROADCAST;
            op.dtype = CLT_U8;
            op.mem = mem[d];
            op.count = N;
            op.root = root;
            ok(clt_comm_start(comm, d, -1, &op, 0, NULL, &requests[d]));
        }
        for (int d = 0; d < 3; d++) {
            ok(clt_comm_complete(requests[d], d, NULL, NULL));
            FIXTURE_CL(clEnqueueReadBuffer(f.queues[d], mem[d], CL_TRUE, 0, N, got, 0, NULL, NULL));
            assert_memory_equal(got, x[root], N);
            clReleaseMemObject(mem[d]);
        }
        clt_comm_destroy(comm);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact_on_every_path),
        cmocka_unit_test(other_numbers_of_devices_take_part),
        cmocka_unit_test(parts_of_buffers_and_outputs_apart),
        cmocka_unit_test(an_empty_device_gets_the_sum_of_the_others),
        cmocka_unit_test(no_elements_are_legal),
        cmocka_unit_test(bits_depend_on_nothing_but_the_data),
        cmocka_unit_test(non_finite_sums_are_reported),
        cmocka_unit_test(broadcast_copies_the_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
