/* split_with_sizes, chunk and stack, which only place elements, with their gradients. */
#include "ops/harness/harness.h"

/* A case's attribute. x is [batch, about 6, inner], split along `axis` into `count` parts of these
 * sizes (all zero: chunk). The results are joined in reverse order, without part `without`. */
typedef struct cut {
    int axis, count, without;
    int64_t sizes[8];
} cut;

enum { MOST = 8 };

static int64_t size_of(const op_case *c, const cut *p, int part)
{
    return p->sizes[0] ? p->sizes[part] : op_dim(c, 0, p->axis, 1) / p->count;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const cut *p = c->attr;
    clt_value *got[MOST], *joined[MOST];
    int n = 0;
    if (p->sizes[0])
        OP_OK(clt_split_with_sizes(in[0], p->sizes, p->count, p->axis - c->in[0].rank, got));
    else
        OP_OK(clt_chunk(in[0], p->count, p->axis, got));
    for (int i = p->count - 1; i >= 0; i--)
        if (i != p->without)
            joined[n++] = clt_scale(got[i], i + 1);
    out[0] = n > 1 ? clt_concat(joined, n, p->axis) : joined[0];
}

/* Returns the place of element `at` of x in the result, -1: nowhere. Sets *times to its factor. */
static int64_t target(const op_case *c, int64_t at, int64_t n, double *times)
{
    const cut *p = c->attr;
    int64_t inner = 1, all = 0, start = 0, before = 0;
    int part = 0;
    for (int k = p->axis + 1; k < c->in[0].rank; k++)
        inner *= op_dim(c, 0, k, n);
    const int64_t dim = op_dim(c, 0, p->axis, n), row = at / inner / dim;
    int64_t place = at / inner % dim;
    while (place >= start + size_of(c, p, part))
        start += size_of(c, p, part++);
    for (int i = 0; i < p->count; i++) {
        all += i == p->without ? 0 : size_of(c, p, i);
        before += i > part && i != p->without ? size_of(c, p, i) : 0;
    }
    *times = part + 1;
    return part == p->without ? -1 : (row * all + before + place - start) * inner + at % inner;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        double times;
        const int64_t to = target(c, i, n, &times);
        if (to < 0)
            continue;
        y[0][to] = times * x[0][i];
        if (bound)
            bound[0][to] = fabs(y[0][to]);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    (void)x;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        double times;
        const int64_t to = target(c, i, n, &times);
        dx[0][i] = to < 0 ? 0 : times * dy[0][to];
        bound[0][i] = fabs(dx[0][i]);
    }
}

static void test_split(void **state)
{
    static const struct {
        int rank;
        int64_t dims[4], batch;
        cut p;
    } cases[] = {
        {3, {CLT_BATCH, 5, 12}, 3, {2, 3, -1, {0}}},
        {3, {CLT_BATCH, 7, 33}, 5, {1, 2, -1, {2, 5}}},
        {2, {CLT_BATCH, 16}, 3, {1, 4, -1, {0}}},
        {4, {CLT_BATCH, 2, 9, 3}, 2, {2, 3, 1, {4, 1, 4}}},
        {2, {CLT_BATCH, 12}, 4, {1, 6, -1, {0}}},
        {2, {10, 3}, 1, {0, 4, -1, {1, 2, 3, 4}}},
        {2, {6, 5}, 1, {1, 1, -1, {0}}},
    };
    op_test t = {
        .op = "split", .n_out = 1, .build = build, .forward = forward, .backward = backward};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[OP_TEXT];
        op_case c = {.text = text,
                     .n_in = 1,
                     .in = {{.dtype = CLT_F32, .rank = cases[i].rank, .gradient = true}},
                     .batch = cases[i].batch,
                     .attr = &cases[i].p};
        snprintf(text, sizeof text, "case %d", (int)i);
        memcpy(c.in[0].dims, cases[i].dims, sizeof cases[i].dims);
        if (!clt_test_oclgrind() || i < 2)
            op_check(&t, &c, i < 4);
    }
    op_report(&t);
}

/* The gradient of a split of which all parts are used is one concat, without zeros. */
static void test_gradient(void **state)
{
    static const cut p = {1, 3, -1, {0}};
    op_test t = {
        .op = "split", .n_out = 1, .build = build, .forward = forward, .backward = backward};
    const op_case c = {.text = "gradient",
                       .n_in = 1,
                       .in = {{CLT_F32, 2, {CLT_BATCH, 6}, OP_RANDOM, true, NULL}},
                       .batch = 3,
                       .attr = &p};
    op_bound b;
    (void)state;
    op_bind(&t, &c, &op_as_device, &b);
    assert_string_equal(clt_graph_find(b.plan->graph, "dx0")->producer->op->name, "concat");
    for (int i = 0; i < b.plan->n_nodes; i++)
        assert_string_not_equal(b.plan->nodes[i].node->op->name, "slice_grad");
    op_unbind(&b);
}

/* --- stack ---------------------------------------------------------------------------------- */

static void build_stack(const op_case *c, clt_value *const *in, clt_value **out)
{
    clt_value *many[40];
    const int axis = *(const int *)c->attr, count = c->classes;
    for (int i = 0; i < count; i++)
        many[i] = in[i % c->n_in];
    out[0] = clt_stack(many, count, axis);
}

static int64_t stacked(const op_case *c, int i, int64_t at, int64_t n)
{
    int axis = *(const int *)c->attr;
    int64_t inner = 1;
    axis += axis < 0 ? c->in[0].rank + 1 : 0;
    for (int k = axis; k < c->in[0].rank; k++)
        inner *= op_dim(c, 0, k, n);
    return (at / inner * c->classes + i) * inner + at % inner;
}

static void forward_stack(const op_case *c, int64_t n, double *const *x, double *const *y,
                          double *const *bound)
{
    (void)bound; /* exact */
    for (int i = 0; i < c->classes; i++)
        for (int64_t at = 0; at < op_count(c, 0, n); at++)
            y[0][stacked(c, i, at, n)] = x[i % c->n_in][at];
}

static void backward_stack(const op_case *c, int64_t n, double *const *x, double *const *dy,
                           double *const *dx, double *const *bound)
{
    (void)x;
    for (int i = 0; i < c->classes; i++)
        for (int64_t at = 0; at < op_count(c, 0, n); at++) {
            const double d = dy[0][stacked(c, i, at, n)];
            dx[i % c->n_in][at] += d;
            bound[i % c->n_in][at] += c->classes > c->n_in ? 4 * fabs(d) : 0;
        }
}

static void test_stack(void **state)
{
    static const int axes[] = {0, 1, 2, -1};
    op_test t = {.op = "stack",
                 .n_out = 1,
                 .build = build_stack,
                 .forward = forward_stack,
                 .backward = backward_stack};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int many = 0; many < 2; many++) {
            op_case c = {.text = many ? "many" : "few",
                         .n_in = 3,
                         .batch = 3,
                         .attr = &axes[i],
                         .classes = many ? 37 : 3};
            const bool batch = axes[i] != 0;
            if ((many && i != 1) || (clt_test_oclgrind() && i != 1))
                continue;
            for (int k = 0; k < 3; k++)
                c.in[k] =
                    (op_operand){CLT_F32, 2, {batch ? CLT_BATCH : 4, 5}, OP_RANDOM, true, NULL};
            op_check(&t, &c, true);
        }
    op_report(&t);
}

/* --- errors --------------------------------------------------------------------------------- */

static clt_graph *begin(clt_value **x)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 7});
    return g;
}

static void said(clt_graph *g, clt_status want, const char *message)
{
    assert_int_equal(clt_graph_status(g), want);
    if (!strstr(clt_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), message);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    clt_value *x, *parts[4] = {NULL};
    (void)state;
    clt_graph *g = begin(&x);
    assert_int_equal(clt_chunk(x, 2, 1, parts), CLT_SHAPE);
    said(g, CLT_SHAPE, "split: axis 1 of f32[Bx7] does not divide into 2 parts");
    g = begin(&x);
    assert_int_equal(clt_chunk(x, 2, 0, parts), CLT_SHAPE);
    said(g, CLT_SHAPE, "split: axis 0 of f32[Bx7] depends on the batch");
    g = begin(&x);
    assert_int_equal(clt_chunk(x, 2, 2, parts), CLT_SHAPE);
    said(g, CLT_SHAPE, "split: f32[Bx7] has no axis 2");
    g = begin(&x);
    assert_int_equal(clt_split_with_sizes(x, (int64_t[]){3, 3}, 2, 1, parts), CLT_SHAPE);
    said(g, CLT_SHAPE, "split: the parts have 6 elements of axis 1 of f32[Bx7]");
    assert_null(parts[0]);
    g = begin(&x);
    assert_int_equal(clt_split_with_sizes(x, (int64_t[]){8, -1}, 2, 1, parts), CLT_SHAPE);
    said(g, CLT_SHAPE, "split: part 0 has 8 elements of axis 1");
    g = begin(&x);
    parts[0] = x;
    parts[1] = clt_input(g, "y", CLT_F32, 2, (int64_t[]){CLT_BATCH, 6});
    assert_null(clt_stack(parts, 2, 0));
    said(g, CLT_SHAPE, "stack: value 1, f32[Bx6], differs from f32[Bx7]");
    g = begin(&x);
    parts[0] = parts[1] = x;
    assert_null(clt_stack(parts, 2, 3));
    said(g, CLT_SHAPE,
         "stack: axis 3 is not one of the result's, which has one more than f32[Bx7]");
    g = begin(&x);
    parts[0] = x;
    parts[1] = NULL;
    assert_null(clt_stack(parts, 2, 1));
    said(g, CLT_INVALID_ARGUMENT, "stack: value 1 is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_stack),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
