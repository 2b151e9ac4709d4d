/* reshape, transpose, concat, slice and pad, which only place elements, with their gradients, such
 * as concat_part and slice_grad. */
#include "ops/harness/golden.h"

typedef enum kind { RESHAPE, TRANSPOSE, CONCAT, SLICE, PAD } kind;

static const char *const names[] = {"reshape", "transpose", "concat", "slice", "pad"};

/* A case's attribute. */
typedef struct place {
    kind kind;
    int permutation[8], axis, rank;
    int64_t dims[8];                    /* RESHAPE */
    int64_t start[8], stop[8], step[8]; /* SLICE */
    int64_t before[8], after[8];        /* PAD */
    double value;
} place;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const place *p = c->attr;
    switch (p->kind) {
    case RESHAPE:
        out[0] = clt_reshape(in[0], p->rank, p->dims);
        break;
    case TRANSPOSE:
        out[0] = clt_transpose(in[0], p->permutation);
        break;
    case CONCAT:
        out[0] = clt_concat(in, c->n_in, p->axis);
        break;
    case SLICE:
        out[0] = clt_slice(in[0], p->start, p->stop, p->step);
        break;
    case PAD:
        out[0] = clt_pad(in[0], p->before, p->after, p->value);
        break;
    }
}

/* Computes the coordinates of element `at` of operand i, and the reverse. */
static void coordinates(const op_case *c, int i, int64_t at, int64_t n, int64_t *index)
{
    for (int k = c->in[i].rank - 1; k >= 0; k--) {
        index[k] = at % op_dim(c, i, k, n);
        at /= op_dim(c, i, k, n);
    }
}

static int64_t flat(int rank, const int64_t *dims, const int64_t *index)
{
    int64_t at = 0;
    for (int k = 0; k < rank; k++)
        at = at * dims[k] + index[k];
    return at;
}

static int64_t slice_size(const place *p, int axis, int64_t dim)
{
    const int64_t start = p->start[axis] < 0 ? p->start[axis] + dim : p->start[axis];
    int64_t stop = p->stop[axis] < 0 ? p->stop[axis] + dim : p->stop[axis];
    if (stop > dim)
        stop = dim;
    return stop <= start ? 0 : (stop - start + p->step[axis] - 1) / p->step[axis];
}

/* Computes the dimensions of the result. */
static void result_dims(const op_case *c, int64_t n, int64_t *dims)
{
    const place *p = c->attr;
    for (int k = 0; k < c->in[0].rank; k++) {
        const int64_t dim = op_dim(c, 0, k, n);
        dims[k] = p->kind == TRANSPOSE ? op_dim(c, 0, p->permutation[k], n)
                  : p->kind == SLICE   ? slice_size(p, k, dim)
                  : p->kind == PAD     ? dim + p->before[k] + p->after[k]
                                       : dim;
    }
    for (int i = 1; p->kind == CONCAT && i < c->n_in; i++)
        dims[p->axis] += op_dim(c, i, p->axis, n);
}

/* Returns the place of element `at` of operand i in the result; -1: nowhere. */
static int64_t target(const op_case *c, int i, int64_t at, int64_t n)
{
    const place *p = c->attr;
    int64_t from[8], to[8], dims[8];
    if (p->kind == RESHAPE)
        return at;
    coordinates(c, i, at, n, from);
    result_dims(c, n, dims);
    for (int k = 0; k < c->in[i].rank; k++) {
        to[k] = from[k];
        if (p->kind == TRANSPOSE) {
            to[k] = from[p->permutation[k]];
        } else if (p->kind == PAD) {
            to[k] += p->before[k];
        } else if (p->kind == SLICE) {
            const int64_t dim = op_dim(c, i, k, n);
            to[k] -= p->start[k] < 0 ? p->start[k] + dim : p->start[k];
            if (to[k] < 0 || to[k] % p->step[k] || to[k] / p->step[k] >= dims[k])
                return -1;
            to[k] /= p->step[k];
        }
    }
    for (int j = 0; p->kind == CONCAT && j < i; j++)
        to[p->axis] += op_dim(c, j, p->axis, n);
    return flat(c->in[i].rank, dims, to);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const place *p = c->attr;
    int64_t dims[8], count = 1;
    (void)bound; /* the numbers must be exact */
    result_dims(c, n, dims);
    for (int k = 0; k < c->in[0].rank; k++)
        count *= dims[k];
    for (int64_t i = 0; p->kind == PAD && i < count; i++)
        y[0][i] = p->value;
    for (int i = 0; i < c->n_in; i++)
        for (int64_t at = 0; at < op_count(c, i, n); at++) {
            const int64_t to = target(c, i, at, n);
            if (to >= 0)
                y[0][to] = x[i][at];
        }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    (void)x;
    (void)bound;
    for (int i = 0; i < c->n_in; i++)
        for (int64_t at = 0; at < op_count(c, i, n); at++) {
            const int64_t to = target(c, i, at, n);
            dx[i][at] = to >= 0 ? dy[0][to] : 0;
        }
}

static op_test test_of(kind k)
{
    return (op_test){
        .op = names[k], .n_out = 1, .build = build, .forward = forward, .backward = backward};
}

static const struct shape {
    int n_in, rank;
    int64_t dims[3][8], batch;
    place place;
} shapes[] = {
    {1, 3, {{CLT_BATCH, 3, 5}}, 4, {RESHAPE, .rank = 2, .dims = {CLT_BATCH, 15}}},
    {1, 2, {{CLT_BATCH, 6}}, 3, {RESHAPE, .rank = 2, .dims = {-2, 3}}},
    {1, 2, {{CLT_BATCH, 5}}, 3, {TRANSPOSE, .permutation = {1, 0}}},
    {1, 4, {{CLT_BATCH, 3, 5, 7}}, 3, {TRANSPOSE, .permutation = {0, 2, 3, 1}}},
    {1, 4, {{CLT_BATCH, 2, 3, 4}}, 3, {TRANSPOSE, .permutation = {2, 1, 0, 3}}},
    {1, 3, {{17, 1, 19}}, 1, {TRANSPOSE, .permutation = {2, 0, 1}}},
    {1, 2, {{CLT_BATCH, 83}}, 67, {TRANSPOSE, .permutation = {1, 0}}},
    {1, 3, {{CLT_BATCH, 64, 33}}, 3, {TRANSPOSE, .permutation = {0, 2, 1}}},
    {1, 3, {{CLT_BATCH, 36, 40}}, 2, {TRANSPOSE, .permutation = {0, 2, 1}}},
    {1, 4, {{CLT_BATCH, 18, 4, 5}}, 2, {TRANSPOSE, .permutation = {0, 2, 3, 1}}},
    {1, 8, {{2, 3, 2, 1, 2, 3, 2, 2}}, 1, {TRANSPOSE, .permutation = {7, 5, 3, 1, 0, 2, 4, 6}}},
    {1, 4, {{CLT_BATCH, 6, 3, 8}}, 3, {TRANSPOSE, .permutation = {0, 2, 1, 3}}},
    {1, 4, {{CLT_BATCH, 3, 5, 6}}, 3, {TRANSPOSE, .permutation = {2, 0, 1, 3}}},
    {2, 2, {{CLT_BATCH, 5}, {CLT_BATCH, 2}}, 3, {CONCAT, .axis = 1}},
    {2, 3, {{CLT_BATCH, 4, 3}, {CLT_BATCH, 8, 3}}, 3, {CONCAT, .axis = 1}},
    {2, 2, {{CLT_BATCH, 6}, {CLT_BATCH, 10}}, 3, {CONCAT, .axis = 1}},
    {3, 2, {{CLT_BATCH, 8}, {-2, 8}, {CLT_BATCH, 8}}, 3, {CONCAT, .axis = 0}},
    {3,
     4,
     {{CLT_BATCH, 3, 4, 5}, {CLT_BATCH, 1, 4, 5}, {CLT_BATCH, 11, 4, 5}},
     3,
     {CONCAT, .axis = 1}},
    {3, 2, {{CLT_BATCH, 3}, {-2, 3}, {CLT_BATCH, 3}}, 3, {CONCAT, .axis = 0}},
    {3, 2, {{1, 5}, {7, 5}, {2, 5}}, 1, {CONCAT, .axis = 0}},
    {1, 1, {{4}}, 1, {CONCAT, .axis = 0}},
    {1,
     3,
     {{CLT_BATCH, 7, 5}},
     3,
     {SLICE, .start = {0, 1, -4}, .stop = {CLT_TO_END, -1, CLT_TO_END}, .step = {1, 2, 1}}},
    {1,
     3,
     {{CLT_BATCH, 5, 12}},
     3,
     {SLICE, .start = {0, 1, 4}, .stop = {CLT_TO_END, 4, 12}, .step = {1, 1, 1}}},
    {1,
     3,
     {{CLT_BATCH, 7, 8}},
     3,
     {SLICE, .start = {0, 1, 0}, .stop = {CLT_TO_END, 7, CLT_TO_END}, .step = {1, 3, 1}}},
    {1, 2, {{13, 11}}, 1, {SLICE, .start = {3, 2}, .stop = {12, 11}, .step = {4, 3}}},
    {1, 1, {{11}}, 1, {SLICE, .start = {10}, .stop = {11}, .step = {1}}},
    {1, 3, {{CLT_BATCH, 3, 5}}, 3, {PAD, .before = {0, 1, 0}, .after = {0, 2, 3}, .value = 1.5}},
    {1, 3, {{CLT_BATCH, 3, 8}}, 3, {PAD, .before = {0, 1, 4}, .after = {0, 2, 8}, .value = -1.5}},
    {1, 3, {{CLT_BATCH, 3, 6}}, 3, {PAD, .before = {0, 0, 2}, .after = {0, 0, 4}, .value = 1}},
    {1, 2, {{CLT_BATCH, 5}}, 4, {PAD, .before = {0, 0}, .after = {0, 0}, .value = 0}},
    {1, 4, {{2, 1, 3, 2}}, 1, {PAD, .before = {1, 0, 2, 1}, .after = {0, 2, 1, 0}, .value = -2}},
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        op_test t = test_of(s->place.kind);
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = s->n_in, .batch = s->batch, .attr = &s->place};
        snprintf(text, sizeof text, "shape %d", (int)i);
        for (int o = 0; o < s->n_in; o++) {
            c.in[o] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
            memcpy(c.in[o].dims, s->dims[o], sizeof s->dims[o]);
        }
        op_check(&t, &c, true);
    }
}

/* Larger than the limit for results of a transposition that are kept in the caches. */
static void test_large(void **state)
{
    static const place p = {TRANSPOSE, .permutation = {1, 0}};
    op_test t = test_of(TRANSPOSE);
    const op_case c = {.text = "large",
                       .n_in = 1,
                       .in = {{CLT_F32, 2, {1040, 1090}, OP_RANDOM, true, NULL}},
                       .batch = 1,
                       .attr = &p};
    (void)state;
    if (clt_test_oclgrind())
        skip(); /* this would take minutes there */
    op_check(&t, &c, false);
}

static kind wanted;

static void read_list(const op_golden *g, const char *name, int64_t *to)
{
    const json_t *list = json_object_get(g->attributes, name);
    for (size_t i = 0; i < json_array_size(list); i++)
        to[i] = json_integer_value(json_array_get(list, i));
}

static void golden(op_golden *g)
{
    op_test t = test_of(wanted);
    place p = {.kind = wanted, .step = {1, 1, 1, 1, 1, 1, 1, 1}};
    int64_t permutation[8] = {0};
    read_list(g, "shape", p.dims);
    read_list(g, "permutation", permutation);
    read_list(g, "begin", p.start);
    read_list(g, "end", p.stop);
    read_list(g, "before", p.before);
    read_list(g, "after", p.after);
    p.rank = (int)json_array_size(json_object_get(g->attributes, "shape"));
    for (int i = 0; i < 8; i++)
        p.permutation[i] = (int)permutation[i];
    if (wanted == PAD)
        p.value = op_golden_number(g, "value");
    if (wanted == CONCAT) {
        p.axis = (int)op_golden_number(g, "axis");
        for (int i = 0; i < (int)op_golden_number(g, "inputs"); i++) {
            char name[16];
            snprintf(name, sizeof name, "x%d", i);
            op_golden_operand(g, name, false);
        }
    } else {
        op_golden_operand(g, "x", false);
    }
    op_golden_results(g);
    g->c.attr = &p;
    op_check(&t, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    for (wanted = RESHAPE; wanted <= PAD; wanted++)
        op_goldens(names[wanted], golden);
}

static void refused(clt_graph *g, const clt_value *result, const char *part)
{
    assert_null(result);
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static clt_graph *graph_of(clt_value **x)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 5});
    return g;
}

static void test_errors(void **state)
{
    const int64_t zero[3] = {0, 0, 0}, end[3] = {CLT_TO_END, CLT_TO_END, CLT_TO_END};
    clt_value *x;
    (void)state;
    clt_graph *g = graph_of(&x);
    refused(g, clt_reshape(x, 2, (int64_t[]){CLT_BATCH, 21}), "f32[Bx4x5]");
    g = graph_of(&x);
    refused(g, clt_transpose(x, (int[]){0, 1, 1}), "occurs twice");
    g = graph_of(&x);
    clt_value *y = clt_input(g, "y", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 6});
    refused(g, clt_concat((clt_value *[]){x, y}, 2, 1), "f32[Bx4x6], does not fit f32[Bx4x5]");
    g = graph_of(&x);
    refused(g, clt_concat(&x, 1, 3), "no axis 3");
    g = graph_of(&x);
    refused(g, clt_slice(x, zero, (int64_t[]){2, 4, 5}, NULL), "the whole of the batch");
    g = graph_of(&x);
    refused(g, clt_slice(x, (int64_t[]){0, 4, 0}, end, NULL), "no element in axis 1");
    g = graph_of(&x);
    refused(g, clt_pad(x, (int64_t[]){1, 0, 0}, zero, 0), "axis 0 of f32[Bx4x5]");
    g = graph_of(&x);
    refused(g, clt_pad(x, zero, (int64_t[]){0, 0, -1}, 0), "axis 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
