/*
 * Meshes that share plans have the numbers of meshes that each make their own: memory, reasons,
 * arithmetic, layouts, outlines, programs and the predicted step.
 */
#include "train/lab.h"

#include "base/alloc.h"
#include "base/str.h"
#include "device/program/tuning_file.h"
#include "train/meshes/facts.h"
#include "train/meshes/times.h"
#include <cltrain/models.h>

typedef struct search {
    lab lab;
    clt_tuning_record tuning;
    clt_trainer_options options;
    clt_mesh_plans *shared;
    int apart; /* plans that meshes made each for itself */
} search;

static clt_graph *gpt(void)
{
    const clt_model_field fields[] = {{"tokens", CLT_I32, 1, {128}, 23},
                                      {"targets", CLT_I32, 1, {128}, 23}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *g;
    ok(clt_graph_create(&g));
    ok(clt_model_build("gpt2:layers=4,heads=4,width=16", &input, g));
    return g;
}

/* With batch norm, whose sums all devices of dp exchange. */
static clt_graph *convolutions(void)
{
    const clt_model_field fields[] = {{"image", CLT_F32, 3, {3, 32, 32}, 0},
                                      {"label", CLT_I32, 0, {0}, 10}};
    const clt_model_input input = {.fields = fields, .n_fields = 2};
    clt_graph *g;
    ok(clt_graph_create(&g));
    ok(clt_model_build("resnet18", &input, g));
    return g;
}

static search begin(clt_graph *graph)
{
    search s = {.lab = lab_on("pocl@1", NULL)};
    s.lab.graph = graph;
    clt_trainer_options_init(&s.options);
    s.options.optimizer = CLT_ADAMW;
    clt_tuning_load(s.lab.devices[0], &s.tuning);
    ok(clt_mesh_plans_create(true, &s.shared));
    return s;
}

static void end(search *s)
{
    /* Sharing is what is tested. */
    assert_true(clt_mesh_plans_count(s->shared) < s->apart);
    clt_mesh_plans_release(s->shared);
    clt_tuning_free(&s->tuning);
    lab_close(&s->lab);
}

static void same_bytes(const void *a, const void *b, size_t bytes)
{
    if (bytes)
        assert_memory_equal(a, b, bytes);
}

static void same_outlines(const clt_outline *a, const clt_outline *b)
{
    int64_t *x = NULL, *y = NULL;
    int n = 0, n_room = 0, m = 0, m_room = 0;
    ok(clt_outline_pack(a, &x, &n, &n_room));
    ok(clt_outline_pack(b, &y, &m, &m_room));
    assert_int_equal(n, m);
    same_bytes(x, y, (size_t)n * sizeof *x);
    CLT_FREE(x, y);
}

static void same_programs(const clt_mesh_place *a, const clt_mesh_place *b)
{
    clt_str x = {0}, y = {0};
    clt_step_program_print(&a->program, &x);
    clt_step_program_print(&b->program, &y);
    assert_string_equal(clt_str_text(&x), clt_str_text(&y));
    clt_str_free(&x);
    clt_str_free(&y);
    assert_int_equal(a->input.means, b->input.means);
    assert_int_equal(a->input.host_weights, b->input.host_weights);
    assert_int_equal(a->input.deferred, b->input.deferred);
    assert_int_equal(a->input.self, b->input.self);
}

static void same_places(const clt_mesh_place *a, const clt_mesh_place *b)
{
    const clt_mesh_plan *x = a->plan, *y = b->plan;
    assert_true(x->hash == y->hash);
    assert_int_equal(x->n_nodes, y->n_nodes);
    assert_int_equal(x->n_forward, y->n_forward);
    assert_int_equal(x->options.max_batch, y->options.max_batch);
    assert_int_equal(x->options.accumulates, y->options.accumulates);
    for (int i = 0; i < x->n_nodes; i++) {
        assert_true(x->nodes[i].flops == y->nodes[i].flops);
        assert_true(x->nodes[i].bytes == y->nodes[i].bytes);
        assert_int_equal(x->nodes[i].launches, y->nodes[i].launches);
    }
    assert_true(clt_buckets_hash(&x->layout) == clt_buckets_hash(&y->layout));
    assert_int_equal(x->need.largest, y->need.largest);
    assert_int_equal(x->need.arena, y->need.arena);
    assert_int_equal(x->need.inputs, y->need.inputs);
    same_bytes(&a->memory, &b->memory, sizeof a->memory);
    same_outlines(&x->outline, &y->outline);
    same_programs(a, b);
}

static clt_mesh_step predict(clt_mesh_facts *f, bool halves)
{
    const clt_mesh_base base = {.flops = 1e9, .bytes = 1e9, .update = 1e-9, .sync_every = 4};
    clt_mesh_links links = {.simulated = true,
                            .per_node = 4,
                            .link = {1e9, 1e-6},
                            .inter = {1e8, 1e-5},
                            .half = halves};
    clt_mesh_step step;
    for (int k = 0; k < f->n_places; k++)
        clt_mesh_estimate(&base, f, k, &f->places[k].forward, &f->places[k].whole);
    ok(clt_mesh_predict(&base, &links, f, &step));
    return step;
}

static void same_facts(clt_mesh_facts *a, clt_mesh_facts *b)
{
    assert_int_equal(a->status, b->status);
    if (a->status != CLT_OK) {
        assert_string_equal(a->reason, b->reason);
        return;
    }
    assert_int_equal(a->memory, b->memory);
    assert_int_equal(a->n_places, b->n_places);
    for (int k = 0; k < a->n_places; k++)
        same_places(&a->places[k], &b->places[k]);
    const clt_mesh_step x = predict(a, false), y = predict(b, false);
    assert_true(x.seconds == y.seconds && x.seconds > 0 && x.outer == y.outer);
    assert_int_equal(x.sent, y.sent);
}

/* Compares all meshes of so many devices, `batch` samples each. Returns how many are possible. */
static int compare(search *s, int devices, int batch, int accumulate)
{
    const clt_candidate_limits limits = {.devices = devices,
                                         .most = {devices, devices, 4, devices, devices},
                                         .batch = (int64_t)batch * devices,
                                         .accumulate = accumulate,
                                         .sequences = true,
                                         .shares = true,
                                         .halves = true};
    clt_mesh_setting setting = {.graph = s->lab.graph,
                                .devices = s->lab.devices,
                                .count = 1,
                                .tuning = &s->tuning,
                                .ranks = devices,
                                .node_ranks = 1,
                                .simulated = true,
                                .options = &s->options};
    clt_candidate *all;
    int count, possible = 0;
    s->options.batch = limits.batch;
    s->options.accumulate = accumulate;
    ok(clt_candidates_list(&limits, &all, &count));
    for (int i = 0; i < count; i++) {
        clt_mesh_facts shared, apart;
        setting.plans = s->shared;
        ok(clt_mesh_facts_find(&setting, &all[i], &shared));
        ok(clt_mesh_plans_create(false, &setting.plans));
        ok(clt_mesh_facts_find(&setting, &all[i], &apart));
        same_facts(&shared, &apart);
        possible += shared.status == CLT_OK;
        s->apart += clt_mesh_plans_count(setting.plans);
        clt_mesh_facts_free(&shared);
        clt_mesh_facts_free(&apart);
        clt_mesh_plans_release(setting.plans);
    }
    clt_free(all);
    return possible;
}

/* Returns how many plans a larger machine adds, of those that its meshes need. */
static double added(search *s, int devices)
{
    const int shared = clt_mesh_plans_count(s->shared), apart = s->apart;
    assert_true(compare(s, devices, 4, 1) > 10);
    return (double)(clt_mesh_plans_count(s->shared) - shared) / (s->apart - apart);
}

static void sequences(void **state)
{
    search s = begin(gpt());
    (void)state;
    assert_true(compare(&s, 4, 4, 1) > 10);
    added(&s, 8);
    assert_true(added(&s, 16) < 0.5);
    compare(&s, 4, 4, 4);
    end(&s);
}

static void images(void **state)
{
    search s = begin(convolutions());
    (void)state;
    assert_true(compare(&s, 4, 4, 1) > 5);
    end(&s);
}

/* A limit of memory makes plans depend on the shards of the optimizer, and cuts on what fits. */
static void limited(void **state)
{
    search s = begin(gpt());
    int possible[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        s.options.memory = (int64_t[]){0, 1200000, 800000}[i];
        clt_mesh_plans_release(s.shared);
        ok(clt_mesh_plans_create(true, &s.shared));
        possible[i] = compare(&s, 8, 4, 1);
    }
    assert_true(possible[0] > possible[1] && possible[1] > possible[2] && possible[2] > 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sequences), cmocka_unit_test(images),
                                       cmocka_unit_test(limited)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
