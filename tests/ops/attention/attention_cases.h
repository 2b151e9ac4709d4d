/* Cases of attention, and its reference in double, which stores all scores. For
 * test_attention*.c. */
#ifndef TESTS_OPS_ATTENTION_CASES_H
#define TESTS_OPS_ATTENTION_CASES_H

#include "base/philox.h"
#include "ops/attention/attention.h"
#include "ops/harness/harness.h"

typedef struct attention_attr {
    int form; /* 0: heads, 1: rows, 2: packed */
    int heads, kv_heads;
    int is_causal, past;
    double scale;
    int bytes; /* the mask is u8 */
    double dropout;
    int first_head, all_heads; /* of one device among several that share the heads */
    int first_row, all_rows;   /* likewise the rows */
} attention_attr;

/* Operands 3 and 4, if there are any, are the mask and the device's past. */
#define HEADS(name, batch_, H, G, T, S, D, mask_, ...)                                             \
    {                                                                                              \
        .text = name, .n_in = 3, .batch = batch_,                                                  \
        .in = {{CLT_F32, 4, {CLT_BATCH, H, T, D}, .gradient = true},                               \
               {CLT_F32, 4, {CLT_BATCH, G, S, D}, .gradient = true},                               \
               {CLT_F32, 4, {CLT_BATCH, G, S, D}, .gradient = true},                               \
               {CLT_F32, .set = mask_}},                                                           \
        .attr = &(const attention_attr)__VA_ARGS__                                                 \
    }
#define ROWS(name, batch_, H, G, T, S, D, ...)                                                     \
    {                                                                                              \
        .text = name, .n_in = 3, .batch = batch_,                                                  \
        .in = {{CLT_F32, 3, {CLT_BATCH, T, (H) * (D)}, .gradient = true},                          \
               {CLT_F32, 3, {CLT_BATCH, S, (G) * (D)}, .gradient = true},                          \
               {CLT_F32, 3, {CLT_BATCH, S, (G) * (D)}, .gradient = true}},                         \
        .attr = &(const attention_attr)__VA_ARGS__                                                 \
    }
#define PACKED(name, batch_, H, G, T, D, ...)                                                      \
    {                                                                                              \
        .text = name, .n_in = 1, .batch = batch_,                                                  \
        .in = {{CLT_F32, 3, {CLT_BATCH, T, ((H) + 2 * (G)) * (D)}, .gradient = true}},             \
        .attr = &(const attention_attr)__VA_ARGS__                                                 \
    }

static inline void mask_operand(op_case *c, const int64_t *dims)
{
    c->n_in = 4;
    c->in[3].rank = 4;
    memcpy(c->in[3].dims, dims, 4 * sizeof *dims);
}

static inline void attention_build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const attention_attr *attr = c->attr;
    clt_attention_options o;
    clt_attention_options_init(&o);
    o.scale = attr->scale;
    o.is_causal = attr->is_causal;
    o.past = attr->past;
    o.dropout = attr->dropout;
    if (attr->form < 2) {
        o.attn_mask = in[3] && attr->bytes ? clt_cast(in[3], CLT_U8) : in[3];
        o.past_value = in[4];
    }
    if (attr->form == 0)
        out[0] = clt_scaled_dot_product_attention(in[0], in[1], in[2], &o);
    else if (attr->form == 1)
        out[0] = clt_attention(in[0], in[1], in[2], attr->heads, &o);
    else
        out[0] = clt_attention_packed(in[0], attr->heads, attr->kv_heads, &o);
    clt_attention_attr *own = out[0]->producer->attr;
    own->first_head = attr->first_head;
    own->all_heads = attr->all_heads;
    own->first_row = attr->first_row;
    own->all_rows = attr->all_rows;
}

typedef struct attention_sizes {
    int64_t heads, kv_heads, rows, keys, size;
    double scale;
    int64_t past;
} attention_sizes;

static inline attention_sizes attention_sizes_of(const op_case *c, double *const *x)
{
    const attention_attr *attr = c->attr;
    const int64_t *q = c->in[0].dims, *k = c->in[1].dims;
    attention_sizes s = {.past = c->n_in > 4 ? (int64_t)x[4][0] : attr->past};
    if (attr->form == 0)
        s = (attention_sizes){q[1], k[1], q[2], k[2], q[3], 0, s.past};
    else if (attr->form == 1)
        s = (attention_sizes){
            attr->heads, k[2] * attr->heads / q[2], q[1], k[1], q[2] / attr->heads, 0, s.past};
    else {
        const int64_t kv = attr->kv_heads ? attr->kv_heads : attr->heads;
        s = (attention_sizes){attr->heads, kv,    q[1], q[1], q[2] / (attr->heads + 2 * kv),
                              0,           s.past};
    }
    s.scale = attr->scale != 0 ? attr->scale : 1 / sqrt((double)s.size);
    return s;
}

/* Returns the beginning of row `row` of head `head` of image `b`: of operand `which` (0 to 2) in
 * arrays[0 .. 2], or of the result in arrays[0]. */
static inline double *attention_row(const op_case *c, const attention_sizes *s,
                                    double *const *arrays, int which, bool result, int64_t b,
                                    int64_t head, int64_t row)
{
    const attention_attr *attr = c->attr;
    const int64_t heads = which ? s->kv_heads : s->heads, rows = which ? s->keys : s->rows;
    if (attr->form == 0)
        return arrays[which] + ((b * heads + head) * rows + row) * s->size;
    if (attr->form == 1 || result)
        return arrays[which] + ((b * rows + row) * heads + head) * s->size;
    const int64_t before = which == 0 ? 0 : which == 1 ? s->heads : s->heads + s->kv_heads;
    return arrays[0] + ((b * rows + row) * (s->heads + 2 * s->kv_heads) + before + head) * s->size;
}

/* Returns the place of the score of (row t, key j) in the mask; -1: there is none. */
static inline int64_t attention_masked(const op_case *c, int64_t b, int64_t head, int64_t t,
                                       int64_t j)
{
    const int64_t *dims = c->in[3].dims;
    if (c->n_in < 4 || !c->in[3].rank)
        return -1;
    const int64_t at = ((dims[0] == 1 ? 0 : b) * dims[1] + (dims[1] == 1 ? 0 : head)) * dims[2] +
                       (dims[2] == 1 ? 0 : t);
    return at * dims[3] + (dims[3] == 1 ? 0 : j);
}

/* Computes a row's weights and, for each weight, a bound on its relative rounding error in eps. */
static inline void attention_weights(const op_case *c, const attention_sizes *s, double *const *x,
                                     int64_t b, int64_t head, int64_t t, double *p, double *error)
{
    const attention_attr *attr = c->attr;
    const double *q = attention_row(c, s, x, 0, false, b, head, t);
    double most = -INFINITY, sum = 0, worst = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        double dot = 0, terms = 0, added = 0;
        const double *k = attention_row(c, s, x, 1, false, b, head / (s->heads / s->kv_heads), j);
        p[j] = -INFINITY;
        error[j] = 0;
        if (attr->is_causal && j > s->past + t)
            continue;
        for (int64_t d = 0; d < s->size; d++) {
            dot += q[d] * k[d];
            terms += fabs(q[d] * k[d]);
        }
        const int64_t at = attention_masked(c, b, head, t, j);
        if (at >= 0) {
            added = x[3][at];
            added = !attr->bytes ? added : added != 0 ? 0 : -INFINITY;
        }
        if (added == -INFINITY)
            continue;
        p[j] = dot * s->scale + added;
        error[j] = sqrt((double)s->size) * terms * fabs(s->scale) + fabs(added) + fabs(p[j]) + 3;
        most = fmax(most, p[j]);
        worst = fmax(worst, error[j]);
    }
    for (int64_t j = 0; j < s->keys; j++)
        sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - most);
    for (int64_t j = 0; j < s->keys; j++) {
        p[j] = sum > 0 ? p[j] / sum : 0;
        error[j] += worst + fabs(most) + sqrt((double)s->keys);
    }
}

/* Returns the factor of dropout for the weight of key j. Its random number is that of element
 * [image, head, t, j] of a tensor of the global batch whose rows are whole blocks of four
 * numbers. */
static inline double attention_factor(const op_case *c, const attention_sizes *s, int64_t b,
                                      int64_t head, int64_t t, int64_t j)
{
    const attention_attr *attr = c->attr;
    const int64_t batch = c->in[0].dims[0], first = batch < 0 ? OP_SAMPLE * -batch : 0;
    const int64_t heads = attr->all_heads ? attr->all_heads : s->heads;
    const int64_t rows = attr->all_rows ? attr->all_rows : s->rows;
    const int64_t row =
        ((first + b) * heads + attr->first_head + head) * rows + attr->first_row + t;
    uint32_t bits[4];
    if (attr->dropout <= 0)
        return 1;
    clt_random4(OP_SEED, CLT_STREAM_DROPOUT, 0, OP_STEP,
                (uint64_t)(row * ((s->keys + 3) / 4) + j / 4), bits);
    return clt_philox_unit(bits[j % 4]) >= (float)attr->dropout ? 1 / (1 - attr->dropout) : 0;
}

static inline void attention_forward(const op_case *c, int64_t n, double *const *x,
                                     double *const *y, double *const *bound)
{
    const attention_sizes s = attention_sizes_of(c, x);
    double *p = op_array(s.keys), *error = op_array(s.keys), *factor = op_array(s.keys);
    for (int64_t b = 0; b < op_dim(c, 0, 0, n); b++)
        for (int64_t head = 0; head < s.heads; head++)
            for (int64_t t = 0; t < s.rows; t++) {
                for (int64_t j = 0; j < s.keys; j++)
                    factor[j] = attention_factor(c, &s, b, head, t, j);
                double *out = attention_row(c, &s, y, 0, true, b, head, t);
                double *limit = bound ? attention_row(c, &s, bound, 0, true, b, head, t) : NULL;
                attention_weights(c, &s, x, b, head, t, p, error);
                for (int64_t d = 0; d < s.size; d++) {
                    double sum = 0, terms = 0;
                    for (int64_t j = 0; j < s.keys; j++) {
                        const double *v =
                            attention_row(c, &s, x, 2, false, b, head / (s.heads / s.kv_heads), j);
                        sum += p[j] * factor[j] > 0 ? p[j] * factor[j] * v[d] : 0;
                        terms +=
                            p[j] * factor[j] > 0 ? p[j] * factor[j] * fabs(v[d]) * error[j] : 0;
                    }
                    out[d] = sum;
                    if (limit)
                        limit[d] = terms;
                }
            }
    free(p);
    free(error);
    free(factor);
}

/* Adds the contribution of one row of the queries to all gradients. */
static inline void attention_row_gradient(const op_case *c, const attention_sizes *s,
                                          double *const *x, double *const *dy, double *const *dx,
                                          double *const *bound, int64_t b, int64_t head, int64_t t,
                                          double *p, double *error)
{
    const int64_t kv_head = head / (s->heads / s->kv_heads);
    const double root = sqrt((double)s->size), many = sqrt((double)(s->keys + s->rows));
    const double summed = sqrt((double)(c->batch * s->heads * s->rows * s->keys));
    const double *q = attention_row(c, s, x, 0, false, b, head, t);
    const double *dout = attention_row(c, s, dy, 0, true, b, head, t);
    double *dq = attention_row(c, s, dx, 0, false, b, head, t);
    double *dq_bound = attention_row(c, s, bound, 0, false, b, head, t);
    double *dp = op_array(s->keys), *dp_terms = op_array(s->keys), delta = 0, delta_terms = 0;
    attention_weights(c, s, x, b, head, t, p, error);
    for (int64_t j = 0; j < s->keys; j++) {
        const double *v = attention_row(c, s, x, 2, false, b, kv_head, j);
        for (int64_t d = 0; p[j] > 0 && d < s->size; d++) {
            dp[j] += dout[d] * v[d];
            dp_terms[j] += fabs(dout[d] * v[d]);
        }
        const double factor = attention_factor(c, s, b, head, t, j);
        dp[j] *= factor;
        dp_terms[j] *= factor;
        delta += p[j] * dp[j];
        delta_terms += p[j] * dp_terms[j] * (root + error[j]);
    }
    for (int64_t j = 0; j < s->keys; j++) {
        const double *k = attention_row(c, s, x, 1, false, b, kv_head, j);
        double *dk = attention_row(c, s, dx, 1, false, b, kv_head, j);
        double *dv = attention_row(c, s, dx, 2, false, b, kv_head, j);
        double *dk_bound = attention_row(c, s, bound, 1, false, b, kv_head, j);
        double *dv_bound = attention_row(c, s, bound, 2, false, b, kv_head, j);
        const double factor = attention_factor(c, s, b, head, t, j);
        const double ds = p[j] * (dp[j] - delta) * s->scale;
        const double ds_error =
            p[j] * (root * dp_terms[j] + delta_terms + fabs(dp[j] - delta) * error[j]) *
                fabs(s->scale) +
            many * fabs(ds);
        const int64_t at = attention_masked(c, b, head, t, j);
        if (at >= 0 && c->in[3].gradient) {
            dx[3][at] += ds / s->scale;
            bound[3][at] += (ds_error + summed * fabs(ds)) / fabs(s->scale);
        }
        for (int64_t d = 0; p[j] > 0 && d < s->size; d++) {
            dv[d] += p[j] * factor * dout[d];
            dv_bound[d] += p[j] * factor * fabs(dout[d]) * (error[j] + many);
            dk[d] += ds * q[d];
            dk_bound[d] += ds_error * fabs(q[d]);
            dq[d] += ds * k[d];
            dq_bound[d] += ds_error * fabs(k[d]);
        }
    }
    free(dp);
    free(dp_terms);
}

static inline void attention_backward(const op_case *c, int64_t n, double *const *x,
                                      double *const *dy, double *const *dx, double *const *bound)
{
    const attention_sizes s = attention_sizes_of(c, x);
    double *p = op_array(s.keys), *error = op_array(s.keys);
    for (int64_t b = 0; b < op_dim(c, 0, 0, n); b++)
        for (int64_t head = 0; head < s.heads; head++)
            for (int64_t t = 0; t < s.rows; t++)
                attention_row_gradient(c, &s, x, dy, dx, bound, b, head, t, p, error);
    free(p);
    free(error);
}

static op_test attention_test = {"attention",        1, 0, attention_build, attention_forward,
                                 attention_backward, 0};

static inline void attention_check(const op_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t elements = op_count(&cases[i], 0, 1);
        /* Long cases take minutes on Oclgrind. */
        if (!clt_test_oclgrind() || elements < 1000)
            op_check(&attention_test, &cases[i], elements < 2000);
    }
    op_report(&attention_test);
}

#endif
