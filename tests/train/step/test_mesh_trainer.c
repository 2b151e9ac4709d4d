/*
 * Trainers on a mesh whose places along tp or space all compute the same, because nothing is split.
 * They give the bits of a trainer on the devices along dp alone: parameters, states, optimizer
 * slots, losses, metrics, norms, outputs and evaluation.
 */
#include "train/world.h"
#include "train/unsplit.h"

#include "train/core/trainer.h"

enum { IN = 7, WIDE = 21, CLASSES = 5, MOST = 24, STEPS = 5, ROOM = 4096 };

static float xs[MOST * IN], bad_xs[MOST * IN];
static int32_t labels[MOST];

static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias", "own", "all"};
static const int sizes[] = {WIDE * IN, WIDE, CLASSES *WIDE, CLASSES, WIDE, WIDE};
enum { PARAMETERS = 4, TENSORS = 6 };

/* How a run trains. */
typedef struct setting {
    clt_optimizer optimizer;
    clt_dtype precision;
    int accumulate, zero;
    double clip_norm;
    bool parts;   /* by the parts of a step */
    bool ignores; /* some labels do not count, so the weights of losses come from the devices */
    bool uneven;  /* the first part of a batch is larger */
    int bad;      /* the step in which a sample is not finite; 0: none */
} setting;

/* Where it trains. */
typedef struct place {
    const char *devices, *parallel;
} place;

/* What a run gives. */
typedef struct outcome {
    float tensors[ROOM]; /* parameters, states and slots */
    int n_tensors;
    double results[STEPS][6];
    double sums[2], weights[2];
    float logits[MOST * CLASSES];
    clt_status status; /* of the last step */
} outcome;

/* Adds state = 0.75 state + 0.25 mean. */
static void follow(clt_graph *graph, const char *name, clt_value *mean)
{
    const int64_t dims[] = {WIDE};
    clt_value *state = clt_state(graph, name, CLT_F32, 1, dims, (clt_init){0});
    clt_assign(graph, state, clt_add(clt_scale(state, 0.75), clt_scale(mean, 0.25)));
}

/* A classifier with dropout, a state that is a mean over devices, and one over all samples. */
static clt_graph *network(const setting *s)
{
    const int64_t dims[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    const int axis = 0;
    clt_value *sum = NULL, *weight = NULL;
    clt_cross_entropy_options options;
    clt_graph *graph;
    if (clt_graph_create(&graph) != CLT_OK)
        return NULL;
    clt_cross_entropy_options_init(&options);
    options.ignore_index = s->ignores ? 1 : -100;
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_value *h = clt_relu(layer(graph, x, "a.weight", "a.bias", IN, WIDE));
    follow(graph, "own", clt_reduce_mean(h, &axis, 1, 0));
    clt_value *all = clt_name(clt_all_reduce(clt_reduce_sum(h, &axis, 1, 0)), "all samples");
    follow(graph, "all", all);
    h = clt_add(clt_dropout(h, 0.25), clt_scale(all, 0.001));
    clt_value *logits = clt_output(layer(graph, h, "b.weight", "b.bias", WIDE, CLASSES), "logits");
    clt_cross_entropy(logits, label, &options, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, label, 1, options.ignore_index, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    return graph;
}

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.precision = s->precision;
    o.batch = 2 * MOST; /* room for uneven parts */
    o.lr = s->optimizer >= CLT_ADAM ? 0.01 : 0.1;
    o.accumulate = s->accumulate;
    o.zero = s->zero;
    o.clip_norm = s->clip_norm;
    o.check_every = 1;
    o.poison = 1;
    o.comm_timeout = 60;
    return o;
}

static clt_status make_trainer(const setting *s, const place *p, const clt_world *world, lab *l)
{
    clt_store_options store;
    clt_store_options_init(&store);
    store.seed = 4;
    store.bucket_bytes = 512;
    store.parallel = p->parallel;
    store.world = world;
    clt_trainer_options o = options_of(s);
    o.world = world;
    l->graph = let_axes_idle(network(s));
    CLT_TRY(clt_devices_open(runtime, p->devices, NULL, &l->devices, &l->n));
    CLT_TRY(clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store));
    return clt_trainer_create(l->graph, l->store, &o, &l->trainer);
}

/* The samples of this process' parts of the batch, and how they are divided. */
typedef struct samples {
    clt_step_batch batch;
    clt_feed feeds[2];
    clt_fetch fetch;
    int64_t offsets[8];
} samples;

static void divide(const setting *s, const clt_trainer *t, bool bad, float *logits, samples *out)
{
    const int parts = clt_participants_parts(&t->all), first = t->all.first_part;
    int64_t begins[9];
    for (int i = 0; i <= parts; i++)
        begins[i] = (int64_t)MOST * i / parts;
    if (s->uneven && parts > 1)
        begins[1] += 3;
    for (int i = 0; i <= t->all.own_parts; i++)
        out->offsets[i] = begins[first + i] - begins[first];
    const int64_t begin = begins[first], count = out->offsets[t->all.own_parts];
    out->feeds[0] = (clt_feed){
        "x", -1, {.host = (bad ? bad_xs : xs) + begin * IN, .bytes = count * IN * 4, .whole = 1}};
    out->feeds[1] =
        (clt_feed){"label", -1, {.host = labels + begin, .bytes = count * 4, .whole = 1}};
    out->fetch = (clt_fetch){"logits", -1, CLT_HOST(logits + begin * CLASSES)};
    clt_step_batch_init(&out->batch);
    out->batch.count = count;
    out->batch.offsets = out->offsets;
    out->batch.feeds = out->feeds;
    out->batch.n_feeds = 2;
    out->batch.fetches = &out->fetch;
    out->batch.n_fetches = 1;
}

static clt_status step(const setting *s, clt_trainer *t, const samples *in)
{
    if (!s->parts)
        return clt_trainer_step(t, &in->batch, NULL);
    CLT_TRY(clt_trainer_forward(t, &in->batch));
    CLT_TRY(clt_trainer_backward(t));
    CLT_TRY(clt_trainer_reduce(t));
    return clt_trainer_apply(t, NULL);
}

static clt_status read_tensors(const lab *l, outcome *out)
{
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof(float);
        float *at = out->tensors + out->n_tensors;
        CLT_TRY(clt_store_get(l->store, names[i], at, bytes));
        out->n_tensors += sizes[i];
        for (int k = 0; i < PARAMETERS && clt_trainer_slot_name(l->trainer, k); k++) {
            CLT_TRY(clt_trainer_slot_get(l->trainer, k, names[i], out->tensors + out->n_tensors,
                                         bytes));
            out->n_tensors += sizes[i];
        }
    }
    return clt_store_check(l->store);
}

static clt_status train(const setting *s, const lab *l, outcome *out)
{
    samples in;
    for (int i = 0; i < STEPS; i++) {
        clt_step_result r = {.struct_size = sizeof r};
        double *to = out->results[i];
        divide(s, l->trainer, s->bad == i + 1, out->logits, &in);
        clt_status status = step(s, l->trainer, &in);
        if (status == CLT_OK)
            status = clt_trainer_result(l->trainer, i, &r);
        if (status == CLT_OK)
            status = clt_trainer_metric(l->trainer, i, 0, &to[3], &to[4]);
        to[0] = r.loss;
        to[1] = r.norm;
        to[2] = r.loss_scale;
        to[5] = (double)r.skipped;
        out->status = status;
        if (status == CLT_NONFINITE)
            break;
        CLT_TRY(status);
    }
    CLT_TRY(clt_trainer_wait(l->trainer));
    divide(s, l->trainer, false, out->logits, &in);
    CLT_TRY(clt_trainer_evaluate(l->trainer, &in.batch, out->sums, out->weights));
    CLT_TRY(clt_trainer_predict(l->trainer, &in.batch, NULL));
    CLT_TRY(clt_trainer_wait(l->trainer));
    return read_tensors(l, out);
}

static void run_on(const setting *s, const place *p, outcome *out)
{
    lab l = {0};
    memset(out, 0, sizeof *out);
    ok(make_trainer(s, p, NULL, &l));
    ok(train(s, &l, out));
    lab_close(&l);
}

/* Compares all but the logits, of which a rank has only its own. */
static void compare(const char *what, const outcome *a, const outcome *b)
{
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < 6; j++)
            if (memcmp(&a->results[i][j], &b->results[i][j], sizeof(double)))
                fail_msg("%s: result %d of step %d is %.17g, not %.17g", what, j, i,
                         b->results[i][j], a->results[i][j]);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (int i = 0; i < a->n_tensors; i++)
        if (memcmp(&a->tensors[i], &b->tensors[i], sizeof(float)))
            fail_msg("%s: element %d of all tensors is %.9g, not %.9g", what, i, b->tensors[i],
                     a->tensors[i]);
    for (int i = 0; i < 2; i++) {
        assert_true(a->sums[i] == b->sums[i]);
        assert_true(a->weights[i] == b->weights[i]);
    }
}

static const setting settings[] = {
    {CLT_SGD, CLT_F32, 1, 0, 0, false, false, false, 0},
    {CLT_ADAMW, CLT_F32, 1, 0, 0.05, false, true, false, 0},
    {CLT_MOMENTUM, CLT_F32, 1, 0, 0.05, true, true, false, 0},
    {CLT_ADAM, CLT_F32, 3, 0, 0, false, true, false, 0},
    {CLT_ADAM, CLT_F32, 1, 1, 0, false, false, true, 0},
    {CLT_SGD, CLT_F16, 1, 0, 0, false, false, false, 2},
    {CLT_ADAMW, CLT_BF16, 2, 0, 0.1, false, false, true, 0},
    {CLT_SGD, CLT_F32, 1, 0, 0.1, false, false, false, 3},
};

static const place one = {"cpu@1", NULL}, two = {"cpu/2", NULL};
static const place tensor = {"cpu/2", "tp=2"}, both = {"cpu/2,cpu/2", "dp=2,tp=2"},
                   other = {"cpu/2,cpu/2", "tp=2,dp=2"};

static void count_once(const place *single, const place *first, const place *second)
{
    static outcome alone, pair, meshed;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const setting *s = &settings[i];
        if (!s->zero) {
            run_on(s, &one, &alone);
            run_on(s, single, &meshed);
            compare(single->parallel, &alone, &meshed);
            assert_memory_equal(alone.logits, meshed.logits, sizeof alone.logits);
        }
        run_on(s, &two, &pair);
        run_on(s, i % 2 ? second : first, &meshed);
        compare(i % 2 ? second->parallel : first->parallel, &pair, &meshed);
        assert_memory_equal(pair.logits, meshed.logits, sizeof pair.logits);
        const bool scaled = s->precision == CLT_F16;
        assert_int_equal(pair.status, s->bad && !scaled ? CLT_NONFINITE : CLT_OK);
        assert_true(pair.results[STEPS - 1][5] == (s->bad && scaled));
    }
}

static void places_of_tp_count_once(void **state)
{
    (void)state;
    count_once(&tensor, &both, &other);
}

static void places_of_space_count_once(void **state)
{
    static const place rows = {"cpu/2", "space=2"}, first = {"cpu/2,cpu/2", "dp=2,space=2"},
                       second = {"cpu/2,cpu/2", "space=2,dp=2"};
    (void)state;
    count_once(&rows, &first, &second);
}

/* --- ranks ------------------------------------------------------------------------------------ */

typedef struct plan {
    const setting *setting;
    place place;
    outcome outcome;
} plan;

static void train_rank(rank *self)
{
    plan *p = self->argument;
    lab l = {0};
    memset(&p->outcome, 0, sizeof p->outcome);
    if (HOLDS(self, make_trainer(p->setting, &p->place, &self->world, &l) == CLT_OK) &&
        HOLDS(self, train(p->setting, &l, &p->outcome) == CLT_OK))
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    lab_close(&l);
}

static void run_world(const setting *s, int ranks, const char *devices, const char *parallel,
                      plan *plans)
{
    rank all[RANKS_MOST];
    for (int r = 0; r < ranks; r++) {
        plans[r].setting = s;
        plans[r].place = (place){devices, parallel};
    }
    run_ranks(all, ranks, train_rank, plans, sizeof *plans);
}

static void ranks_share_places(void **state)
{
    static const struct world_case {
        int ranks;
        const char *devices, *parallel;
        int alone; /* ranks of the run to compare with; 0: one device */
    } worlds[] = {{2, "cpu@1", "tp=2", 0},      {2, "cpu/2", "tp=4", 0},
                  {2, "cpu/2", "tp=2,dp=2", 2}, {2, "cpu/2", "dp=2,tp=2", 2},
                  {4, "cpu@1", "dp=2,tp=2", 2}, {4, "cpu@1", "tp=2,dp=2", 2},
                  {2, "cpu@1", "space=2", 0},   {4, "cpu@1", "dp=2,space=2", 2}};
    static plan plans[RANKS_MOST], pair[RANKS_MOST];
    static outcome alone;
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const setting *s = &settings[i];
        if (!s->zero)
            run_on(s, &one, &alone);
        run_world(s, 2, "cpu@1", NULL, pair);
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            const struct world_case *c = &worlds[w];
            if ((s->zero && !c->alone) || (i + w) % 4)
                continue;
            run_world(s, c->ranks, c->devices, c->parallel, plans);
            for (int r = 0; r < c->ranks; r++)
                compare(c->parallel, c->alone ? &pair[0].outcome : &alone, &plans[r].outcome);
        }
    }
}

/* --- mistakes --------------------------------------------------------------------------------- */

static void refuse(const setting *s, const place *p, clt_status wanted, const char *text)
{
    lab l = {0};
    const clt_status status = make_trainer(s, p, NULL, &l);
    if (status != wanted || !strstr(clt_error_message(), text))
        fail_msg("%s, not \"%s\": %s", clt_status_name(status), text, clt_error_message());
    lab_close(&l);
}

static void mistakes_are_named(void **state)
{
    setting zero = settings[0];
    (void)state;
    zero.zero = 1;
    refuse(&zero, &tensor, CLT_INVALID_ARGUMENT, "which has one place");
}

static void fail_to_make(rank *self)
{
    plan *p = self->argument;
    lab l = {0};
    self->status = make_trainer(p->setting, &p->place, &self->world, &l);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    lab_close(&l);
}

/* Rank 1 has the last place of dp in the first group, and the first of the second group. */
static void a_rank_needs_neighbours(void **state)
{
    static plan plans[3];
    rank ranks[3];
    (void)state;
    for (int r = 0; r < 3; r++) {
        plans[r].setting = &settings[0];
        plans[r].place = (place){"cpu/2", "tp=2,dp=3"};
    }
    run_ranks(ranks, 3, fail_to_make, plans, sizeof *plans);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, CLT_INVALID_ARGUMENT);
        if (!strstr(ranks[r].message, "rank 1 has devices at places 0 and 2 of dp, but not at "))
            fail_msg("%s", ranks[r].message);
    }
}

/* Ranks that share a place of dp must bring equally many samples. */
static void bring_other_samples(rank *self)
{
    plan *p = self->argument;
    lab l = {0};
    samples in;
    float logits[MOST * CLASSES];
    if (HOLDS(self, make_trainer(p->setting, &p->place, &self->world, &l) == CLT_OK)) {
        divide(p->setting, l.trainer, false, logits, &in);
        in.batch.offsets = NULL;
        in.batch.count -= self->number;
        self->status = clt_trainer_step(l.trainer, &in.batch, NULL);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    lab_close(&l);
}

static void ranks_of_a_place_need_the_same_samples(void **state)
{
    static plan plans[2];
    rank ranks[2];
    (void)state;
    for (int r = 0; r < 2; r++) {
        plans[r].setting = &settings[0];
        plans[r].place = (place){"cpu@1", "tp=2"};
    }
    run_ranks(ranks, 2, bring_other_samples, plans, sizeof *plans);
    for (int r = 0; r < 2; r++)
        if (!strstr(ranks[r].message, "must give them the same samples, not 24 and 23"))
            fail_msg("%s", ranks[r].message);
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    memcpy(bad_xs, xs, sizeof xs);
    bad_xs[3] = INFINITY;
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_of_tp_count_once),
                                       cmocka_unit_test(places_of_space_count_once),
                                       cmocka_unit_test(ranks_share_places),
                                       cmocka_unit_test(mistakes_are_named),
                                       cmocka_unit_test(a_rank_needs_neighbours),
                                       cmocka_unit_test(ranks_of_a_place_need_the_same_samples)};
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
