/* Results that may overwrite an operand. They may not if the same bytes are another operand, of
 * which the node reads other elements than it writes. The plans have values that share memory,
 * unlike the plans of the other operators' tests. */
#include "ops/harness/harness.h"

enum { ROWS = 4, COLUMNS = 8 };
static const int32_t order[ROWS] = {2, 0, 3, 1};

/* Nodes behind h = 2 x [B, ROWS, COLUMNS]. In the first two, the gradient of the sum is added to
 * itself. */
typedef enum kind { SELECTED, GATHERED, ADDED, SCATTERED, COPIED } kind;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const int64_t rows[] = {ROWS};
    clt_value *index = clt_constant(in[0]->graph, CLT_I32, 1, rows, order);
    clt_value *h = clt_scale(in[0], 2), *y = NULL;
    switch (*(const kind *)c->attr) {
    case SELECTED:
        y = clt_add(h, clt_index_select(h, 1, index));
        break;
    case GATHERED:
        y = clt_add(h, clt_gather(h, 1, in[1]));
        break;
    case ADDED:
        y = clt_index_add(h, 1, index, h);
        break;
    case SCATTERED:
        y = clt_scatter_add(h, 1, in[1], h);
        break;
    case COPIED:
        y = clt_index_copy(h, 1, index, h);
        break;
    }
    out[0] = clt_tanh(y);
}

/* Finds the elements of x whose sum, times 2, is element i of the result; -1: there is none. */
static void terms(kind k, int64_t i, int64_t of[2])
{
    const int64_t row = i / COLUMNS % ROWS;
    int64_t from = order[row];
    for (int64_t r = 0; k >= ADDED && r < ROWS; r++)
        if (order[r] == row)
            from = r;
    of[0] = k == COPIED ? -1 : i;
    of[1] = i + (from - row) * COLUMNS;
}

static double result(kind k, int64_t i, const double *x)
{
    int64_t of[2];
    terms(k, i, of);
    return tanh((of[0] < 0 ? 0 : 2 * x[of[0]]) + 2 * x[of[1]]);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    for (int64_t i = 0; i < n * ROWS * COLUMNS; i++) {
        y[0][i] = result(*(const kind *)c->attr, i, x[0]);
        if (bound)
            bound[0][i] = 4;
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const kind k = *(const kind *)c->attr;
    for (int64_t i = 0; i < n * ROWS * COLUMNS; i++) {
        int64_t of[2];
        const double y = result(k, i, x[0]);
        terms(k, i, of);
        for (int j = 0; j < 2; j++)
            if (of[j] >= 0) {
                dx[0][of[j]] += 2 * dy[0][i] * (1 - y * y);
                bound[0][of[j]] += 8;
            }
    }
}

static void test_intermediates(void **state)
{
    static const char *const texts[] = {"index_select", "gather", "index_add", "scatter_add",
                                        "index_copy"};
    static double index[3 * ROWS * COLUMNS];
    op_test t = {
        .op = "in place", .n_out = 1, .build = build, .forward = forward, .backward = backward};
    (void)state;
    for (int i = 0; i < 3 * ROWS * COLUMNS; i++)
        index[i] = order[i / COLUMNS % ROWS];
    for (kind k = SELECTED; k <= COPIED; k++) {
        const bool indexed = k == GATHERED || k == SCATTERED;
        const op_case c = {
            .text = texts[k],
            .n_in = indexed ? 2 : 1,
            .in = {{CLT_F32, 3, {CLT_BATCH, ROWS, COLUMNS}, OP_RANDOM, true, NULL},
                   {CLT_I32, 3, {CLT_BATCH, ROWS, COLUMNS}, OP_RANDOM, false, index}},
            .batch = 3,
            .attr = &k};
        const clt_bucket_sizes sizes = clt_bucket_sizes_default();
        const clt_plan_options options = clt_plan_options_default(op_plan_mode(false), c.batch);
        op_bound b = {0};
        op_build_graph(&t, &c, CLT_F32, &b);
        OP_OK(clt_buckets_create(b.graph, &sizes, &b.buckets));
        OP_OK(clt_plan_create(b.graph, &b.buckets, &op_devices[0]->caps, NULL, &options, &b.plan));
        OP_OK(clt_replica_create(op_devices[0], &b.buckets, &b.replica));
        clt_arena_init(&b.arena, op_devices[0]);
        op_build_programs(b.plan);
        OP_OK(clt_exec_create(op_devices[0], b.plan, &b.replica, &b.arena, &b.exec));
        op_check_bound(&t, &c, &b);
        op_unbind(&b);
    }
}

/* The sum is a parameter's gradient, which is in its bucket. The value that it adds to is not
 * placed there. */
static void test_gradients(void **state)
{
    const int64_t dims[] = {ROWS, COLUMNS}, rows[] = {ROWS};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    const clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, 1);
    clt_graph *g;
    clt_plan *plan;
    clt_buckets buckets;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *p = clt_parameter(g, "p", 2, dims, (clt_init){0});
    clt_value *picked = clt_index_select(p, 0, clt_constant(g, CLT_I32, 1, rows, order));
    clt_value *r = clt_input(g, "r", CLT_F32, 2, dims);
    clt_loss(g, "loss", clt_reduce_sum(clt_mul(clt_tanh(clt_add(p, picked)), r), NULL, 0, 0),
             clt_reduce_sum(clt_add_scalar(clt_scale(r, 0), 1), NULL, 0, 0), 1);
    OP_OK(clt_buckets_create(g, &sizes, &buckets));
    OP_OK(clt_plan_create(g, &buckets, &op_devices[0]->caps, NULL, &options, &plan));
    const clt_node *sum = plan->gradients[0]->producer;
    assert_string_equal(sum->op->name, "index_add");
    assert_ptr_equal(sum->in[1], sum->in[2]);
    assert_int_equal(plan->places[sum->out[0]->id].kind, CLT_PLACE_GRADIENT);
    assert_int_equal(plan->places[sum->in[1]->id].kind, CLT_PLACE_ARENA);
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_intermediates),
                                       cmocka_unit_test(test_gradients)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
