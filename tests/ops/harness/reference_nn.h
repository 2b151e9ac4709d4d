/* The layer operators in double precision, written for clarity. Each also computes, on request,
 * sqrt(K) times the sum of the absolute terms of every element (see harness.h). */
#ifndef TESTS_OPS_REFERENCE_NN_H
#define TESTS_OPS_REFERENCE_NN_H

#include "ops/harness/harness.h"

/* --- matrix products ------------------------------------------------------------------------ */

/* Computes out[m, n] (+)= sum over k of a[m, k] b[k, n]. Element (i, j) is read at i * row + j *
 * column. */
typedef struct ref_matrix {
    const double *at;
    int64_t row, column;
} ref_matrix;

static inline void ref_product(int64_t m, int64_t n, int64_t k, ref_matrix a, ref_matrix b,
                               double *out, double *bound)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, terms = 0;
            for (int64_t l = 0; l < k; l++) {
                const double term = a.at[i * a.row + l * a.column] * b.at[l * b.row + j * b.column];
                sum += term;
                terms += fabs(term);
            }
            out[i * n + j] = sum;
            if (bound)
                bound[i * n + j] = sqrt((double)k) * terms;
        }
}

static inline ref_matrix ref_plain(const double *at, int64_t columns)
{
    return (ref_matrix){at, columns, 1};
}

static inline ref_matrix ref_transposed(const double *at, int64_t columns)
{
    return (ref_matrix){at, 1, columns};
}

/* --- convolution ---------------------------------------------------------------------------- */

typedef struct ref_conv {
    int stride[2], padding[2], dilation[2], groups;
} ref_conv;

typedef struct ref_conv_sizes {
    int64_t n, c, h, w, o, kh, kw, oh, ow, c_group, o_group;
} ref_conv_sizes;

static inline ref_conv_sizes ref_conv_sizes_of(const op_case *c, int64_t n)
{
    const ref_conv *a = c->attr;
    ref_conv_sizes s = {.n = op_dim(c, 0, 0, n),
                        .c = op_dim(c, 0, 1, n),
                        .h = op_dim(c, 0, 2, n),
                        .w = op_dim(c, 0, 3, n),
                        .o = op_dim(c, 1, 0, n),
                        .kh = op_dim(c, 1, 2, n),
                        .kw = op_dim(c, 1, 3, n)};
    s.oh = (s.h + 2 * a->padding[0] - a->dilation[0] * (s.kh - 1) - 1) / a->stride[0] + 1;
    s.ow = (s.w + 2 * a->padding[1] - a->dilation[1] * (s.kw - 1) - 1) / a->stride[1] + 1;
    s.c_group = s.c / a->groups;
    s.o_group = s.o / a->groups;
    return s;
}

/* Calls `visit` for every product of the convolution, with indices into x, w and y. */
typedef void ref_visit(void *user, int64_t x, int64_t w, int64_t y);

static inline void ref_conv_visit(const op_case *c, const ref_conv_sizes *s, ref_visit *visit,
                                  void *user)
{
    const ref_conv *a = c->attr;
    for (int64_t y = 0; y < s->n * s->o * s->oh * s->ow; y++) {
        const int64_t ox = y % s->ow, oy = y / s->ow % s->oh, o = y / (s->ow * s->oh) % s->o;
        const int64_t image = y / (s->ow * s->oh * s->o), first = o / s->o_group * s->c_group;
        int64_t w = o * s->c_group * s->kh * s->kw;
        for (int64_t ch = first; ch < first + s->c_group; ch++)
            for (int64_t ky = 0; ky < s->kh; ky++) {
                const int64_t iy = oy * a->stride[0] - a->padding[0] + ky * a->dilation[0];
                const int64_t row = ((image * s->c + ch) * s->h + iy) * s->w;
                for (int64_t kx = 0; kx < s->kw; kx++, w++) {
                    const int64_t ix = ox * a->stride[1] - a->padding[1] + kx * a->dilation[1];
                    if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
                        visit(user, row + ix, w, y);
                }
            }
    }
}

/* Adds products to out[] and to the bounds. `scale` is sqrt(K). */
typedef struct ref_sums {
    const double *left, *right;
    double *out, *bound, scale;
} ref_sums;

static inline void ref_add(ref_sums *s, int64_t left, int64_t right, int64_t out)
{
    const double term = s->left[left] * s->right[right];
    s->out[out] += term;
    if (s->bound)
        s->bound[out] += s->scale * fabs(term);
}

static inline void ref_conv_y(void *user, int64_t x, int64_t w, int64_t y)
{
    ref_add(user, x, w, y);
}

static inline void ref_conv_dx(void *user, int64_t x, int64_t w, int64_t y)
{
    ref_add(user, w, y, x);
}

static inline void ref_conv_dw(void *user, int64_t x, int64_t w, int64_t y)
{
    ref_add(user, x, y, w);
}

/* --- pooling -------------------------------------------------------------------------------- */

typedef struct ref_pool {
    int kernel[2], stride[2], padding[2], dilation[2], ceil_mode, count_include_pad;
} ref_pool;

static inline int64_t ref_pool_size(const ref_pool *p, int axis, int64_t size)
{
    const double room =
        (double)(size + 2 * p->padding[axis] - p->dilation[axis] * (p->kernel[axis] - 1) - 1);
    const double steps = room / p->stride[axis];
    int64_t out = (int64_t)(p->ceil_mode ? ceil(steps) : floor(steps)) + 1;
    if (p->ceil_mode && (out - 1) * p->stride[axis] >= size + p->padding[axis])
        out--;
    return out;
}

/* One window: its first row and column (may be negative), and its largest element or its
 * divisor. */
typedef struct ref_window {
    int64_t y, x, at;
    double divisor;
} ref_window;

static inline ref_window ref_window_of(const ref_pool *p, const double *plane, int64_t h, int64_t w,
                                       int64_t oy, int64_t ox)
{
    ref_window r = {oy * p->stride[0] - p->padding[0], ox * p->stride[1] - p->padding[1], -1, 0};
    for (int64_t ky = 0; ky < p->kernel[0]; ky++)
        for (int64_t kx = 0; kx < p->kernel[1]; kx++) {
            const int64_t iy = r.y + ky * p->dilation[0], ix = r.x + kx * p->dilation[1];
            const bool inside = iy >= 0 && iy < h && ix >= 0 && ix < w;
            if (inside &&
                (r.at < 0 || plane[iy * w + ix] > plane[r.at] || isnan(plane[iy * w + ix])))
                r.at = iy * w + ix;
            if (inside ||
                (p->count_include_pad && iy < h + p->padding[0] && ix < w + p->padding[1]))
                r.divisor++;
        }
    return r;
}

/* --- classes -------------------------------------------------------------------------------- */

/* The operand as [outer, classes, inner] around `axis`. */
typedef struct ref_vectors {
    int64_t outer, classes, inner;
} ref_vectors;

static inline ref_vectors ref_vectors_of(const op_case *c, int axis, int64_t n)
{
    ref_vectors v = {1, op_dim(c, 0, axis, n), 1};
    for (int i = 0; i < c->in[0].rank; i++)
        if (i < axis)
            v.outer *= op_dim(c, 0, i, n);
        else if (i > axis)
            v.inner *= op_dim(c, 0, i, n);
    return v;
}

/* Returns the beginning of vector i. Its elements are `inner` apart. */
static inline int64_t ref_first(const ref_vectors *v, int64_t i)
{
    return i / v->inner * v->classes * v->inner + i % v->inner;
}

static inline double ref_largest(const double *x, const ref_vectors *v)
{
    double largest = -INFINITY;
    for (int64_t c = 0; c < v->classes; c++)
        largest = fmax(largest, x[c * v->inner]);
    return largest;
}

/* Returns the logarithm of the sum of the exponentials of a vector. */
static inline double ref_log_sum(const double *x, const ref_vectors *v)
{
    const double largest = ref_largest(x, v);
    double sum = 0;
    for (int64_t c = 0; c < v->classes; c++)
        sum += exp(x[c * v->inner] - largest);
    return largest + log(sum);
}

#endif
