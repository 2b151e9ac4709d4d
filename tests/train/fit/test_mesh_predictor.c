/*
 * Predictors on meshes: devices that compute each sample together give the outputs of one device.
 * Numbers are small integers, so outputs have its bits. tests/train/step/test_space.c and
 * test_time.c predict on the axes space and time.
 */
#include "train/world.h"

#include "train/split_networks.h"

static const char two[] = "pocl@1,pocl@1", three[] = "pocl@1,pocl@1,pocl@1",
                  four[] = "pocl@1,pocl@1,pocl@1,pocl@1";

typedef struct setting {
    build_fn build;
    const char *devices, *parallel; /* NULL: one device, and no mesh */
    int zero;
    int all; /* ranks */
} setting;

enum { MOST_INPUTS = 8, MOST_OUTPUTS = 4, ROOM = 256 };

/* The outputs of runs with BATCH, BATCH - 1, 1 and 0 samples. */
enum { RUNS = 4 };
typedef struct outcome {
    int n;
    float values[RUNS][MOST_OUTPUTS][ROOM];
} outcome;

/* --- networks -------------------------------------------------------------------------------- */

/* Gives the network's last value, which its loss compares with a target, a name. */
static void name_result(clt_graph *g)
{
    if (clt_graph_status(g) == CLT_OK)
        clt_output(g->losses[0].sum->producer->in[0], "y");
}

/* Three stages. The last reads an input and the result of the first; each has an output. */
static void staged(clt_graph *g)
{
    clt_value *x = input(g, "x", 5);
    clt_value *a = clt_cut(clt_relu(clt_linear(x, parameter(g, "a", 7, 5), NULL)));
    clt_output(clt_scale(a, 2), "first");
    clt_value *b = clt_relu(clt_linear(a, parameter(g, "b", 7, 7), NULL));
    b = clt_cut(clt_add(b, parameter(g, "bias", 7, 0)));
    clt_value *c = clt_add(clt_add(a, b), input(g, "other", 7));
    loss(g, clt_linear(c, parameter(g, "c", 4, 7), NULL), 4);
}

/* Stages whose layers are split too. */
static void staged_parts(clt_graph *g)
{
    clt_value *h = clt_relu(clt_linear(input(g, "x", 5), parameter(g, "a", 6, 5), NULL));
    h = clt_cut(clt_linear(h, parameter(g, "b", 4, 6), NULL));
    loss(g, clt_linear(h, parameter(g, "c", 8, 4), NULL), 8);
    shard(g, "a|c", 0);
    shard(g, "b", 1);
}

/* --- runs ------------------------------------------------------------------------------------ */

static clt_status open_store(const setting *s, const clt_world *world, lab *l)
{
    clt_store_options store;
    clt_store_options_init(&store);
    store.parallel = s->parallel;
    store.zero = s->zero;
    store.world = world;
    CLT_TRY(clt_graph_create(&l->graph));
    s->build(l->graph);
    name_result(l->graph);
    CLT_TRY(clt_devices_open(runtime, s->devices, NULL, &l->devices, &l->n));
    CLT_TRY(clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store));
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        CLT_TRY(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, NULL));
        float data[ROOM];
        fill(name, &type, 3, data);
        CLT_TRY(clt_store_set(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
    }
    return CLT_OK;
}

/* Feeds all inputs of the graph: more than the predictor needs. */
static int feed_all(const clt_graph *graph, float (*data)[ROOM], clt_feed *feeds)
{
    int n = 0;
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        fill(v->name, &v->type, 3, data[n]);
        feeds[n] = (clt_feed){.name = v->name, .device = -1, .array = CLT_HOST(data[n])};
        n++;
    }
    return n;
}

static clt_status predict(const lab *l, clt_predictor *p, outcome *o)
{
    float data[MOST_INPUTS][ROOM];
    clt_feed feeds[MOST_INPUTS];
    clt_fetch fetches[MOST_OUTPUTS];
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.feeds = feeds;
    batch.n_feeds = feed_all(l->graph, data, feeds);
    batch.fetches = fetches;
    o->n = batch.n_fetches = clt_predictor_output_count(p);
    for (int k = 0; k < RUNS; k++) {
        static const int counts[] = {BATCH, BATCH - 1, 1, 0};
        batch.count = batch.total = counts[k];
        for (int i = 0; i < o->n; i++) {
            fetches[i] = (clt_fetch){.device = -1, .array = CLT_HOST(o->values[k][i])};
            CLT_TRY(clt_predictor_output(p, i, &fetches[i].name, NULL, NULL, NULL));
        }
        CLT_TRY(clt_predictor_run(p, &batch, NULL));
    }
    return clt_predictor_wait(p);
}

static clt_status run(const setting *s, const clt_world *world, outcome *o)
{
    lab l = {0};
    clt_predictor *p = NULL;
    clt_predictor_options options;
    clt_predictor_options_init(&options);
    options.batch = BATCH;
    options.poison = 1;
    options.comm_timeout = 60;
    *o = (outcome){0};
    clt_status status = open_store(s, world, &l);
    if (status == CLT_OK)
        status = clt_predictor_create(l.graph, l.store, &options, &p);
    if (status == CLT_OK)
        status = predict(&l, p, o);
    clt_predictor_destroy(p);
    lab_close(&l);
    return status;
}

static void compare(const setting *s, const outcome *one, const outcome *all)
{
    assert_int_equal(one->n, all->n);
    for (int k = 0; k < RUNS; k++)
        for (int i = 0; i < one->n; i++)
            for (int e = 0; e < ROOM; e++)
                if (one->values[k][i][e] != all->values[k][i][e])
                    fail_msg("%s, zero %d, run %d, output %d[%d]: %g on one device, %g",
                             s->parallel ? s->parallel : "dp", s->zero, k, i, e,
                             (double)one->values[k][i][e], (double)all->values[k][i][e]);
}

static void outputs_have_the_bits_of_one_device(void **state)
{
    static const setting settings[] = {
        {.build = two_layers, .devices = two, .parallel = "tp=2"},
        {.build = two_layers, .devices = three, .parallel = "tp=3"},
        {.build = blocks, .devices = four, .parallel = "dp=2,tp=2"},
        {.build = blocks, .devices = four, .parallel = "tp=2,dp=2"},
        {.build = split_result, .devices = two, .parallel = "tp=2"},
        {.build = joined, .devices = two, .parallel = "tp=2"},
        {.build = flattened, .devices = three, .parallel = "tp=3"},
        {.build = staged, .devices = two, .parallel = "pp=2"},
        {.build = staged, .devices = three, .parallel = "pp=3"},
        {.build = staged, .devices = four, .parallel = "dp=2,pp=2"},
        {.build = staged_parts, .devices = four, .parallel = "tp=2,pp=2"},
        {.build = blocks, .devices = two, .zero = 3},
        {.build = staged, .devices = three, .parallel = "dp=3", .zero = 3},
        {.build = blocks, .devices = two}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const setting alone = {.build = settings[i].build, .devices = "pocl@1"};
        outcome one, all;
        ok(run(&alone, NULL, &one));
        ok(run(&settings[i], NULL, &all));
        assert_true(one.values[0][0][0] != 0 || one.values[0][0][1] != 0);
        compare(&settings[i], &one, &all);
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

typedef struct ranked {
    const setting *setting;
    outcome outcome;
    int64_t batch;
} ranked;

static void predict_rank(rank *self)
{
    ranked *r = self->argument;
    HOLDS(self, run(r->setting, &self->world, &r->outcome) == CLT_OK);
}

/* Of a pipeline, the rank of the first stage has the output 0, and that of the last has y. */
static void outputs_on_ranks(void **state)
{
    static const setting settings[] = {
        {.build = two_layers, .devices = "pocl@1", .parallel = "tp=2"},
        {.build = staged, .devices = "pocl@1", .parallel = "pp=2"},
        {.build = blocks, .devices = two, .parallel = "tp=4"}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const setting alone = {.build = settings[i].build, .devices = "pocl@1"};
        static ranked of[2];
        static outcome one;
        rank ranks[2];
        for (int r = 0; r < 2; r++)
            of[r] = (ranked){.setting = &settings[i]};
        ok(run(&alone, NULL, &one));
        run_ranks(ranks, 2, predict_rank, of, sizeof *of);
        const bool stages = strstr(settings[i].parallel, "pp") != NULL;
        for (int k = 0; k < one.n; k++)
            for (int r = 0; r < 2; r++)
                if (!stages || r == k)
                    assert_memory_equal(one.values[0][k], of[r].outcome.values[0][k],
                                        sizeof one.values[0][k]);
    }
}

static void refuse_rank(rank *self)
{
    const ranked *r = self->argument;
    lab l = {0};
    clt_predictor *p = NULL;
    clt_predictor_options options;
    clt_predictor_options_init(&options);
    options.batch = r->batch + self->number;
    HOLDS(self, open_store(r->setting, &self->world, &l) == CLT_OK);
    self->status = clt_predictor_create(l.graph, l.store, &options, &p);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    lab_close(&l);
}

static void ranks_that_differ_are_named(void **state)
{
    const setting s = {.build = two_layers, .devices = "pocl@1", .parallel = "tp=2"};
    ranked of[2] = {{.setting = &s, .batch = 2}, {.setting = &s, .batch = 2}};
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, refuse_rank, of, sizeof *of);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, CLT_MISMATCH);
        assert_non_null(strstr(ranks[r].message, "rank 1 has another batch of its predictor"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(outputs_have_the_bits_of_one_device),
                                       cmocka_unit_test(outputs_on_ranks),
                                       cmocka_unit_test(ranks_that_differ_are_named)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
