/* Attention in its three forms, against sums over all pairs in double. */
#include "ops/attention/attention_cases.h"
#include "ops/core/dims.h"
#include "ops/harness/golden.h"

/* Cases that all forms share: rows that fill tiles or not, one row, keys before the first row. */
static void test_heads(void **state)
{
    const bool few = clt_test_oclgrind();
    const int64_t odd = few ? 13 : 21;
    (void)state;
    const op_case cases[] = {
        HEADS("one tile", few ? 1 : 2, 2, 2, 16, 16, 16, NULL, {.form = 0}),
        HEADS("odd, causal", few ? 2 : 3, 2, 2, odd, odd, 20, NULL, {.is_causal = 1}),
        HEADS("long, causal", 2, 1, 1, 131, 131, 64, NULL, {.is_causal = 1}),
        HEADS("more rows than keys, causal", 1, 3, 1, 57, 35, 20, NULL, {.is_causal = 1}),
        HEADS("grouped, more keys than rows", 2, 6, 2, 19, 70, 20, NULL, {.scale = 0.3}),
        HEADS("large heads, causal with a past", 1, 1, 1, 37, 90, 72, NULL,
              {.is_causal = 1, .past = 53}),
        HEADS("one row", 3, 2, 1, 1, 67, 20, NULL, {.form = 0}),
        HEADS("one row of whole vectors", 2, 2, 1, 1, 67, 32, NULL, {.form = 0}),
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

/* Emulated matrix units: rows and keys that fill tiles or not, shared heads. */
static void test_matrix_units(void **state)
{
    static const char *const variants[] = {
        "attention=matrix_units,attention_grad=matrix_units",
        "attention=matrix_units,attention_packed_grad=matrix_units"};
    const op_case cases[] = {
        HEADS("matrix units, odd, causal, grouped", 2, 2, 1, 37, 45, 32, NULL,
              {.is_causal = 1, .past = 6}),
        HEADS("matrix units, 70 rows", 1, 1, 1, 70, 33, 64, NULL, {.scale = 0.3}),
        PACKED("matrix units, packed, causal", 1, 2, 2, 50, 64,
               {.form = 2, .heads = 2, .is_causal = 1}),
    };
    (void)state;
    /* Oclgrind 21.10 crashes in its own check of uninitialised values while it runs these kernels.
     */
    if (clt_test_oclgrind())
        skip();
    for (int i = 0; i < 3; i++)
        op_check_matrix(&attention_test, &cases[i], variants[cases[i].n_in == 1], 2, 0);
}

/* Evaluation keeps the forward node, whose result has the first place among the results. */
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
    FAILS(CLT_INVALID_ARGUMENT, "dropout is 1.5; it must be a number of 0 to 1",
          clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o));
    o.dropout = 0;
    o.past = -1;
    FAILS(CLT_INVALID_ARGUMENT, "past is -1",
          clt_attention_packed(INPUT("x", 3, B, 5, 24), 4, 0, &o));
}

/* For heads of 241 elements in vectors of four, the last vector overlaps the one before. It is the
 * only vector of its tile with any number of vectors that a tile may have. */
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
        op_check_bound(&attention_test, &c, &b);
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

/* Heads are divided over devices if every device gets as many. */
static void test_division(void **state)
{
    enum { HEADS_LABEL = 1 };
    clt_graph *g;
    clt_node_dims dims;
    clt_attention_options o;
    (void)state;
    clt_attention_options_init(&o);
    o.dropout = 0.5;
    OP_OK(clt_graph_create(&g));
    const clt_value *y = clt_attention_packed(INPUT("x", 3, B, 5, 72), 6, 0, &o);
    const clt_node *node = y->producer;
    clt_attention_attr attr = *(const clt_attention_attr *)node->attr;
    clt_node_part part = {CLT_AXIS_TENSOR, HEADS_LABEL, 1, {1, 3}};
    clt_node_dims_of(node, &dims);
    assert_int_equal(dims.in[0][2], HEADS_LABEL);
    assert_int_equal(dims.in_blocks[0][2], 3);
    assert_int_equal(dims.out_blocks[0][2], 1);
    assert_int_equal(dims.behaviour[HEADS_LABEL], CLT_DIM_PARALLEL);
    OP_OK(node->op->localise(node, &part, &attr));
    assert_int_equal(attr.heads, 2);
    assert_int_equal(attr.kv_heads, 2);
    assert_int_equal(attr.first_head, 2);
    assert_int_equal(attr.all_heads, 6);
    part.at.places = 5;
    assert_int_equal(node->op->localise(node, &part, &attr), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), ": 6 heads cannot be divided over 5 places of tp"));
    node = clt_attention(INPUT("q", 3, B, 5, 24), INPUT("k", 3, B, 5, 12), INPUT("v", 3, B, 5, 12),
                         4, &o)
               ->producer;
    part.at.places = 4;
    assert_int_equal(node->op->localise(node, &part, &attr), CLT_UNSUPPORTED);
    assert_non_null(
        strstr(clt_error_message(), ": 2 heads of k and v cannot be divided over 4 places of tp"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evaluation),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_heads),        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_matrix_units), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_lone_vector),  cmocka_unit_test(test_division),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
