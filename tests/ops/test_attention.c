/* Attention in its three forms, against sums over all pairs in double. */
#include "ops/attention_cases.h"
#include "ops/golden.h"

/* What is the same for all: rows that fill tiles and do not, one row, keys before the first. */
static void test_heads(void **state)
{
    (void)state;
    const op_case cases[] = {
        HEADS("one tile", 2, 2, 2, 16, 16, 16, NULL, {.form = 0}),
        HEADS("odd, causal", 3, 2, 2, 21, 21, 20, NULL, {.is_causal = 1}),
        HEADS("long, causal", 2, 1, 1, 131, 131, 64, NULL, {.is_causal = 1}),
        HEADS("more rows than keys, causal", 1, 3, 1, 57, 35, 20, NULL, {.is_causal = 1}),
        HEADS("grouped, more keys than rows", 2, 6, 2, 19, 70, 20, NULL, {.scale = 0.3}),
        HEADS("large heads, causal with a past", 1, 1, 1, 37, 90, 72, NULL,
              {.is_causal = 1, .past = 53}),
        HEADS("one row", 3, 2, 1, 1, 67, 20, NULL, {.form = 0}),
        HEADS("one key", 3, 2, 1, 5, 1, 16, NULL, {.form = 0}),
        HEADS("heads smaller than vectors", 2, 2, 2, 9, 7, 3, NULL, {.is_causal = 1}),
    };
    attention_check(cases, sizeof cases / sizeof *cases);
}

static void test_rows(void **state)
{
    (void)state;
    const op_case cases[] = {
        ROWS("rows, causal", 3, 2, 2, 34, 34, 20, {.form = 1, .heads = 2, .is_causal = 1}),
        ROWS("rows, grouped", 2, 4, 2, 23, 50, 16, {.form = 1, .heads = 4}),
        PACKED("packed, causal", 3, 2, 2, 50, 64, {.form = 2, .heads = 2, .is_causal = 1}),
        PACKED("packed, grouped", 1, 4, 2, 33, 32, {.form = 2, .heads = 4, .kv_heads = 2}),
    };
    attention_check(cases, sizeof cases / sizeof *cases);
}

/* Masks of every way to broadcast; rows without a key are 0; keys behind those seen are not read.
 */
static void test_masks(void **state)
{
    (void)state;
    double some[2 * 19 * 70], none[35 * 20], past[] = {11}, keys[2 * 40 * 16];
    for (int i = 0; i < 2 * 19 * 70; i++)
        some[i] = i % 3 != 1;
    for (int i = 0; i < 35 * 20; i++)
        none[i] = i / 20 % 4 == 2 || i % 20 > 16 ? -INFINITY : (double)(float)(i % 7 * 0.1);
    for (int i = 0; i < 2 * 40 * 16; i++)
        keys[i] = i / 16 % 40 < 31 ? (double)(float)(i % 13 * 0.07 - 0.4) : NAN;
    op_case cases[] = {
        HEADS("added, of every head", 2, 2, 2, 19, 70, 16, NULL, {.form = 0}),
        HEADS("bytes, of rows and keys", 3, 2, 1, 19, 70, 32, some, {.bytes = 1}),
        HEADS("rows without a key", 2, 1, 1, 35, 20, 32, none, {.form = 0}),
        HEADS("added to keys", 3, 2, 2, 18, 40, 16, NULL, {.is_causal = 1, .past = 5}),
        HEADS("added to rows", 1, 2, 2, 18, 40, 16, NULL, {.form = 0}),
        HEADS("the device's past", 1, 2, 2, 20, 40, 16, NULL, {.is_causal = 1}),
    };
    mask_operand(&cases[0], (int64_t[]){CLT_BATCH, 2, 19, 70});
    mask_operand(&cases[1], (int64_t[]){1, 2, 19, 70});
    mask_operand(&cases[2], (int64_t[]){1, 1, 35, 20});
    mask_operand(&cases[3], (int64_t[]){CLT_BATCH, 1, 1, 40});
    mask_operand(&cases[4], (int64_t[]){1, 2, 18, 1});
    cases[5].n_in = 5;
    cases[5].in[4] = (op_operand){CLT_I32, 1, {1}, .set = past};
    cases[5].in[1].set = cases[5].in[2].set = keys;
    cases[5].in[1].gradient = cases[5].in[2].gradient = false;
    attention_check(cases, sizeof cases / sizeof *cases);
}

/* The weights that the numbers say are dropped, with and without blocks of four that end at a row's
 * last key, by every kernel; as often as asked for. */
static void test_dropout(void **state)
{
    (void)state;
    op_case cases[] = {
        HEADS("dropout, odd, causal", 3, 2, 1, 21, 23, 20, NULL, {.is_causal = 1, .dropout = 0.25}),
        PACKED("dropout, long, packed, causal", 2, 1, 1, 131, 64,
               {.form = 2, .heads = 1, .is_causal = 1, .dropout = 0.1}),
        HEADS("dropout, narrow heads", 2, 2, 2, 9, 7, 3, NULL, {.is_causal = 1, .dropout = 0.4}),
        HEADS("dropout, masked", 2, 2, 1, 7, 35, 32, NULL, {.dropout = 0.3}),
        ROWS("all dropped", 2, 2, 1, 7, 35, 32, {.form = 1, .heads = 2, .dropout = 1}),
        HEADS("dropout, two images a sample", 2, 2, 1, 7, 35, 32, NULL, {.dropout = 0.4}),
        HEADS("dropout without a batch", 1, 2, 1, 7, 35, 32, NULL, {.dropout = 0.4}),
    };
    const size_t count = sizeof cases / sizeof *cases;
    mask_operand(&cases[3], (int64_t[]){1, 2, 7, 35});
    for (int i = 0; i < 3; i++) {
        cases[count - 2].in[i].dims[0] = 2 * CLT_BATCH;
        cases[count - 1].in[i].dims[0] = 3;
    }
    for (size_t i = 0; i < count; i++)
        cases[i].trains = true;
    attention_check(cases, count);
}

/* Of the reference's factors, which the kernels' agree with. */
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

/* The forward node that evaluation keeps, with the first one's place in the results. */
static void test_evaluation(void **state)
{
    clt_graph *g;
    clt_attention_options o;
    (void)state;
    clt_attention_options_init(&o);
    o.dropout = 0.5;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, 5, 24});
    clt_output(clt_attention_packed(x, 4, 0, &o), "y");
    OP_OK(clt_graph_status(g));
    OP_OK(clt_pass_evaluate(g));
    OP_OK(clt_graph_clean(g, NULL, 0));
    clt_str text = {0};
    clt_graph_dump(g, &text);
    assert_int_equal(g->n_nodes, 1);
    assert_null(strstr(clt_str_text(&text), "dropout"));
    assert_non_null(clt_graph_find(g, "y"));
    clt_str_free(&text);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    clt_graph *g;
    clt_attention_options o;
    clt_attention_options_init(&o);
#define INPUT(name, rank, ...) clt_input(g, name, CLT_F32, rank, (int64_t[]){__VA_ARGS__})
#define FAILS(status, words, call)                                                                 \
    do {                                                                                           \
        OP_OK(clt_graph_create(&g));                                                               \
        assert_null(call);                                                                         \
        assert_int_equal(clt_graph_status(g), status);                                             \
        if (!strstr(clt_error_message(), words))                                                   \
            fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), words);                    \
        clt_graph_destroy(g);                                                                      \
    } while (0)
#define SDPA(q, k, v) clt_scaled_dot_product_attention(q, k, v, &o)
#define B CLT_BATCH
    FAILS(CLT_SHAPE, "must have 4 dimensions",
          SDPA(INPUT("q", 3, B, 2, 8), INPUT("k", 4, B, 1, 2, 8), INPUT("v", 4, B, 1, 2, 8)));
    FAILS(CLT_SHAPE, "size of heads (8)",
          SDPA(INPUT("q", 4, B, 2, 5, 8), INPUT("k", 4, B, 2, 5, 4), INPUT("v", 4, B, 2, 5, 4)));
    FAILS(CLT_SHAPE, "do not fit",
          SDPA(INPUT("q", 4, B, 2, 5, 8), INPUT("k", 4, 3, 2, 5, 8), INPUT("v", 4, 3, 2, 5, 8)));
    FAILS(CLT_SHAPE, "2 heads of k and v do not divide 3 of q",
          SDPA(INPUT("q", 4, B, 3, 5, 8), INPUT("k", 4, B, 2, 5, 8), INPUT("v", 4, B, 2, 5, 8)));
    FAILS(CLT_SHAPE, "no multiple of its 3 heads",
          clt_attention(INPUT("q", 3, B, 5, 8), INPUT("k", 3, B, 5, 8), INPUT("v", 3, B, 5, 8), 3,
                        NULL));
    FAILS(CLT_SHAPE, "no multiple of its 9 heads",
          clt_attention_packed(INPUT("x", 3, B, 5, 24), 3, 0, NULL));
    FAILS(CLT_SHAPE, "2 heads of k and v do not divide 3",
          clt_attention_packed(INPUT("x", 3, B, 5, 28), 3, 2, NULL));
    FAILS(CLT_INVALID_ARGUMENT, "0 heads",
          clt_attention_packed(INPUT("x", 3, B, 5, 24), 0, 0, NULL));
    FAILS(CLT_INVALID_ARGUMENT, "must be f32",
          clt_attention_packed(clt_input(g, "x", CLT_I32, 3, (int64_t[]){B, 5, 24}), 4, 0, NULL));
    o.attn_mask = NULL;
    FAILS(CLT_SHAPE, "does not broadcast to the scores",
          (o.attn_mask = INPUT("mask", 2, 4, 5),
           clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o)));
    FAILS(CLT_INVALID_ARGUMENT, "must be f32 or u8",
          (o.attn_mask = clt_input(g, "mask", CLT_I32, 2, (int64_t[]){5, 5}),
           clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o)));
    o.attn_mask = NULL;
    FAILS(CLT_INVALID_ARGUMENT, "without",
          (o.past_value = clt_input(g, "past", CLT_I32, 1, (int64_t[]){1}),
           clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o)));
    o.past_value = NULL;
    o.dropout = 1.5;
    FAILS(CLT_INVALID_ARGUMENT, "dropout 1.5",
          clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o));
    o.dropout = 0;
    o.past = -1;
    FAILS(CLT_INVALID_ARGUMENT, "past -1", clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o));
}

/* The gradients of masks of every way to broadcast, of one tile and of several. */
static void test_mask_gradients(void **state)
{
    static const int64_t masks[][4] = {{CLT_BATCH, 2, 7, 35}, {1, 2, 7, 35}, {1, 1, 7, 35},
                                       {CLT_BATCH, 1, 1, 35}, {1, 2, 7, 1},  {1, 1, 1, 1}};
    static const int64_t long_masks[][4] = {
        {1, 2, 70, 83}, {1, 1, 1, 83}, {1, 2, 70, 1}, {CLT_BATCH, 1, 1, 1}};
    const attention_attr attrs[] = {{.form = 0},
                                    {.is_causal = 1, .past = 20},
                                    {.dropout = 0.3},
                                    {.scale = 0.4, .is_causal = 1},
                                    {.is_causal = 1, .past = 4, .dropout = 0.1},
                                    {.form = 0}};
    double some[7 * 35];
    (void)state;
    for (int i = 0; i < 7 * 35; i++)
        some[i] = i / 35 == 4 || i % 35 > 30 ? -INFINITY : (double)(float)(i % 7 * 0.1);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        op_case c = HEADS("a mask's gradient", 3, 2, 1, 7, 35, 32, i == 2 ? some : NULL, {0});
        mask_operand(&c, masks[i]);
        c.attr = &attrs[i];
        c.trains = attrs[i].dropout > 0;
        c.in[3].gradient = true;
        if (!clt_test_oclgrind() || i == 4)
            attention_check(&c, 1);
    }
    for (size_t i = 0; i < sizeof long_masks / sizeof *long_masks; i++) {
        op_case c = ROWS("a long mask's gradient", 2, 2, 2, 70, 83, 32,
                         {.form = 1, .heads = 2, .is_causal = 1, .past = 5});
        c.in[3] = (op_operand){CLT_F32, .gradient = true};
        mask_operand(&c, long_masks[i]);
        attention_check(&c, 1);
    }
    op_case narrow = HEADS("a mask's gradient, narrow heads", 2, 4, 2, 9, 7, 3, NULL, {.form = 0});
    mask_operand(&narrow, (int64_t[]){1, 4, 9, 7});
    narrow.in[3].gradient = true;
    /* Of the mask alone. */
    for (int i = 0; i < 3; i++)
        narrow.in[i].gradient = false;
    attention_check(&narrow, 1);
}

/* Of heads of 241 elements in vectors of four, the last vector overlaps the one before, and no
 * number of vectors that a tile may have keeps it from being alone. */
static void test_lone_vector(void **state)
{
    const op_case c = HEADS("vectors of four, one alone", 1, 1, 1, 3, 6, 241, NULL, {0});
    clt_caps *caps = &op_devices[0]->caps;
    const clt_caps own = *caps;
    op_bound b;
    (void)state;
    caps->vector_width = 4;
    for (int registers = 16; registers <= 32; registers *= 2) {
        caps->vector_registers = registers;
        op_bind(&attention_test, &c, &op_as_device, &b);
        op_check_bound(&attention_test, &c, &b, false);
        op_unbind(&b);
    }
    *caps = own;
}

static void golden(op_golden *g)
{
    static const attention_attr attr = {.form = 0};
    op_golden_operand(g, "q", true);
    op_golden_operand(g, "k", true);
    op_golden_operand(g, "v", true);
    op_golden_operand(g, "mask", false);
    if (g->c.in[3].dims[0] != 1)
        g->c.in[3].dims[0] = CLT_BATCH;
    op_golden_results(g);
    g->c.attr = &attr;
    op_check(&attention_test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("attention", golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),        cmocka_unit_test(test_dropout_rate),
        cmocka_unit_test(test_evaluation),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_mask_gradients), cmocka_unit_test(test_heads),
        cmocka_unit_test(test_rows),           cmocka_unit_test(test_masks),
        cmocka_unit_test(test_goldens),        cmocka_unit_test(test_lone_vector),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
