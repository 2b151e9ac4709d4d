/* Slices by indices: embedding, index_select and index_add. */
#include "ops/index/index_cases.h"

static void build_embedding(const op_case *c, clt_value *const *in, clt_value **out)
{
    const index_case *k = c->attr;
    out[0] = clt_embedding(in[0], in[1], CLT_NO_PADDING);
    ((clt_index_attr *)out[0]->producer->attr)->padding = k->padding;
    index_make_part(k, out[0]);
}

static void build_select(const op_case *c, clt_value *const *in, clt_value **out)
{
    const index_case *k = c->attr;
    out[0] = clt_index_select(in[1], k->axis - c->in[1].rank, in[0]);
    index_make_part(k, out[0]);
}

static void build_add(const op_case *c, clt_value *const *in, clt_value **out)
{
    const index_case *k = c->attr;
    out[0] = clt_index_add(in[2], k->axis, in[0], in[1]);
    index_make_part(k, out[0]);
}

static op_test embedding = {"embedding",         1, 0, build_embedding, index_forward_pick,
                            index_backward_pick, 0};
static op_test select_test = {"index_select",      1, 0, build_select, index_forward_pick,
                              index_backward_pick, 0};
static op_test add_test = {"index_add", 1, 0, build_add, index_forward_sum, index_backward_sum, 0};

static op_case embedding_case(const index_case *k, int64_t batch, int64_t length, int64_t rows,
                              int64_t width)
{
    static char text[OP_TEXT];
    snprintf(text, sizeof text, "batch %lld x %lld of %lld x %lld, padding %lld", (long long)batch,
             (long long)length, (long long)rows, (long long)width, (long long)k->padding);
    return (op_case){.text = text,
                     .n_in = 2,
                     .in = {{CLT_I32, length ? 2 : 1, {CLT_BATCH, length}, OP_LABELS, false, NULL},
                            {CLT_F32, 2, {rows, width}, OP_RANDOM, true, NULL}},
                     .batch = batch,
                     .attr = k,
                     .classes = (int)rows};
}

/* One row for all picks, rows without a pick, rows that vectors fit or not, and pieces of rows. */
static void test_embedding(void **state)
{
    static const struct {
        int64_t batch, length, rows, width, padding;
    } shapes[] = {{5, 3, 7, 16, -1}, {3, 2, 5, 3, 2},   {4, 0, 1, 33, -1},    {7, 0, 9, 1, 0},
                  {2, 5, 3, 64, -1}, {9, 31, 6, 19, 5}, {3, 67, 301, 132, 1}, {1, 1, 2, 1100, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const index_case k = {.padding = shapes[i].padding, .array = 1};
        const op_case c =
            embedding_case(&k, shapes[i].batch, shapes[i].length, shapes[i].rows, shapes[i].width);
        if (!clt_test_oclgrind() || i == 1 || i == 4)
            /* The row of padding has a derivative, but its gradient is left out. */
            op_check(&embedding, &c, shapes[i].padding < 0 && shapes[i].width < 100);
    }
    op_report(&embedding);
}

/* An index outside the table gives NaN, and adds NaN to the gradient of row 0, with padding or not.
 * Nothing is read outside (Oclgrind). */
static void test_no_row(void **state)
{
    static const double indices[2][6] = {{1, 5, 0, -1, 2, 2147483647},
                                         {4, 3, -2147483648.0, 0, 1, 1}};
    (void)state;
    for (int i = clt_test_oclgrind() ? 2 : 0; i < 4; i++) {
        const index_case k = {.padding = i < 2 ? -1 : 0, .array = 1};
        op_case c = embedding_case(&k, 6, 0, 5, i % 2 ? 16 : 3);
        c.in[0].set = indices[i % 2];
        op_check(&embedding, &c, false);
    }
}

static const struct {
    int axis, rank;
    int64_t dims[4], picks, batch;
} sliced[] = {
    {1, 3, {CLT_BATCH, 5, 4}, 7, 3},   {2, 3, {CLT_BATCH, 3, 6}, 2, 5},
    {0, 2, {4, 3}, CLT_BATCH, 5},      {1, 2, {3, 37}, 11, 1},
    {1, 4, {2, 3, 5, 7}, 70, 1},       {0, 1, {9}, CLT_BATCH, 129},
    {1, 3, {CLT_BATCH, 3, 160}, 4, 2}, {1, 3, {CLT_BATCH, 4, 1100}, 37, 3},
};

static op_case sliced_case(size_t i, index_case *k, int array, char *text)
{
    op_case c = {.text = text, .n_in = array + 1, .batch = sliced[i].batch, .attr = k};
    snprintf(text, OP_TEXT, "axis %d of shape %d", sliced[i].axis, (int)i);
    *k = (index_case){.axis = sliced[i].axis, .padding = -1, .array = array};
    c.in[0] = (op_operand){CLT_I32, 1, {sliced[i].picks}, OP_LABELS, false, NULL};
    for (int o = 1; o <= array; o++) {
        c.in[o] = (op_operand){CLT_F32, sliced[i].rank, {0}, OP_RANDOM, true, NULL};
        memcpy(c.in[o].dims, sliced[i].dims, sizeof sliced[i].dims);
    }
    if (array == 2)
        c.in[1].dims[sliced[i].axis] = sliced[i].picks;
    c.classes = (int)sliced[i].dims[sliced[i].axis];
    return c;
}

/* A part of a table: rows of other parts give zeros and get no gradient, and a wrong index is wrong
 * in each part. */
static void test_part_of_rows(void **state)
{
    enum { WHOLE = 11, PICKS = 15 };
    static const int64_t parts[][3] = {{0, 6, 16}, {6, 5, 3}, {8, 3, 35}, {0, 4, 1}};
    static const double wrong[PICKS] = {1, 5, 11, 0, -1, 10, 7, 7, 2147483647, 6, 3, 8, 9, 6, 5};
    (void)state;
    for (int i = clt_test_oclgrind() ? 2 : 0; i < 8; i++) {
        const int64_t *p = parts[i / 2];
        const index_case k = {
            .padding = i < 3 ? 7 : -1, .array = 1, .lowest = p[0], .whole = WHOLE};
        op_case c = embedding_case(&k, PICKS, 0, p[1], p[2]);
        c.classes = WHOLE;
        if (i % 2)
            c.in[0].set = wrong;
        op_check(&embedding, &c, k.padding < 0 && i % 2 == 0);
    }
    for (int i = 0; i < 2; i++) {
        char text[OP_TEXT];
        index_case k;
        op_case c = sliced_case(1, &k, 1 + i, text);
        k.lowest = 6 * i;
        k.whole = 12;
        c.classes = 12;
        op_check(i ? &add_test : &select_test, &c, true);
    }
}

static void test_select(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sliced / sizeof *sliced; i++) {
        char text[OP_TEXT];
        index_case k;
        const op_case c = sliced_case(i, &k, 1, text);
        if (!clt_test_oclgrind() || i == 1 || i == 3)
            op_check(&select_test, &c, true);
    }
    op_report(&select_test);
}

static void test_add(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sliced / sizeof *sliced; i++) {
        char text[OP_TEXT];
        index_case k;
        op_case c = sliced_case(i, &k, 2, text);
        c.sharp = true; /* many terms per row, in 16 bits too */
        if (!clt_test_oclgrind() || i == 0 || i == 3)
            op_check(&add_test, &c, i < 7);
    }
    op_report(&add_test);
}

/* Sums of images in 16 bits are rounded once, however many terms they have. */
static void test_add_in_halves(void **state)
{
    static const size_t of_images[] = {0, 1, 6, 7};
    const int modes = clt_test_oclgrind() ? 2 : (int)(sizeof op_half_modes / sizeof *op_half_modes);
    (void)state;
    for (size_t i = 0; i < (clt_test_oclgrind() ? 1 : sizeof of_images / sizeof *of_images); i++)
        for (int m = 0; m < modes; m++) {
            char text[OP_TEXT];
            index_case k;
            op_case c = sliced_case(of_images[i], &k, 2, text);
            op_bound b;
            c.sharp = true;
            op_bind(&add_test, &c, &op_half_modes[m], &b);
            for (int j = 0; j < b.plan->n_nodes; j++)
                if (!strcmp(b.plan->graph->nodes[j]->op->name, "index_add"))
                    assert_true(op_is_half(b.plan->graph->nodes[j]->out[0]));
            op_check_bound(&add_test, &c, &b);
            op_unbind(&b);
        }
}

static void refuse(clt_value *(*build)(clt_graph *g), const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    assert_null(build(g));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static clt_value *input(clt_graph *g, const char *name, clt_dtype dtype, int rank, int64_t a,
                        int64_t b, int64_t c)
{
    return clt_input(g, name, dtype, rank, (int64_t[]){a, b, c});
}

static clt_value *floats_as_indices(clt_graph *g)
{
    return clt_embedding(input(g, "i", CLT_F32, 1, CLT_BATCH, 0, 0),
                         input(g, "w", CLT_F32, 2, 5, 3, 0), CLT_NO_PADDING);
}

static clt_value *integer_weight(clt_graph *g)
{
    return clt_embedding(input(g, "i", CLT_I32, 1, CLT_BATCH, 0, 0),
                         input(g, "w", CLT_I32, 2, 5, 3, 0), CLT_NO_PADDING);
}

static clt_value *weight_of_images(clt_graph *g)
{
    return clt_embedding(input(g, "i", CLT_I32, 1, 3, 0, 0),
                         input(g, "w", CLT_F32, 2, CLT_BATCH, 3, 0), CLT_NO_PADDING);
}

static clt_value *weight_of_rank_3(clt_graph *g)
{
    return clt_embedding(input(g, "i", CLT_I32, 1, 3, 0, 0), input(g, "w", CLT_F32, 3, 5, 3, 2),
                         CLT_NO_PADDING);
}

static clt_value *padding_behind(clt_graph *g)
{
    return clt_embedding(input(g, "i", CLT_I32, 1, 3, 0, 0), input(g, "w", CLT_F32, 2, 5, 3, 0), 5);
}

static clt_value *padding_before(clt_graph *g)
{
    return clt_embedding(input(g, "i", CLT_I32, 1, 3, 0, 0), input(g, "w", CLT_F32, 2, 5, 3, 0),
                         -6);
}

static clt_value *batch_axis(clt_graph *g)
{
    return clt_index_select(input(g, "x", CLT_F32, 2, CLT_BATCH, 3, 0), 0,
                            input(g, "i", CLT_I32, 1, 3, 0, 0));
}

static clt_value *no_axis(clt_graph *g)
{
    return clt_index_select(input(g, "x", CLT_F32, 2, CLT_BATCH, 3, 0), -3,
                            input(g, "i", CLT_I32, 1, 3, 0, 0));
}

static clt_value *two_batches(clt_graph *g)
{
    return clt_index_select(input(g, "x", CLT_F32, 2, CLT_BATCH, 3, 0), 1,
                            input(g, "i", CLT_I32, 1, CLT_BATCH, 0, 0));
}

static clt_value *index_of_rank_2(clt_graph *g)
{
    return clt_index_select(input(g, "x", CLT_F32, 2, CLT_BATCH, 3, 0), 1,
                            input(g, "i", CLT_I32, 2, 3, 3, 0));
}

static clt_value *wrong_source(clt_graph *g)
{
    return clt_index_add(input(g, "x", CLT_F32, 2, CLT_BATCH, 3, 0), 1,
                         input(g, "i", CLT_I32, 1, 4, 0, 0),
                         input(g, "s", CLT_F32, 2, CLT_BATCH, 3, 0));
}

static void test_errors(void **state)
{
    (void)state;
    refuse(floats_as_indices, "the indices must be i32, not f32[B]");
    refuse(integer_weight, "must be f32, not i32[5x3]");
    refuse(weight_of_images, "must be [V, D] of constant size, not f32[Bx3]");
    refuse(weight_of_rank_3, "must be [V, D] of constant size, not f32[5x3x2]");
    refuse(padding_behind, "padding_idx 5 is no row of the weight f32[5x3]");
    refuse(padding_before, "padding_idx -6 is no row");
    refuse(batch_axis, "axis 0 of f32[Bx3] is the batch");
    refuse(no_axis, "axis -3 of f32[Bx3] does not exist");
    refuse(two_batches, "only one of the indices and the axes before");
    refuse(index_of_rank_2, "one dimension, not i32[3x3]");
    refuse(wrong_source, "the source is f32[Bx3], not f32[Bx4]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),    cmocka_unit_test(test_no_row),
        cmocka_unit_test(test_part_of_rows), cmocka_unit_test(test_select),
        cmocka_unit_test(test_add),          cmocka_unit_test(test_add_in_halves),
        cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
