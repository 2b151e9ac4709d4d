/* Micro-batches that add to the gradients of those before. All numbers are whole, so that sums are
 * exact in every order, and gradients are compared bit by bit with a reference in double. */
#include "plan/plan.h"
#include "train/core/trainer.h"
#include "train/lab.h"
#include "train/setup/capacity.h"

enum { BATCH = 1024, WORDS = 40, IN = 70, OUT = 16, STEPS = 2, MOST = WORDS * IN };

static int32_t words[BATCH];
static float ts[BATCH * OUT], table[WORDS * IN], weight[OUT * IN], bias[OUT];

static clt_graph *build(void)
{
    const int64_t one[] = {CLT_BATCH}, out[] = {CLT_BATCH, OUT}, rows[] = {WORDS, IN};
    const int64_t w[] = {OUT, IN}, b[] = {OUT};
    clt_value *sum = NULL, *count = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *word = clt_input(graph, "word", CLT_I32, 1, one);
    clt_value *t = clt_input(graph, "t", CLT_F32, 2, out);
    clt_value *x =
        clt_embedding(word, clt_parameter(graph, "table", 2, rows, (clt_init){0}), CLT_NO_PADDING);
    clt_value *y = clt_linear(x, clt_parameter(graph, "w", 2, w, (clt_init){0}),
                              clt_parameter(graph, "b", 1, b, (clt_init){0}));
    clt_mse(y, t, &sum, &count);
    clt_loss(graph, "loss", sum, count, 1);
    ok(clt_graph_status(graph));
    return graph;
}

static void make_numbers(void)
{
    for (int i = 0; i < BATCH; i++)
        words[i] = i * 31 % WORDS;
    for (int i = 0; i < BATCH * OUT; i++)
        ts[i] = (float)(i * 7 % 5 - 2);
    for (int i = 0; i < WORDS * IN; i++)
        table[i] = (float)(i * 13 % 7 - 3);
    for (int i = 0; i < OUT * IN; i++)
        weight[i] = (float)(i * 11 % 3 - 1);
    for (int i = 0; i < OUT; i++)
        bias[i] = (float)(i % 4);
}

/* Adds the gradient of mse for one sample of `count`. */
static void add_sample(int i, int count, double *of_table, double *of_weight, double *of_bias)
{
    const float *x = table + (size_t)words[i] * IN;
    for (int o = 0; o < OUT; o++) {
        double y = bias[o];
        for (int k = 0; k < IN; k++)
            y += (double)weight[o * IN + k] * x[k];
        const double g = 2 * (y - ts[i * OUT + o]) / (count * OUT);
        of_bias[o] += g;
        for (int k = 0; k < IN; k++) {
            of_weight[o * IN + k] += g * x[k];
            of_table[words[i] * IN + k] += g * weight[o * IN + k];
        }
    }
}

static void compare(const lab *l, const char *name, const double *want, int count, const char *how)
{
    static float got[MOST];
    ok(clt_trainer_gradient(l->trainer, 0, name, got, (size_t)count * sizeof *got));
    for (int i = 0; i < count; i++)
        if ((double)got[i] != want[i])
            fail_msg("%s: the gradient of %s has %.9g instead of %.9g at element %d", how, name,
                     (double)got[i], want[i], i);
}

static clt_place_kind kind_of(const clt_plan *plan, const char *name)
{
    const clt_slot *slot = clt_buckets_find(&plan->buckets, name);
    return plan->places[plan->gradients[slot - plan->buckets.slots]->id].kind;
}

/* Returns the bytes of parameters, gradients and optimizer with so many micro-batches. */
static int64_t store_bytes(const lab *l, int accumulate)
{
    clt_trainer_options options = l->trainer->options;
    clt_memory memory;
    options.accumulate = accumulate;
    options.in_flight = 0;
    ok(clt_capacity_memory(l->graph, l->store, &options, 1, 0, &memory));
    return memory.store;
}

/* Micro-batches need no second set of gradients. Gradients to which no node adds go to the arena.
 * In a bucket where no node adds, they lie as in the bucket. */
static void check_memory(const lab *l, const clt_plan *plan)
{
    assert_int_equal(store_bytes(l, 4), store_bytes(l, 1));
    assert_int_equal(plan->further != NULL, l->trainer->options.accumulate > 1);
    for (int s = 0; plan->further && s < plan->buckets.n_slots; s++) {
        const clt_slot *slot = &plan->buckets.slots[s];
        const int id = plan->gradients[s]->id;
        const bool total = plan->places[id].kind == CLT_PLACE_TOTAL;
        assert_int_equal(plan->further[id].kind, total ? CLT_PLACE_NONE : CLT_PLACE_ARENA);
        if (!clt_plan_has_totals(plan, slot->bucket))
            assert_int_equal(plan->further[id].offset, slot->offset);
    }
}

/* `adds`: the variant adds to the weight's gradient. The bias' gradient goes to the arena. With
 * `in_flight`, all micro-batches run, also those without samples. */
static void check(const char *variants, int accumulate, int in_flight, int count, bool adds)
{
    double of_table[WORDS * IN] = {0}, of_weight[OUT * IN] = {0}, of_bias[OUT] = {0};
    const clt_feed feeds[] = {{"word", -1, CLT_HOST(words)}, {"t", -1, CLT_HOST(ts)}};
    clt_trainer_options options;
    clt_step_batch batch;
    lab l = lab_on_kept("0");
    for (int i = 0; i < count; i++)
        add_sample(i, count, of_table, of_weight, of_bias);
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.accumulate = accumulate;
    options.in_flight = in_flight;
    options.variants = variants;
    options.lr = 0; /* both steps have the same gradients */
    options.poison = 1;
    lab_store(&l, build(), 3);
    ok(clt_store_set(l.store, "table", table, sizeof table));
    ok(clt_store_set(l.store, "w", weight, sizeof weight));
    ok(clt_store_set(l.store, "b", bias, sizeof bias));
    lab_trainer(&l, &options);
    const clt_plan *plan = l.trainer->training->devices[0].plan;
    assert_int_equal(kind_of(plan, "table"), CLT_PLACE_TOTAL);
    assert_int_equal(kind_of(plan, "w"), adds ? CLT_PLACE_TOTAL : CLT_PLACE_GRADIENT);
    assert_int_equal(kind_of(plan, "b"), CLT_PLACE_GRADIENT);
    check_memory(&l, plan);
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int i = 0; i < STEPS; i++) {
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        compare(&l, "table", of_table, WORDS * IN, variants);
        compare(&l, "w", of_weight, OUT * IN, variants);
        compare(&l, "b", of_bias, OUT, variants);
    }
    lab_close(&l);
}

static void test_products(void **state)
{
    (void)state;
    make_numbers();
    for (int accumulate = 1; accumulate <= 4; accumulate++) {
        check("linear_weight_grad=gemm_cpu", accumulate, 0, BATCH, true);
        check("linear_weight_grad=gemm_split", accumulate, 0, BATCH, true);
        check("linear_weight_grad=portable", accumulate, 0, BATCH, false);
    }
    check("linear_weight_grad=gemm_cpu", 4, 2, BATCH, true);
    check("linear_weight_grad=gemm_cpu", 4, 2, BATCH / 4, true);
    check("linear_weight_grad=gemm_split", 4, 4, BATCH / 2, true);
}

/* Returns a gradient of a loss that does not depend on samples: the weight of a product of
 * parameters. */
static void still_gradient(int accumulate, int in_flight, float *gradient)
{
    const int64_t rows[] = {WORDS, IN}, w[] = {OUT, IN}, t[] = {WORDS, OUT};
    const clt_feed feeds[] = {{"word", -1, CLT_HOST(words)}, {"t", -1, CLT_HOST(ts)}};
    clt_value *sum = NULL, *count = NULL;
    clt_trainer_options options;
    clt_step_batch batch;
    lab l = lab_on_kept("0");
    clt_graph *graph = build();
    clt_value *y = clt_linear(clt_parameter(graph, "rows", 2, rows, (clt_init){0}),
                              clt_parameter(graph, "still", 2, w, (clt_init){0}), NULL);
    clt_mse(y, clt_constant(graph, CLT_F32, 2, t, ts), &sum, &count);
    clt_loss(graph, "still_loss", sum, count, 1);
    ok(clt_graph_status(graph));
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.accumulate = accumulate;
    options.in_flight = in_flight;
    options.variants = "linear_weight_grad=gemm_cpu";
    options.lr = 0;
    lab_store(&l, graph, 3);
    ok(clt_store_set(l.store, "rows", table, sizeof table));
    ok(clt_store_set(l.store, "still", weight, sizeof weight));
    lab_trainer(&l, &options);
    assert_int_equal(kind_of(l.trainer->training->devices[0].plan, "still"), CLT_PLACE_TOTAL);
    clt_step_batch_init(&batch);
    batch.count = 2; /* the last two of four micro-batches have no samples */
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    ok(clt_trainer_gradient(l.trainer, 0, "still", gradient, OUT * IN * sizeof *gradient));
    lab_close(&l);
}

/* A micro-batch without samples has no gradient, also of a loss that does not depend on samples. */
static void test_no_samples(void **state)
{
    static float alone[OUT * IN], among[OUT * IN];
    (void)state;
    make_numbers();
    still_gradient(1, 0, alone);
    still_gradient(4, 2, among);
    assert_memory_equal(alone, among, sizeof alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_no_samples),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
