/* LSTM and GRU: whole sequences, their states, lengths, both directions. */
#include "ops/recurrent_cases.h"

/* Elements `first` .. `first` + count of axis 1, or of a vector. */
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

/* Units below, at and beyond vectors and panels of them; samples below and beyond tiles. */
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
    for (int i = 0; i < (clt_test_oclgrind() ? 2 : 10); i++)
        check(&all[i], batches[i], NULL, i < 2 || all[i].H < 3);
    for (int lstm = 0; lstm < 2; lstm++)
        op_report(&tests_of[lstm][0]);
}

/* None, all, and more steps than there are. */
static void test_lengths(void **state)
{
    static const double lengths[] = {2, 0, 4, 1, 9, -3, 3};
    (void)state;
    for (int i = 0; i < 8; i++) {
        const rnn r = {i & 1 ? 3 : 4, 4, 2, i & 2 ? 5 : 18, (i & 2) != 0, true, true, i > 3};
        if (!clt_test_oclgrind() || i == 2 || i == 3)
            check(&r, 7, lengths, i == 2 || i == 3);
    }
    for (int lstm = 0; lstm < 2; lstm++)
        op_report(&tests_of[lstm][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_lengths)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
