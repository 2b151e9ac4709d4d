/*
 * Devices of a mesh that fail. All devices at the place of the failed one leave, and the others go
 * on with the bits of a run that begins there on the smaller mesh. If a byte of the model or of the
 * optimizer is gone, the run ends with a message that names the axis.
 */
#include "train/split_steps.h"

#include "train/lab_scratch.h"
#include "device/core/device.h"
#include "exec/testing/lose.h"
#include "train/core/trainer.h"

#ifdef CLT_TESTING
enum { MORE = 2, BEFORE = 2, STEPS = BEFORE + MORE, ROWS = 8, LENGTH = 8, MOST_FEEDS = 4 };

static const char six[] = "pocl@1,pocl@1,pocl@1,pocl@1,pocl@1,pocl@1";

/* --- networks -------------------------------------------------------------------------------- */

/* Images whose rows are divided, with batch norm over all rows. */
static void rows(clt_graph *g)
{
    const int64_t image[] = {CLT_BATCH, 2, ROWS, 3}, kernel[] = {2, 2, 3, 3}, channels = 2;
    clt_conv2d_options conv;
    clt_batch_norm_options norm;
    clt_value *sum, *weight, *x = clt_input(g, "x", CLT_F32, 4, image);
    ok(clt_shard_value(x, CLT_AXIS_SPACE, 2));
    clt_conv2d_options_init(&conv);
    conv.padding[0] = conv.padding[1] = 1;
    clt_batch_norm_options_init(&norm);
    norm.synchronised = 1;
    clt_value *h = clt_conv2d(x, clt_parameter(g, "a", 4, kernel, zero), NULL, &conv);
    h = clt_batch_norm(h, parameter(g, "w", 2, 0), parameter(g, "b", 2, 0),
                       clt_state(g, "mean", CLT_F32, 1, &channels, zero),
                       clt_state(g, "var", CLT_F32, 1, &channels, zero), NULL, &norm);
    h = clt_conv2d(clt_relu(h), clt_parameter(g, "c", 4, kernel, zero), NULL, &conv);
    clt_mse(h, clt_input(g, "target", CLT_F32, 4, image), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    shard(g, "a", 0);
}

/* Sequences whose positions are divided, with causal attention: three places cannot divide them. */
static void positions(clt_graph *g)
{
    const int64_t tokens[] = {CLT_BATCH, LENGTH, 4};
    clt_attention_options causal;
    clt_value *sum, *weight, *x = clt_input(g, "x", CLT_F32, 3, tokens);
    ok(clt_shard_value(x, CLT_AXIS_TIME, 1));
    clt_attention_options_init(&causal);
    causal.is_causal = 1;
    clt_value *h = clt_linear(x, parameter(g, "qkv", 12, 4), parameter(g, "qkv_b", 12, 0));
    h = clt_attention_packed(clt_scale(h, 0.25), 2, 0, &causal);
    h = clt_dropout(clt_linear(h, parameter(g, "proj", 4, 4), NULL), 0.25);
    clt_mse(h, clt_input(g, "target", CLT_F32, 3, tokens), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
}

/* Two stages with parts of layers in each. */
static void stages(clt_graph *g)
{
    clt_value *h = clt_relu(clt_linear(input(g, "x", 5), parameter(g, "a", 6, 5), NULL));
    h = clt_cut(clt_linear(h, parameter(g, "b", 4, 6), parameter(g, "b_b", 4, 0)));
    h = clt_relu(clt_linear(clt_dropout(h, 0.25), parameter(g, "c", 6, 4), NULL));
    loss(g, clt_linear(h, parameter(g, "d", 4, 6), parameter(g, "d_b", 4, 0)), 4);
    shard(g, "a|c", 0);
    shard(g, "b|d", 1);
}

/* --- runs ------------------------------------------------------------------------------------ */

/* A run that loses a device, and the mesh on which it goes on. */
typedef struct loss_case {
    setting s;
    int lost;
    const char *left, *smaller; /* NULL: one device */
    const double *weights, *left_weights;
    int node;       /* the first node that fails */
    int owners;     /* with offload */
    bool left_zero; /* one place is left, so that the run that begins there has no shards */
} loss_case;

typedef struct course {
    double results[MORE][2], sums[2 * MEANS];
    trained end;
} course;

static void open_lab(const setting *s, const char *devices, const char *parallel,
                     const double *weights, int owners, lab *l)
{
    clt_store_options store;
    clt_trainer_options o;
    *l = lab_on_kept(devices);
    for (int d = 0; d < l->n; d++) /* devices of one list may have equal labels */
        snprintf(l->devices[d]->label, sizeof l->devices[d]->label, "place %d.", d);
    ok(clt_graph_create(&l->graph));
    s->build(l->graph);
    ok(clt_graph_status(l->graph));
    clt_store_options_init(&store);
    store.parallel = parallel;
    store.zero = s->zero == 3 ? 3 : 0;
    store.offload = owners;
    store.bucket_bytes = 64;
    ok(clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store));
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = BATCH;
    o.lr = s->lr > 0 ? s->lr : 0.01;
    o.momentum = 0.5;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.clip_norm = s->clip;
    o.precision = s->precision;
    o.zero = s->zero;
    o.weights = weights;
    o.check_every = 1;
    o.poison = 1;
    lab_trainer(l, &o);
}

static int make_feeds(const setting *s, const lab *l, clt_feed *feeds)
{
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++) {
        const clt_value *v = l->graph->values[i];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        void *data = calloc((size_t)elements_of(&v->type), sizeof(float));
        fill(v->name, &v->type, limit_of(s), data);
        feeds[n++] = (clt_feed){.name = v->name, .device = -1, .array = CLT_HOST(data)};
    }
    return n;
}

static void free_feeds(const clt_feed *feeds, int n)
{
    for (int i = 0; i < n; i++)
        free(feeds[i].array.host);
}

/* The steps after the loss. */
static void go_on(lab *l, clt_step_batch *batch, course *c)
{
    clt_step_result result;
    clt_step_result_init(&result);
    for (int k = 0; k < MORE; k++) {
        ok(clt_trainer_step(l->trainer, batch, NULL));
        ok(clt_trainer_result(l->trainer, BEFORE + k, &result));
        assert_int_equal(result.samples, BATCH);
        c->results[k][0] = result.loss;
        c->results[k][1] = result.norm;
    }
    ok(clt_trainer_evaluate(l->trainer, batch, c->sums, c->sums + MEANS));
    ok(clt_store_check(l->store));
    get_parameters(l, &c->end);
}

/* Trains some steps. If `dir` is given, saves there, else loses the device and goes on. */
static void begin(const loss_case *k, const char *dir, course *c)
{
    clt_feed feeds[MOST_FEEDS];
    clt_step_batch batch;
    char words[48];
    int redo = -1;
    lab l;
    open_lab(&k->s, k->s.devices, k->s.parallel, k->weights, k->owners, &l);
    set_parameters(&k->s, &l); /* whole numbers */
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = make_feeds(&k->s, &l, feeds);
    for (int i = 0; i < BEFORE; i++)
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    if (dir) {
        ok(clt_trainer_save(l.trainer, dir, (clt_position){0, 0}, BATCH, 0, 0, NULL));
    } else {
        snprintf(words, sizeof words, "place %d.=%d:%d", k->lost, BEFORE, k->node);
        clt_exec_testing_lose = words;
        assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_DEVICE_LOST);
        clt_exec_testing_lose = NULL;
        ok(clt_trainer_recover(l.trainer, &redo));
        assert_int_equal(redo, 1);
        go_on(&l, &batch, c);
    }
    lab_close(&l); /* waits for the devices that read the feeds */
    free_feeds(feeds, batch.n_feeds);
}

static void begin_there(const loss_case *k, const char *dir, course *c)
{
    clt_feed feeds[MOST_FEEDS];
    clt_position position;
    clt_step_batch batch;
    int64_t seed;
    lab l;
    setting s = k->s;
    s.zero = k->left_zero ? 0 : s.zero;
    open_lab(&s, k->left ? k->left : "pocl@1", k->smaller, k->left_weights, k->owners, &l);
    ok(clt_trainer_restore(l.trainer, dir, &position, &seed));
    assert_int_equal(clt_trainer_steps(l.trainer), BEFORE);
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = make_feeds(&k->s, &l, feeds);
    go_on(&l, &batch, c);
    lab_close(&l); /* waits for the devices that read the feeds */
    free_feeds(feeds, batch.n_feeds);
}

static void check_case(const loss_case *k)
{
    course lost = {0}, there = {0};
    const char *dir = in_scratch("run");
    scratch_remove_tree(dir);
    begin(k, NULL, &lost);
    begin(k, dir, NULL);
    begin_there(k, dir, &there);
    for (int i = 0; i < MORE; i++)
        if (memcmp(lost.results[i], there.results[i], sizeof lost.results[i]))
            fail_msg("%s without device %d: step %d has loss %.9g and norm %.9g, not %.9g and %.9g",
                     k->s.parallel ? k->s.parallel : "dp", k->lost, BEFORE + i + 1,
                     lost.results[i][0], lost.results[i][1], there.results[i][0],
                     there.results[i][1]);
    assert_memory_equal(lost.sums, there.sums, sizeof lost.sums);
    assert_int_equal(lost.end.n, there.end.n);
    for (int i = 0; i < lost.end.n; i++) {
        if (memcmp(lost.end.data[i], there.end.data[i],
                   (size_t)lost.end.count[i] * sizeof *lost.end.data[i]))
            fail_msg("%s without device %d: %s differs", k->s.parallel ? k->s.parallel : "dp",
                     k->lost, lost.end.names[i]);
        free(lost.end.data[i]);
        free(there.end.data[i]);
    }
}

static void check_cases(const loss_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check_case(&cases[i]);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void a_place_of_dp_leaves(void **state)
{
    static const double weights[] = {1, 1, 2, 2, 3, 3}, left[] = {1, 1, 3, 3};
    static const loss_case cases[] = {
        {.s = {.build = transformer, .devices = four, .parallel = "dp=2,tp=2", .clip = 1},
         .lost = 0,
         .left = two,
         .smaller = "tp=2",
         .node = 30},
        {.s = {.build = transformer,
               .devices = four,
               .parallel = "tp=2,dp=2",
               .optimizer = CLT_ADAMW},
         .lost = 1,
         .left = two,
         .smaller = "tp=2"},
        {.s = {.build = two_layers, .devices = four, .parallel = "dp=2,tp=2", .precision = CLT_F16},
         .lost = 2,
         .left = two,
         .smaller = "tp=2"},
        {.s = {.build = two_layers,
               .devices = six,
               .parallel = "dp=3,tp=2",
               .optimizer = CLT_MOMENTUM},
         .lost = 2,
         .left = four,
         .smaller = "dp=2,tp=2",
         .weights = weights,
         .left_weights = left},
        {.s = {.build = two_layers, .devices = six, .parallel = "tp=2,dp=3", .accumulate = 2},
         .lost = 4,
         .left = four,
         .smaller = "tp=2,dp=2"},
        {.s = {.build = two_layers, .devices = four, .parallel = "dp=2,tp=2", .zero = 1},
         .lost = 3,
         .left = two,
         .smaller = "tp=2",
         .left_zero = true},
        {.s = {.build = stages,
               .devices = four,
               .parallel = "dp=2,pp=2",
               .lr = 1e-5,
               .accumulate = 2,
               .optimizer = CLT_MOMENTUM},
         .lost = 1,
         .left = two,
         .smaller = "pp=2"},
        {.s = {.build = stages,
               .devices = four,
               .parallel = "pp=2,dp=2",
               .lr = 1e-5,
               .accumulate = 2},
         .lost = 3,
         .left = two,
         .smaller = "pp=2",
         .node = 3},
        {.s = {.build = rows,
               .devices = four,
               .parallel = "dp=2,space=2",
               .optimizer = CLT_MOMENTUM},
         .lost = 2,
         .left = two,
         .smaller = "space=2"},
        {.s = {.build = positions,
               .devices = four,
               .parallel = "time=2,dp=2",
               .optimizer = CLT_ADAM},
         .lost = 0,
         .left = two,
         .smaller = "time=2"}};
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* Places of space and time have whole parameters. */
static void a_place_of_space_or_time_leaves(void **state)
{
    static const loss_case cases[] = {
        {.s = {.build = rows, .devices = two, .parallel = "space=2", .optimizer = CLT_MOMENTUM},
         .lost = 0},
        {.s = {.build = rows, .devices = three, .parallel = "space=3"},
         .lost = 1,
         .left = two,
         .smaller = "space=2"},
        {.s = {.build = rows, .devices = four, .parallel = "tp=2,space=2", .optimizer = CLT_ADAMW},
         .lost = 3,
         .left = two,
         .smaller = "tp=2"},
        {.s = {.build = positions, .devices = two, .parallel = "time=2"}, .lost = 1, .node = 4},
        {.s =
             {.build = positions, .devices = four, .parallel = "time=4", .optimizer = CLT_MOMENTUM},
         .lost = 2,
         .left = two,
         .smaller = "time=2"}};
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
}

/* --- what cannot go on ----------------------------------------------------------------------- */

static void ends(const setting *s, int owners, int lost, const char *why)
{
    clt_feed feeds[MOST_FEEDS];
    clt_step_batch batch;
    char words[48];
    int redo = -1;
    lab l;
    open_lab(s, s->devices, s->parallel, NULL, owners, &l);
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = make_feeds(s, &l, feeds);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    snprintf(words, sizeof words, "place %d.=1", lost);
    clt_exec_testing_lose = words;
    if (owners) /* have no nodes that could fail */
        atomic_store(&l.trainer->lost, lost);
    else
        assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_DEVICE_LOST);
    clt_exec_testing_lose = NULL;
    assert_int_equal(clt_trainer_recover(l.trainer, &redo), CLT_STATE);
    assert_message_has(why);
    lab_close(&l); /* waits for the devices that read the feeds */
    free_feeds(feeds, batch.n_feeds);
}

static void bytes_are_gone(void **state)
{
    static const struct {
        setting s;
        const char *why;
    } cases[] = {
        {{.build = two_layers, .devices = two, .parallel = "tp=2"},
         "the model is divided along tp of the mesh"},
        {{.build = stages, .devices = two, .parallel = "pp=2", .accumulate = 2},
         "the model is divided along pp of the mesh"},
        {{.build = stages, .devices = four, .parallel = "tp=2,pp=2", .accumulate = 2},
         "divided along tp and pp of the mesh"},
        {{.build = two_layers, .devices = two, .parallel = "dp=2", .zero = 3},
         "zero 3 divides the model along dp of the mesh"},
        {{.build = two_layers,
          .devices = four,
          .parallel = "dp=2,tp=2",
          .zero = 1,
          .optimizer = CLT_MOMENTUM},
         "a shard of the optimizer's state went with the device that failed, because that state is "
         "divided along dp"},
        {{.build = rows,
          .devices = four,
          .parallel = "dp=2,space=2",
          .zero = 1,
          .optimizer = CLT_ADAM},
         "along dp and space"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ends(&cases[i].s, 0, 1, cases[i].why);
}

/* The owner has all slots, so a device that trains may leave. */
static void owners_stay(void **state)
{
    static const setting s = {.build = two_layers, .devices = two, .optimizer = CLT_ADAM};
    static const loss_case cases[] = {
        {.s = {.build = two_layers,
               .devices = three,
               .parallel = "dp=3",
               .optimizer = CLT_MOMENTUM,
               .clip = 1},
         .lost = 0,
         .left = two,
         .smaller = "dp=2",
         .owners = 1},
        {.s = {.build = transformer, .devices = four, .optimizer = CLT_ADAMW},
         .lost = 1,
         .left = three,
         .owners = 2}};
    (void)state;
    check_cases(cases, sizeof cases / sizeof *cases);
    ends(&s, 1, 1, "it alone had the optimizer's state of its buckets (offload)");
    ends(&s, 1, 0, "rank 0 of 1 has no other device that trains (offload)");
}

/* Sets a parameter of a device to zero, as if it had not done the last step. */
static void fall_behind(lab *l, int device)
{
    const clt_replica *r = &l->store->replicas[device];
    const clt_slot *slot = clt_buckets_find(r->layout, "b.weight");
    const float zeros[64] = {0};
    ok(clt_replica_write(r, r->values[slot->bucket], slot->offset, slot->bytes, zeros));
    l->trainer->devices[device].done = l->trainer->devices[device].begun = BEFORE - 1;
}

/* Devices failed between the updates of a step. A place that has updated all its parts becomes the
 * others' source. */
static void an_updated_place_becomes_all(void **state)
{
    static const setting s = {.build = two_layers, .devices = six, .parallel = "dp=3,tp=2"};
    float want[4 * 7], have[4 * 7];
    (void)state;
    for (int torn = 0; torn < 2; torn++) {
        clt_feed feeds[MOST_FEEDS];
        clt_step_batch batch;
        int redo = -1;
        lab l;
        open_lab(&s, s.devices, s.parallel, NULL, 0, &l);
        set_parameters(&s, &l);
        clt_step_batch_init(&batch);
        batch.count = BATCH;
        batch.feeds = feeds;
        batch.n_feeds = make_feeds(&s, &l, feeds);
        for (int i = 0; i < BEFORE; i++)
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_wait(l.trainer));
        ok(clt_store_get(l.store, "b.weight", want, sizeof want));
        fall_behind(&l, 2);
        if (torn)
            fall_behind(&l, 5);
        l.trainer->steps = BEFORE - 1;
        atomic_store(&l.trainer->lost, 0);
        if (torn) {
            assert_int_equal(clt_trainer_recover(l.trainer, &redo), CLT_STATE);
            assert_message_has("updated their parts of the model in step 2");
        } else {
            ok(clt_trainer_recover(l.trainer, &redo));
            assert_int_equal(redo, 0);
            assert_int_equal(clt_trainer_steps(l.trainer), BEFORE);
            assert_int_equal(l.trainer->all.own, 4);
            ok(clt_store_check(l.store));
            ok(clt_store_get(l.store, "b.weight", have, sizeof have));
            assert_memory_equal(have, want, sizeof have);
            ok(clt_trainer_step(l.trainer, &batch, NULL));
            ok(clt_trainer_wait(l.trainer));
        }
        lab_close(&l); /* waits for the devices that read the feeds */
        free_feeds(feeds, batch.n_feeds);
    }
}

/* Devices fail one after the other, until something is missing. */
static void one_after_the_other(void **state)
{
    static const struct {
        setting s;
        int left[3]; /* devices after each failure of the first device */
        const char *why;
    } cases[] = {{{.build = two_layers, .devices = six, .parallel = "dp=3,tp=2"},
                  {4, 2, 0},
                  "the model is divided along tp of the mesh"},
                 {{.build = rows, .devices = four, .parallel = "space=2,dp=2"},
                  {2, 1, 0},
                  "no other device is left"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_feed feeds[MOST_FEEDS];
        clt_step_batch batch;
        int redo = -1;
        lab l;
        open_lab(&cases[i].s, cases[i].s.devices, cases[i].s.parallel, NULL, 0, &l);
        clt_step_batch_init(&batch);
        batch.count = BATCH;
        batch.feeds = feeds;
        batch.n_feeds = make_feeds(&cases[i].s, &l, feeds);
        for (int k = 0; k < 3; k++) {
            ok(clt_trainer_step(l.trainer, &batch, NULL));
            char words[64];
            snprintf(words, sizeof words, "%.30s=%d", l.store->replicas[0].device->label, k + 1);
            clt_exec_testing_lose = words;
            assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_DEVICE_LOST);
            clt_exec_testing_lose = NULL;
            if (cases[i].left[k])
                ok(clt_trainer_recover(l.trainer, &redo));
            else
                assert_int_equal(clt_trainer_recover(l.trainer, &redo), CLT_STATE);
            if (cases[i].left[k])
                assert_int_equal(l.trainer->all.own, cases[i].left[k]);
        }
        assert_message_has(cases[i].why);
        lab_close(&l); /* waits for the devices that read the feeds */
        free_feeds(feeds, batch.n_feeds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_of_dp_leaves),
        cmocka_unit_test(a_place_of_space_or_time_leaves),
        cmocka_unit_test(bytes_are_gone),
        cmocka_unit_test(owners_stay),
        cmocka_unit_test(an_updated_place_becomes_all),
        cmocka_unit_test(one_after_the_other),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
#else
int main(void)
{
    return 0; /* without the tests' hooks no device fails */
}
#endif
