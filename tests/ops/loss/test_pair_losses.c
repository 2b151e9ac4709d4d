/* bce_with_logits, huber, smooth_l1 and kl_div: sums, weights and the gradients of all operands. */
#include "ops/harness/golden.h"

/* The summands of a loss, by element: x, target, and the weight of positives. */
typedef struct loss {
    const char *name;
    clt_status (*build)(clt_value *const *in, clt_value **sum, clt_value **weight);
    double (*value)(double x, double t, double w);
    double (*terms)(double x, double t, double w);
    double (*slope)(double x, double t, double w, int operand);
    double (*slope_terms)(double x, double t, double w, int operand);
    double least[2], range[2]; /* of x and target */
    bool weighted, per_row;
} loss;

/* --- references ----------------------------------------------------------------------------- */

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double bce(double x, double t, double w)
{
    const double share = 1 + (w - 1) * t; /* cancellation happens before the rest is added */
    return ((1 - t) * x + share * fmax(-x, 0)) + share * log1p(exp(-fabs(x)));
}

static double bce_terms(double x, double t, double w)
{
    return (2 + fabs(w) * fabs(t)) * (fabs(x) + 1);
}

static double bce_slope(double x, double t, double w, int operand)
{
    return operand ? (w - 1) * softplus(-x) - x : (1 - t) - (1 + (w - 1) * t) / (1 + exp(x));
}

static double bce_slope_terms(double x, double t, double w, int operand)
{
    return operand ? (1 + fabs(w)) * (1 + 2 * fabs(x)) : 2 * (1 + fabs(t)) * (1 + fabs(w));
}

static double delta, beta;

static double huber(double x, double t, double w)
{
    const double d = fabs(x - t);
    (void)w;
    return d < delta ? d * d / 2 : delta * (d - delta / 2);
}

static double huber_terms(double x, double t, double w)
{
    (void)w;
    return 2 * delta * (fabs(x) + fabs(t) + delta);
}

static double huber_slope(double x, double t, double w, int operand)
{
    const double d = x - t, s = fabs(d) < delta ? d : d > 0 ? delta : -delta;
    (void)w;
    return operand ? -s : s;
}

static double huber_slope_terms(double x, double t, double w, int operand)
{
    (void)w;
    (void)operand;
    return fabs(x) + fabs(t);
}

static double smooth(double x, double t, double w)
{
    const double d = fabs(x - t);
    (void)w;
    return d < beta ? d * d / (2 * beta) : d - beta / 2;
}

static double smooth_terms(double x, double t, double w)
{
    (void)w;
    return 3 * (fabs(x) + fabs(t) + beta);
}

static double smooth_slope(double x, double t, double w, int operand)
{
    const double d = x - t, s = fabs(d) < beta ? d / beta : d > 0 ? 1 : d < 0 ? -1 : 0;
    (void)w;
    return operand ? -s : s;
}

static double smooth_slope_terms(double x, double t, double w, int operand)
{
    (void)w;
    (void)operand;
    return beta > 0 ? (fabs(x) + fabs(t)) / beta + 1 : 1;
}

static double kl(double x, double t, double w)
{
    (void)w;
    return t == 0 ? 0 : t * (log(t) - x);
}

static double kl_terms(double x, double t, double w)
{
    (void)w;
    return t == 0 ? 0 : fabs(t) * (fabs(log(t)) + fabs(x));
}

static double kl_slope(double x, double t, double w, int operand)
{
    (void)w;
    return !operand ? -t : t == 0 ? 0 : log(t) + 1 - x;
}

static double kl_slope_terms(double x, double t, double w, int operand)
{
    (void)w;
    return !operand ? t : t == 0 ? 0 : fabs(log(t)) + 1 + fabs(x);
}

static double kl_log(double x, double t, double w)
{
    (void)w;
    return exp(t) * (t - x);
}

static double kl_log_terms(double x, double t, double w)
{
    (void)w;
    return 2 * exp(t) * (fabs(t) + fabs(x));
}

static double kl_log_slope(double x, double t, double w, int operand)
{
    (void)w;
    return operand ? exp(t) * (t + 1 - x) : -exp(t);
}

static double kl_log_slope_terms(double x, double t, double w, int operand)
{
    (void)w;
    return operand ? 2 * exp(t) * (fabs(t) + 1 + fabs(x)) : exp(t);
}

/* --- cases ---------------------------------------------------------------------------------- */

static clt_status build_bce(clt_value *const *in, clt_value **sum, clt_value **weight)
{
    return clt_bce_with_logits(in[0], in[1], in[2], sum, weight);
}

static clt_status build_huber(clt_value *const *in, clt_value **sum, clt_value **weight)
{
    return clt_huber(in[0], in[1], delta, sum, weight);
}

static clt_status build_smooth(clt_value *const *in, clt_value **sum, clt_value **weight)
{
    return clt_smooth_l1(in[0], in[1], beta, sum, weight);
}

static clt_status build_kl(clt_value *const *in, clt_value **sum, clt_value **weight)
{
    return clt_kl_div(in[0], in[1], NULL, sum, weight);
}

static clt_status build_kl_log(clt_value *const *in, clt_value **sum, clt_value **weight)
{
    clt_kl_div_options o;
    clt_kl_div_options_init(&o);
    o.log_target = o.batchmean = 1;
    return clt_kl_div(in[0], in[1], &o, sum, weight);
}

static const loss losses[] = {
    {"bce_with_logits",
     build_bce,
     bce,
     bce_terms,
     bce_slope,
     bce_slope_terms,
     {-9, 0},
     {18, 1},
     false,
     false},
    {"bce_with_logits, weighted",
     build_bce,
     bce,
     bce_terms,
     bce_slope,
     bce_slope_terms,
     {-9, 0},
     {18, 1},
     true,
     false},
    {"huber",
     build_huber,
     huber,
     huber_terms,
     huber_slope,
     huber_slope_terms,
     {-2, -1},
     {4, 2},
     false,
     false},
    {"smooth_l1",
     build_smooth,
     smooth,
     smooth_terms,
     smooth_slope,
     smooth_slope_terms,
     {-2, -1},
     {4, 2},
     false,
     false},
    {"kl_div", build_kl, kl, kl_terms, kl_slope, kl_slope_terms, {-6, 0.01}, {6, 1}, false, false},
    {"kl_div of logarithms",
     build_kl_log,
     kl_log,
     kl_log_terms,
     kl_log_slope,
     kl_log_slope_terms,
     {-6, -6},
     {6, 6},
     false,
     true},
};

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    OP_OK(((const loss *)c->attr)->build(in, &out[0], &out[1]));
}

/* Returns the weight of x's element `at`. Weights have x's last dimension, or all its dimensions
 * without the last. */
static double weight_at(const op_case *c, int64_t at, int64_t n, double *const *x)
{
    if (c->n_in < 3)
        return 1;
    const int64_t last = op_dim(c, 0, c->in[0].rank - 1, n);
    return x[2][c->in[2].dims[c->in[2].rank - 1] == 1 ? at / last % op_count(c, 2, n) : at % last];
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const loss *l = c->attr;
    const int64_t count = op_count(c, 0, n);
    double sum = 0, terms = 0;
    for (int64_t i = 0; i < count; i++) {
        const double w = weight_at(c, i, n, x);
        sum += l->value(x[0][i], x[1][i], w);
        terms += l->terms(x[0][i], x[1][i], w);
    }
    y[0][0] = sum;
    y[1][0] = (double)(l->per_row ? op_dim(c, 0, 0, n) : count);
    if (bound)
        bound[0][0] = terms * sqrt((double)count);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const loss *l = c->attr;
    for (int64_t i = 0; i < op_count(c, 0, n); i++)
        for (int k = 0; k < 2; k++) {
            const double w = weight_at(c, i, n, x);
            dx[k][i] = dy[0][0] * l->slope(x[0][i], x[1][i], w, k);
            bound[k][i] = fabs(dy[0][0]) * l->slope_terms(x[0][i], x[1][i], w, k);
        }
}

static op_test test_of(const loss *l)
{
    return (op_test){l->name, 2, 2, build, forward, backward, 0};
}

static const struct shape {
    int rank;
    int64_t dims[3], weights[3], batch;
    int weights_rank;
} shapes[] = {
    {2, {CLT_BATCH, 10, 0}, {10, 0, 0}, 5, 1}, {3, {CLT_BATCH, 3, 16}, {3, 1, 0}, 7, 2},
    {1, {CLT_BATCH, 0, 0}, {1, 0, 0}, 1, 1},   {2, {CLT_BATCH, 101, 0}, {1, 101, 0}, 97, 2},
    {2, {3, 5, 0}, {5, 0, 0}, 1, 1},           {3, {2, 3, 5001}, {3, 1, 0}, 1, 2},
};

enum { MOST = 30006 };
static double numbers[3][MOST];

static void check(const loss *l, op_test *t, const struct shape *s)
{
    char text[OP_TEXT];
    op_case c = {.text = text, .n_in = 2 + l->weighted, .batch = s->batch, .attr = l};
    snprintf(text, sizeof text, "rank %d, batch %lld", s->rank, (long long)s->batch);
    for (int i = 0; i < c.n_in; i++) {
        uint64_t state = 3 + (uint64_t)i;
        c.in[i] = (op_operand){.dtype = CLT_F32,
                               .rank = i < 2 ? s->rank : s->weights_rank,
                               .gradient = i < 2,
                               .set = numbers[i]};
        memcpy(c.in[i].dims, i < 2 ? s->dims : s->weights, sizeof s->dims);
        const double least = i < 2 ? l->least[i] : 0.5, range = i < 2 ? l->range[i] : 4;
        for (int64_t j = 0; j < MOST; j++)
            numbers[i][j] = (double)(float)(least + (op_uniform(&state) + 1) / 2 * range);
    }
    const bool small = op_count(&c, 0, s->batch) < 1000;
    if (!clt_test_oclgrind() || small)
        op_check(t, &c, small);
}

static void test_shapes(void **state)
{
    (void)state;
    delta = 0.75;
    beta = 0.5;
    for (size_t k = 0; k < sizeof losses / sizeof *losses; k++) {
        op_test t = test_of(&losses[k]);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (!clt_test_oclgrind() || i < 2)
                check(&losses[k], &t, &shapes[i]);
        op_report(&t);
    }
}

/* Numbers far from 0, where exp overflows, or where the loss is smaller than an ulp of x; and the
 * corners of |d| and of t log t. */
static void test_edges(void **state)
{
    static const double logits[] = {200, 200, -200, -200, 30, -30, 0, 88, -88};
    static const double target[] = {1, 0, 1, 0, 1, 0, 0.5, 1, 0};
    static const double same[] = {0.5, -1, 2}, other[] = {0.5, 1, 2};
    static const double logs[] = {-1, -200, -2}, none[] = {0, 0, 1};
    static const struct {
        int loss, count;
        const double *x, *t;
    } cases[] = {{0, 9, logits, target}, {3, 3, same, other}, {4, 3, logs, none}};
    (void)state;
    beta = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_test t = test_of(&losses[cases[i].loss]);
        const op_case c = {.text = "edges",
                           .n_in = 2,
                           .in = {{CLT_F32, 1, {cases[i].count}, OP_RANDOM, true, cases[i].x},
                                  {CLT_F32, 1, {cases[i].count}, OP_RANDOM, true, cases[i].t}},
                           .batch = 1,
                           .attr = &losses[cases[i].loss]};
        op_check(&t, &c, false);
    }
}

/* One confident, right example: its loss is exp(-x), to a few ulp. */
static void tight_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                          double *const *bound)
{
    forward(c, n, x, y, bound);
    if (bound)
        bound[0][0] = y[0][0];
}

static void test_confident(void **state)
{
    static const double logits[] = {1, 5, 12, 20, 40, -1, -5, -12, -20, -40}, zero = 0, one = 1;
    (void)state;
    for (int i = 0; i < 10; i++) {
        op_test t = test_of(&losses[0]);
        const op_case c = {.text = "confident",
                           .n_in = 2,
                           .in = {{CLT_F32, 1, {1}, OP_RANDOM, false, &logits[i]},
                                  {CLT_F32, 1, {1}, OP_RANDOM, false, i < 5 ? &one : &zero}},
                           .batch = 1,
                           .attr = &losses[0]};
        t.forward = tight_forward;
        t.backward = NULL;
        op_check(&t, &c, false);
    }
}

static void golden(op_golden *g)
{
    const char *kind = json_string_value(json_object_get(g->attributes, "loss"));
    const bool batch = !strstr(kind, "weighted"); /* there may be more weights than samples */
    op_golden_operand(g, "x", batch);
    op_golden_operand(g, "t", batch);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        if (!strcmp(losses[i].name, kind))
            g->c.attr = &losses[i];
    assert_non_null(g->c.attr);
    if (((const loss *)g->c.attr)->weighted)
        op_golden_operand(g, "w", false);
    delta = json_number_value(json_object_get(g->attributes, "delta"));
    beta = json_number_value(json_object_get(g->attributes, "beta"));
    op_golden_results(g);
    op_test t = test_of(g->c.attr);
    op_check(&t, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("pair_losses", golden);
}

/* --- errors --------------------------------------------------------------------------------- */

static clt_value *sum, *weight;

static void said(clt_graph *g, clt_status status, clt_status want, const char *message)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), message);
    assert_null(sum);
    assert_null(weight);
    assert_int_equal(clt_graph_status(g), want);
    clt_graph_destroy(g);
}

static clt_graph *begin(clt_value **x)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    return g;
}

static void test_errors(void **state)
{
    clt_value *x;
    clt_kl_div_options o;
    (void)state;
    clt_graph *g = begin(&x);
    clt_value *t = clt_input(g, "t", CLT_F32, 2, (int64_t[]){CLT_BATCH, 5});
    said(g, clt_kl_div(x, t, NULL, &sum, &weight), CLT_SHAPE, "kl_div: f32[Bx4] and f32[Bx5]");
    g = begin(&x);
    t = clt_input(g, "t", CLT_I32, 2, (int64_t[]){CLT_BATCH, 4});
    said(g, clt_bce_with_logits(x, t, NULL, &sum, &weight), CLT_INVALID_ARGUMENT,
         "bce_with_logits: operand 1 must be f32, not i32[Bx4]");
    g = begin(&x);
    t = clt_input(g, "w", CLT_F32, 1, (int64_t[]){3});
    said(g, clt_bce_with_logits(x, x, t, &sum, &weight), CLT_SHAPE,
         "bce_with_logits: the weights f32[3] do not broadcast to f32[Bx4]");
    g = begin(&x);
    said(g, clt_huber(x, x, 0, &sum, &weight), CLT_INVALID_ARGUMENT, "huber: delta is 0");
    g = begin(&x);
    said(g, clt_smooth_l1(x, x, -1, &sum, &weight), CLT_INVALID_ARGUMENT, "smooth_l1: beta is -1");
    g = begin(&x);
    clt_kl_div_options_init(&o);
    o.struct_size = 3;
    said(g, clt_kl_div(x, x, &o, &sum, &weight), CLT_INVALID_ARGUMENT, "kl_div: struct_size");
}

/* A gradient of the weights is refused. */
static void test_weights_gradient(void **state)
{
    clt_value *x, *dx;
    clt_graph *g = begin(&x);
    (void)state;
    clt_value *w = clt_parameter(g, "w", 1, (int64_t[]){4}, (clt_init){0});
    OP_OK(clt_bce_with_logits(x, x, w, &sum, &weight));
    clt_value *dy = clt_input(g, "dy", CLT_F32, 1, (int64_t[]){1});
    assert_int_equal(clt_autodiff(g, &sum, &dy, 1, &w, 1, &dx), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "pos_weight has no gradient"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_edges),
        cmocka_unit_test(test_confident), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_weights_gradient),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
