/* Rotary position embedding against rotations computed in double. */
#include "ops/harness/harness.h"

typedef struct rotary_case {
    double base;
    int halves;
    int64_t size, heads, offset;
} rotary_case;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const rotary_case *attr = c->attr;
    clt_rotary_options o;
    clt_rotary_options_init(&o);
    if (attr->base > 0)
        o.base = attr->base;
    o.halves = attr->halves;
    o.size = attr->size;
    o.heads = attr->heads;
    o.offset = attr->offset;
    o.offset_value = in[1];
    out[0] = clt_rotary(in[0], &o);
}

/* Rotates x by `sign` times the angles. An angle of a radians has an error of about eps * (1 +
 * a). */
static void turn(const op_case *c, int64_t n, double *const *operands, const double *x, double *y,
                 double *bound, double sign)
{
    const rotary_case *attr = c->attr;
    const int rank = c->in[0].rank;
    const int64_t T = c->in[0].dims[rank - 2], width = c->in[0].dims[rank - 1];
    const int64_t size = attr->size ? attr->size : width, pairs = size / 2;
    const int64_t heads = attr->heads ? attr->heads : width / size;
    const int64_t first = c->n_in > 1 ? (int64_t)operands[1][0] : attr->offset;
    for (int64_t part = 0; part < op_count(c, 0, n) / size; part++)
        for (int64_t i = 0; i < pairs; i++) {
            const int64_t row = part / (width / size), at = part * size;
            const int64_t a = at + (attr->halves ? i : 2 * i);
            const int64_t b = at + (attr->halves ? i + pairs : 2 * i + 1);
            const bool turned = part % (width / size) < heads;
            const double base = attr->base > 0 ? attr->base : 10000;
            const double angle =
                turned ? (double)(first + row % T) * pow(base, -2.0 * (double)i / (double)size) : 0;
            const double cosine = cos(angle), sine = sign * sin(angle);
            y[a] = x[a] * cosine - x[b] * sine;
            y[b] = x[a] * sine + x[b] * cosine;
            if (bound)
                bound[a] = bound[b] = turned ? (fabs(x[a]) + fabs(x[b])) * (2 + 2 * angle) : 0;
        }
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    turn(c, n, x, x[0], y[0], bound ? bound[0] : NULL, 1);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    turn(c, n, x, dy[0], dx[0], bound[0], -1);
}

static op_test test = {"rotary", 1, 0, build, forward, backward, 0};

static void test_shapes(void **state)
{
    (void)state;
    static const double position[] = {9};
#define CASE(name, H, T, D, ...)                                                                   \
    {                                                                                              \
        .text = name, .n_in = 1, .batch = 3,                                                       \
        .in = {{CLT_F32, 4, {CLT_BATCH, H, T, D}, .gradient = true}}, .attr = &(const rotary_case) \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    op_case cases[] = {
        CASE("neighbours", 2, 5, 16, .halves = 0),
        CASE("halves", 2, 5, 32, .halves = 1),
        CASE("odd neighbours", 1, 11, 26, .base = 500, .offset = 100),
        CASE("odd halves", 1, 11, 26, .halves = 1, .offset = 3),
        CASE("one pair", 3, 1, 2, .offset = 1),
        CASE("rows of heads", 1, 7, 60, .size = 20, .halves = 1),
        CASE("packed rows", 1, 9, 96, .size = 16, .heads = 4),
        CASE("the device's offset", 2, 6, 18, .halves = 0),
    };
    cases[7].n_in = 2;
    cases[7].in[1] = (op_operand){CLT_I32, 1, {1}, .set = position};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        op_check(&test, &cases[i], true);
    op_report(&test);
}

static void fails(const clt_rotary_options *o, clt_dtype dtype, int rank, const int64_t *dims,
                  clt_status status, const char *words)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    assert_null(clt_rotary(clt_input(g, "x", dtype, rank, dims), o));
    assert_int_equal(clt_graph_status(g), status);
    if (!strstr(clt_error_message(), words))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), words);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    const int64_t dims[] = {CLT_BATCH, 5, 24}, odd[] = {5, 7};
    clt_rotary_options o;
    clt_rotary_options_init(&o);
    fails(&o, CLT_I32, 3, dims, CLT_INVALID_ARGUMENT, "must be f32");
    fails(&o, CLT_F32, 1, odd, CLT_SHAPE, "has no rows");
    fails(&o, CLT_F32, 2, odd, CLT_SHAPE, "7 elements, an even number");
    fails(&o, CLT_F32, 2, dims, CLT_SHAPE, "may depend on the batch");
    o.size = 10;
    fails(&o, CLT_F32, 3, dims, CLT_SHAPE, "parts of 10 elements");
    o.size = 8;
    o.heads = 4;
    fails(&o, CLT_F32, 3, dims, CLT_SHAPE, "no 4 parts of 8");
    o.heads = 0;
    o.base = 0;
    fails(&o, CLT_F32, 3, dims, CLT_INVALID_ARGUMENT, "base is 0; it must be a number above 0");
    o.base = 10;
    o.offset = -1;
    fails(&o, CLT_F32, 3, dims, CLT_INVALID_ARGUMENT, "offset is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
