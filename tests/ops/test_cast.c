/* cast between all pairs of element types, bit for bit against the rules written out here. */
#include "ops/harness.h"

enum { WIDTH = 40 };

/* The pattern, without the sign, of the nearest number with `bits` fraction bits and exponents from
 * `least` on; ties go to even. */
static uint32_t pattern(double x, int bits, int least)
{
    x = fabs(x);
    int e = x > 0 ? ilogb(x) : least;
    if (e < least)
        e = least;
    return ((uint32_t)(e - least) << bits) + (uint32_t)rint(ldexp(x, bits - e));
}

static double from_pattern(uint32_t p, int bits, int least, uint32_t infinity)
{
    if (p >= infinity)
        return p == infinity ? INFINITY : NAN;
    const uint32_t fraction = p & ((1u << bits) - 1), e = p >> bits;
    return e ? ldexp((double)(fraction + (1u << bits)), (int)e - 1 + least - bits)
             : ldexp((double)fraction, least - bits);
}

static uint16_t to_half(double x)
{
    const uint32_t sign = signbit(x) ? 0x8000u : 0;
    if (isnan(x))
        return 0x7E00;
    return (uint16_t)(sign | (fabs(x) >= 65520 ? 0x7C00u : pattern(x, 10, -14)));
}

static double of_half(uint16_t h)
{
    const double x = from_pattern(h & 0x7FFFu, 10, -14, 0x7C00);
    return h & 0x8000 ? -x : x;
}

static uint16_t to_bf16(double x)
{
    const uint32_t sign = signbit(x) ? 0x8000u : 0;
    if (isnan(x))
        return 0x7FC0;
    const double limit = ldexp(2 - ldexp(1, -8), 127);
    return (uint16_t)(sign | (fabs(x) >= limit ? 0x7F80u : pattern(x, 7, -126)));
}

static double of_bf16(uint16_t b)
{
    const double x = from_pattern(b & 0x7FFFu, 7, -126, 0x7F80);
    return b & 0x8000 ? -x : x;
}

static int64_t clamped(double x, double least, double most)
{
    return isnan(x) ? 0 : (int64_t)trunc(fmin(fmax(x, least), most));
}

static double get(clt_dtype dtype, const void *array, int64_t i)
{
    switch (dtype) {
    case CLT_F16:
        return of_half(((const uint16_t *)array)[i]);
    case CLT_BF16:
        return of_bf16(((const uint16_t *)array)[i]);
    case CLT_I32:
        return ((const int32_t *)array)[i];
    case CLT_U8:
        return ((const uint8_t *)array)[i];
    case CLT_F64:
        return ((const double *)array)[i];
    default:
        return (double)((const float *)array)[i];
    }
}

static void put(clt_dtype dtype, void *array, int64_t i, double x, bool from_integer)
{
    switch (dtype) {
    case CLT_F16:
        ((uint16_t *)array)[i] = to_half((double)(float)x);
        break;
    case CLT_BF16:
        ((uint16_t *)array)[i] = to_bf16((double)(float)x);
        break;
    case CLT_I32:
        ((int32_t *)array)[i] = (int32_t)clamped(x, INT32_MIN, INT32_MAX);
        break;
    case CLT_U8:
        ((uint8_t *)array)[i] =
            (uint8_t)(from_integer ? (int64_t)x & 255 : clamped(x, 0, UINT8_MAX));
        break;
    case CLT_F64:
        ((double *)array)[i] = x;
        break;
    default:
        ((float *)array)[i] = (float)x;
    }
}

static const double numbers[] = {
    0,
    -0.0,
    1,
    -1,
    0.5,
    -1.5,
    2.5,
    254.5,
    255,
    256,
    300.75,
    -7.25,
    65504,
    65519,
    65520,
    1e6,
    -1e6,
    3e9,
    -3e9,
    1e38,
    6.1e-5,
    6e-5,
    5.96e-8,
    2.9e-8,
    3e-8,
    1e-30,
    1.0009765625,
    1.00048828125,
    1.00146484375,
    1.00390625,
    1.01171875,
    2147483520,
    -2147483648.0,
    16777217,
    123456789,
    INFINITY,
    NAN,
};

/* Rows of `width` elements; `batch`: else the rows are no batch of images. */
static void cast_one(clt_dtype from, clt_dtype to, int64_t n, bool as_gpu, int64_t width,
                     bool batch)
{
    const int64_t dims[] = {batch ? CLT_BATCH : n, width}, count = n * width;
    const bool from_integer = from == CLT_I32 || from == CLT_U8;
    const int bytes[] = {clt_dtype_size(from), clt_dtype_size(to)};
    char x[8 * 3 * WIDTH + 8], y[8 * 3 * WIDTH + 8];
    op_bound b = {0};
    OP_OK(clt_graph_create(&b.graph));
    clt_value *in = clt_input(b.graph, "x", from, 2, dims);
    clt_value *out = clt_cast(in, to);
    clt_output(from == to ? clt_copy(out) : out, "y");
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_EVALUATE, 3);
    options.separate = true;
    OP_OK(clt_buckets_create(b.graph, &sizes, &b.buckets));
    clt_caps caps = op_devices[0]->caps;
    if (as_gpu)
        caps.kind = CLT_KIND_GPU;
    OP_OK(clt_plan_create(b.graph, &b.buckets, &caps, NULL, &options, &b.plan));
    OP_OK(clt_replica_create(op_devices[0], &b.buckets, &b.replica));
    clt_arena_init(&b.arena, op_devices[0]);
    op_build_programs(b.plan);
    OP_OK(clt_exec_create(op_devices[0], b.plan, &b.replica, &b.arena, &b.exec));
    for (int64_t i = 0; i < count; i++)
        put(from, x, i, numbers[(size_t)i % (sizeof numbers / sizeof *numbers)], false);
    clt_view input = {0}, view;
    OP_OK(clt_device_buffer_create(op_devices[0], count ? count * bytes[0] : 1, CL_MEM_READ_WRITE,
                                   "an operand", &input.buffer));
    if (count)
        assert_int_equal(clEnqueueWriteBuffer(op_devices[0]->queue, input.buffer, CL_TRUE, 0,
                                              (size_t)(count * bytes[0]), x, 0, NULL, NULL),
                         CL_SUCCESS);
    const clt_run run = {.count = n, .inputs = &input};
    op_poison(&b);
    OP_OK(clt_exec_enqueue(b.exec, &run, 0, b.plan->n_nodes, 0, NULL));
    OP_OK(clt_device_finish(op_devices[0]));
    OP_OK(clt_exec_locate(b.exec, &run, clt_graph_find(b.plan->graph, "y"), &view));
    if (count)
        assert_int_equal(clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                             (size_t)view.offset, (size_t)(count * bytes[1]), y, 0,
                                             NULL, NULL),
                         CL_SUCCESS);
    for (int64_t i = 0; i < count; i++) {
        char want[8];
        put(to, want, 0, get(from, x, i), from_integer);
        const double got = get(to, y, i), number = get(to, want, 0);
        if (isnan(number) ? !isnan(got) : memcmp(y + i * bytes[1], want, (size_t)bytes[1]) != 0)
            fail_msg("%s to %s: %.17g became %.17g, not %.17g", clt_dtype_name(from),
                     clt_dtype_name(to), get(from, x, i), got, number);
    }
    clt_release_buffer(input.buffer);
    op_walked_plan(b.plan);
    op_unbind(&b);
}

static void test_pairs(void **state)
{
    static const clt_dtype types[] = {CLT_F32, CLT_F16, CLT_BF16, CLT_I32, CLT_U8, CLT_F64};
    const int n = op_devices[0]->caps.fp64 ? 6 : 5;
    (void)state;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            cast_one(types[i], types[j], 3, false, 37, true);
            /* A GPU's reads and writes are apart: each type once read and once written. */
            if (j != (i + 1) % n)
                continue;
            cast_one(types[i], types[j], 3, true, 37, true);
            cast_one(types[i], types[j], 3, true, 40, true);
            /* Two elements, or three, behind the last four. */
            cast_one(types[i], types[j], 3, true, 37 + i % 2, false);
        }
    cast_one(CLT_F32, CLT_F16, 0, false, 37, true);
    cast_one(CLT_F32, CLT_F16, 0, true, 40, true);
}

/* There and back: the gradient goes the same way. */
static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    out[0] = clt_cast(clt_cast(in[0], *(const clt_dtype *)c->attr), CLT_F32);
}

static double rounded(const op_case *c, double x)
{
    const clt_dtype dtype = *(const clt_dtype *)c->attr;
    return dtype == CLT_F16 ? of_half(to_half(x)) : of_bf16(to_bf16(x));
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    (void)bound;
    for (int64_t i = 0; i < op_count(c, 0, n); i++)
        y[0][i] = rounded(c, x[0][i]);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    (void)x;
    (void)bound;
    for (int64_t i = 0; i < op_count(c, 0, n); i++)
        dx[0][i] = rounded(c, dy[0][i]);
}

static void test_gradient(void **state)
{
    static const clt_dtype types[] = {CLT_F16, CLT_BF16};
    op_test t = {
        .op = "cast", .n_out = 1, .build = build, .forward = forward, .backward = backward};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const op_case c = {.text = "there and back",
                           .n_in = 1,
                           .in = {{CLT_F32, 2, {CLT_BATCH, 19}, OP_RANDOM, true, NULL}},
                           .batch = 4,
                           .attr = &types[i]};
        op_check(&t, &c, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
