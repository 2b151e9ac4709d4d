/* Micro-batches in flight: forward of several runs before backward of the first. The bits are those
 * of forward and backward in turn, and memory grows with what is in flight only. */
#include "train/world.h"

#include "train/core/trainer.h"

enum { IN = 7, WIDE = 24, CLASSES = 5, BATCH = 24, STEPS = 4, ROOM = 4096, MICRO = 6 };

static float xs[BATCH * IN];
static int32_t labels[BATCH];

typedef struct setting {
    clt_dtype precision;
    int accumulate, in_flight;
    int64_t per_run; /* samples of a micro-batch */
    bool recompute;
} setting;

typedef struct outcome {
    char bytes[ROOM];
    size_t n;
    double losses[STEPS];
    float logits[BATCH * CLASSES];
    int64_t arena;
} outcome;

/* A classifier with dropout, an output, a state that is a mean of all micro-batches, and a sum over
 * devices that forward and backward read. */
static clt_graph *network(void)
{
    const int64_t dims[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH}, wide[] = {WIDE};
    const int axis = 0;
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_value *h = clt_tanh(layer(graph, x, "a.weight", "a.bias", IN, WIDE));
    clt_value *state = clt_state(graph, "mean", CLT_F32, 1, wide, (clt_init){0});
    clt_value *all = clt_all_reduce(clt_reduce_sum(h, &axis, 1, 0));
    clt_assign(graph, state, clt_add(clt_scale(state, 0.75), clt_reduce_mean(h, &axis, 1, 0)));
    h = clt_add(clt_dropout(clt_gelu(h), 0.25), clt_scale(clt_mul(all, h), 0.001));
    clt_value *logits = clt_output(layer(graph, h, "b.weight", "b.bias", WIDE, CLASSES), "logits");
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_graph_status(graph));
    return graph;
}

static void append(outcome *o, const void *data, size_t bytes)
{
    assert_true(o->n + bytes <= ROOM);
    memcpy(o->bytes + o->n, data, bytes);
    o->n += bytes;
}

static void read_store(clt_store *store, outcome *o)
{
    ok(clt_store_check(store));
    for (int i = 0; i < clt_store_count(store); i++) {
        const clt_slot *slot = &store->layout.slots[i];
        char data[ROOM];
        assert_true(slot->bytes <= ROOM);
        ok(clt_store_get(store, slot->name, data, (size_t)slot->bytes));
        append(o, data, (size_t)slot->bytes);
    }
}

/* The last batch is smaller, so some rounds have no samples. */
static void step(const lab *l, int index, outcome *o)
{
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    const clt_fetch fetch = {"logits", -1, CLT_HOST(o->logits)};
    clt_step_batch batch;
    clt_step_result result;
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = index == STEPS - 1 ? 3 : BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    batch.fetches = &fetch;
    batch.n_fetches = index == 1;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_result(l->trainer, index, &result));
    o->losses[index] = result.loss;
}

static outcome run(const char *devices, const setting *s)
{
    static outcome o;
    clt_trainer_options options;
    lab l = lab_on_kept(devices);
    memset(&o, 0, sizeof o);
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    options.batch = BATCH;
    options.accumulate = s->accumulate;
    options.in_flight = s->in_flight;
    options.precision = s->precision;
    options.recompute = s->recompute;
    options.poison = 1;
    lab_store(&l, network(), 3);
    lab_trainer(&l, &options);
    o.arena = clt_plan_arena_bytes(l.trainer->training->devices[0].plan);
    for (int i = 0; i < STEPS; i++)
        step(&l, i, &o);
    ok(clt_trainer_wait(l.trainer));
    read_store(l.store, &o);
    lab_close(&l);
    return o;
}

static void compare(const char *devices, const setting *s)
{
    setting own = *s;
    own.in_flight = 0;
    const outcome right = run(devices, &own);
    for (int flight = 1; flight <= s->accumulate; flight++) {
        own.in_flight = flight;
        const outcome o = run(devices, &own);
        if (memcmp(o.bytes, right.bytes, ROOM) || memcmp(o.losses, right.losses, sizeof o.losses) ||
            memcmp(o.logits, right.logits, sizeof o.logits))
            fail_msg("%d in flight on %s: other bits than in turn", flight, devices);
    }
}

static void one_device(void **state)
{
    (void)state;
    compare("0", &(setting){CLT_F32, MICRO, 0, 4, false});
    compare("0", &(setting){CLT_BF16, 3, 0, 8, false});
    compare("0", &(setting){CLT_F32, 4, 0, 6, true});
}

static void two_devices(void **state)
{
    (void)state;
    compare("pocl/2", &(setting){CLT_F32, 3, 0, 4, false});
    compare("pocl/2", &(setting){CLT_F16, 3, 0, 4, false});
}

/* With as many in flight, more micro-batches of the same size take no more memory. */
static void memory(void **state)
{
    int64_t bytes[4];
    (void)state;
    for (int flight = 1; flight <= 3; flight++) {
        const outcome o = run("0", &(setting){CLT_F32, 6, flight, 0, false});
        bytes[flight] = o.arena;
    }
    assert_int_equal(bytes[3] - bytes[2], bytes[2] - bytes[1]);
    assert_true(bytes[2] > bytes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_device), cmocka_unit_test(two_devices),
                                       cmocka_unit_test(memory)};
    make_samples(xs, labels, BATCH, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
