/* The choice of stages of a pipeline before training: by work, by measured times of devices of
 * different speed, and by memory; on one rank and on two. */
#include "train/world.h"

#include "exec/testing/slow.h"
#include "graph/graph.h"
#include "passes/passes.h"
#include "train/setup/measure_stages.h"
#include <cltrain/planner.h>

enum { BATCH = 8, WIDE = 128, LAYERS = 8, PIECES = 4, WORDS = 2000, NARROW = 64 };

static clt_trainer_options options_of(const clt_world *world)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.batch = BATCH;
    o.accumulate = 2;
    o.optimizer = CLT_ADAM;
    o.lr = 0.01;
    o.comm_timeout = 60;
    o.world = world;
    return o;
}

static clt_value *dense(clt_graph *g, clt_value *x, int number, int64_t in, int64_t out)
{
    const int64_t dims[] = {out, in};
    char name[16];
    snprintf(name, sizeof name, "%d.weight", number);
    return clt_linear(x, clt_parameter(g, name, 2, dims, (clt_init){CLT_INIT_NORMAL, 0, 0.02}),
                      NULL);
}

/* --- speed ------------------------------------------------------------------------------------ */

/* Equal layers, with a cut behind each but the last. */
static clt_graph *equal_layers(void)
{
    const int64_t dims[] = {CLT_BATCH, WIDE};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, dims);
    for (int i = 0; i < LAYERS; i++) {
        x = dense(g, x, i, WIDE, WIDE);
        if (i < LAYERS - 1)
            clt_cut(x);
    }
    ok(clt_mse(x, clt_input(g, "target", CLT_F32, 2, dims), &sum, &weight));
    ok(clt_loss(g, "loss", sum, weight, 1));
    return g;
}

/* Returns the number of layers in stage 0 of 2. */
static int layers_of_stage_0(clt_graph *g)
{
    int n = 0;
    assert_int_equal(g->cuts, 1);
    for (int i = 0; i < g->n_nodes && !g->nodes[i]->out[0]->cut; i++)
        n++;
    return n + 1;
}

/* The least work of the largest stage, of all divisions of pieces from `first` on. */
static double best_of(const clt_stage_costs *c, int stage, int first)
{
    double best = 1e30, own = 0;
    for (int end = first + 1; end <= c->pieces; end++) {
        own += c->work[stage * c->pieces + end - 1];
        if (end > c->ends[stage * c->pieces + first])
            break;
        if (stage == c->stages - 1 && end < c->pieces)
            continue;
        const double rest = stage == c->stages - 1 ? 0 : best_of(c, stage + 1, end);
        best = fmin(best, fmax(own, rest));
    }
    return best;
}

#ifdef CLT_TESTING
static double sum_of(const double *work, int pieces)
{
    double sum = 0;
    for (int p = 0; p < pieces; p++)
        sum += work[p];
    return sum;
}

/* The choice is the best for the measured times, whatever these are on a busy machine. A device
 * that is four times slower has more time on the whole, and gets fewer layers. */
static void slow_devices_get_fewer_layers(void **state)
{
    static const struct {
        const char *slow;
        int stage; /* the slow one; -1: none */
    } cases[] = {{"", -1}, {"#1=4", 1}, {"#0=4", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const clt_trainer_options o = options_of(NULL);
        double work[2 * LAYERS] = {0};
        int ends[2 * LAYERS];
        const clt_stage_costs costs = {.pieces = LAYERS, .stages = 2, .work = work, .ends = ends};
        char *text = NULL;
        for (int p = 0; p < 2 * LAYERS; p++)
            ends[p] = LAYERS;
        clt_exec_testing_slow = cases[i].slow;
        clt_stages_testing_work = work;
        lab l = lab_on("pocl/2", NULL);
        l.graph = equal_layers();
        ok(clt_stages_choose(l.graph, l.devices, l.n, "pp=2", &o, 1, &text));
        const int own = layers_of_stage_0(l.graph), slow = cases[i].stage;
        const double largest = fmax(sum_of(work, own), sum_of(work + LAYERS + own, LAYERS - own));
        if (!(largest > 0 && largest <= best_of(&costs, 0, 0) * (1 + 1e-12)))
            fail_msg("'%s' slow: stage 0 has %d layers, which is not the best: %s", cases[i].slow,
                     own, text);
        if (slow >= 0 && (slow ? LAYERS - own : own) >= LAYERS / 2)
            fail_msg("'%s' slow: stage 0 has %d layers: %s", cases[i].slow, own, text);
        assert_non_null(strstr(text, "% of the time"));
        assert_non_null(strstr(text, "the same stages by names: '"));
        free(text);
        clt_exec_testing_slow = NULL;
        clt_stages_testing_work = NULL;
        lab_close(&l);
    }
}

#endif

/* The names of the report give the same stages. Without measurements nothing is reported. */
static void names_repeat_a_choice(void **state)
{
    const clt_trainer_options o = options_of(NULL);
    char *text = NULL, names[64];
    (void)state;
    lab l = lab_on_kept("pocl/2");
    l.graph = equal_layers();
    ok(clt_stages_choose(l.graph, l.devices, l.n, "pp=2", &o, 1, &text));
    const int own = layers_of_stage_0(l.graph);
    const char *quoted = strchr(text, '\'');
    snprintf(names, sizeof names, "%.*s", (int)strcspn(quoted + 1, "'"), quoted + 1);
    free(text);
    clt_graph_destroy(l.graph);
    l.graph = equal_layers();
    ok(clt_cut_before(l.graph, names));
    assert_int_equal(layers_of_stage_0(l.graph), own);
    ok(clt_stages_choose(l.graph, l.devices, l.n, "pp=2", &o, 1, &text)); /* nothing to choose */
    assert_null(text);
    clt_graph_destroy(l.graph);
    l.graph = equal_layers();
    ok(clt_stages_choose(l.graph, l.devices, l.n, "pp=2", &o, 0, &text));
    assert_null(text);
    assert_int_equal(layers_of_stage_0(l.graph), LAYERS / 2);
    lab_close(&l);
}

#ifdef CLT_TESTING
static void choose_on_a_rank(rank *self)
{
    const clt_trainer_options o = options_of(&self->world);
    lab l = {0};
    clt_slow_rank(self->number);
    if (HOLDS(self, clt_devices_open(runtime, "pocl@1", NULL, &l.devices, &l.n) == CLT_OK)) {
        l.graph = equal_layers();
        HOLDS(self, clt_stages_choose(l.graph, l.devices, l.n, "pp=2", &o, 1, NULL) == CLT_OK);
        self->numbers[0] = layers_of_stage_0(l.graph);
    }
    lab_close(&l);
}

static void ranks_choose_the_same(void **state)
{
    rank ranks[2];
    int none[2] = {0};
    (void)state;
    clt_exec_testing_slow = "rank1:pocl=4";
    run_ranks(ranks, 2, choose_on_a_rank, none, sizeof *none);
    clt_exec_testing_slow = NULL;
    assert_true(ranks[0].numbers[0] > LAYERS / 2);
    assert_true(ranks[0].numbers[0] == ranks[1].numbers[0]);
}

#endif

/* --- memory ----------------------------------------------------------------------------------- */

/* The first piece has many parameters and little work. */
static clt_graph *text_model(void)
{
    static const int widths[] = {NARROW, NARROW, 4 * NARROW, 4 * NARROW, NARROW};
    const int64_t one[] = {CLT_BATCH}, dims[] = {CLT_BATCH, NARROW}, table[] = {WORDS, NARROW};
    const clt_init init = {CLT_INIT_NORMAL, 0, 0.02};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_embedding(clt_input(g, "word", CLT_I32, 1, one),
                                 clt_parameter(g, "table", 2, table, init), CLT_NO_PADDING);
    for (int i = 0; i < PIECES; i++) {
        x = dense(g, x, i, widths[i], widths[i + 1]);
        if (i < PIECES - 1)
            clt_cut(x);
    }
    ok(clt_mse(x, clt_input(g, "target", CLT_F32, 2, dims), &sum, &weight));
    ok(clt_loss(g, "loss", sum, weight, 1));
    return g;
}

/* Trains a step within the memory. */
static void train(lab *l, const clt_trainer_options *o)
{
    static int32_t words[BATCH];
    static float targets[BATCH * NARROW];
    const clt_feed feeds[] = {{"word", -1, CLT_HOST(words)}, {"target", -1, CLT_HOST(targets)}};
    clt_store_options so;
    clt_step_batch batch;
    clt_store_options_init(&so);
    clt_step_batch_init(&batch);
    so.parallel = "pp=2";
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_store_create_with(l->graph, l->devices, l->n, &so, &l->store));
    ok(clt_trainer_create(l->graph, l->store, o, &l->trainer));
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_finish(l->trainer));
}

/* With less and less memory the first stage loses layers, until no choice fits. */
static void full_stages_lose_layers(void **state)
{
    int choices = 0, before = 0;
    clt_status status = CLT_OK;
    (void)state;
    for (double memory = 8e6; status == CLT_OK; memory *= 0.97) {
        clt_trainer_options o = options_of(NULL);
        char *text = NULL;
        lab l = lab_on_kept("pocl/2");
        o.memory = (int64_t)memory;
        l.graph = text_model();
        status = clt_stages_choose(l.graph, l.devices, l.n, "pp=2", &o, 0, &text);
        if (status == CLT_OK) {
            const int own = layers_of_stage_0(l.graph);
            assert_true(!text == (choices < 2 && (!before || own == before)));
            train(&l, &o);
            choices += own != before;
            before = own;
        }
        free(text);
        lab_close(&l);
    }
    assert_int_equal(status, CLT_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(clt_error_message(), "with none of the 3 cuts of the graph"));
    assert_null(strchr(clt_error_message(), '\n'));
    assert_int_equal(choices, 2);
    assert_int_equal(before, 2); /* the embedding and the first layer */
}

/* --- the choice ------------------------------------------------------------------------------- */

static void choices_are_best(void **state)
{
    enum { MOST_PIECES = 9, MOST_STAGES = 4 };
    uint32_t seed = 1;
    int impossible = 0;
    (void)state;
    for (int run = 0; run < 500; run++) {
        double work[MOST_STAGES * MOST_PIECES];
        int ends[MOST_STAGES * MOST_PIECES], begins[MOST_STAGES];
        bool found;
        const clt_stage_costs c = {.pieces = 2 + run % (MOST_PIECES - 1),
                                   .stages = 1 + run / 7 % MOST_STAGES,
                                   .work = work,
                                   .ends = ends};
        for (int i = 0; i < c.stages * c.pieces; i++) {
            seed = seed * 1664525u + 1013904223u;
            work[i] = (double)(seed >> 24);
            seed = seed * 1664525u + 1013904223u;
            ends[i] = run % 2 ? c.pieces : 1 + (int)(seed >> 16) % (c.pieces + 2);
        }
        ok(clt_stages_balance(&c, begins, &found));
        const double best = best_of(&c, 0, 0);
        assert_true(found == (best < 1e30));
        impossible += !found;
        double largest = 0;
        for (int s = 0; found && s < c.stages; s++) {
            const int end = s + 1 < c.stages ? begins[s + 1] : c.pieces;
            double own = 0;
            assert_true(end > begins[s] && end <= ends[s * c.pieces + begins[s]]);
            for (int p = begins[s]; p < end; p++)
                own += work[s * c.pieces + p];
            largest = fmax(largest, own);
        }
        if (found)
            assert_true(begins[0] == 0 && largest == best);
    }
    assert_true(impossible > 20 && impossible < 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_best),
        cmocka_unit_test(names_repeat_a_choice),
        cmocka_unit_test(full_stages_lose_layers),
#ifdef CLT_TESTING
        cmocka_unit_test(slow_devices_get_fewer_layers),
        cmocka_unit_test(ranks_choose_the_same),
#endif
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
