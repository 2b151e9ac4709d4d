/*
 * Replicas synchronised by loops of the caller's own. Averaged after every step they are one
 * device with the whole batch, to the bit on exact networks. The outer optimizers are compared with
 * their formulas in double.
 */
#include "train/split_steps.h"

#include "train/hybrid_networks.h"
#include <cltrain/local.h>

enum { MOST = 4 };

/* Replicas on a device each. */
typedef struct team {
    lab l;
    int n;
    clt_store *stores[MOST];
    clt_trainer *trainers[MOST];
    clt_local *local;
} team;

static void open_stores(team *t, const setting *s, const char *devices)
{
    t->l = lab_on_kept(devices);
    t->n = t->l.n;
    assert_true(t->n <= MOST);
    ok(clt_graph_create(&t->l.graph));
    s->build(t->l.graph);
    ok(clt_graph_status(t->l.graph));
    for (int i = 0; i < t->n; i++) {
        lab one = t->l;
        ok(clt_store_create(t->l.graph, t->l.devices + i, 1, 1, &t->stores[i]));
        one.store = t->stores[i];
        if (i == 0) /* the others get its parameters */
            set_parameters(s, &one);
    }
}

static clt_status open_team(team *t, const setting *s, const char *devices, const clt_outer *outer)
{
    clt_trainer_options o;
    clt_local_options options;
    open_stores(t, s, devices);
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = BATCH / t->n;
    o.lr = rate_of(s, t->l.graph);
    o.momentum = MOMENTUM;
    for (int i = 0; i < t->n; i++)
        ok(clt_trainer_create(t->l.graph, t->stores[i], &o, &t->trainers[i]));
    clt_local_options_init(&options);
    if (outer)
        options.outer = *outer;
    return clt_local_create(t->trainers, t->n, &options, &t->local);
}

static void close_team(team *t)
{
    clt_local_destroy(t->local);
    for (int i = 0; i < t->n; i++) {
        clt_trainer_destroy(t->trainers[i]);
        clt_store_destroy(t->stores[i]);
    }
    t->l.store = NULL;
    t->l.trainer = NULL;
    lab_close(&t->l);
}

/* Steps on the replica's samples of the batch. Returns the loss. */
static double step(const team *t, const setting *s, int i, int64_t number)
{
    clt_feed feeds[8];
    float *owned[8];
    clt_step_batch batch;
    clt_step_result result;
    lab one = t->l;
    const int64_t part = BATCH / t->n;
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    one.trainer = t->trainers[i];
    batch.count = part;
    batch.first = part * i;
    batch.feeds = feeds;
    batch.n_feeds = feed_samples(s, &one, batch.first, owned, feeds);
    ok(clt_trainer_step(one.trainer, &batch, NULL));
    ok(clt_trainer_result(one.trainer, number, &result));
    ok(clt_trainer_wait(one.trainer));
    for (int k = 0; k < batch.n_feeds; k++)
        free(owned[k]);
    return result.loss;
}

static void synchronise(const team *t)
{
    const double samples[MOST] = {2, 2, 2, 2};
    ok(clt_local_sync(t->local, samples));
}

static trained read_store(const team *t, int i)
{
    trained run = {.n = 0};
    lab one = t->l;
    one.store = t->stores[i];
    get_parameters(&one, &run);
    return run;
}

static void free_run(trained *run)
{
    for (int i = 0; i < run->n; i++)
        free(run->data[i]);
}

static trained train_team(const setting *s, const char *devices)
{
    team t = {.n = 0};
    double losses[MOST_STEPS] = {0};
    ok(open_team(&t, s, devices, NULL));
    for (int k = 0; k < steps_of(s); k++) {
        for (int i = 0; i < t.n; i++)
            losses[k] += step(&t, s, i, k) / t.n;
        synchronise(&t);
    }
    trained run = read_store(&t, t.n - 1);
    memcpy(run.losses, losses, sizeof losses);
    assert_int_equal(clt_local_syncs(t.local), steps_of(s));
    close_team(&t);
    return run;
}

/* H = 1, plain averaging, SGD, two and four replicas: the bits of one device in double. */
static void averages_of_every_step_are_synchronous_training(void **state)
{
    const char *const devices[] = {two, four};
    char text[200];
    int bits, networks = 0;
    (void)state;
    for (int i = 0; i < LONGEST; i++)
        for (int d = 0; d < 2; d++) {
            const setting s = longer((setting){.build = longest[i].build});
            trained run = train_team(&s, devices[d]);
            if (!equals_double(&s, &run, &bits, text, sizeof text))
                fail_msg("%s on %s, %d steps: %s", longest[i].name, devices[d], steps_of(&s), text);
            free_run(&run);
            networks++;
        }
    assert_true(networks >= 8);
}

/* --- the outer optimizer --------------------------------------------------------------------- */

/* The rule of <cltrain/local.h> in double. */
typedef struct rule {
    clt_outer outer;
    double samples[MOST];
} rule;

/* Synchronises three times, two steps apart. The momentum runs on. */
static void follow_rule(const rule *r)
{
    const setting s = {.build = two_layers, .lr = 0.01};
    team t = {.n = 0};
    double velocity[MOST_TENSORS][64] = {{0}}, sum = 0;
    ok(open_team(&t, &s, three, &r->outer));
    for (int i = 0; i < t.n; i++)
        sum += r->samples[i];
    for (int k = 0; k < 3; k++) {
        trained before = read_store(&t, 0), own[MOST];
        for (int i = 0; i < t.n; i++)
            for (int n = 0; n < 1 + i; n++) /* each at its own speed */
                step(&t, &s, i, k * (1 + i) + n);
        for (int i = 0; i < t.n; i++)
            own[i] = read_store(&t, i);
        ok(clt_local_sync(t.local, r->samples));
        trained after = read_store(&t, 2);
        for (int p = 0; p < before.n; p++)
            for (int64_t e = 0; e < before.count[p]; e++) {
                const double a = (double)before.data[p][e];
                double d = 0, *v = &velocity[p][e], moved;
                for (int i = 0; i < t.n; i++)
                    d += r->samples[i] / sum * (a - (double)own[i].data[p][e]);
                *v = r->outer.momentum * *v + d;
                moved = r->outer.kind == CLT_OUTER_AVERAGE ? d
                        : r->outer.kind == CLT_OUTER_MOMENTUM
                            ? r->outer.lr * *v
                            : r->outer.lr * (d + r->outer.momentum * *v);
                if (!(fabs((double)after.data[p][e] - (a - moved)) <= 1e-6))
                    fail_msg("%s, synchronisation %d, %s[%d]: %.9g, not %.9g",
                             clt_outer_name(r->outer.kind), k, before.names[p], (int)e,
                             (double)after.data[p][e], a - moved);
            }
        free_run(&before);
        free_run(&after);
        for (int i = 0; i < t.n; i++)
            free_run(&own[i]);
    }
    close_team(&t);
}

static void outer_optimizers_follow_their_rules(void **state)
{
    const rule rules[] = {
        {{CLT_OUTER_AVERAGE, 0, 0}, {1, 1, 1}},
        {{CLT_OUTER_AVERAGE, 0, 0}, {5, 0, 2}}, /* one has no samples */
        {{CLT_OUTER_MOMENTUM, 0.5, 0.75}, {3, 2, 2}},
        {{CLT_OUTER_NESTEROV, 0.7, 0.9}, {1, 4, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        follow_rule(&rules[i]);
}

/* Three thirds of a number are not the number, but nobody moves here. */
static void what_nobody_changed_keeps_its_bits(void **state)
{
    const setting s = {.build = two_layers};
    const double samples[MOST] = {1, 1, 1}, none[MOST] = {0};
    team t = {.n = 0};
    (void)state;
    ok(open_team(&t, &s, three, NULL));
    trained before = read_store(&t, 0);
    ok(clt_local_sync(t.local, samples));
    ok(clt_local_sync(t.local, none));
    for (int i = 0; i < t.n; i++) {
        trained after = read_store(&t, i);
        for (int p = 0; p < before.n; p++)
            assert_memory_equal(before.data[p], after.data[p],
                                (size_t)before.count[p] * sizeof(float));
        free_run(&after);
    }
    free_run(&before);
    assert_int_equal(clt_local_syncs(t.local), 1); /* without samples nothing is exchanged */
    close_team(&t);
}

/* --- what is refused ------------------------------------------------------------------------- */

static void refuses(clt_status status, clt_status wanted, const char *says)
{
    if (status != wanted || !strstr(clt_error_message(), says))
        fail_msg("'%s' (%s) has no '%s'", clt_error_message(), clt_status_name(status), says);
}

static void texts_are_read(void **state)
{
    clt_outer outer;
    int64_t steps;
    double seconds;
    int replicas;
    char rest[16];
    (void)state;
    ok(clt_outer_parse("nesterov:lr=0.5,momentum=0.25", &outer));
    assert_true(outer.kind == CLT_OUTER_NESTEROV && outer.lr == 0.5 && outer.momentum == 0.25);
    ok(clt_outer_parse("momentum", &outer));
    assert_true(outer.kind == CLT_OUTER_MOMENTUM && outer.lr == 0.7 && outer.momentum == 0.9);
    ok(clt_sync_every_parse("8", &steps, &seconds));
    assert_true(steps == 8 && seconds == 0);
    ok(clt_sync_every_parse("0.5s", &steps, &seconds));
    assert_true(steps == 0 && seconds == 0.5);
    ok(clt_local_mesh("local=4,dp=2", &replicas, rest, sizeof rest));
    assert_true(replicas == 4 && !strcmp(rest, "dp=2"));
    ok(clt_local_mesh("local=3", &replicas, rest, sizeof rest));
    assert_true(replicas == 3 && !*rest);
    ok(clt_local_mesh("tp=2", &replicas, rest, sizeof rest));
    assert_true(replicas == 0 && !strcmp(rest, "tp=2"));
    static const char *const outers[] = {"",
                                         "average:lr=1",
                                         "nesterov:",
                                         "adam",
                                         "nesterov:x=1",
                                         "nesterov:lr=0",
                                         "momentum:lr",
                                         "nesterov:lr=nan",
                                         "nesterov:momentum=1",
                                         "nesterov:lr=1,",
                                         "nesterov:lr=1,lr=1",
                                         "momentum:momentum=0.5,lr=1,momentum=0.5",
                                         "nesterov:lr=1;momentum=0"};
    for (size_t i = 0; i < sizeof outers / sizeof *outers; i++)
        refuses(clt_outer_parse(outers[i], &outer), CLT_INVALID_ARGUMENT, "outer optimizer");
    static const char *const whens[] = {"",   "0",     "-8",   "2.5", "8 steps",   "-1s",
                                        "0s", "s",     "infs", "1e3", "0x8",       " 8",
                                        "+8", "1e30s", "2..s", ".",   "1000000001"};
    for (size_t i = 0; i < sizeof whens / sizeof *whens; i++)
        refuses(clt_sync_every_parse(whens[i], &steps, &seconds), CLT_INVALID_ARGUMENT, "above 0");
    static const char *const meshes[] = {"dp=2,local=2", "local=2,local=2", "local=0",
                                         "local=x",      "local=2,",        "local=-1"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        refuses(clt_local_mesh(meshes[i], &replicas, rest, sizeof rest), CLT_INVALID_ARGUMENT,
                "mesh: ");
    static const char *const axes[] = {"local=2,tp=2", "local=2,pp=2", "local=2,space=2",
                                       "local=2,time=2"};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        refuses(clt_local_mesh(axes[i], &replicas, rest, sizeof rest), CLT_UNSUPPORTED,
                "only dp is built");
}

static void wrong_replicas_are_refused(void **state)
{
    const setting s = {.build = two_layers};
    const double wrong[MOST] = {1, -1};
    clt_local_options o;
    clt_local *local;
    team t = {.n = 0};
    (void)state;
    ok(open_team(&t, &s, two, NULL));
    clt_local_options_init(&o);
    o.every_steps = -8;
    refuses(clt_local_create(t.trainers, 2, &o, &local), CLT_INVALID_ARGUMENT, "every_steps -8");
    o.every_steps = 8;
    o.every_seconds = 2;
    refuses(clt_local_create(t.trainers, 2, &o, &local), CLT_INVALID_ARGUMENT, "every_seconds 2");
    o.every_seconds = 0;
    o.outer = (clt_outer){CLT_OUTER_NESTEROV, -1, 0.9};
    refuses(clt_local_create(t.trainers, 2, &o, &local), CLT_INVALID_ARGUMENT, "lr -1");
    o.outer = (clt_outer){CLT_OUTER_AVERAGE, 0, 0};
    clt_trainer *const same[] = {t.trainers[0], t.trainers[0]};
    refuses(clt_local_create(same, 2, &o, &local), CLT_INVALID_ARGUMENT, "the same store");
    refuses(clt_local_create(t.trainers, 0, &o, &local), CLT_INVALID_ARGUMENT, "0 replicas");
    refuses(clt_local_sync(t.local, wrong), CLT_INVALID_ARGUMENT, "replica 1: -1 samples");
    close_team(&t);
}

/* Trainers that divide their model are not replicas. */
static void split_models_are_refused(void **state)
{
    clt_store_options so;
    clt_trainer_options o;
    clt_local_options options;
    clt_local *local;
    lab l = lab_on_kept(two);
    (void)state;
    ok(clt_graph_create(&l.graph));
    two_layers(l.graph);
    clt_store_options_init(&so);
    clt_trainer_options_init(&o);
    clt_local_options_init(&options);
    so.parallel = "tp=2";
    o.batch = BATCH;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &so, &l.store));
    lab_trainer(&l, &o);
    refuses(clt_local_create(&l.trainer, 1, &options, &local), CLT_UNSUPPORTED,
            "a mesh of other axes than dp");
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_of_every_step_are_synchronous_training),
        cmocka_unit_test(outer_optimizers_follow_their_rules),
        cmocka_unit_test(what_nobody_changed_keeps_its_bits),
        cmocka_unit_test(texts_are_read),
        cmocka_unit_test(wrong_replicas_are_refused),
        cmocka_unit_test(split_models_are_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
