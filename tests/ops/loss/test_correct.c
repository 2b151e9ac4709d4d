#include "ops/harness/in_batch_blocked.h"
#include "graph/sharding.h"
#include "ops/loss/correct_parts.h"
#include "ops/loss/label_cases.h"

static int k_of(const op_case *c)
{
    return *(const int *)c->attr;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    clt_correct(in[0], in[1], k_of(c), -100, &out[0], &out[1]);
}

/* Picks the k largest one by one: the first of several equal ones, and NaN before all others. */
static bool is_hit(const double *x, const ref_vectors *v, int k, int64_t label)
{
    bool taken[512] = {false};
    for (int round = 0; round < k; round++) {
        int64_t best = -1;
        for (int64_t j = 0; j < v->classes; j++) {
            const double at = x[j * v->inner];
            if (!taken[j] &&
                (best < 0 || (isnan(at) && !isnan(x[best * v->inner])) || at > x[best * v->inner]))
                best = j;
        }
        if (best == label)
            return true;
        taken[best] = true;
    }
    return false;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, 1, n);
    (void)bound; /* results are counts: no error is allowed */
    y[0][0] = y[1][0] = 0;
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const double label = x[1][i];
        if (label == -100)
            continue;
        if (label < 0 || label >= (double)v.classes) {
            y[0][0] = NAN;
            continue;
        }
        y[0][0] += is_hit(x[0] + ref_first(&v, i), &v, k_of(c), (int64_t)label);
        y[1][0]++;
    }
}

static op_test test = {"correct", 2, 3, build, forward, NULL, 0};

static const struct shape {
    int rank;
    int64_t dims[3], batch;
    int k, ignored;
} shapes[] = {
    {2, {CLT_BATCH, 10}, 97, 1, 0},  {2, {CLT_BATCH, 10}, 13, 3, 1}, {2, {CLT_BATCH, 1}, 1, 1, 0},
    {3, {CLT_BATCH, 5, 3}, 5, 2, 1}, {2, {CLT_BATCH, 7}, 11, 7, 0},  {2, {CLT_BATCH, 257}, 5, 5, 0},
};

static op_case case_of(const struct shape *s, char *text)
{
    op_case c = label_case(s->rank, s->dims, s->batch, s->ignored);
    snprintf(text, OP_TEXT, "batch %lld, %lld classes, top %d", (long long)s->batch,
             (long long)s->dims[1], s->k);
    c.text = text;
    c.attr = &s->k;
    return c;
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[OP_TEXT];
        const op_case c = case_of(&shapes[i], text);
        if (!clt_test_oclgrind() || shapes[i].batch < 20)
            op_check(&test, &c, false);
    }
}

static void build_batch_blocked(const op_case *c, clt_value *const *in, clt_value **out)
{
    clt_value *const images[] = {op_in_batch_blocked(in[0]), in[1]};
    build(c, images, out);
}

static void test_batch_blocked(void **state)
{
    static const struct shape some[] = {{2, {CLT_BATCH, 10}, 37, 1, 1},
                                        {2, {CLT_BATCH, 7}, 13, 3, 0},
                                        {2, {CLT_BATCH, 1}, 1, 1, 0}};
    op_test t = {"correct", 2, 3, build_batch_blocked, forward, NULL, 0};
    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        char text[OP_TEXT];
        const op_case c = case_of(&some[i], text);
        if (!clt_test_oclgrind() || i == 1)
            op_check(&t, &c, false);
    }
}

/* Two places have parts of the classes. */
static void build_parts(const op_case *c, clt_value *const *in, clt_value **out)
{
    const int classes = (int)in[0]->type.dims[1];
    clt_correct_parts_attr attrs[2];
    clt_value *logits[2], *own[2];
    for (int p = 0; p < 2; p++) {
        const int64_t first = clt_part_begin(classes, 2, p),
                      end = clt_part_begin(classes, 2, p + 1);
        attrs[p] = (clt_correct_parts_attr){{k_of(c), -100}, (int)first, classes};
        logits[p] = clt_slice(in[0], (int64_t[]){0, first, 0},
                              (int64_t[]){CLT_TO_END, end, CLT_TO_END}, NULL);
        own[p] = clt_emit1(&clt_op_correct_target, &attrs[p], 2, logits[p], in[1]);
    }
    clt_value *target = clt_add(own[0], own[1]);
    for (int p = 0; p < 2; p++)
        own[p] = clt_emit1(&clt_op_correct_before, &attrs[p], 3, logits[p], in[1], target);
    clt_value *const of[] = {clt_add(own[0], own[1]), in[1]};
    const clt_node *sum = clt_graph_add(in[0]->graph, &clt_op_correct_of_parts, of, 2, &attrs[0]);
    out[0] = sum->out[0];
    out[1] = sum->out[1];
}

static op_test parts_test = {"correct_of_parts", 2, 3, build_parts, forward, NULL, 0};

static void test_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[OP_TEXT];
        const op_case c = case_of(&shapes[i], text);
        if (shapes[i].dims[1] > 1 && (!clt_test_oclgrind() || i == 3))
            op_check(&parts_test, &c, false);
    }
}

static void test_special(void **state)
{
    static const struct shape s = {2, {CLT_BATCH, 3}, 6, 1, 0};
    static const double logits[] = {1, 1, 0, 1, 1, 0, NAN, 2, 1, NAN, 2, 1, 2, NAN, NAN, 0, 0, 0};
    static const double labels[2][6] = {{0, 1, 0, 1, 1, 2}, {0, 1, 3, 1, -100, 2}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[OP_TEXT];
        op_case c = case_of(&s, text);
        c.text = i ? "a label that is no class" : "ties and NaN";
        c.in[0].set = logits;
        c.in[1].set = labels[i];
        op_check(&test, &c, false);
        op_check(&parts_test, &c, false);
    }
}

static void test_errors(void **state)
{
    clt_graph *g;
    clt_value *sum, *weight;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *labels = clt_input(g, "labels", CLT_I32, 1, (int64_t[]){CLT_BATCH});
    assert_int_equal(clt_correct(x, labels, 5, -100, &sum, &weight), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "k is 5, not between 1 and the 4 classes"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_batch_blocked),
                                       cmocka_unit_test(test_special), cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
