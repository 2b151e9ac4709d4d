/* Attention with masks and with dropout, against sums over all pairs in double. */
#include "ops/attention/attention_cases.h"

/* Masks with every kind of broadcasting. Rows without a key are 0. Keys behind the visible ones are
 * not read. */
static void test_masks(void **state)
{
    (void)state;
    /* Oclgrind interprets, so it has fewer rows and keys, but more than a tile's. */
    const bool few = clt_test_oclgrind();
    const int64_t T = few ? 9 : 19, S = few ? 50 : 70, rows = few ? 9 : 18;
    double some[2 * 19 * 70], none[35 * 20], past[] = {11}, keys[2 * 40 * 16];
    for (int i = 0; i < 2 * 19 * 70; i++)
        some[i] = i % 3 != 1;
    for (int i = 0; i < 35 * 20; i++)
        none[i] = i / 20 % 4 == 2 || i % 20 > 16 ? -INFINITY : (double)(float)(i % 7 * 0.1);
    for (int i = 0; i < 2 * 40 * 16; i++)
        keys[i] = i / 16 % 40 < 31 ? (double)(float)(i % 13 * 0.07 - 0.4) : NAN;
    op_case cases[] = {
        HEADS("added, of every head", 2, 2, 2, T, S, 16, NULL, {.form = 0}),
        HEADS("bytes, of rows and keys", 3, 2, 1, 19, 70, 32, some, {.bytes = 1}),
        HEADS("rows without a key", 2, 1, 1, 35, 20, 32, none, {.form = 0}),
        HEADS("added to keys", few ? 2 : 3, 2, 2, rows, 40, 16, NULL, {.is_causal = 1, .past = 5}),
        HEADS("added to rows", 1, 2, 2, rows, 40, 16, NULL, {.form = 0}),
        HEADS("the device's past", 1, 2, 2, rows + 2, 40, 16, NULL, {.is_causal = 1}),
    };
    mask_operand(&cases[0], (int64_t[]){CLT_BATCH, 2, T, S});
    mask_operand(&cases[1], (int64_t[]){1, 2, 19, 70});
    mask_operand(&cases[2], (int64_t[]){1, 1, 35, 20});
    mask_operand(&cases[3], (int64_t[]){CLT_BATCH, 1, 1, 40});
    mask_operand(&cases[4], (int64_t[]){1, 2, rows, 1});
    cases[5].n_in = 5;
    cases[5].in[4] = (op_operand){CLT_I32, 1, {1}, .set = past};
    cases[5].in[1].set = cases[5].in[2].set = keys;
    cases[5].in[1].gradient = cases[5].in[2].gradient = false;
    attention_check(cases, sizeof cases / sizeof *cases);
}

/* Every kernel drops exactly the weights that the random numbers select, as often as asked for. A
 * device that has some of the heads or rows draws their numbers. Blocks of four numbers end at
 * a row's last key or not. */
static void test_dropout(void **state)
{
    const bool few = clt_test_oclgrind();
    (void)state;
    op_case cases[] = {
        HEADS("dropout, odd, causal", few ? 2 : 3, 2, 1, few ? 9 : 21, 23, 20, NULL,
              {.is_causal = 1,
               .dropout = 0.25,
               .first_head = 1,
               .all_heads = 5,
               .first_row = 3,
               .all_rows = 50}),
        PACKED("dropout, long, packed, causal", 2, 1, 1, 131, 64,
               {.form = 2,
                .heads = 1,
                .is_causal = 1,
                .dropout = 0.1,
                .first_head = 3,
                .all_heads = 4}),
        HEADS("dropout, narrow heads", 2, 2, 2, 9, 7, 3, NULL, {.is_causal = 1, .dropout = 0.4}),
        HEADS("dropout, masked", few ? 1 : 2, 2, 1, 7, 35, 32, NULL,
              {.dropout = 0.3, .first_row = 7, .all_rows = 21}),
        ROWS("all dropped", 2, 2, 1, 7, 35, 32, {.form = 1, .heads = 2, .dropout = 1}),
        HEADS("dropout, two images a sample", 2, 2, 1, 7, 35, 32, NULL, {.dropout = 0.4}),
        HEADS("dropout without a batch", 1, 2, 1, 7, 35, 32, NULL, {.dropout = 0.4}),
    };
    /* Oclgrind leaves out the last three cases, whose kernels are those of the masked case. */
    const size_t all = sizeof cases / sizeof *cases, count = few ? all - 3 : all;
    mask_operand(&cases[3], (int64_t[]){1, 2, 7, 35});
    for (int i = 0; i < 3; i++) {
        cases[all - 2].in[i].dims[0] = 2 * CLT_BATCH;
        cases[all - 1].in[i].dims[0] = 3;
    }
    for (size_t i = 0; i < count; i++)
        cases[i].trains = true;
    attention_check(cases, count);
}

/* Checks the rate of the reference's factors. The kernels agree with the reference. */
static void test_dropout_rate(void **state)
{
    enum { IMAGES = 4, HEADS_ = 3, SIDE = 100 };
    static const double probabilities[] = {0.1, 0.5, 0.9};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const double p = probabilities[i], all = IMAGES * HEADS_ * SIDE * SIDE;
        const attention_attr attr = {.dropout = p};
        const op_case c = {.attr = &attr,
                           .in = {{.dtype = CLT_F32, .rank = 4, .dims = {CLT_BATCH}}}};
        const attention_sizes s = {.heads = HEADS_, .rows = SIDE, .keys = SIDE};
        double dropped = 0, both = 0;
        for (int64_t e = 0; e < (int64_t)all; e++) {
            const int64_t j = e % SIDE, t = e / SIDE % SIDE, head = e / (SIDE * SIDE) % HEADS_;
            const int64_t b = e / (SIDE * SIDE * HEADS_);
            const bool drops = attention_factor(&c, &s, b, head, t, j) == 0;
            dropped += drops;
            both += drops && attention_factor(&c, &s, b, head, t, (j + 1) % SIDE) == 0;
        }
        if (fabs(dropped - p * all) > 5 * sqrt(p * (1 - p) * all) ||
            fabs(both - p * p * all) > 5 * sqrt(2 * p * p * (1 - p * p) * all))
            fail_msg("p %g drops %g of %g, and %g neighbours", p, dropped, all, both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_rate),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
