/*
 * The cost of making a plan grows in proportion to the graph. The test compares processor times for
 * graphs of N and 4 N nodes, whose quotient must be about 4. A step that compares all pairs of
 * nodes, values or parameters makes it 16. Plans only: no device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "support/plans.h"
#include <cltrain/ops.h>

enum { NODES = 1500, FEW_NODES = 100, WIDTH = 16, REPEATS = 3 };

/* A limit between linear and quadratic growth. */
static const double MOST = 9;

typedef clt_value *layer(clt_graph *graph, clt_value *x, clt_value *shared, int index);

static clt_value *weight(clt_graph *g, const char *name)
{
    return clt_parameter(g, name, 2, (const int64_t[]){WIDTH, WIDTH},
                         (clt_init){.kind = CLT_INIT_NORMAL, .a = 0, .b = 0.1});
}

static clt_value *elementwise(clt_graph *g, clt_value *x, clt_value *shared, int index)
{
    (void)g;
    (void)shared;
    return index % 3 ? clt_tanh(x) : clt_softmax(x, 1);
}

/* Adds a layer with a parameter of its own. */
static clt_value *linear(clt_graph *g, clt_value *x, clt_value *shared, int index)
{
    char name[32];
    (void)shared;
    snprintf(name, sizeof name, "layer%d.weight", index);
    return clt_linear(x, weight(g, name), NULL);
}

/* Adds a layer with the common parameter. Its values live long, and some of them are equal. */
static clt_value *tied(clt_graph *g, clt_value *x, clt_value *shared, int index)
{
    (void)g;
    (void)index;
    return clt_add(clt_linear(clt_relu(x), shared, NULL), x);
}

/* Adds a collective, for which the host acts between nodes. */
static clt_value *collective(clt_graph *g, clt_value *x, clt_value *shared, int index)
{
    const int axis = 0;
    (void)g;
    (void)shared;
    (void)index;
    return clt_tanh(clt_sub(x, clt_all_reduce(clt_reduce_sum(x, &axis, 1, 0))));
}

static double seconds_of(layer *add, int n, const clt_plan_options *options)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    struct timespec began, ended;
    clt_graph *g;
    clt_buckets buckets;
    clt_plan *plan;
    clt_str text = {0};
    clt_value *sum, *count;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (const int64_t[]){CLT_BATCH, WIDTH});
    clt_value *labels = clt_input(g, "label", CLT_I32, 1, (const int64_t[]){CLT_BATCH});
    clt_value *shared = weight(g, "shared");
    x = clt_linear(x, shared, NULL);
    for (int i = 0; i < n; i++)
        x = add(g, x, shared, i);
    OK(clt_cross_entropy(x, labels, NULL, &sum, &count));
    OK(clt_loss(g, "loss", sum, count, 1));
    OK(clt_buckets_create(g, &sizes, &buckets));
    OK(clt_plan_create(g, &buckets, &cpu, NULL, options, &plan));
    clt_plan_print(plan, true, &text);
    assert_true(plan->n_nodes >= n);
    clt_str_free(&text);
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    return (double)(ended.tv_sec - began.tv_sec) + 1e-9 * (double)(ended.tv_nsec - began.tv_nsec);
}

/* Returns the least of a few times: other work of the machine only adds to them. */
static double least_of(layer *add, int n, const clt_plan_options *options)
{
    double least = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        const double seconds = seconds_of(add, n, options);
        least = seconds < least ? seconds : least;
    }
    return least;
}

static void grows(const char *what, layer *add, int n, const clt_plan_options *options)
{
    const double one = least_of(add, n, options), four = least_of(add, 4 * n, options);
    printf("%-24s %4d layers: %.3f s, %d: %.3f s, %.1f times\n", what, n, one, 4 * n, four,
           four / one);
    if (four > MOST * one)
        fail_msg("%s: %d layers take %.3f s and %d take %.3f s, %.1f times as long", what, n, one,
                 4 * n, four, four / one);
}

static void plans_grow_with_the_graph(void **state)
{
    (void)state;
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, 64);
    grows("element-wise", elementwise, NODES, &options);
    grows("linear", linear, NODES, &options);
    grows("one weight", tied, NODES, &options);
    options.precision = CLT_BF16;
    grows("linear, bf16", linear, NODES, &options);
    options.precision = CLT_F32;
    options.several = true;
    grows("collectives", collective, NODES, &options);
    options.several = false;
    options.recompute = true;
    grows("linear, recomputed", linear, NODES, &options);
    /* Small enough for the search, which gives up if it takes too long. */
    grows("few linear, recomputed", linear, FEW_NODES, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_grow_with_the_graph)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
