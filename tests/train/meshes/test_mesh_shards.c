/*
 * The planner's choice among meshes of virtual shards: only dp is possible, with the memory of a
 * run. A predicted step moves the bytes for sums over shards that a run moves.
 */
#include "train/meshes/mesh_lab.h"
#include "train/world.h"

#include "train/meshes/meshes.h"
#include "train/meshes/mesh_shards.h"
#include <cltrain/unstable.h>

enum { RANKS = 2, DP_CHOICES = 2 /* zero 0 and 1 */ };

static const char three[] = "pocl@1,pocl@1,pocl@1";

static clt_trainer_options in_shards(int64_t shards, clt_dtype precision)
{
    clt_trainer_options o = options_of();
    o.virtual_shards = shards;
    o.precision = precision;
    return o;
}

static bool is_dp(const clt_mesh_entry *e, int devices)
{
    char dp[16];
    snprintf(dp, sizeof dp, "dp=%d", devices);
    return !strcmp(e->parallel, dp);
}

/* Compares every row with a run, or with the reason that it must have. Returns how many rows are
 * possible. */
static int check_rows(const lab *l, const clt_trainer_options *o, const clt_meshes *meshes)
{
    int possible = 0;
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        const bool dp = is_dp(&e, l->n);
        assert_true(e.possible == (dp && e.zero != 3));
        possible += e.possible;
        if (!e.possible) {
            assert_non_null(strstr(e.reason, dp ? "virtual shards do not work with zero 3"
                                                : "no other axis than dp"));
            continue;
        }
        assert_true(e.step > 0 && fabs(e.step - e.compute - e.update - e.exposed) < 1e-9);
        assert_int_equal(e.accumulate, 1); /* a trainer counts shards itself */
        assert_int_equal(train(l, &e, o), e.memory);
    }
    return possible;
}

/* Three devices have two, one and one shard, or four, two and two. */
static void at_hand(void **state)
{
    static const struct {
        const char *devices;
        int64_t shards;
        clt_dtype precision;
    } rows[] = {{"pocl@1", 4, CLT_F32},
                {"pocl/2", 2, CLT_F32},
                {"pocl/2", 8, CLT_BF16},
                {three, 4, CLT_F32},
                {three, 8, CLT_BF16}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const clt_trainer_options o = in_shards(rows[i].shards, rows[i].precision);
        const clt_mesh_options s = search(DP_CHOICES);
        clt_meshes *meshes;
        lab l = lab_on(rows[i].devices, NULL);
        l.graph = gpt();
        ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes));
        assert_int_equal(check_rows(&l, &o, meshes), l.n > 1 ? DP_CHOICES : 1);
        clt_meshes_destroy(meshes);
        lab_close(&l);
    }
}

/* --- sums over shards ------------------------------------------------------------------------ */

static clt_graph *model(const char *name)
{
    const clt_model_field fields[] = {{"tokens", CLT_I32, 1, {T}, WORDS},
                                      {"targets", CLT_I32, 1, {T}, WORDS}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *g;
    ok(clt_graph_create(&g));
    ok(clt_model_build(name, &input, g));
    return g;
}

/* A second a byte that merges and additions move, and nothing for anything else. */
static double predicted_bytes(const lab *l, const clt_trainer_options *o)
{
    const clt_mesh_base base = {.flops = 1e9, .bytes = 1e9, .move = 1, .sync_every = 1};
    clt_candidate candidate = {.size = {1, 1, 1, 1, 1}, .accumulate = 1};
    clt_tuning_record tuning[DEVICES_MOST] = {{.count = 0}};
    clt_mesh_setting setting = {.graph = l->graph,
                                .devices = l->devices,
                                .count = l->n,
                                .tuning = tuning,
                                .ranks = 1,
                                .node_ranks = 1,
                                .options = o};
    clt_mesh_links links = {
        .simulated = true, .per_node = 8, .link = {1e30, 0}, .inter = {1e30, 0}};
    clt_mesh_facts facts;
    clt_mesh_step step;
    int64_t *bounds;
    candidate.size[CLT_AXIS_DATA] = l->n;
    ok(clt_mesh_shards_divide(&setting, NULL, &bounds));
    setting.shards = bounds;
    ok(clt_mesh_plans_create(true, &setting.plans));
    ok(clt_mesh_facts_find(&setting, &candidate, &facts));
    ok(facts.status);
    ok(clt_mesh_predict(&base, &links, &facts, &step));
    clt_mesh_facts_free(&facts);
    clt_mesh_plans_release(setting.plans);
    free(bounds);
    return step.timeline.update;
}

/* Runs a step, and returns the bytes that merges and additions move on the device with the most. */
static double moved_bytes(lab *l, const clt_trainer_options *o)
{
    static const float zeros[BATCH * T];
    const clt_feed feeds[] = {{"tokens", -1, CLT_HOST(zeros)}, {"targets", -1, CLT_HOST(zeros)}};
    const clt_step_batch batch = lab_batch(feeds, BATCH);
    const clt_profile_record *records;
    clt_profile *profile;
    double moved[DEVICES_MOST] = {0}, most = 0;
    int count;
    ok(clt_store_create(l->graph, l->devices, l->n, 1, &l->store));
    lab_trainer(l, o);
    ok(clt_profile_start(l->trainer, &profile));
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_profile_read(profile, &records, &count));
    for (int i = 0; i < count; i++)
        if (!strcmp(records[i].name, "merge_gradients") || !strcmp(records[i].name, "add_to") ||
            !strcmp(records[i].name, "add_mean"))
            moved[records[i].device] += records[i].bytes;
    for (int d = 0; d < l->n; d++)
        most = fmax(most, moved[d]);
    clt_profile_stop(profile);
    return most;
}

/* In f32 nodes add some gradients of a pair of shards, and the update adds the rest. */
static void sums_are_counted(void **state)
{
    static const char *const models[] = {"gpt2:layers=2,heads=2,width=16",
                                         "lstm:hidden=12,layers=2"};
    static const struct {
        const char *devices;
        int64_t shards;
    } places[] = {{"pocl@1", 8}, {"pocl@1", 2}, {three, 8}, {"pocl/2", 2}};
    clt_device_options profiled;
    int moving = 0;
    (void)state;
    clt_device_options_init(&profiled);
    profiled.profiling = 1;
    for (int i = 0; i < 2 * 2 * 4; i++) {
        const clt_trainer_options o =
            in_shards(places[i / 4].shards, i / 2 % 2 ? CLT_BF16 : CLT_F32);
        lab l = lab_on(places[i / 4].devices, &profiled);
        l.graph = model(models[i % 2]);
        const double predicted = predicted_bytes(&l, &o), moved = moved_bytes(&l, &o);
        if (fabs(predicted - moved) > 1e-9 * moved)
            fail_msg("%s, %s in %lld shards: a step moves %.0f bytes for sums, predicted are %.0f",
                     models[i % 2], places[i / 4].devices, (long long)places[i / 4].shards, moved,
                     predicted);
        moving += moved > 0;
        lab_close(&l);
    }
    assert_int_equal(moving, 2 * 2 * 3); /* devices with one shard add nothing */
}

/* --- ranks ----------------------------------------------------------------------------------- */

/* Two devices a rank. */
static void choose(rank *self)
{
    clt_trainer_options o = in_shards(8, CLT_F32);
    const clt_mesh_options s = search(DP_CHOICES);
    clt_meshes *meshes = NULL;
    clt_mesh_entry e;
    lab l = {0};
    o.world = &self->world;
    l.graph = gpt();
    clt_mesh_entry_init(&e);
    if (HOLDS(self, clt_devices_open(runtime, "pocl/2", NULL, &l.devices, &l.n) == CLT_OK) &&
        HOLDS(self, clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes) == CLT_OK))
        for (int i = 0; i < DP_CHOICES; i++) {
            HOLDS(self, clt_meshes_get(meshes, i, &e) == CLT_OK);
            HOLDS(self, e.possible && !strcmp(e.parallel, "dp=4"));
            self->numbers[2 * i] = e.step;
            self->numbers[2 * i + 1] = e.real + 10 * e.zero;
        }
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

static void ranks_agree(void **state)
{
    rank ranks[RANKS];
    (void)state;
    run_ranks(ranks, RANKS, choose, NULL, 0);
    for (int i = 0; i < 2 * DP_CHOICES; i++)
        assert_true(ranks[0].numbers[i] == ranks[1].numbers[i]);
    for (int i = 0; i < DP_CHOICES; i++)
        assert_true(ranks[0].numbers[2 * i] > 0);
}

/* --- machines that are not there ------------------------------------------------------------- */

static clt_mesh_options machines(int devices, int per_node)
{
    clt_mesh_options s = search(0);
    s.devices = devices;
    s.per_node = per_node;
    s.link = (clt_link){25e9, 5e-6};
    s.inter = (clt_link){1e9, 30e-6};
    return s;
}

/* The device with the most shards counts: five devices on nodes of four have 1, 1, 1, 1 and 4 of 8
 * shards, and on one node 2, 2, 2, 1 and 1. Its sums over shards take more memory. */
static void simulated(void **state)
{
    const clt_trainer_options o = in_shards(8, CLT_F32), other = in_shards(16, CLT_F32);
    clt_mesh_options s = machines(5, 4);
    clt_meshes *apart, *together, *none;
    lab l = lab_on("cpu@1", NULL);
    (void)state;
    l.graph = gpt();
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &apart));
    assert_int_equal(apart->possible, DP_CHOICES);
    assert_int_equal(apart->ranks[0].facts->places[0].participant, 4);
    assert_int_equal(apart->ranks[0].facts->places[0].rounds, 4);
    assert_non_null(strstr(clt_meshes_text(apart, 3), "not possible: axes other than dp, local"));
    s = machines(5, 8);
    s.earlier = apart;
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &together));
    assert_int_equal(together->ranks[0].facts->places[0].rounds, 2);
    assert_true(find(apart, "dp=5", 0, 1).memory > find(together, "dp=5", 0, 1).memory);
    assert_int_equal(clt_meshes_create(l.graph, l.devices, l.n, &other, &s, &none),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "the earlier search must"));
    clt_meshes_destroy(apart);
    clt_meshes_destroy(together);
    lab_close(&l);
}

static void refused(clt_graph *graph, const char *devices, int64_t shards, clt_status status,
                    const char *says)
{
    const clt_trainer_options o = in_shards(shards, CLT_F32);
    const clt_mesh_options s = search(0);
    clt_meshes *meshes;
    lab l = lab_on(devices, NULL);
    l.graph = graph;
    assert_int_equal(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes), status);
    if (!strstr(clt_error_message(), says) || strchr(clt_error_message(), '\n'))
        fail_msg("the message does not say '%s': %s", says, clt_error_message());
    lab_close(&l);
}

static void not_possible(void **state)
{
    const clt_model_field fields[] = {{"image", CLT_F32, 3, {3, 32, 32}, 0},
                                      {"label", CLT_I32, 0, {0}, 10}};
    const clt_model_input input = {.fields = fields, .n_fields = 2};
    clt_graph *g;
    (void)state;
    refused(gpt(), three, 2, CLT_INVALID_ARGUMENT, "2 virtual shards are fewer than the 3 devices");
    refused(gpt(), "pocl/2", 6, CLT_INVALID_ARGUMENT, "virtual shards 6 are not possible");
    ok(clt_graph_create(&g));
    ok(clt_model_build("resnet18:width=4,sync", &input, g));
    refused(g, "pocl/2", 2, CLT_UNSUPPORTED,
            "no mesh of 2 devices can train this model: virtual shards do not work with node");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_hand), cmocka_unit_test(sums_are_counted),
        cmocka_unit_test(ranks_agree), cmocka_unit_test(simulated), cmocka_unit_test(not_possible)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
