/*
 * References of LSTM and GRU in double, with gradients, for test_recurrent.c. A number carries the
 * variance of its f32 rounding error. Each operation adds an independent error of one unit. The
 * square root of the variance is the bound for results: for a sum it is sqrt(K) sum|terms|.
 */
#ifndef TESTS_OPS_RECURRENT_CASES_H
#define TESTS_OPS_RECURRENT_CASES_H

#include "ops/harness/harness.h"

/* A number, and the variance of its error in units of eps^2. */
typedef struct num {
    double v, e;
} num;

static inline num num_of(double v)
{
    return (num){v, 0};
}

static inline num num_add(num a, num b)
{
    const double v = a.v + b.v;
    return (num){v, a.e + b.e + v * v};
}

static inline num num_mul(num a, num b)
{
    const double v = a.v * b.v;
    return (num){v, a.v * a.v * b.e + b.v * b.v * a.e + v * v};
}

/* Applies a function with its value, its slope, and its own error in units of eps. */
static inline num num_function(num a, double v, double slope, double own)
{
    return (num){v, slope * slope * a.e + own * own * v * v};
}

static inline num num_sigmoid(num a)
{
    const double v = 1 / (1 + exp(-a.v));
    return num_function(a, v, v * (1 - v), 5);
}

static inline num num_tanh(num a)
{
    const double v = tanh(a.v);
    return num_function(a, v, 1 - v * v, 6);
}

static inline num num_one_less(num a)
{
    return num_add(num_of(1), (num){-a.v, a.e});
}

/* The options of a case. */
typedef struct rnn {
    int gates; /* 4: LSTM, 3: GRU */
    int T, I, H;
    bool reverse, state, lengths, only_state;
} rnn;

/* Operands: x, w_ih, w_hh, biases [2 G H], state [B, 2 H] or [B, H], lengths. */
enum { X, W_IH, W_HH, BIASES, STATE, LENGTHS };

/* The forward pass of one sample. */
typedef struct tape {
    const rnn *r;
    int steps, S;       /* S: numbers saved for a step and unit */
    num *saved, *h, *c; /* [T][S][H]; [T + 1][H] before each step, in the order of the recurrence */
    num *x;             /* [T][I] */
} tape;

static inline num *nums(int64_t count)
{
    num *array = calloc((size_t)count + 1, sizeof *array);
    assert_non_null(array);
    return array;
}

static inline int rnn_steps(const rnn *r, double *const *x, int64_t b)
{
    const double given = r->lengths ? x[LENGTHS][b] : r->T;
    return given < 0 ? 0 : given > r->T ? r->T : (int)given;
}

/* Returns the time of the i-th step in the recurrence's order. */
static inline int rnn_time(const rnn *r, int steps, int i)
{
    return r->reverse ? steps - 1 - i : i;
}

static inline num rnn_dot(const double *w, const num *x, int n)
{
    num sum = num_of(0);
    for (int k = 0; k < n; k++)
        sum = num_add(sum, num_mul(num_of(w[k]), x[k]));
    return sum;
}

static inline void tape_step(tape *t, double *const *x, int i)
{
    const rnn *r = t->r;
    const int H = r->H, G = r->gates;
    const num *in = t->x + (int64_t)rnn_time(r, t->steps, i) * r->I, *h = t->h + (int64_t)i * H;
    for (int u = 0; u < H; u++) {
        num a[4], q[4], *keep = t->saved + (int64_t)i * t->S * H + u;
        for (int g = 0; g < G; g++) {
            const int row = g * H + u;
            a[g] =
                num_add(rnn_dot(x[W_IH] + (int64_t)row * r->I, in, r->I), num_of(x[BIASES][row]));
            q[g] =
                num_add(rnn_dot(x[W_HH] + (int64_t)row * H, h, H), num_of(x[BIASES][G * H + row]));
        }
        if (G == 4) {
            const num f_c = num_mul(num_sigmoid(num_add(a[1], q[1])), t->c[i * H + u]);
            keep[0] = num_sigmoid(num_add(a[0], q[0]));
            keep[H] = num_sigmoid(num_add(a[1], q[1]));
            keep[2 * H] = num_tanh(num_add(a[2], q[2]));
            keep[3 * H] = num_sigmoid(num_add(a[3], q[3]));
            const num c = num_add(f_c, num_mul(keep[0], keep[2 * H]));
            t->c[(i + 1) * H + u] = c;
            t->h[(i + 1) * H + u] = num_mul(keep[3 * H], num_tanh(c));
        } else {
            keep[0] = num_sigmoid(num_add(a[0], q[0]));
            keep[H] = num_sigmoid(num_add(a[1], q[1]));
            keep[2 * H] = num_tanh(num_add(a[2], num_mul(keep[0], q[2])));
            keep[3 * H] = q[2];
            t->h[(i + 1) * H + u] =
                num_add(num_mul(num_one_less(keep[H]), keep[2 * H]), num_mul(keep[H], h[u]));
        }
    }
}

static inline tape tape_of(const rnn *r, double *const *x, int64_t b)
{
    const int H = r->H, own = r->gates == 4 ? 2 * H : H;
    tape t = {.r = r, .steps = rnn_steps(r, x, b), .S = 4};
    t.saved = nums((int64_t)r->T * t.S * H);
    t.h = nums((int64_t)(r->T + 1) * H);
    t.c = nums((int64_t)(r->T + 1) * H);
    t.x = nums((int64_t)r->T * r->I);
    for (int k = 0; k < t.steps * r->I; k++)
        t.x[k] = num_of(x[X][b * r->T * r->I + k]);
    for (int u = 0; r->state && u < H; u++) {
        t.h[u] = num_of(x[STATE][b * own + u]);
        if (r->gates == 4)
            t.c[u] = num_of(x[STATE][b * own + H + u]);
    }
    for (int i = 0; i < t.steps; i++)
        tape_step(&t, x, i);
    return t;
}

static inline void tape_free(tape *t)
{
    free(t->saved);
    free(t->h);
    free(t->c);
    free(t->x);
}

static inline void rnn_put(double *to, double *bound, int64_t at, num n)
{
    to[at] = n.v;
    if (bound)
        bound[at] = sqrt(n.e);
}

/* Computes the outputs: y (unless only_state), then the last states, joined as [B, 2 H] or [B,
 * H]. */
static inline void rnn_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                               double *const *bound)
{
    const rnn *r = c->attr;
    const int H = r->H, own = r->gates == 4 ? 2 * H : H, state = r->only_state ? 0 : 1;
    for (int64_t b = 0; b < n; b++) {
        tape t = tape_of(r, x, b);
        for (int i = 0; i < t.steps && !r->only_state; i++)
            for (int u = 0; u < H; u++)
                rnn_put(y[0], bound ? bound[0] : NULL, (b * r->T + rnn_time(r, t.steps, i)) * H + u,
                        t.h[(i + 1) * H + u]);
        for (int u = 0; u < H; u++) {
            double *to = bound ? bound[state] : NULL;
            rnn_put(y[state], to, b * own + u, t.h[t.steps * H + u]);
            if (r->gates == 4)
                rnn_put(y[state], to, b * own + H + u, t.c[t.steps * H + u]);
        }
        for (int i = t.steps; i < r->T && !r->only_state; i++)
            for (int u = 0; u < H; u++)
                y[0][(b * r->T + i) * H + u] = 0;
        tape_free(&t);
    }
}

/* Adds to an element of a gradient, and to its variance, which is kept in its bound. */
static inline void rnn_gain(double *const *dx, double *const *bound, int operand, int64_t at, num n)
{
    if (!dx[operand])
        return;
    const num sum = num_add((num){dx[operand][at], bound[operand][at]}, n);
    dx[operand][at] = sum.v;
    bound[operand][at] = sum.e;
}

/* Computes the gradients of step i from dh and dc, which become those of the step before. */
static inline void tape_back(const tape *t, double *const *x, int64_t b, int i, num *dh, num *dc,
                             double *const *dx, double *const *bound)
{
    const rnn *r = t->r;
    const int H = r->H, G = r->gates, at = rnn_time(r, t->steps, i);
    num *da = nums((int64_t)G * H), *dq = nums((int64_t)G * H), *through = nums(H);
    for (int u = 0; u < H; u++) {
        const num *s = t->saved + (int64_t)i * t->S * H + u, h = t->h[i * H + u];
        num *a = da + u, *q = dq + u;
        if (G == 4) {
            const num tanh_c = num_tanh(t->c[(i + 1) * H + u]);
            const num slope = num_one_less(num_mul(tanh_c, tanh_c));
            const num d = num_add(dc[u], num_mul(num_mul(dh[u], s[3 * H]), slope));
            a[0] = num_mul(num_mul(d, s[2 * H]), num_mul(s[0], num_one_less(s[0])));
            a[H] = num_mul(num_mul(d, t->c[i * H + u]), num_mul(s[H], num_one_less(s[H])));
            a[2 * H] = num_mul(num_mul(d, s[0]), num_one_less(num_mul(s[2 * H], s[2 * H])));
            a[3 * H] = num_mul(num_mul(dh[u], tanh_c), num_mul(s[3 * H], num_one_less(s[3 * H])));
            for (int g = 0; g < G; g++)
                q[g * H] = a[g * H];
            dc[u] = num_mul(d, s[H]);
        } else {
            const num z = s[H], m = s[2 * H];
            const num dn = num_mul(num_mul(dh[u], num_one_less(z)), num_one_less(num_mul(m, m)));
            a[0] = num_mul(num_mul(dn, s[3 * H]), num_mul(s[0], num_one_less(s[0])));
            a[H] =
                num_mul(num_mul(dh[u], num_add(h, (num){-m.v, m.e})), num_mul(z, num_one_less(z)));
            a[2 * H] = dn;
            q[0] = a[0];
            q[H] = a[H];
            q[2 * H] = num_mul(dn, s[0]);
            through[u] = num_mul(dh[u], z);
        }
    }
    for (int u = 0; u < H; u++)
        dh[u] = through[u];
    for (int k = 0; k < G * H; k++) {
        for (int u = 0; u < H; u++) {
            dh[u] = num_add(dh[u], num_mul(dq[k], num_of(x[W_HH][(int64_t)k * H + u])));
            rnn_gain(dx, bound, W_HH, (int64_t)k * H + u, num_mul(dq[k], t->h[i * H + u]));
        }
        for (int j = 0; j < r->I; j++) {
            rnn_gain(dx, bound, X, (b * r->T + at) * r->I + j,
                     num_mul(da[k], num_of(x[W_IH][(int64_t)k * r->I + j])));
            rnn_gain(dx, bound, W_IH, (int64_t)k * r->I + j, num_mul(da[k], t->x[at * r->I + j]));
        }
        rnn_gain(dx, bound, BIASES, k, da[k]);
        rnn_gain(dx, bound, BIASES, G * H + k, dq[k]);
    }
    free(da);
    free(dq);
    free(through);
}

static inline void rnn_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                                double *const *dx, double *const *bound)
{
    const rnn *r = c->attr;
    const int H = r->H, own = r->gates == 4 ? 2 * H : H, state = r->only_state ? 0 : 1;
    num *dh = nums(H), *dc = nums(H);
    for (int64_t b = 0; b < n; b++) {
        tape t = tape_of(r, x, b);
        for (int u = 0; u < H; u++) {
            dh[u] = num_of(dy[state][b * own + u]);
            dc[u] = num_of(r->gates == 4 ? dy[state][b * own + H + u] : 0);
        }
        for (int i = t.steps - 1; i >= 0; i--) {
            for (int u = 0; u < H && !r->only_state; u++)
                dh[u] = num_add(dh[u], num_of(dy[0][(b * r->T + rnn_time(r, t.steps, i)) * H + u]));
            tape_back(&t, x, b, i, dh, dc, dx, bound);
        }
        for (int u = 0; r->state && u < H; u++) {
            rnn_gain(dx, bound, STATE, b * own + u, dh[u]);
            if (r->gates == 4)
                rnn_gain(dx, bound, STATE, b * own + H + u, dc[u]);
        }
        tape_free(&t);
    }
    for (int i = 0; i < LENGTHS; i++)
        for (int64_t j = 0; dx[i] && j < op_count(c, i, n); j++)
            bound[i][j] = sqrt(bound[i][j]);
    free(dh);
    free(dc);
}

#endif
