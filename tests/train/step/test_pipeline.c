/*
 * Trainers along axis pp. Stages do the operations of one device on the same micro-batches, in the
 * same order, so they give its bits: GPipe and 1F1B, with dp beside pp, on devices of one process
 * and on ranks. test_exact.c and test_hybrid.c compare exact networks with double.
 */
#include "train/world.h"

#include "train/core/trainer.h"

enum { IN = 4, WIDE = 32, OUT = 2, BATCH = 16, MICRO = 4, STEPS = 3, ROOM = 4096 };

static float xs[BATCH * IN], targets[BATCH * OUT];

/* How a run trains, and where. */
typedef struct setting {
    const char *devices, *parallel;
    int stages, in_flight, micro; /* micro-batches; 0: MICRO */
    clt_optimizer optimizer;
    clt_dtype precision;
} setting;

typedef struct outcome {
    float tensors[ROOM];
    int n_tensors;
    double losses[STEPS], norms[STEPS], sums[3], weights[3];
    float y[BATCH * OUT];
    int64_t arenas[4];
} outcome;

static clt_value *cut_if(clt_value *x, bool cut)
{
    return cut ? clt_cut(x) : x;
}

/* Over the samples of a micro-batch on all devices along dp. */
static clt_value *normalised(clt_graph *g, clt_value *x)
{
    const int64_t wide = WIDE;
    clt_batch_norm_options o;
    clt_batch_norm_options_init(&o);
    o.synchronised = 1;
    return clt_batch_norm(
        x, clt_parameter(g, "norm.weight", 1, &wide, (clt_init){CLT_INIT_CONSTANT, 1, 0}),
        clt_parameter(g, "norm.bias", 1, &wide, (clt_init){0}),
        clt_state(g, "norm.mean", CLT_F32, 1, &wide, (clt_init){0}),
        clt_state(g, "norm.var", CLT_F32, 1, &wide, (clt_init){0}), NULL, &o);
}

/* Layers with a skip over the second stage, a loss in the first stage and one in the last, a
 * metric, an output, and states of several stages. */
static clt_graph *network(const setting *s)
{
    const int64_t in[] = {CLT_BATCH, IN}, out[] = {CLT_BATCH, OUT}, wide[] = {WIDE};
    const int axis = 0;
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    if (clt_graph_create(&g) != CLT_OK)
        return NULL;
    clt_value *x = clt_input(g, "x", CLT_F32, 2, in);
    clt_value *target = clt_input(g, "target", CLT_F32, 2, out);
    clt_value *h = layer(g, x, "a.weight", "a.bias", IN, WIDE);
    clt_mse(h, clt_scale(h, 0.5), &sum, &weight);
    clt_loss(g, "small", sum, weight, 0.25);
    h = clt_dropout(cut_if(clt_relu(h), s->stages > 1), 0.25);
    clt_value *state = clt_state(g, "mean", CLT_F32, 1, wide, (clt_init){0});
    clt_assign(g, state, clt_add(clt_scale(state, 0.5), clt_reduce_mean(h, &axis, 1, 0)));
    clt_value *k = clt_relu(normalised(g, layer(g, h, "b.weight", "b.bias", WIDE, WIDE)));
    k = clt_add(cut_if(k, s->stages > 2), h);
    k = clt_relu(layer(g, k, "c.weight", "c.bias", WIDE, WIDE));
    k = cut_if(k, s->stages > 3);
    clt_value *y = clt_output(layer(g, k, "d.weight", "d.bias", WIDE, OUT), "y");
    clt_mse(y, target, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    clt_mse(clt_copy(y), clt_copy(target), &sum, &weight);
    clt_metric(g, "error", sum, weight);
    return g;
}

static const char *const names[] = {"a.weight",  "a.bias",    "b.weight", "b.bias", "c.weight",
                                    "c.bias",    "d.weight",  "d.bias",   "mean",   "norm.weight",
                                    "norm.bias", "norm.mean", "norm.var"};
static const int sizes[] = {WIDE * IN, WIDE, WIDE *WIDE, WIDE, WIDE *WIDE, WIDE, OUT *WIDE,
                            OUT,       WIDE, WIDE,       WIDE, WIDE,       WIDE};
enum { TENSORS = 13 };

static clt_status make_trainer(const setting *s, const clt_world *world, lab *l)
{
    clt_store_options store;
    clt_trainer_options o;
    clt_store_options_init(&store);
    store.seed = 4;
    store.bucket_bytes = 512;
    store.parallel = s->parallel;
    store.world = world;
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.lr = 0.01;
    o.precision = s->precision;
    o.batch = s->micro > MICRO ? BATCH / MICRO * s->micro : BATCH;
    o.accumulate = s->micro ? s->micro : MICRO;
    o.in_flight = s->in_flight;
    o.check_every = 1;
    o.poison = 1;
    o.comm_timeout = 60;
    o.world = world;
    l->graph = network(s);
    CLT_TRY(clt_devices_open(runtime, s->devices, NULL, &l->devices, &l->n));
    CLT_TRY(clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store));
    return clt_trainer_create(l->graph, l->store, &o, &l->trainer);
}

static clt_status train(const lab *l, outcome *o)
{
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"target", -1, CLT_HOST(targets)}};
    const clt_fetch fetch = {"y", -1, CLT_HOST(o->y)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int i = 0; i < STEPS; i++) {
        clt_step_result result;
        clt_step_result_init(&result);
        batch.fetches = &fetch;
        batch.n_fetches = i == STEPS - 1;
        CLT_TRY(clt_trainer_step(l->trainer, &batch, NULL));
        CLT_TRY(clt_trainer_result(l->trainer, i, &result));
        o->losses[i] = result.loss;
        o->norms[i] = result.norm;
    }
    batch.n_fetches = 0;
    CLT_TRY(clt_trainer_evaluate(l->trainer, &batch, o->sums, o->weights));
    CLT_TRY(clt_trainer_wait(l->trainer));
    for (int d = 0; d < l->n && d < 4; d++)
        o->arenas[d] = clt_plan_arena_bytes(l->trainer->training->devices[d].plan);
    return CLT_OK;
}

static clt_status read_tensors(const lab *l, outcome *o)
{
    for (int i = 0; i < TENSORS; i++) {
        CLT_TRY(clt_store_get(l->store, names[i], o->tensors + o->n_tensors,
                              sizeof(float) * (size_t)sizes[i]));
        o->n_tensors += sizes[i];
    }
    return CLT_OK;
}

static outcome run(const setting *s)
{
    outcome o = {.n_tensors = 0};
    lab l = {0};
    ok(make_trainer(s, NULL, &l));
    ok(train(&l, &o));
    ok(clt_store_check(l.store));
    ok(read_tensors(&l, &o));
    lab_close(&l);
    return o;
}

static void compare(const setting *s, const outcome *one, const outcome *o)
{
    for (int i = 0; i < one->n_tensors; i++)
        if (one->tensors[i] != o->tensors[i])
            fail_msg("%s, %d in flight: number %d of the tensors is %.9g, not %.9g", s->parallel,
                     s->in_flight, i, (double)o->tensors[i], (double)one->tensors[i]);
    assert_memory_equal(one->y, o->y, sizeof one->y);
    for (int i = 0; i < STEPS; i++)
        if (one->losses[i] != o->losses[i] ||
            fabs(one->norms[i] - o->norms[i]) > 1e-6 * one->norms[i])
            fail_msg("%s: step %d has loss %.17g and norm %g, not %.17g and %g", s->parallel, i,
                     o->losses[i], o->norms[i], one->losses[i], one->norms[i]);
    assert_memory_equal(one->sums, o->sums, sizeof one->sums);
    assert_memory_equal(one->weights, o->weights, sizeof one->weights);
}

/* Compares with a trainer on `devices` along dp alone. */
static void check(setting s, const char *devices)
{
    setting alone = s;
    alone.devices = devices;
    alone.parallel = NULL;
    const outcome one = run(&alone);
    for (int gpipe = 0; gpipe < 2; gpipe++) {
        s.in_flight = gpipe ? MICRO : 0;
        const outcome o = run(&s);
        compare(&s, &one, &o);
    }
}

static void two_stages(void **state)
{
    (void)state;
    check((setting){"cpu/2", "pp=2", 2, 0, 0, CLT_SGD, CLT_F32}, "cpu@1");
    check((setting){"cpu/2", "pp=2", 2, 0, 5, CLT_ADAM, CLT_F32}, "cpu@1");
    check((setting){"cpu/2", "pp=2", 2, 0, 0, CLT_SGD, CLT_BF16}, "cpu@1");
    check((setting){"cpu/2", "pp=2", 2, 0, 0, CLT_SGD, CLT_F16}, "cpu@1");
}

static void as_many_micro_batches_as_stages(void **state)
{
    const setting s = {"cpu/2", "pp=2", 2, 0, 2, CLT_SGD, CLT_F32};
    setting alone = s;
    (void)state;
    alone.devices = "cpu@1";
    alone.parallel = NULL;
    const outcome one = run(&alone), o = run(&s);
    compare(&s, &one, &o);
}

static void four_stages(void **state)
{
    (void)state;
    check((setting){"cpu/2,cpu/2", "pp=4", 4, 0, 0, CLT_SGD, CLT_F32}, "cpu@1");
    check((setting){"cpu/2,cpu/2", "pp=4", 4, 0, 0, CLT_MOMENTUM, CLT_F32}, "cpu@1");
}

static void stages_beside_data(void **state)
{
    (void)state;
    check((setting){"cpu/2,cpu/2", "dp=2,pp=2", 2, 0, 0, CLT_SGD, CLT_F32}, "cpu/2");
    check((setting){"cpu/2,cpu/2", "pp=2,dp=2", 2, 0, 0, CLT_ADAM, CLT_F32}, "cpu/2");
}

/* --- tied parameters -------------------------------------------------------------------------- */

enum { WORDS = 6 };

static int32_t words[BATCH], next_words[BATCH];

/* The first stage embeds words, and the last one tells the next word by the same table. With
 * `thrice`, the layer between them looks words up too. */
static clt_graph *text_network(int stages, bool thrice)
{
    const int64_t dims[] = {WORDS, WIDE}, one[] = {CLT_BATCH};
    clt_value *sum, *weight;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *table = clt_parameter(g, "table", 2, dims, (clt_init){CLT_INIT_NORMAL, 0, 0.5});
    clt_value *x = clt_embedding(clt_input(g, "word", CLT_I32, 1, one), table, CLT_NO_PADDING);
    x = cut_if(clt_tanh(layer(g, x, "a.weight", "a.bias", WIDE, WIDE)), stages > 1);
    x = clt_tanh(layer(g, x, "b.weight", "b.bias", WIDE, WIDE));
    if (thrice)
        x = clt_add(x, clt_matmul(clt_softmax(clt_linear(x, table, NULL), 1), table, 0, 0));
    x = cut_if(x, stages > 2);
    clt_cross_entropy(clt_linear(x, table, NULL), clt_input(g, "next", CLT_I32, 1, one), NULL, &sum,
                      &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

/* Trains with a clipped norm, in which the table counts once. Returns loss and norm of each step.
 */
static void train_text(const char *devices, const char *parallel, int stages, bool thrice,
                       clt_dtype precision, double *numbers, float *table)
{
    clt_trainer_options o;
    clt_store_options store;
    clt_step_batch batch;
    const clt_feed feeds[] = {{"word", -1, CLT_HOST(words)}, {"next", -1, CLT_HOST(next_words)}};
    lab l = lab_on_kept(devices);
    clt_store_options_init(&store);
    store.parallel = parallel;
    clt_trainer_options_init(&o);
    o.lr = 0.5;
    o.clip_norm = 0.05;
    o.batch = BATCH;
    o.accumulate = MICRO;
    o.precision = precision;
    o.poison = 1;
    o.check_every = 1;
    l.graph = text_network(stages, thrice);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &o, &l.trainer));
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int i = 0; i < STEPS; i++) {
        clt_step_result result;
        clt_step_result_init(&result);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, i, &result));
        numbers[2 * i] = result.loss;
        numbers[2 * i + 1] = result.norm;
    }
    ok(clt_store_check(l.store)); /* both stages have the same table */
    ok(clt_store_get(l.store, "table", table, sizeof(float) * WORDS * WIDE));
    lab_close(&l);
}

static void tied_parameters_are_added_up(void **state)
{
    static const struct {
        const char *devices, *parallel;
        int stages;
    } places[] = {
        {"cpu/2", "pp=2", 2}, {"cpu/2,cpu/2", "dp=2,pp=2", 2}, {"cpu/2,cpu@1", "pp=3", 3}};
    (void)state;
    for (size_t i = 0; i < BATCH; i++) {
        words[i] = (int32_t)(i * 5 % WORDS);
        next_words[i] = (int32_t)((i * 7 + 1) % WORDS);
    }
    for (int turn = 0; turn < 4; turn++) {
        const bool half = turn % 2, thrice = turn / 2;
        const clt_dtype precision = half ? CLT_BF16 : CLT_F32;
        const double bound = half ? 2e-2 : 1e-5;
        double one[2 * STEPS], other[2 * STEPS];
        float table[WORDS * WIDE], its[WORDS * WIDE];
        train_text("cpu@1", NULL, 1, thrice, precision, one, table);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            train_text(places[p].devices, places[p].parallel, places[p].stages, thrice, precision,
                       other, its);
            for (int i = 0; i < 2 * STEPS; i++)
                if (fabs(one[i] - other[i]) > bound * fabs(one[i]))
                    fail_msg("%s: number %d is %g, not %g", places[p].parallel, i, other[i],
                             one[i]);
            for (int i = 0; i < WORDS * WIDE; i++)
                assert_true(fabs((double)table[i] - (double)its[i]) < bound);
        }
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

typedef struct plan {
    setting setting;
    outcome outcome;
} plan;

static void train_rank(rank *self)
{
    plan *p = self->argument;
    lab l = {0};
    if (HOLDS(self, make_trainer(&p->setting, &self->world, &l) == CLT_OK) &&
        HOLDS(self, train(&l, &p->outcome) == CLT_OK)) {
        for (int i = 0; i < TENSORS; i++) {
            HOLDS(self,
                  clt_store_collect(l.store, names[i], p->outcome.tensors + p->outcome.n_tensors,
                                    sizeof(float) * (size_t)sizes[i]) == CLT_OK);
            p->outcome.n_tensors += sizes[i];
        }
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
}

/* The stages are on two ranks. Outputs are only on the last stage's rank. */
static void stages_on_ranks(void **state)
{
    static plan plans[2];
    (void)state;
    for (int gpipe = 0; gpipe < 2; gpipe++) {
        rank ranks[2];
        setting s = {"cpu@1", NULL, 2, gpipe ? MICRO : 0, 0, CLT_ADAM, CLT_F32};
        const outcome one = run(&s);
        memset(plans, 0, sizeof plans);
        s.parallel = "pp=2";
        plans[0].setting = plans[1].setting = s;
        run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
        memcpy(plans[0].outcome.y, one.y, sizeof one.y);
        for (int r = 0; r < 2; r++)
            compare(&s, &one, &plans[r].outcome);
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

/* 1F1B's memory does not grow with the number of micro-batches; GPipe's does. */
static void memory(void **state)
{
    outcome o[2][2];
    (void)state;
    for (int gpipe = 0; gpipe < 2; gpipe++)
        for (int more = 0; more < 2; more++) {
            const int micro = more ? 16 : 8;
            const setting s = {"cpu/2", "pp=2", 2, gpipe ? micro : 0, micro, CLT_SGD, CLT_F32};
            o[gpipe][more] = run(&s);
        }
    for (int d = 0; d < 2; d++) {
        assert_int_equal(o[0][0].arenas[d], o[0][1].arenas[d]);
        assert_true(o[1][0].arenas[d] < o[1][1].arenas[d]);
        assert_true(o[0][0].arenas[d] < o[1][0].arenas[d]);
    }
}

/* --- mistakes -------------------------------------------------------------------------------- */

static void refuse(setting s, clt_status wanted, const char *text)
{
    lab l = {0};
    const clt_status status = make_trainer(&s, NULL, &l);
    if (status != wanted || !strstr(clt_error_message(), text))
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
    lab_close(&l);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    refuse((setting){"cpu/2", "pp=2", 2, 0, 1, CLT_SGD, CLT_F32}, CLT_INVALID_ARGUMENT,
           "2 stages of axis pp need at least as many micro-batches (accumulate), not 1");
    refuse((setting){"cpu/2", "pp=2", 1, 0, 0, CLT_SGD, CLT_F32}, CLT_INVALID_ARGUMENT,
           "mesh: pp=2 needs 1 cut of the graph, which has 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_stages),
                                       cmocka_unit_test(as_many_micro_batches_as_stages),
                                       cmocka_unit_test(four_stages),
                                       cmocka_unit_test(stages_beside_data),
                                       cmocka_unit_test(tied_parameters_are_added_up),
                                       cmocka_unit_test(stages_on_ranks),
                                       cmocka_unit_test(memory),
                                       cmocka_unit_test(mistakes_are_named)};
    for (int i = 0; i < BATCH * IN; i++)
        xs[i] = (float)((i * 5) % 3 - 1);
    for (int i = 0; i < BATCH * OUT; i++)
        targets[i] = (float)((i * 3) % 5 - 2);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
