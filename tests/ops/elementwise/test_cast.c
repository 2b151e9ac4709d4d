/* cast between all pairs of element types, compared bit by bit with the rules written here. */
#include "ops/harness/harness.h"

enum { WIDTH = 40 };

/* Returns the pattern, without the sign, of the nearest number with `bits` fraction bits and
 * exponents from `least` on. Ties go to even. */
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

/* A conversion of `n` rows of `width` elements. `batch`: the rows are images, and `most` is the
 * plan's batch. */
typedef struct cast_case {
    clt_dtype from, to;
    int64_t n, most, width;
    bool batch, as_gpu;
    const char *variants;
} cast_case;

static int64_t count_of(const cast_case *c)
{
    return c->n * c->width;
}

/* Converts `x` on the device. The caller frees the result. */
static char *convert(const cast_case *c, const void *x)
{
    const int64_t dims[] = {c->batch ? CLT_BATCH : c->n, c->width}, count = count_of(c);
    const int bytes[] = {clt_dtype_size(c->from), clt_dtype_size(c->to)};
    op_bound b = {0};
    OP_OK(clt_graph_create(&b.graph));
    clt_value *in = clt_input(b.graph, "x", c->from, 2, dims);
    clt_value *out = clt_cast(in, c->to);
    clt_output(c->from == c->to ? clt_copy(out) : out, "y");
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_EVALUATE, c->most);
    options.separate = true;
    options.variants = c->variants;
    OP_OK(clt_buckets_create(b.graph, &sizes, &b.buckets));
    clt_caps caps = op_devices[0]->caps;
    if (c->as_gpu)
        caps.kind = CLT_KIND_GPU;
    OP_OK(clt_plan_create(b.graph, &b.buckets, &caps, NULL, &options, &b.plan));
    OP_OK(clt_replica_create(op_devices[0], &b.buckets, &b.replica));
    clt_arena_init(&b.arena, op_devices[0]);
    op_build_programs(b.plan);
    OP_OK(clt_exec_create(op_devices[0], b.plan, &b.replica, &b.arena, &b.exec));
    clt_view input = {0}, view;
    OP_OK(clt_device_buffer_create(op_devices[0], count ? count * bytes[0] : 1, CL_MEM_READ_WRITE,
                                   "an operand", &input.buffer));
    if (count)
        assert_int_equal(clEnqueueWriteBuffer(op_devices[0]->queue, input.buffer, CL_TRUE, 0,
                                              (size_t)(count * bytes[0]), x, 0, NULL, NULL),
                         CL_SUCCESS);
    const clt_run run = {.count = c->n, .inputs = &input};
    op_poison(&b);
    OP_OK(clt_exec_enqueue(b.exec, &run, 0, b.plan->n_nodes, 0, NULL));
    OP_OK(clt_device_finish(op_devices[0]));
    OP_OK(clt_exec_locate(b.exec, &run, clt_graph_find(b.plan->graph, "y"), &view));
    char *y = calloc((size_t)count + 1, (size_t)bytes[1]);
    assert_non_null(y);
    if (count)
        assert_int_equal(clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                             (size_t)view.offset, (size_t)(count * bytes[1]), y, 0,
                                             NULL, NULL),
                         CL_SUCCESS);
    clt_release_buffer(input.buffer);
    op_record_compared(b.plan);
    op_unbind(&b);
    return y;
}

static void cast_numbers(const cast_case *c, const char *x)
{
    const bool from_integer = c->from == CLT_I32 || c->from == CLT_U8;
    const int size = clt_dtype_size(c->to);
    char *y = convert(c, x), want[8];
    for (int64_t i = 0; i < count_of(c); i++) {
        put(c->to, want, 0, get(c->from, x, i), from_integer);
        const double got = get(c->to, y, i), number = get(c->to, want, 0);
        if (isnan(number) ? !isnan(got) : memcmp(y + i * size, want, (size_t)size) != 0)
            fail_msg("%s to %s: %.17g became %.17g, not %.17g", clt_dtype_name(c->from),
                     clt_dtype_name(c->to), get(c->from, x, i), got, number);
    }
    free(y);
}

static void cast_one(clt_dtype from, clt_dtype to, int64_t n, bool as_gpu, int64_t width,
                     bool batch, const char *variants)
{
    const cast_case c = {from, to, n, 3, width, batch, as_gpu, variants};
    char x[8 * 3 * WIDTH + 8] = {0};
    for (int64_t i = 0; i < count_of(&c); i++)
        put(from, x, i, numbers[(size_t)i % (sizeof numbers / sizeof *numbers)], false);
    cast_numbers(&c, x);
}

static void test_pairs(void **state)
{
    static const clt_dtype types[] = {CLT_F32, CLT_F16, CLT_BF16, CLT_I32, CLT_U8, CLT_F64};
    const int n = op_devices[0]->caps.fp64 ? 6 : 5;
    (void)state;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            cast_one(types[i], types[j], 3, false, 37, true, NULL);
            cast_one(types[i], types[j], 3, false, 37, true, "cast=portable");
            /* A GPU's kernels read and write in separate steps, so each type is read once and
             * written once. */
            if (j != (i + 1) % n)
                continue;
            cast_one(types[i], types[j], 3, true, 37, true, NULL);
            cast_one(types[i], types[j], 3, true, 40, true, NULL);
            /* Two or three elements behind the last four. */
            cast_one(types[i], types[j], 3, true, 37 + i % 2, false, NULL);
        }
    cast_one(CLT_F32, CLT_F16, 0, false, 37, true, NULL);
    cast_one(CLT_F32, CLT_F16, 0, true, 40, true, NULL);
}

/* --- all 16-bit numbers, and 32-bit numbers near the points where they round ------------------ */

enum { PATTERNS = 65536, AROUND = 6 };

/* All numbers would take minutes on Oclgrind. */
static int pattern_step(void)
{
    return clt_test_oclgrind() ? 61 : 1;
}

/* Makes, for each 16-bit number: itself, the next f32 below and above, and those around the middle
 * to the next number; NaN with all payloads. */
static float *around(clt_dtype dtype)
{
    float *x = calloc((size_t)PATTERNS * AROUND, sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < PATTERNS / pattern_step(); i++) {
        const uint16_t bits = (uint16_t)(i * pattern_step()), after = (uint16_t)(bits + 1);
        float *to = x + (size_t)i * AROUND;
        const double own = get(dtype, &bits, 0), next = get(dtype, &after, 0);
        const double past = dtype == CLT_F16 ? 65536 : 0x1p127 * 2;
        const double end = isinf(next) ? copysign(past, own) : next;
        const float middle = (float)(own / 2 + end / 2);
        if (isnan(own) || isinf(own)) {
            for (int k = 0; k < AROUND; k++) {
                const uint32_t fraction = (bits & 0x7Fu) << 16 | (uint32_t)(k * 0x2aaa);
                const uint32_t wide = (bits & 0x8000u) << 16 | 0x7F800000u | fraction;
                memcpy(to + k, &wide, sizeof wide);
            }
            continue;
        }
        to[0] = (float)own;
        to[1] = nextafterf((float)own, -INFINITY);
        to[2] = nextafterf((float)own, INFINITY);
        to[3] = middle;
        to[4] = nextafterf(middle, -INFINITY);
        to[5] = nextafterf(middle, INFINITY);
    }
    return x;
}

static void cast_all(clt_dtype from, clt_dtype to, const void *x, int64_t count)
{
    cast_case c = {from, to, 1, 1, count, true, false, NULL};
    cast_numbers(&c, x);
    c.variants = "cast=portable";
    cast_numbers(&c, x);
}

static void test_all_numbers(void **state)
{
    static const clt_dtype small[] = {CLT_F16, CLT_BF16};
    static const clt_dtype types[] = {CLT_F32, CLT_F16, CLT_BF16, CLT_I32, CLT_U8, CLT_F64};
    uint16_t *x = calloc(PATTERNS, sizeof *x);
    (void)state;
    assert_non_null(x);
    const int64_t count = PATTERNS / pattern_step();
    for (int i = 0; i < count; i++)
        x[i] = (uint16_t)(i * pattern_step());
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < (op_devices[0]->caps.fp64 ? 6 : 5); j++)
            if (types[j] != small[i])
                cast_all(small[i], types[j], x, count);
        float *wide = around(small[i]);
        for (int j = 1; j < 5; j++)
            cast_all(CLT_F32, types[j], wide, count * AROUND);
        free(wide);
    }
    free(x);
}

/* Converts there and back. The gradient is converted in the same way. */
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
        cmocka_unit_test(test_all_numbers),
        cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
