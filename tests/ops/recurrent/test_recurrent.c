/* LSTM and GRU: whole sequences, their states, lengths, and both directions. */
#include "ops/recurrent/recurrent_cases.h"

/* Returns elements `first` .. `first` + count of axis 1, or of a vector. */
static clt_value *part(clt_value *x, int64_t first, int64_t count)
{
    const int last = clt_value_rank(x) - 1;
    int64_t start[2] = {0, 0}, stop[2] = {CLT_TO_END, CLT_TO_END};
    start[last] = first;
    stop[last] = first + count;
    return clt_slice(x, start, stop, NULL);
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const rnn *r = c->attr;
    const int64_t H = r->H, rows = r->gates * H;
    clt_recurrent_options options;
    clt_value *y, *states[2];
    clt_recurrent_options_init(&options);
    options.reverse = r->reverse;
    options.lengths = r->lengths ? in[LENGTHS] : NULL;
    if (r->state) {
        options.h0 = r->gates == 4 ? part(in[STATE], 0, H) : in[STATE];
        options.c0 = r->gates == 4 ? part(in[STATE], H, H) : NULL;
    }
    clt_value *b_ih = part(in[BIASES], 0, rows), *b_hh = part(in[BIASES], rows, rows);
    if (r->gates == 4)
        OP_OK(
            clt_lstm(in[X], in[W_IH], in[W_HH], b_ih, b_hh, &options, &y, &states[0], &states[1]));
    else
        OP_OK(clt_gru(in[X], in[W_IH], in[W_HH], b_ih, b_hh, &options, &y, &states[0]));
    clt_value *state = r->gates == 4 ? clt_concat(states, 2, 1) : clt_copy(states[0]);
    if (!r->only_state)
        *out++ = y;
    *out = state;
}

static op_test tests_of[2][2] = {{{"gru", 2, 0, build, rnn_forward, rnn_backward, 0},
                                  {"gru, state", 1, 0, build, rnn_forward, rnn_backward, 0}},
                                 {{"lstm", 2, 0, build, rnn_forward, rnn_backward, 0},
                                  {"lstm, state", 1, 0, build, rnn_forward, rnn_backward, 0}}};

static void check(const rnn *r, int64_t batch, const double *lengths, bool differences)
{
    const int64_t rows = (int64_t)r->gates * r->H;
    char text[OP_TEXT];
    snprintf(text, sizeof text, "T %d, I %d, H %d%s%s%s", r->T, r->I, r->H,
             r->reverse ? ", reverse" : "", r->state ? ", state" : "",
             r->lengths ? ", lengths" : "");
    const op_case c = {text,
                       6,
                       {{CLT_F32, 3, {CLT_BATCH, r->T, r->I}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2, {rows, r->I}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2, {rows, r->H}, OP_RANDOM, true, NULL},
                        {CLT_F32, 1, {2 * rows}, OP_RANDOM, true, NULL},
                        {CLT_F32,
                         r->state ? 2 : 0,
                         {CLT_BATCH, r->gates == 4 ? 2 * r->H : r->H},
                         OP_RANDOM,
                         true,
                         NULL},
                        {CLT_I32, r->lengths ? 1 : 0, {CLT_BATCH}, OP_LABELS, false, lengths}},
                       batch,
                       .attr = r};
    op_check(&tests_of[r->gates == 4][r->only_state], &c, differences);
}

/* Numbers of units below, at and above vectors and panels of vectors; numbers of samples below and
 * above tiles. */
static void test_shapes(void **state)
{
    static const rnn all[] = {
        {4, 3, 5, 7, false, true, false, false},  {3, 3, 5, 7, false, true, false, false},
        {4, 2, 3, 33, true, false, false, false}, {3, 2, 3, 33, true, true, false, false},
        {4, 1, 2, 16, false, false, false, true}, {3, 1, 2, 16, false, false, false, true},
        {4, 4, 1, 1, false, true, false, true},   {3, 5, 17, 1, true, true, false, false},
        {4, 3, 4, 50, false, true, false, false}, {3, 2, 4, 70, false, true, false, false}};
    static const int64_t batches[] = {5, 4, 19, 37, 2, 3, 1, 4, 9, 23};
    (void)state;
    /* On Oclgrind there is time for test_lengths only. */
    for (int i = 0; i < 10 && !clt_test_oclgrind(); i++)
        check(&all[i], batches[i], NULL, i < 2 || all[i].H < 3);
    for (int lstm = 0; lstm < 2; lstm++)
        op_report(&tests_of[lstm][0]);
}

/* Lengths of 0, of all steps, and of more steps than there are. */
static void test_lengths(void **state)
{
    static const double lengths[] = {2, 0, 4, 1, 9, -3, 3};
    (void)state;
    for (int i = 0; i < 8; i++) {
        const rnn r = {
            i & 1 ? 3 : 4, clt_test_oclgrind() ? 2 : 4, 2, i & 2 ? 5 : 18, (i & 2) != 0, true, true,
            i > 3};
        if (!clt_test_oclgrind() || i == 2 || i == 3)
            check(&r, clt_test_oclgrind() ? 3 : 7, lengths, i == 2 || i == 3);
    }
    for (int lstm = 0; lstm < 2; lstm++)
        op_report(&tests_of[lstm][1]);
}

/* --- detach, rows of samples ------------------------------------------------------------------ */

static void build_detached(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_mul(in[0], clt_detach(in[1]));
}

/* The reference. The gradient of its second operand is not asked for. */
static void forward_detached(const op_case *c, int64_t n, double *const *x, double *const *y,
                             double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = x[0][i] * x[1][i];
        if (bound)
            bound[0][i] = fabs(y[0][i]);
    }
}

static void backward_detached(const op_case *c, int64_t n, double *const *x, double *const *dy,
                              double *const *dx, double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        dx[0][i] = dy[0][i] * x[1][i];
        bound[0][i] = fabs(dx[0][i]);
    }
}

static void test_detach(void **state)
{
    op_test t = {"detach", 1, 0, build_detached, forward_detached, backward_detached, 0};
    const op_case c = {"a product with a constant",
                       2,
                       {{CLT_F32, 2, {CLT_BATCH, 5}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2, {CLT_BATCH, 5}, OP_RANDOM, false, NULL}},
                       4,
                       .attr = NULL};
    clt_graph *g;
    clt_value *x, *y, *seed, *gradient = NULL;
    (void)state;
    op_check(&t, &c, true);
    /* No gradient is passed on. */
    OP_OK(clt_graph_create(&g));
    x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 5});
    y = clt_relu(clt_detach(x));
    seed = clt_graph_value(g, CLT_VALUE_INPUT, &y->type, "dy");
    OP_OK(clt_autodiff(g, &y, &seed, 1, &x, 1, &gradient));
    assert_null(gradient);
    clt_graph_destroy(g);
}

static void build_rows(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_batch_rows(in[0]);
    out[1] = clt_batch_rows_put(in[0], in[1]);
}

/* Samples from 0 on; tests/train has others. Rows that `all` lacks are NaN. */
static void forward_rows(const op_case *c, int64_t n, double *const *x, double *const *y,
                         double *const *bound)
{
    const int64_t row = c->in[0].dims[1], count = op_count(c, 0, n);
    (void)bound;
    for (int64_t i = 0; i < n * row; i++)
        y[0][i] = i < count ? x[0][i] : NAN;
    for (int64_t i = 0; i < count; i++)
        y[1][i] = i < n * row ? x[1][i] : x[0][i];
}

static void test_rows(void **state)
{
    op_test t = {"batch_rows", 2, 3, build_rows, forward_rows, NULL, 0};
    (void)state;
    for (int64_t row = 3; row < 5; row++)
        for (int64_t batch = 6; batch < 8; batch++) {
            const op_case c = {"rows",
                               2,
                               {{CLT_F32, 2, {6, row}, OP_RANDOM, false, NULL},
                                {CLT_F32, 2, {CLT_BATCH, row}, OP_RANDOM, false, NULL}},
                               batch,
                               .attr = NULL};
            op_check(&t, &c, false);
        }
}

/* --- errors ----------------------------------------------------------------------------------- */

typedef struct wrong {
    int x[3], w_ih[2], w_hh[2], bias, h0[2], lengths; /* -1: the batch; lengths 1: given as f32 */
    clt_status status;
    const char *part;
} wrong;

static clt_value *input(clt_graph *g, const char *name, int rank, const int *dims)
{
    int64_t all[3] = {0};
    for (int k = 0; k < rank; k++)
        all[k] = dims[k];
    return clt_input(g, name, CLT_F32, rank, all);
}

static void check_wrong(const wrong *w, bool lstm)
{
    clt_recurrent_options options;
    clt_value *y = NULL, *h_n = NULL, *c_n = NULL;
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_recurrent_options_init(&options);
    clt_value *x = input(g, "x", w->x[2] ? 3 : 2, w->x);
    clt_value *a = input(g, "a", 2, w->w_ih), *b = input(g, "b", 2, w->w_hh);
    clt_value *bias = input(g, "bias", 1, &w->bias);
    options.h0 = w->h0[0] ? input(g, "h0", 2, w->h0) : NULL;
    options.lengths = w->lengths ? input(g, "lengths", 1, (int[]){-1}) : NULL;
    const clt_status status = lstm ? clt_lstm(x, a, b, bias, NULL, &options, &y, &h_n, &c_n)
                                   : clt_gru(x, a, b, NULL, bias, &options, &y, &h_n);
    assert_int_equal(status, w->status);
    assert_null(y);
    assert_null(h_n);
    assert_null(c_n);
    if (!strstr(clt_error_message(), w->part) ||
        strncmp(clt_error_message(), lstm ? "lstm" : "gru", 3))
        fail_msg("'%s' does not say '%s'", clt_error_message(), w->part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    static const wrong lstm[] = {
        {{-1, 4}, {12, 5}, {12, 3}, 12, {0}, 0, CLT_SHAPE, "f32[Bx4] must be [B, T, I]"},
        {{-1, 4, 5}, {12, 6}, {12, 3}, 12, {0}, 0, CLT_SHAPE, "weight_ih f32[12x6]"},
        {{-1, 4, 5}, {13, 5}, {13, 3}, 13, {0}, 0, CLT_SHAPE, "[4 H, I]"},
        {{-1, 4, 5}, {12, 5}, {12, 4}, 12, {0}, 0, CLT_SHAPE, "weight_hh f32[12x4]"},
        {{-1, 4, 5}, {16, 5}, {12, 3}, 16, {0}, 0, CLT_SHAPE, "does not fit weight_hh f32[12x3]"},
        {{-1, 4, 5}, {12, 5}, {12, 3}, 11, {0}, 0, CLT_SHAPE, "bias f32[11]"},
        {{-1, 4, 5}, {12, 5}, {12, 3}, 12, {-1, 4}, 0, CLT_SHAPE, "h0 f32[Bx4] must be f32[Bx3]"},
        {{-1, 4, 5}, {12, 5}, {12, 3}, 12, {0}, 1, CLT_INVALID_ARGUMENT, "must be i32[B]"}};
    static const wrong gru[] = {
        {{-1, 4, 5}, {9, 5}, {12, 3}, 12, {0}, 0, CLT_SHAPE, "weight_hh f32[12x3] must be [3 H"},
        {{-1, 4, 5}, {9, 5}, {9, 3}, 8, {0}, 0, CLT_SHAPE, "bias_hh f32[8] must be f32[9]"}};
    clt_value *y;
    (void)state;
    for (size_t i = 0; i < sizeof lstm / sizeof *lstm; i++)
        check_wrong(&lstm[i], true);
    for (size_t i = 0; i < sizeof gru / sizeof *gru; i++)
        check_wrong(&gru[i], false);
    assert_int_equal(clt_lstm(NULL, NULL, NULL, NULL, NULL, NULL, &y, NULL, NULL),
                     CLT_INVALID_ARGUMENT);
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    assert_null(clt_batch_rows_put(clt_input(g, "all", CLT_F32, 2, (int64_t[]){4, 3}),
                                   clt_input(g, "rows", CLT_F32, 2, (int64_t[]){CLT_BATCH, 2})));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "f32[4x3] has no rows for"));
    clt_graph_destroy(g);
    OP_OK(clt_graph_create(&g));
    assert_null(clt_batch_rows(clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 2})));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_detach), cmocka_unit_test(test_rows), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
