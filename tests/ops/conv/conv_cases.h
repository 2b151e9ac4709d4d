/* Cases of convolutions and their reference, for the tests of conv2d. */
#ifndef TESTS_OPS_CONV_CASES_H
#define TESTS_OPS_CONV_CASES_H

#include "ops/harness/harness.h"
#include "ops/harness/reference_nn.h"

static void conv_build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const ref_conv *a = c->attr;
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = a->stride[i];
        o.padding[i] = a->padding[i];
        o.dilation[i] = a->dilation[i];
    }
    o.groups = a->groups;
    out[0] = clt_conv2d(in[0], in[1], in[2], &o);
}

static void conv_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                         double *const *bound)
{
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    const int64_t k = s.c_group * s.kh * s.kw, plane = s.oh * s.ow;
    ref_sums sums = {x[0], x[1], y[0], bound ? bound[0] : NULL, sqrt((double)(k + 1))};
    memset(y[0], 0, sizeof(double) * (size_t)(s.n * s.o * plane));
    ref_conv_visit(c, &s, ref_conv_y, &sums);
    for (int64_t i = 0; x[2] && i < s.n * s.o * plane; i++) {
        const double b = x[2][i / plane % s.o];
        y[0][i] += b;
        if (bound)
            bound[0][i] += sums.scale * fabs(b);
    }
}

static void conv_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                          double *const *dx, double *const *bound)
{
    const ref_conv_sizes s = ref_conv_sizes_of(c, n);
    const int64_t plane = s.oh * s.ow;
    ref_sums of_x = {x[1], dy[0], dx[0], bound[0], sqrt((double)(s.o_group * s.kh * s.kw))};
    ref_sums of_w = {x[0], dy[0], dx[1], bound[1], sqrt((double)(s.n * plane))};
    ref_conv_visit(c, &s, ref_conv_dx, &of_x);
    ref_conv_visit(c, &s, ref_conv_dw, &of_w);
    for (int64_t i = 0; dx[2] && i < s.n * s.o * plane; i++) {
        dx[2][i / plane % s.o] += dy[0][i];
        bound[2][i / plane % s.o] += of_w.scale * fabs(dy[0][i]);
    }
}

static op_test conv_test = {"conv2d", 1, 0, conv_build, conv_forward, conv_backward, 0};

/* Batch, channels, height, width, output channels, kernel; attributes; bias. */
typedef struct conv_shape {
    int64_t n, c, h, w, o, kh, kw;
    ref_conv attr;
    bool bias, large;
} conv_shape;

typedef char conv_text[OP_TEXT];

/* `plain`: the images belong to a tensor without a batch, which has the layout PLAIN. */
static inline op_case conv_case(const conv_shape *s, bool wanted_x, bool plain, conv_text text)
{
    /* A third image tests nothing new on Oclgrind, and many channels take long there. */
    const int64_t few = s->c * s->o > 100 ? 1 : 2;
    const int64_t n = clt_test_oclgrind() && s->n <= 3 && s->n > few ? few : s->n;
    snprintf(text, OP_TEXT, "%lldx%lldx%lldx%lld, %lld of %lldx%lld", (long long)n, (long long)s->c,
             (long long)s->h, (long long)s->w, (long long)s->o, (long long)s->kh, (long long)s->kw);
    return (op_case){
        text,
        3,
        {{CLT_F32, 4, {plain ? n : CLT_BATCH, s->c, s->h, s->w}, OP_RANDOM, wanted_x, NULL},
         {CLT_F32, 4, {s->o, s->c / s->attr.groups, s->kh, s->kw}, OP_RANDOM, true, NULL},
         {CLT_F32, s->bias ? 1 : 0, {s->o}, OP_RANDOM, true, NULL}},
        n,
        .attr = &s->attr};
}

/* Checks a case with the tuner's tiles first_tile, first_tile + step, ...; first_tile 0: with all
 * variants. */
static inline void conv_check(const conv_shape *s, bool wanted_x, int first_tile, int step)
{
    conv_text text;
    const op_case c = conv_case(s, wanted_x, false, text);
    if (first_tile)
        op_check_tiles(&conv_test, &c, true, first_tile, step);
    else
        op_check(&conv_test, &c, !s->large);
}

static inline void conv_check_all(const conv_shape *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!list[i].large || !clt_test_oclgrind())
            conv_check(&list[i], true, 0, 0);
}

#endif
