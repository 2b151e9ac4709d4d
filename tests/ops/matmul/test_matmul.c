#include "ops/harness/golden.h"
#include "ops/harness/reference_nn.h"

typedef struct trans {
    int a, b;
} trans;

/* Sets the sizes of the last two dimensions. Returns the number of pairs of matrices. */
static int64_t sizes(const op_case *c, int64_t n, int64_t *m, int64_t *cols, int64_t *k)
{
    const trans *t = c->attr;
    const int first = c->in[0].rank - 2;
    int64_t pairs = 1;
    *m = op_dim(c, 0, first + (t->a ? 1 : 0), n);
    *k = op_dim(c, 0, first + (t->a ? 0 : 1), n);
    *cols = op_dim(c, 1, first + (t->b ? 0 : 1), n);
    for (int i = 0; i < first; i++)
        pairs *= op_dim(c, 0, i, n);
    return pairs;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const trans *t = c->attr;
    out[0] = clt_matmul(in[0], in[1], t->a, t->b);
}

static ref_matrix read_as(const double *at, int64_t rows, int64_t columns, bool transposed)
{
    return transposed ? ref_transposed(at, rows) : ref_plain(at, columns);
}

static void forward(const op_case *c, int64_t batch, double *const *x, double *const *y,
                    double *const *bound)
{
    const trans *t = c->attr;
    int64_t m, n, k;
    const int64_t pairs = sizes(c, batch, &m, &n, &k);
    for (int64_t i = 0; i < pairs; i++)
        ref_product(m, n, k, read_as(x[0] + i * m * k, m, k, t->a),
                    read_as(x[1] + i * k * n, k, n, t->b), y[0] + i * m * n,
                    bound ? bound[0] + i * m * n : NULL);
}

static void backward(const op_case *c, int64_t batch, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const trans *t = c->attr;
    int64_t m, n, k;
    const int64_t pairs = sizes(c, batch, &m, &n, &k);
    for (int64_t i = 0; i < pairs; i++) {
        const int64_t of_a = i * m * k, of_b = i * k * n;
        const double *dy_i = dy[0] + i * m * n;
        const ref_matrix g = ref_plain(dy_i, n), gt = ref_transposed(dy_i, n);
        const ref_matrix b = read_as(x[1] + of_b, k, n, t->b), bt = {b.at, b.column, b.row};
        const ref_matrix a = read_as(x[0] + of_a, m, k, t->a), at = {a.at, a.column, a.row};
        if (t->a)
            ref_product(k, m, n, b, gt, dx[0] + of_a, bound[0] + of_a);
        else
            ref_product(m, k, n, g, bt, dx[0] + of_a, bound[0] + of_a);
        if (t->b)
            ref_product(n, k, m, gt, a, dx[1] + of_b, bound[1] + of_b);
        else
            ref_product(k, n, m, at, g, dx[1] + of_b, bound[1] + of_b);
    }
}

static op_test test = {"matmul", 1, 0, build, forward, backward, 0};

/* M, N, K; negative: a multiple of the batch of 5. */
static const int64_t shapes[][3] = {
    {7, 5, 3},   {1, 1, 1},    {-1, 3, 4}, {6, -1, 5},   {5, 3, -1}, {13, 1, 17},  {-2, 31, 17},
    {23, 16, 8}, {12, 33, -3}, {1, 47, 2}, {32, 32, 16}, {4, 8, 20}, {33, 4, 257},
};
static const int64_t few_rows[] = {9, 4, 257}; /* on Oclgrind instead of the last shape */
static const int64_t large[][3] = {{97, 101, 300}, {67, -13, 521}, {-53, 18, 257},
                                   {50, 49, -67},  {64, 128, 96},  {4, 36, 1032}};

/* Shapes for every tile of the kernels for GPUs: odd sizes, and sizes that float4 fits. */
static const int64_t tiled[][3] = {{131, -27, 541}, {132, 140, 516}};

/* Few rows and columns, whose K is divided. K is no multiple of the slices or of vectors. With a
 * smaller batch than the plan's, some slices are empty. */
static const int64_t deep[][3] = {{1, 1, 3001},  {3, 5, 1289},  {1, 37, 517},   {37, 1, -103},
                                  {2, 131, 700}, {-3, 9, 1033}, {17, 16, -4001}};

static void check_shape(const int64_t *shape, bool differences, bool tiles, bool as_gpu)
{
    for (int i = 0; i < 4; i++) {
        const trans t = {i & 1, i >> 1};
        const int64_t m = shape[0], n = shape[1], k = shape[2];
        char text[OP_TEXT];
        snprintf(text, sizeof text, "%lldx%lldx%lld %c%c", (long long)m, (long long)n, (long long)k,
                 t.a ? 'T' : 'N', t.b ? 'T' : 'N');
        /* Only a leading dimension can depend on the batch. */
        if ((m < 0 && t.a) || (n < 0 && !t.b) || (k < 0 && (!t.a || t.b)))
            continue;
        const op_case c = {text,
                           2,
                           {{CLT_F32, 2, {t.a ? k : m, t.a ? m : k}, OP_RANDOM, true, NULL},
                            {CLT_F32, 2, {t.b ? n : k, t.b ? k : n}, OP_RANDOM, true, NULL}},
                           5,
                           .attr = &t,
                           .sharp = true};
        if (tiles)
            op_check_tiles(&test, &c, as_gpu, as_gpu ? 1 + i : 1, as_gpu ? 4 : 1); /* all tiles */
        else
            op_check(&test, &c, differences);
        /* Gradients are products of the other kinds. */
        if (clt_test_oclgrind() && shape != shapes[0])
            return;
    }
}

static void test_shapes(void **state)
{
    (void)state;
    const size_t count = sizeof shapes / sizeof *shapes;
    for (size_t i = 0; i < count; i++)
        check_shape(clt_test_oclgrind() && i == count - 1 ? few_rows : shapes[i], true, false,
                    false);
    for (size_t i = 0; !clt_test_oclgrind() && i < sizeof large / sizeof *large; i++)
        check_shape(large[i], false, false, false);
    for (size_t i = 0; !clt_test_oclgrind() && i < sizeof tiled / sizeof *tiled; i++)
        check_shape(tiled[i], false, true, true);
    for (size_t i = 0; !clt_test_oclgrind() && i < sizeof deep / sizeof *deep; i++) {
        check_shape(deep[i], false, false, false);
        if (i == 1 || i == 6)
            check_shape(deep[i], false, true, false);
    }
    op_report(&test);
}

/* Records with impossible options. */
static void test_records(void **state)
{
    static const char *const options[] = {"TM=2147483647", "TM=2147483647,TN=2147483647,TILE=1",
                                          "TILE=50,KB=0,TN=-5,G=0",
                                          "TM=99999999999999999999,KB=2147483647,S=2147483647"};
    static const trans none = {0, 0};
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const op_case c = {"records",
                           2,
                           {{CLT_F32, 2, {37, 45}, OP_RANDOM, true, NULL},
                            {CLT_F32, 2, {45, 70}, OP_RANDOM, true, NULL}},
                           1,
                           .attr = &none,
                           .sharp = true};
        op_check_options(&test, &c, options[i]);
    }
}

/* Products in several stages on CPUs, in which tiles copy what the next stage reads. The last one
 * has a smaller batch too, of too few rows for that, and columns that do not fit at once. On
 * Oclgrind, the columns of the second one's last work-group fit, but not if they are padded. */
static void test_stages(void **state)
{
    static const char *const options[] = {"KB=32,PB=1,TILE=0,TN=144", "KB=512,PB=1,TILE=0",
                                          "KB=512,PB=1,TILE=1,TM=36", "PB=1,TILE=2",
                                          "KB=512,PB=1,TN=600"};
    static const int64_t sizes[][3] = {
        {70, 210, 600}, {64, 224, 601}, {200, 50, 90}, {-14, 600, 600}};
    static const int64_t few[][3] = {{33, 20, 40}, {33, 274, 31}};
    (void)state;
    for (size_t i = 0; i < (clt_test_oclgrind() ? 2 : sizeof sizes / sizeof *sizes); i++) {
        static const trans none = {0, 0};
        const int64_t *s = clt_test_oclgrind() ? few[i] : sizes[i];
        const op_case c = {"stages",
                           2,
                           {{CLT_F32, 2, {s[0], s[2]}, OP_RANDOM, true, NULL},
                            {CLT_F32, 2, {s[2], s[1]}, OP_RANDOM, true, NULL}},
                           s[0] < 0 ? 5 : 1,
                           .attr = &none,
                           .sharp = true};
        for (size_t j = 0; j < (clt_test_oclgrind() ? 1 : sizeof options / sizeof *options); j++)
            op_check_options(&test, &c, options[j]);
    }
}

/* Pairs of matrices, as many as the batch or twice as many; each transposed or not. */
static void test_pairs(void **state)
{
    static const int64_t inner[][3] = {{5, 7, 3}, {17, 33, 20}, {8, 16, 12}, {3, 5, 777}};
    (void)state;
    for (int i = 0; i < 16; i++) {
        const trans t = {i & 1, i >> 1 & 1};
        const int64_t m = inner[i / 4][0], n = inner[i / 4][1], k = inner[i / 4][2];
        const op_case c = {
            "pairs of matrices",
            2,
            {{CLT_F32, 4, {CLT_BATCH, 2, t.a ? k : m, t.a ? m : k}, OP_RANDOM, true, NULL},
             {CLT_F32, 4, {CLT_BATCH, 2, t.b ? n : k, t.b ? k : n}, OP_RANDOM, true, NULL}},
            clt_test_oclgrind() ? 1 : 3,
            .attr = &t,
            .sharp = true};
        op_check(&test, &c, i < 4);
        if (k > 700)
            op_check_tiles(&test, &c, false, 1, 1);
        if (clt_test_oclgrind() && i >= 3)
            return;
    }
}

/* Pairs of matrices in which the number of rows, of columns or, in gradients, of terms is the
 * batch: x [B, P, K] by w [P, K, N] for each of P. */
static void build_within(const op_case *c, clt_value *const *in, clt_value **out)
{
    static const int order[] = {1, 0, 2}, columns[] = {2, 0, 1};
    clt_value *x = clt_transpose(in[0], order);
    const bool second = *(const bool *)c->attr;
    out[0] = second ? clt_transpose(clt_matmul(in[1], x, 1, 1), columns)
                    : clt_transpose(clt_matmul(x, in[1], 0, 0), order);
}

typedef struct within {
    int64_t p, k, n;
} within;

static within within_of(const op_case *c)
{
    return (within){c->in[1].dims[0], c->in[1].dims[1], c->in[1].dims[2]};
}

static void clear(double *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = 0;
}

/* Adds one of `terms` terms to a sum. */
static void add_term(double a, double b, double terms, double *to, double *bound)
{
    *to += a * b;
    if (bound)
        *bound += fabs(a * b) * sqrt(terms);
}

static void forward_within(const op_case *c, int64_t batch, double *const *x, double *const *y,
                           double *const *bound)
{
    const within s = within_of(c);
    clear(y[0], batch * s.p * s.n);
    if (bound)
        clear(bound[0], batch * s.p * s.n);
    for (int64_t i = 0; i < batch * s.p * s.n; i++) {
        const int64_t n = i % s.n, p = i / s.n % s.p, b = i / s.n / s.p;
        for (int64_t k = 0; k < s.k; k++)
            add_term(x[0][(b * s.p + p) * s.k + k], x[1][(p * s.k + k) * s.n + n], (double)s.k,
                     &y[0][i], bound ? &bound[0][i] : NULL);
    }
}

static void backward_within(const op_case *c, int64_t batch, double *const *x, double *const *dy,
                            double *const *dx, double *const *bound)
{
    const within s = within_of(c);
    for (int i = 0; i < 2; i++) {
        clear(dx[i], op_count(c, i, batch));
        clear(bound[i], op_count(c, i, batch));
    }
    for (int64_t i = 0; i < batch * s.p * s.n; i++) {
        const int64_t n = i % s.n, p = i / s.n % s.p, b = i / s.n / s.p;
        for (int64_t k = 0; k < s.k; k++) {
            const int64_t of_x = (b * s.p + p) * s.k + k, of_w = (p * s.k + k) * s.n + n;
            add_term(dy[0][i], x[1][of_w], (double)s.n, &dx[0][of_x], &bound[0][of_x]);
            add_term(dy[0][i], x[0][of_x], (double)batch, &dx[1][of_w], &bound[1][of_w]);
        }
    }
}

static void test_pairs_within(void **state)
{
    static const int64_t sizes[][3] = {{3, 4, 5}, {2, 20, 33}, {2, 700, 3}};
    op_test pairs = {"matmul", 1, 0, build_within, forward_within, backward_within, 0};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const int64_t few[] = {2, 4, 5}, *s = clt_test_oclgrind() ? few : sizes[i / 2];
        const bool second = i % 2;
        const op_case c = {second ? "pairs, columns of the batch" : "pairs, rows of the batch",
                           2,
                           {{CLT_F32, 3, {CLT_BATCH, s[0], s[1]}, OP_RANDOM, true, NULL},
                            {CLT_F32, 3, {s[0], s[1], s[2]}, OP_RANDOM, true, NULL}},
                           5,
                           .attr = &second,
                           .sharp = true};
        op_check(&pairs, &c, i < 2);
        if (clt_test_oclgrind() && i >= 1)
            return;
    }
}

/* Products on emulated matrix units: both operands in 16 bits, and a second one that is rounded.
 * Sizes are multiples of eight or odd, below and above those of fragments and tiles. */
static void test_matrix_units(void **state)
{
    static const int64_t sizes[][3] = {{40, 72, 48}, {37, 5, 67}};
    (void)state;
    /* Oclgrind 21.10 crashes in its own check of uninitialised values while it runs these kernels.
     */
    if (clt_test_oclgrind())
        skip();
    for (int i = 0; i < 8; i++) {
        const trans t = {i & 1, i >> 1 & 1};
        const int64_t m = sizes[i / 4][0], n = sizes[i / 4][1], k = sizes[i / 4][2];
        const op_case c = {
            "pairs on matrix units",
            2,
            {{CLT_F32, 3, {CLT_BATCH, t.a ? k : m, t.a ? m : k}, OP_RANDOM, true, NULL},
             {CLT_F32, 3, {CLT_BATCH, t.b ? n : k, t.b ? k : n}, OP_RANDOM, true, NULL}},
            2,
            .attr = &t,
            .sharp = true};
        op_check_matrix(&test, &c, "matmul=gemm_matrix", 3, 0);
    }
    for (int i = 1; i < 3; i++) {
        const trans t = {0, i & 1};
        const int64_t n = i < 2 ? 48 : 35, k = i < 2 ? 600 : 67;
        const op_case c = {"a rounded operand on matrix units",
                           2,
                           {{CLT_F32, 2, {-3, k}, OP_RANDOM, true, NULL},
                            {CLT_F32, 2, {t.b ? n : k, t.b ? k : n}, OP_RANDOM, true, NULL}},
                           13,
                           .attr = &t,
                           .sharp = true};
        op_check_matrix(&test, &c, "matmul=gemm_matrix", 3, 0);
        for (int tile = 2; i == 1 && tile <= 8; tile += 6)
            op_check_matrix(&test, &c, "matmul=gemm_matrix", 3, tile);
    }
}

static void golden(op_golden *g)
{
    const trans t = {(int)op_golden_number(g, "transpose_a"),
                     (int)op_golden_number(g, "transpose_b")};
    op_golden_operand(g, "a", false);
    op_golden_operand(g, "b", false);
    op_golden_results(g);
    g->c.attr = &t;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("matmul", golden);
}

/* A first operand with three dimensions keeps its leading ones. Its gradients are those of the
 * flattened product. */
static void build3(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_matmul(in[0], in[1], 0, 0);
}

static void forward3(const op_case *c, int64_t n, double *const *x, double *const *y,
                     double *const *bound)
{
    const int64_t k = op_dim(c, 1, 0, n), cols = op_dim(c, 1, 1, n);
    ref_product(op_count(c, 0, n) / k, cols, k, ref_plain(x[0], k), ref_plain(x[1], cols), y[0],
                bound ? bound[0] : NULL);
}

static void backward3(const op_case *c, int64_t n, double *const *x, double *const *dy,
                      double *const *dx, double *const *bound)
{
    const int64_t k = op_dim(c, 1, 0, n), cols = op_dim(c, 1, 1, n), m = op_count(c, 0, n) / k;
    ref_product(m, k, cols, ref_plain(dy[0], cols), ref_transposed(x[1], cols), dx[0], bound[0]);
    ref_product(k, cols, m, ref_transposed(x[0], k), ref_plain(dy[0], cols), dx[1], bound[1]);
}

static void test_rank3(void **state)
{
    op_test three = {"matmul", 1, 0, build3, forward3, backward3, 0};
    const op_case c = {"[B,3,5] x [5,4]",
                       2,
                       {{CLT_F32, 3, {CLT_BATCH, 3, 5}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2, {5, 4}, OP_RANDOM, true, NULL}},
                       3,
                       .attr = NULL,
                       .sharp = true};
    (void)state;
    op_check(&three, &c, true);
}

static void refused(clt_graph *graph, const char *part)
{
    assert_int_not_equal(clt_graph_status(graph), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(graph);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *a = clt_input(g, "a", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *b = clt_input(g, "b", CLT_F32, 2, (int64_t[]){3, 5});
    assert_null(clt_matmul(a, b, 0, 0));
    refused(g, "f32[Bx4] x f32[3x5]");

    OP_OK(clt_graph_create(&g));
    a = clt_input(g, "a", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(clt_matmul(a, a, 0, 1));
    refused(g, "square of the batch");

    OP_OK(clt_graph_create(&g));
    a = clt_input(g, "a", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 5});
    b = clt_input(g, "b", CLT_F32, 3, (int64_t[]){2, 5, 4});
    assert_null(clt_matmul(a, b, 0, 0));
    refused(g, "leading dimensions of f32[Bx4x5] x f32[2x5x4] differ");

    OP_OK(clt_graph_create(&g));
    a = clt_input(g, "a", CLT_I32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(clt_matmul(a, a, 1, 0));
    refused(g, "must be f32, not i32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_rank3),
        cmocka_unit_test(test_pairs),        cmocka_unit_test(test_pairs_within),
        cmocka_unit_test(test_records),      cmocka_unit_test(test_stages),
        cmocka_unit_test(test_matrix_units), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
