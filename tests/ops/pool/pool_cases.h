/* Cases and goldens of the two poolings. */
#ifndef TESTS_OPS_POOL_CASES_H
#define TESTS_OPS_POOL_CASES_H

#include "ops/harness/golden.h"
#include "ops/harness/reference_nn.h"

/* Batch, channels, height, width; attributes: kernel, stride, padding, dilation, ceil, counted. */
typedef struct pool_shape {
    int64_t n, c, h, w;
    ref_pool attr;
} pool_shape;

static const pool_shape pool_shapes[] = {
    {3, 2, 6, 6, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 0, 1}},
    {3, 2, 7, 5, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 1, 1, {{1, 1}, {1, 1}, {0, 0}, {1, 1}, 0, 1}},
    {5, 3, 7, 5, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 1, 1}},
    {2, 1, 7, 11, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, 1}},
    {2, 1, 7, 11, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, 0}},
    {2, 3, 6, 5, {{3, 2}, {1, 1}, {1, 1}, {1, 1}, 0, 0}},
    {1, 1, 5, 13, {{2, 5}, {3, 4}, {1, 2}, {1, 1}, 1, 1}},
    {2, 2, 6, 6, {{2, 2}, {3, 3}, {1, 1}, {1, 1}, 1, 0}},
    {2, 1, 1, 2, {{2, 3}, {2, 3}, {0, 0}, {1, 1}, 1, 1}},
    {17, 1, 4, 4, {{4, 4}, {4, 4}, {0, 0}, {1, 1}, 0, 1}},
    {2, 2, 4, 8, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 0, 1}},
    {1, 2, 4, 12, {{2, 3}, {2, 3}, {0, 0}, {1, 1}, 0, 1}},
    {2, 1, 5, 8, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 0, 0}},
    {2, 1, 5, 8, {{3, 3}, {2, 2}, {0, 0}, {1, 1}, 1, 1}},
    /* Rows of about the lengths of vectors, at each stride. */
    {1, 2, 4, 16, {{2, 2}, {1, 1}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 4, 17, {{2, 2}, {1, 1}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 4, 18, {{2, 2}, {1, 1}, {0, 0}, {1, 1}, 0, 1}},
    {2, 1, 6, 33, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 0, 1}},
    {1, 2, 6, 31, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 7, 27, {{2, 3}, {3, 3}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 8, 36, {{2, 3}, {2, 3}, {1, 1}, {1, 1}, 1, 0}},
    {1, 1, 8, 68, {{4, 4}, {4, 4}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 9, 39, {{3, 5}, {2, 4}, {1, 2}, {1, 1}, 1, 1}},
    {1, 1, 9, 20, {{5, 5}, {1, 1}, {2, 2}, {1, 1}, 0, 0}},
    {1, 1, 9, 23, {{2, 1}, {4, 5}, {0, 0}, {1, 1}, 0, 1}},
    /* A plane that needs many work-items, and rows of several tiles. */
    {1, 1, 131, 9, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 0, 1}},
    {1, 1, 130, 10, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 0, 1}},
    {1, 1, 13, 1103, {{3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, 0}},
    {1, 1, 21, 901, {{3, 3}, {1, 1}, {1, 1}, {1, 1}, 0, 1}},
};

static inline clt_pool2d_options pool_options(const ref_pool *a)
{
    clt_pool2d_options o;
    clt_pool2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = a->kernel[i];
        o.stride[i] = a->stride[i];
        o.padding[i] = a->padding[i];
        o.dilation[i] = a->dilation[i];
    }
    o.ceil_mode = a->ceil_mode;
    o.count_include_pad = a->count_include_pad;
    return o;
}

static inline op_case pool_case(const pool_shape *s, char *text)
{
    const ref_pool *a = &s->attr;
    snprintf(text, OP_TEXT, "%lldx%lldx%lld, %dx%d by %dx%d pad %dx%d%s", (long long)s->c,
             (long long)s->h, (long long)s->w, a->kernel[0], a->kernel[1], a->stride[0],
             a->stride[1], a->padding[0], a->padding[1], a->ceil_mode ? " ceil" : "");
    return (op_case){.text = text,
                     .n_in = 1,
                     .in = {{CLT_F32, 4, {CLT_BATCH, s->c, s->h, s->w}, OP_DISTINCT, true, NULL}},
                     .batch = s->n,
                     .attr = a};
}

/* Calls `visit` for every window, with the operand's plane and the output's index. */
static inline void pool_windows(const op_case *c, int64_t n, const double *x,
                                void (*visit)(void *user, const ref_window *window, int64_t plane,
                                              int64_t out),
                                void *user)
{
    const ref_pool *a = c->attr;
    const int64_t h = op_dim(c, 0, 2, n), w = op_dim(c, 0, 3, n);
    const int64_t oh = ref_pool_size(a, 0, h), ow = ref_pool_size(a, 1, w);
    for (int64_t i = 0; i < op_count(c, 0, n) / (h * w) * oh * ow; i++) {
        const int64_t plane = i / (oh * ow);
        const ref_window r = ref_window_of(a, x + plane * h * w, h, w, i / ow % oh, i % ow);
        visit(user, &r, plane, i);
    }
}

static inline void pool_check(op_test *test, const pool_shape *shapes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char text[OP_TEXT];
        const op_case c = pool_case(&shapes[i], text);
        /* Large cases would take minutes on Oclgrind. */
        if (clt_test_oclgrind() && shapes[i].c * shapes[i].h * shapes[i].w > 400)
            continue;
        op_check(test, &c, true);
    }
}

static inline void pool_golden(op_golden *g, ref_pool *a)
{
    *a = (ref_pool){.dilation = {1, 1}};
    op_golden_pair(g, "kernel", a->kernel);
    op_golden_pair(g, "stride", a->stride);
    op_golden_pair(g, "padding", a->padding);
    a->ceil_mode = (int)op_golden_number(g, "ceil_mode");
    op_golden_operand(g, "x", true);
    op_golden_results(g);
    g->c.attr = a;
}

/* Checks that a builder refuses the options, with a message that contains `part`. */
static inline void pool_refuse(clt_value *(*build)(clt_value *, const clt_pool2d_options *),
                               clt_pool2d_options o, const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 4, (int64_t[]){CLT_BATCH, 4, 5, 5});
    assert_null(build(x, &o));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

#endif
