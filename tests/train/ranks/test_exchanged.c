/*
 * Bytes that a step exchanges: the communicators' counters on two and four ranks, each with one
 * device, give what the plan says, what the formulas of each axis say, and what the planner of
 * meshes predicts for such ranks without them.
 */
#include "support/convolution.h"
#include "train/world.h"

#include "train/core/trainer.h"
#include "train/meshes/facts.h"
#include "train/ranks/connect.h"
#include "train/ranks/virtual_shards.h"
#include "train/setup/exchanged.h"
#include <cltrain/models.h>

enum { BATCH = 8, T = 8, WORDS = 23, WIDTH = 16, LAYERS = 2, COMMS = 32 };
enum { SIDE = 12, CHANNELS = 3, MOST = BATCH * CHANNELS * SIDE * SIDE };

/* How ranks train. */
typedef struct setting {
    clt_graph *(*build)(void);
    const char *parallel;
    int zero, accumulate;
    int ranks;            /* 0: 2 */
    int64_t bucket_bytes; /* 0: the default */
    clt_dtype wire;
    int64_t shards; /* virtual shards */
} setting;

/* What a rank has counted in a step. */
typedef struct counted {
    setting setting;
    clt_comm *comms[COMMS];
    int n_comms;
    int64_t payload[CLT_COMM_BARRIER + 1]; /* by kind */
    double sent;                           /* of gradients, parameters and values of the graph */
    int64_t results, words;                /* payload of losses and of norms, in all-reduces and
                                              all-gathers */
    clt_exchanged plan;
} counted;

static counted all[RANKS_MOST];

static int ranks_of(const setting *s)
{
    return s->ranks ? s->ranks : 2;
}

/* --- networks -------------------------------------------------------------------------------- */

static clt_graph *gpt(void)
{
    const clt_model_field fields[] = {{"tokens", CLT_I32, 1, {T}, WORDS},
                                      {"targets", CLT_I32, 1, {T}, WORDS}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *g;
    return clt_graph_create(&g) == CLT_OK &&
                   clt_model_build("gpt2:layers=2,heads=2,width=16", &input, g) == CLT_OK
               ? g
               : NULL;
}

static const clt_init uniform = {CLT_INIT_UNIFORM, 0.5, 0};

/* Convolutions from CHANNELS to CHANNELS. */
static const square layers[] = {{3, 1, 1, 1}, {5, 1, 2, 1}, {3, 1, 2, 2}, {3, 2, 1, 1}};
enum { CONVS = sizeof layers / sizeof *layers };

/* The image has no gradient; the values between the layers have. */
static clt_graph *field(void)
{
    const int64_t dims[] = {CLT_BATCH, CHANNELS, SIDE, SIDE};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    if (clt_graph_create(&g) != CLT_OK)
        return NULL;
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
    clt_shard_value(x, CLT_AXIS_SPACE, 2);
    for (int i = 0; i < CONVS; i++)
        x = square_conv(i ? clt_relu(x) : x, (const char[]){(char)('a' + i), 0}, CHANNELS,
                        layers[i], false, uniform);
    clt_mse(x, clt_scale(x, 0.5), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return g;
}

/* --- a rank ---------------------------------------------------------------------------------- */

static clt_status connect_and_keep(void *user, int color, const clt_comm_device *devices, int count,
                                   const clt_comm_options *options, clt_comm **comm)
{
    counted *own = ((rank *)user)->argument;
    const clt_status status = rank_connect(user, color, devices, count, options, comm);
    if (status == CLT_OK && *comm && own->n_comms < COMMS)
        own->comms[own->n_comms++] = *comm;
    return status;
}

/* Adds up the counts of all groups of the rank, or subtracts them. */
static bool count(counted *own, int sign)
{
    for (int i = 0; i < own->n_comms; i++)
        for (int k = 0; k <= CLT_COMM_BARRIER; k++) {
            clt_comm_count c;
            clt_comm_count_init(&c);
            if (clt_comm_counts(own->comms[i], (clt_comm_kind)k, CLT_COMM_SHARED_MEMORY, &c) !=
                CLT_OK)
                return false;
            own->payload[k] += sign * c.payload;
            own->sent += sign * c.sent;
        }
    return true;
}

/* The labels of text are counted here. Otherwise forward would run once before, to count them. */
static clt_status step(lab *l, bool text)
{
    static const float zeros[MOST];
    const double weight = BATCH * T;
    clt_feed feeds[4];
    clt_step_batch batch;
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++)
        if (l->graph->values[i]->kind == CLT_VALUE_INPUT)
            feeds[n++] = (clt_feed){l->graph->values[i]->name, -1, CLT_HOST(zeros)};
    clt_step_batch_init(&batch);
    batch.loss_weights = text ? &weight : NULL;
    const clt_participants *p = &l->trainer->all;
    const int64_t *shards = l->trainer->shares.bounds;
    const int parts = p->mesh.size[CLT_AXIS_DATA];
    batch.count = BATCH / parts;
    batch.first = p->first_part * batch.count;
    if (shards) { /* all have as many samples */
        batch.first = shards[p->first_part] * (BATCH / shards[parts]);
        batch.count = shards[p->first_part + 1] * (BATCH / shards[parts]) - batch.first;
    }
    batch.total = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = n;
    CLT_TRY(clt_trainer_step(l->trainer, &batch, NULL));
    return clt_trainer_wait(l->trainer);
}

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_ADAMW;
    o.batch = BATCH;
    o.accumulate = s->accumulate;
    o.zero = s->zero;
    o.wire = s->wire;
    o.virtual_shards = s->shards;
    o.comm_timeout = 60;
    return o;
}

static clt_status make(rank *self, const setting *s, lab *l)
{
    clt_store_options so;
    clt_trainer_options o = options_of(s);
    clt_store_options_init(&so);
    so.parallel = s->parallel;
    so.zero = s->zero == 3 ? 3 : 0;
    so.world = &self->world;
    so.bucket_bytes = s->bucket_bytes;
    o.world = &self->world;
    l->graph = s->build();
    CLT_TRY(clt_devices_open(runtime, "cpu@1", NULL, &l->devices, &l->n));
    CLT_TRY(clt_store_create_with(l->graph, l->devices, l->n, &so, &l->store));
    return clt_trainer_create(l->graph, l->store, &o, &l->trainer);
}

static void read_plan(const lab *l, counted *own)
{
    const clt_trainer *t = l->trainer;
    const clt_participants *p = &t->all;
    clt_exchanged_count(t->training->devices[0].plan, &p->mesh, &t->options,
                        t->sharded ? clt_participants_replicas(p) : 1, &own->plan);
    const int64_t results = own->setting.shards ? own->setting.shards : own->setting.accumulate;
    own->results = t->training->shared ? results * t->training->n_means * 8 : 0;
    const bool words = clt_participants_replicas(&t->all) != p->ranks || t->all.mesh.zero;
    own->words = words ? p->ranks * (int64_t)sizeof(clt_words) : 0;
}

/* Counts the second step: the first one also compares the parameters. */
static void train_rank(rank *self)
{
    counted *own = self->argument;
    lab l = {0};
    self->world.connect = connect_and_keep;
    if (HOLDS(self, make(self, &own->setting, &l) == CLT_OK) &&
        HOLDS(self, step(&l, own->setting.build == gpt) == CLT_OK) && HOLDS(self, count(own, -1)) &&
        HOLDS(self, step(&l, own->setting.build == gpt) == CLT_OK) && HOLDS(self, count(own, 1))) {
        read_plan(&l, own);
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
}

static void train_all(setting s)
{
    rank ranks[RANKS_MOST];
    for (int r = 0; r < ranks_of(&s); r++)
        all[r] = (counted){.setting = s};
    run_ranks(ranks, ranks_of(&s), train_rank, all, sizeof *all);
}

/* Adds up what a rank's communicators reduced, gathered and scattered. */
static int64_t reduced_by(const counted *own)
{
    int64_t bytes = 0;
    for (int k = CLT_COMM_ALL_REDUCE; k < CLT_COMM_BARRIER; k++)
        bytes += k == CLT_COMM_SEND || k == CLT_COMM_RECEIVE ? 0 : own->payload[k];
    return bytes;
}

/* Trains, and compares what each rank counted with its plan. */
static void run(setting s)
{
    int64_t messages = 0, passed = 0;
    s.bucket_bytes = 4096;
    train_all(s);
    for (int r = 0; r < ranks_of(&s); r++) {
        const counted *own = &all[r];
        const clt_exchanged *plan = &own->plan;
        int64_t values = 0;
        for (int a = 0; a < CLT_AXES; a++)
            *(a == CLT_AXIS_PIPELINE || a == CLT_AXIS_SPACE ? &passed : &values) += plan->axes[a];
        messages += own->payload[CLT_COMM_SEND];
        assert_int_equal(reduced_by(own), values + plan->tied + plan->gradients + plan->parameters +
                                              own->results + own->words);
    }
    /* Both ends of a message count it in their plans. */
    assert_int_equal(messages, passed / 2);
}

/* --- tests ----------------------------------------------------------------------------------- */

/* Two all-reduces a layer in forward and in backward, those of the embedding and of the last
 * layer's gradient, and three numbers a label for the loss. */
static void tensor(void **state)
{
    const int64_t formula = 4 * BATCH * T * WIDTH * (4 * LAYERS + 2) + 12 * BATCH * T;
    (void)state;
    for (int m = 1; m <= 2; m++) {
        run((setting){gpt, "tp=2", 0, m, .ranks = 2});
        for (int r = 0; r < 2; r++) {
            assert_int_equal(all[r].plan.axes[CLT_AXIS_TENSOR], formula);
            assert_int_equal(all[r].payload[CLT_COMM_ALL_REDUCE], formula);
        }
    }
}

/* Activations, their gradients, and the gradient of the tied embedding cross the border. */
static void stages(void **state)
{
    (void)state;
    for (int m = 2; m <= 4; m += 2) {
        run((setting){gpt, "pp=2", 0, m, .ranks = 2});
        assert_int_equal(all[0].payload[CLT_COMM_SEND] + all[1].payload[CLT_COMM_SEND],
                         2 * BATCH * T * WIDTH * 4);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(all[r].plan.axes[CLT_AXIS_PIPELINE], 2 * BATCH * T * WIDTH * 4);
            assert_int_equal(all[r].plan.tied, WORDS * WIDTH * 4);
            assert_int_equal(all[r].payload[CLT_COMM_ALL_REDUCE],
                             WORDS * WIDTH * 4 + all[r].results);
        }
    }
}

/* max(0, p) rows above and max(0, d (k - 1) - p - (s - 1)) below, once in forward, and in backward
 * where the input has a gradient. */
static void halos(void **state)
{
    int64_t rows = 0;
    (void)state;
    for (int i = 0; i < CONVS; i++) {
        const square s = layers[i];
        const int below = s.dilation * (s.kernel - 1) - s.padding - (s.stride - 1);
        rows += (s.padding + (below > 0 ? below : 0)) * (i ? 2 : 1);
    }
    run((setting){field, "space=2", 0, 1, .ranks = 2});
    assert_int_equal(all[0].payload[CLT_COMM_SEND] + all[1].payload[CLT_COMM_SEND],
                     rows * BATCH * CHANNELS * SIDE * 4);
    assert_int_equal(all[0].plan.axes[CLT_AXIS_SPACE], rows * BATCH * CHANNELS * SIDE * 4);
}

static double sent(setting s)
{
    run(s);
    assert_true(all[0].sent == all[1].sent);
    return all[0].sent;
}

/* Shards of the optimizer's state cost nothing. Shards of parameters are gathered twice. */
static void shards(void **state)
{
    (void)state;
    const double dp = sent((setting){gpt, "dp=2", 0, 1, .ranks = 2});
    const double one = sent((setting){gpt, "dp=2", 1, 1, .ranks = 2});
    const double three = sent((setting){gpt, "dp=2", 3, 1, .ranks = 2});
    assert_true(all[0].payload[CLT_COMM_ALL_GATHER] > 0 &&
                all[0].payload[CLT_COMM_REDUCE_SCATTER] > 0);
    /* Beside parameters and gradients: norm and votes of both devices, and equal shards of buckets.
     */
    assert_true(one >= dp && one <= 1.05 * dp);
    assert_true(three > dp && three <= 1.5 * dp);
}

/* --- predicted ------------------------------------------------------------------------------- */

static clt_timeline_cost free_of_charge(void *user, const clt_timeline_exchange *exchange)
{
    (void)user, (void)exchange;
    return (clt_timeline_cost){0};
}

/* Predicts the bytes of ranks with one device each, in this process. */
static void predict(const setting *s, clt_timeline_bytes bytes[RANKS_MOST])
{
    const clt_trainer_options options = options_of(s);
    clt_timeline_device devices[RANKS_MOST] = {{0}};
    clt_tuning_record tuning = {0};
    clt_mesh_facts facts;
    clt_timeline timeline;
    const int begins[] = {0, 1, 2, 3, 4}, nodes[RANKS_MOST] = {0};
    int64_t shards[RANKS_MOST + 1];
    lab l = lab_on("cpu@1", NULL);
    clt_mesh mesh;
    l.graph = s->build();
    ok(clt_mesh_parse(s->parallel, ranks_of(s), &mesh));
    clt_mesh_setting devices_at_hand = {.graph = l.graph,
                                        .devices = l.devices,
                                        .count = 1,
                                        .tuning = &tuning,
                                        .ranks = ranks_of(s),
                                        .node_ranks = ranks_of(s),
                                        .options = &options};
    clt_candidate candidate = {.zero = s->zero, .accumulate = s->accumulate};
    memcpy(candidate.size, mesh.size, sizeof mesh.size);
    if (s->shards)
        ok(clt_virtual_shards_divide(s->shards, begins, nodes, ranks_of(s), shards));
    devices_at_hand.shards = s->shards ? shards : NULL;
    ok(clt_mesh_plans_create(true, &devices_at_hand.plans));
    ok(clt_mesh_facts_find(&devices_at_hand, &candidate, &facts));
    if (facts.status != CLT_OK)
        fail_msg("%s", facts.reason);
    assert_string_equal(facts.mesh, s->parallel);
    for (int r = 0; r < ranks_of(s); r++)
        devices[r] = (clt_timeline_device){.input = &facts.places[r].input,
                                           .program = &facts.places[r].program,
                                           .rounds = facts.places[r].rounds,
                                           .samples = clt_mesh_samples(&facts),
                                           .nodes = facts.places[r].nodes};
    ok(clt_timeline_run(devices, ranks_of(s), free_of_charge, NULL, &timeline, bytes));
    clt_mesh_facts_free(&facts);
    clt_mesh_plans_release(devices_at_hand.plans);
    lab_close(&l);
}

/* Compares the counters of all ranks with the prediction: to the byte. */
static void compare(setting s)
{
    clt_timeline_bytes bytes[RANKS_MOST];
    int64_t messages = 0, predicted_messages = 0;
    predict(&s, bytes);
    train_all(s);
    for (int r = 0; r < ranks_of(&s); r++) {
        const clt_timeline_bytes *b = &bytes[r];
        int64_t predicted = b->gradients + b->parameters + b->tied;
        for (int a = 0; a < CLT_AXES; a++)
            predicted += a == CLT_AXIS_PIPELINE ? 0 : b->axes[a];
        predicted_messages += b->axes[CLT_AXIS_PIPELINE] + b->shifts;
        messages += all[r].payload[CLT_COMM_SEND];
        predicted += all[r].results + all[r].words;
        if (reduced_by(&all[r]) != predicted)
            fail_msg("%s zero %d: rank %d counted %lld bytes, predicted are %lld", s.parallel,
                     s.zero, r, (long long)reduced_by(&all[r]), (long long)predicted);
    }
    assert_int_equal(messages, predicted_messages);
}

static void two_ranks(void **state)
{
    (void)state;
    compare((setting){gpt, "dp=2", 0, 1, .ranks = 2});
    compare((setting){gpt, "dp=2", 1, 2, .ranks = 2});
    compare((setting){gpt, "dp=2", 3, 1, .ranks = 2});
    compare((setting){gpt, "tp=2", 0, 2, .ranks = 2});
    compare((setting){gpt, "pp=2", 0, 4, .ranks = 2});
    compare((setting){gpt, "time=2", 0, 1, .ranks = 2});
    compare((setting){field, "space=2", 0, 1, .ranks = 2});
}

static void four_ranks(void **state)
{
    (void)state;
    compare((setting){gpt, "dp=4", 0, 1, .ranks = 4});
    compare((setting){gpt, "dp=4", 1, 1, .ranks = 4});
    compare((setting){gpt, "dp=4", 3, 1, .ranks = 4});
    compare((setting){gpt, "dp=2,tp=2", 0, 1, .ranks = 4});
    compare((setting){gpt, "pp=2,dp=2", 0, 2, .ranks = 4});
    compare((setting){gpt, "pp=2,tp=2", 0, 4, .ranks = 4});
    compare((setting){gpt, "dp=2,time=2", 1, 1, .ranks = 4});
    compare((setting){field, "space=4", 0, 1, .ranks = 4});
    compare((setting){field, "dp=2,space=2", 0, 1, .ranks = 4});
}

/* Whole sums of gradients also with zero 1. Three devices have two, one and one of four shards. */
static void virtual_shards(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        compare((setting){gpt, "dp=2", zero, 1, .ranks = 2, .shards = 4});
        compare((setting){gpt, "dp=3", zero, 1, .ranks = 3, .shards = 4});
        compare((setting){gpt, "dp=4", zero, 1, .ranks = 4, .shards = 4});
    }
}

/* Half of the bytes of all gradients, and nothing else changes. */
static void wire(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) {
        const double full = sent((setting){gpt, "dp=2", zero, 1, .ranks = 2});
        const clt_exchanged of_full = all[0].plan;
        const double half = sent((setting){gpt, "dp=2", zero, 1, .ranks = 2, .wire = CLT_BF16});
        assert_int_equal(2 * all[0].plan.gradients, of_full.gradients);
        assert_int_equal(all[0].plan.parameters, of_full.parameters);
        /* An all-reduce between two ranks sends the gradient's bytes, a reduce-scatter half. */
        assert_true(full - half == (double)all[0].plan.gradients / (zero ? 2 : 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor), cmocka_unit_test(stages),        cmocka_unit_test(halos),
        cmocka_unit_test(shards), cmocka_unit_test(two_ranks),     cmocka_unit_test(four_ranks),
        cmocka_unit_test(wire),   cmocka_unit_test(virtual_shards)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
