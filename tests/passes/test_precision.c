/*
 * Storage in 16 bits: which values of a plan are rounded and which stay f32, whether nodes read the
 * types that are stored, and how much memory is saved. Plans only: no device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/collective/collective.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "support/plans.h"
#include <cltrain/ops.h>

enum { BATCH = 64, WIDTH = 64, CLASSES = 32 };

static bool is_half(const clt_value *value)
{
    return value->type.dtype == CLT_BF16 || value->type.dtype == CLT_F16;
}

static clt_value *weight(clt_graph *g, const char *name, int rank, int64_t rows, int64_t columns)
{
    const clt_init init = {.kind = CLT_INIT_NORMAL, .a = 0, .b = 0.1};
    return clt_parameter(g, name, rank, (const int64_t[]){rows, columns}, init);
}

static void add_loss(clt_graph *g, clt_value *logits)
{
    clt_value *labels = clt_input(g, "label", CLT_I32, 1, (const int64_t[]){CLT_BATCH});
    clt_value *sum, *count, *hits, *of;
    OK(clt_cross_entropy(logits, labels, NULL, &sum, &count));
    OK(clt_loss(g, "loss", sum, count, 1));
    OK(clt_correct(logits, labels, 1, -100, &hits, &of));
    OK(clt_metric(g, "accuracy", hits, of));
}

/* A graph of rows through norms, activations and sums, which all read and write 16 bits. */
static clt_graph *rows_graph(void)
{
    clt_graph *g;
    OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (const int64_t[]){CLT_BATCH, 8, WIDTH});
    clt_value *scale = weight(g, "scale", 1, WIDTH, 0), *shift = weight(g, "shift", 1, WIDTH, 0);
    clt_value *h = clt_mul(x, scale);
    for (int i = 0; i < 6; i++)
        h = clt_add(clt_gelu(clt_layer_norm(h, 1, scale, shift, 1e-5)), h);
    h = clt_transpose(h, (const int[]){0, 2, 1});
    h = clt_flatten(h);
    clt_output(h, "flat");
    add_loss(g, h);
    OK(clt_graph_status(g));
    return g;
}

/* A graph of images through batch norm, pooling and a linear layer, in batch-blocked layout. */
static clt_graph *images_graph(void)
{
    clt_graph *g;
    OK(clt_graph_create(&g));
    const clt_init zero = {.kind = CLT_INIT_ZERO};
    const int64_t channels[] = {4};
    clt_value *x = clt_input(g, "x", CLT_F32, 4, (const int64_t[]){CLT_BATCH, 4, 8, 8});
    clt_value *mean = clt_state(g, "mean", CLT_F32, 1, channels, zero);
    clt_value *var = clt_state(g, "var", CLT_F32, 1, channels, zero);
    clt_value *h =
        clt_conv2d(x, clt_parameter(g, "conv", 4, (const int64_t[]){4, 4, 3, 3}, zero), NULL, NULL);
    h = clt_batch_norm(h, weight(g, "bn.weight", 1, 4, 0), weight(g, "bn.bias", 1, 4, 0), mean, var,
                       NULL, NULL);
    h = clt_flatten(clt_add(clt_relu(h), h));
    add_loss(g, clt_linear(h, weight(g, "fc.weight", 2, CLASSES, 144), NULL));
    OK(clt_graph_status(g));
    return g;
}

static clt_plan *plan_of(const clt_graph *g, clt_dtype precision, clt_buckets *buckets)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, BATCH);
    clt_plan *plan;
    options.precision = precision;
    options.lanes = 16;
    options.early_outputs = true;
    OK(clt_buckets_create(g, &sizes, buckets));
    OK(clt_plan_create(g, buckets, &cpu, NULL, &options, &plan));
    return plan;
}

/* Whether a later sum adds to the value. */
static bool is_part(const clt_graph *g, const clt_value *value)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->base && g->nodes[i]->in[g->nodes[i]->op->base] == value)
            return true;
    return false;
}

/* Checks properties of every plan. */
static void check_plan(const clt_plan *plan, clt_dtype precision)
{
    const clt_graph *g = plan->graph;
    int halves = 0;
    for (int i = 0; i < g->n_values; i++) {
        const clt_value *v = g->values[i];
        halves += is_half(v);
        if (!is_half(v))
            continue;
        assert_int_equal(v->type.dtype, precision);
        assert_int_equal(v->kind, CLT_VALUE_INTERMEDIATE);
        /* Kept values are a parameter's gradient, or a sum to which another one is added. */
        assert_true(v->kept || clt_type_has_batch(&v->type) || is_part(g, v));
        assert_false(v->output);
    }
    assert_true(halves > 8);
    for (int i = 0; i < g->n_losses; i++)
        assert_int_equal(g->losses[i].sum->type.dtype, CLT_F32);
    for (int i = 0; i < g->n_metrics; i++)
        assert_int_equal(g->metrics[i].sum->type.dtype, CLT_F32);
    for (int i = 0; i < g->n_assigns; i++)
        assert_false(is_half(g->assigns[i].value));
    for (int i = 0; i < plan->buckets.n_slots; i++)
        if (plan->gradients[i])
            assert_int_equal(plan->gradients[i]->type.dtype, precision);
    for (int i = 0; i < g->n_nodes; i++) {
        const clt_node *node = g->nodes[i];
        assert_int_equal(node->id, i);
        for (int j = 0; j < node->n_in; j++) {
            const clt_value *in = node->in[j];
            if (!in)
                continue;
            assert_true(!in->producer || in->producer->id < i);
            /* A node reads 16 bits only if its kernels do. */
            const clt_target target = {.caps = &plan->caps, .lanes = 16, .max_batch = BATCH};
            const bool moves = node->op->view || node->op->rounding == CLT_ROUNDS_MOVES;
            if (is_half(in) && !moves && strcmp(node->op->name, "cast"))
                assert_true(node->op->half && node->op->half(node, &target, j, false));
            if (moves)
                assert_int_equal(in->type.dtype, node->out[0]->type.dtype);
        }
        if (!strcmp(node->op->name, "batch_norm_moments") || strstr(node->op->name, "sums"))
            for (int o = 0; o < node->n_out; o++)
                assert_false(is_half(node->out[o]));
        if (!strcmp(node->op->name, "layer_norm"))
            for (int o = 1; o < node->n_out; o++)
                assert_false(is_half(node->out[o]));
    }
}

static int casts(const clt_plan *plan)
{
    int count = 0;
    for (int i = 0; i < plan->graph->n_nodes; i++)
        count += !strcmp(plan->graph->nodes[i]->op->name, "cast");
    return count;
}

static void test_rows(void **state)
{
    const clt_dtype precisions[] = {CLT_BF16, CLT_F16};
    (void)state;
    for (int i = 0; i < 2; i++) {
        clt_graph *g = rows_graph();
        clt_buckets buckets, others;
        clt_plan *half = plan_of(g, precisions[i], &buckets), *full = plan_of(g, CLT_F32, &others);
        check_plan(half, precisions[i]);
        for (int v = 0; v < full->graph->n_values; v++)
            assert_false(is_half(full->graph->values[v]));
        /* The output is f32. All other values have 16 bits from end to end. */
        assert_true(casts(half) <= 1);
        assert_int_equal(clt_graph_find(half->graph, "flat")->type.dtype, CLT_F32);
        const double share =
            (double)clt_plan_arena_bytes(half) / (double)clt_plan_arena_bytes(full);
        print_message("peak: %.3f of f32\n", share);
        assert_true(share <= 0.6);
        assert_true(half->hash != full->hash);
        clt_plan_destroy(half);
        clt_plan_destroy(full);
        clt_buckets_free(&buckets);
        clt_buckets_free(&others);
        clt_graph_destroy(g);
    }
}

static void test_images(void **state)
{
    clt_graph *g = images_graph();
    clt_buckets buckets;
    clt_plan *plan = plan_of(g, CLT_BF16, &buckets);
    int blocked = 0;
    (void)state;
    check_plan(plan, CLT_BF16);
    for (int i = 0; i < plan->graph->n_values; i++)
        blocked += plan->graph->values[i]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
                   is_half(plan->graph->values[i]);
    print_message("%d values in batch blocks, %d conversions\n", blocked, casts(plan));
    assert_true(blocked > 2);
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

enum { WORDS = 500, LENGTH = 4 };

/* A graph of words of a table. `tied`: the table is also the last layer's weight. `uses` lookups
 * are added up. */
static clt_graph *words_graph(int uses, bool tied)
{
    const int64_t tokens[] = {CLT_BATCH, LENGTH}, rows[] = {-LENGTH, WORDS}, row[] = {-LENGTH};
    clt_graph *g;
    clt_value *h = NULL, *sum, *count;
    OK(clt_graph_create(&g));
    clt_value *w = weight(g, "w", 2, WORDS, WIDTH);
    clt_value *out = tied ? w : weight(g, "out", 2, WORDS, WIDTH);
    for (int u = 0; u < uses; u++) {
        char name[16];
        snprintf(name, sizeof name, "word%d", u);
        clt_value *x = clt_embedding(clt_input(g, name, CLT_I32, 2, tokens), w, CLT_NO_PADDING);
        h = h ? clt_add(h, x) : x;
    }
    for (int i = 0; i < 3; i++)
        h = clt_add(clt_gelu(h), h);
    clt_value *logits = clt_linear(h, out, NULL);
    clt_output(logits, "logits");
    OK(clt_cross_entropy(clt_reshape(logits, 2, rows),
                         clt_reshape(clt_input(g, "next", CLT_I32, 2, tokens), 1, row), NULL, &sum,
                         &count));
    OK(clt_loss(g, "loss", sum, count, 1));
    OK(clt_graph_status(g));
    return g;
}

/* Counts f32 values of the table's size that are in no bucket. */
static int tables_in_f32(const clt_plan *plan)
{
    int count = 0;
    for (int i = 0; i < plan->graph->n_values; i++) {
        const clt_value *v = plan->graph->values[i];
        count += v->producer && !v->producer->op->view && v->type.dtype == CLT_F32 &&
                 !clt_type_has_batch(&v->type) &&
                 clt_type_elements(&v->type, BATCH) >= WORDS * WIDTH &&
                 plan->places[v->id].kind == CLT_PLACE_ARENA;
    }
    return count;
}

/* The gradient of a table is computed in 16 bits in its bucket, also if the table is a layer's
 * weight too. In f32, the largest tensor of a step would be stored beside it. Gradients of many
 * uses are added up in f32. */
/* Sums over tp of a layer's values, with the values of other places behind one another. Small
 * values and sums without samples stay f32. */
static void test_collectives(void **state)
{
    clt_buckets buckets;
    clt_graph *g;
    (void)state;
    OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (const int64_t[]){CLT_BATCH, WIDTH});
    clt_value *scale = weight(g, "scale", 1, WIDTH, 0), *h = clt_gelu(clt_mul(x, scale));
    clt_value *sum = clt_axis_all_reduce(h, CLT_AXIS_TENSOR, CLT_AXIS_SUM);
    clt_value *all = clt_axis_all_gather(clt_gelu(sum), CLT_AXIS_TENSOR, 2);
    clt_value *part = clt_axis_reduce_scatter(clt_gelu(all), CLT_AXIS_TENSOR, 2);
    const int last = 1;
    clt_value *few =
        clt_axis_all_reduce(clt_reduce_sum(part, &last, 1, 0), CLT_AXIS_TENSOR, CLT_AXIS_MAX);
    clt_output(clt_gelu(part), "y");
    clt_output(few, "z");
    OK(clt_graph_status(g));
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, BATCH);
    clt_plan *plan;
    options.precision = CLT_BF16;
    options.several = true;
    OK(clt_buckets_create(g, &sizes, &buckets));
    OK(clt_plan_create(g, &buckets, &cpu, NULL, &options, &plan));
    assert_int_equal(plan->n_collectives, 4);
    for (int k = 0; k < plan->n_collectives; k++) {
        const clt_plan_collective *c = &plan->collectives[k];
        const clt_node *node = plan->nodes[c->node].node;
        const int64_t each = clt_type_coefficient(&node->out[0]->type);
        assert_int_equal(c->dtype, each == 1 ? CLT_F32 : CLT_BF16);
        assert_int_equal(node->out[0]->type.dtype, c->dtype);
        assert_int_equal(node->in[0]->type.dtype, c->dtype);
    }
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

static void test_words(void **state)
{
    enum { MOST_PARTS = 4 };
    (void)state;
    for (int uses = 1; uses <= 4; uses++)
        for (int tied = 0; tied < 2; tied++) {
            clt_graph *g = words_graph(uses, tied);
            clt_buckets buckets;
            clt_plan *plan = plan_of(g, CLT_BF16, &buckets);
            const clt_value *v =
                plan->gradients[clt_buckets_find(&plan->buckets, "w") - plan->buckets.slots];
            const clt_place place = plan->places[v->id];
            const bool many = uses + tied > MOST_PARTS;
            int sums = 0;
            check_plan(plan, CLT_BF16);
            assert_int_equal(place.kind, CLT_PLACE_GRADIENT);
            assert_int_equal(!strcmp(v->producer->op->name, "cast"), many);
            assert_int_equal(tables_in_f32(plan) > 0, many);
            for (; !many && v && !strcmp(v->producer->op->name, "index_add"); sums++) {
                v = v->producer->in[2];
                if (v)
                    assert_memory_equal(&plan->places[v->id], &place, sizeof place);
            }
            assert_true(many || sums == uses);
            clt_plan_destroy(plan);
            clt_buckets_free(&buckets);
            clt_graph_destroy(g);
        }
}

/* The gradient of the logits, an output in f32, takes their place. In 16 bits it would be stored
 * beside them. */
static void test_logits(void **state)
{
    clt_graph *g = words_graph(1, true);
    clt_buckets buckets;
    clt_plan *plan = plan_of(g, CLT_F16, &buckets);
    int gradients = 0;
    (void)state;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_node *node = plan->nodes[i].node;
        if (strcmp(node->op->name, "cross_entropy_grad"))
            continue;
        const clt_place *from = &plan->places[node->in[0]->id];
        const clt_place *to = &plan->places[node->out[0]->id];
        assert_int_equal(node->out[0]->type.dtype, CLT_F32);
        assert_int_equal(from->kind, CLT_PLACE_ARENA);
        assert_memory_equal(from, to, sizeof *to);
        gradients++;
    }
    assert_int_equal(gradients, 1);
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

/* The caller's own values in 16 bits keep their type: operators that move them move their bits. */
static void test_own_halves(void **state)
{
    (void)state;
    static const clt_dtype precisions[] = {CLT_BF16, CLT_F16};
    for (int p = 0; p < 2; p++) {
        const int64_t flat[] = {CLT_BATCH, 8 * WIDTH};
        clt_buckets buckets;
        clt_graph *g;
        OK(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x", CLT_F16, 3, (const int64_t[]){CLT_BATCH, 8, WIDTH});
        x = clt_copy(clt_transpose(x, (const int[]){0, 2, 1}));
        clt_value *h = clt_cast(clt_reshape(x, 2, flat), CLT_F32);
        clt_value *again = clt_cast(clt_cast(clt_gelu(h), CLT_BF16), CLT_F32);
        h = clt_linear(again, weight(g, "fc.weight", 2, CLASSES, 8 * WIDTH), NULL);
        add_loss(g, h);
        OK(clt_graph_status(g));
        clt_plan *plan = plan_of(g, precisions[p], &buckets);
        int moved = 0;
        for (int i = 0; i < plan->n_nodes; i++) {
            const clt_node *node = plan->nodes[i].node;
            if (node->op->rounding != CLT_ROUNDS_MOVES && !node->op->view)
                continue;
            assert_int_equal(node->in[0]->type.dtype, node->out[0]->type.dtype);
            moved += node->out[0]->type.dtype == CLT_F16 && node->in[0]->type.rank == 3;
        }
        assert_true(moved >= 2);
        clt_plan_destroy(plan);
        clt_buckets_free(&buckets);
        clt_graph_destroy(g);
    }
}

static void test_errors(void **state)
{
    clt_graph *g = rows_graph();
    const clt_target target = {.caps = &cpu, .lanes = 16, .max_batch = BATCH};
    (void)state;
    assert_int_equal(clt_pass_precision(g, &target, CLT_I32), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "i32"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_images),
        cmocka_unit_test(test_collectives), cmocka_unit_test(test_words),
        cmocka_unit_test(test_logits),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_own_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
