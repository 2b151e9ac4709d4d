/*
 * The planner's cuts of pipelines: those that balance the times of the pieces, which are given
 * here. The choice is compared with all divisions of the pieces, tried one by one.
 */
#include "train/world.h"

#include "graph/graph.h"
#include "train/meshes/measure.h"
#include "train/meshes/meshes.h"
#include "train/setup/capacity.h"
#include <cltrain/planner.h>

#ifdef CLT_TESTING
enum { BATCH = 16, WIDE = 64, LAYERS = 6, STAGES = 4 };

/* Equal layers, with a cut behind each but the last: equal work means equally many layers. */
static clt_graph *equal_layers(void)
{
    const int64_t dims[] = {CLT_BATCH, WIDE}, square[] = {WIDE, WIDE};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, dims);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d.weight", i);
        x = clt_linear(x, clt_parameter(g, name, 2, square, (clt_init){CLT_INIT_NORMAL, 0, 0.02}),
                       NULL);
        if (i < LAYERS - 1)
            clt_cut(x);
    }
    ok(clt_mse(x, clt_input(g, "target", CLT_F32, 2, dims), &sum, &weight));
    ok(clt_loss(g, "loss", sum, weight, 1));
    return g;
}

static clt_trainer_options options_of(void)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.batch = BATCH;
    o.lr = 0.01;
    o.comm_timeout = 60;
    return o;
}

static clt_mesh_options search(int simulated)
{
    clt_mesh_options o;
    clt_mesh_options_init(&o);
    o.finals = 0;
    o.all = 1;
    o.seconds = 1e9;
    o.devices = simulated;
    o.link = o.inter = (clt_link){1e12, 1e-9};
    return o;
}

/* --- all divisions ---------------------------------------------------------------------------- */

/* Finds the least time of the longest stage, if stages from number s on have the pieces from
 * `first` on. fits[k]: stage 0 of two can have k pieces; NULL: any number. pace: of the stages. */
static double best_of(const double *pieces, const double *pace, const bool *fits, int s, int stages,
                      int first)
{
    double own = 0, best = 1e30;
    for (int end = first + 1; end <= LAYERS - (stages - 1 - s); end++) {
        own += pieces[end - 1] * pace[s];
        if ((s == stages - 1 && end < LAYERS) || (fits && s == 0 && !fits[end]))
            continue;
        const double rest = s == stages - 1 ? 0 : best_of(pieces, pace, fits, s + 1, stages, end);
        best = fmin(best, fmax(own, rest));
    }
    return best;
}

/* Returns the time of the longest stage with the cuts of a graph. */
static double longest(const clt_graph *g, const double *pieces, const double *pace)
{
    double most = 0, own = 0;
    int s = 0, piece = 0;
    for (int i = 0; i < g->n_nodes && piece < LAYERS; i++) { /* a node is a layer */
        own += pieces[piece++] * pace[s];
        most = fmax(most, own);
        if (g->nodes[i]->out[0]->cut) {
            own = 0;
            s++;
        }
    }
    return most;
}

static const double alike[STAGES] = {1, 1, 1, 1};

/* The same with the cuts that an entry names. */
static double longest_named(const char *stages, const double *pieces, const double *pace)
{
    clt_graph *g = equal_layers();
    ok(clt_cut_before(g, stages));
    const double most = longest(g, pieces, pace);
    clt_graph_destroy(g);
    return most;
}

/* --- the choice ------------------------------------------------------------------------------- */

static int stages_of(const clt_mesh_entry *e)
{
    const char *pp = strstr(e->parallel, "pp=");
    return pp ? atoi(pp + 3) : 1;
}

/* Compares all pipelines that have cuts of their own with the best division of the times. Returns
 * their number. */
static int compare(const clt_meshes *meshes, const double *pieces, const double *pace,
                   const bool *fits)
{
    int found = 0;
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        clt_mesh_entry e;
        clt_mesh_entry_init(&e);
        ok(clt_meshes_get(meshes, i, &e));
        if (!e.stages)
            continue;
        assert_true(e.possible);
        const int stages = stages_of(&e);
        const double own = longest_named(e.stages, pieces, pace),
                     best = best_of(pieces, pace, fits, 0, stages, 0);
        if (fabs(own - best) > 1e-9)
            fail_msg("%s with %d micro-batches and the stages '%s': the longest takes %g s, the "
                     "best division %g s",
                     e.parallel, e.accumulate, e.stages, own, best);
        found++;
    }
    return found;
}

static clt_meshes *choose(lab *l, const clt_trainer_options *o, int simulated, const double *pieces)
{
    const clt_mesh_options s = search(simulated);
    clt_meshes *meshes;
    clt_mesh_testing_pieces = pieces;
    ok(clt_meshes_create(l->graph, l->devices, l->n, o, &s, &meshes));
    clt_mesh_testing_pieces = NULL;
    return meshes;
}

/* Layers with equal work take different times. `meshes`: pipelines of 2, 4, 8 and 16 micro-batches
 * that get cuts of their own. With two micro-batches of the third case the stages wait for each
 * other: stages of 50 and 30 s take 113 s, and two of 40 s take 120 s. Times are long, so that
 * what is measured beside them does not count. */
static void devices_at_hand(void **state)
{
    static const struct {
        double times[LAYERS];
        int meshes;
    } cases[] = {{{10, 10, 10, 10, 10, 70}, 4},
                 {{90, 10, 20, 10, 10, 10}, 4},
                 {{10, 30, 10, 10, 10, 10}, 3},
                 {{10, 10, 10, 10, 10, 10}, 0}};
    const clt_trainer_options o = options_of();
    lab l = lab_on("pocl/2", NULL);
    (void)state;
    l.graph = equal_layers();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_meshes *meshes = choose(&l, &o, 0, cases[i].times);
        assert_int_equal(compare(meshes, cases[i].times, alike, NULL), cases[i].meshes);
        assert_true(!strstr(clt_meshes_text(meshes, 99), "  stages '") == !cases[i].meshes);
        clt_meshes_destroy(meshes);
    }
    lab_close(&l);
}

/* More stages, and pipelines beside dp. */
static void simulated_devices(void **state)
{
    static const double times[] = {10, 10, 10, 50, 50, 50};
    const clt_trainer_options o = options_of();
    lab l = lab_on("cpu@1", NULL);
    (void)state;
    l.graph = equal_layers();
    clt_meshes *meshes = choose(&l, &o, 4, times);
    const int found = compare(meshes, times, alike, NULL);
    const char *text = clt_meshes_text(meshes, 99);
    if (found < 8 || !strstr(text, "pp=4 accumulate 16 stages") ||
        !strstr(text, "pp=2,dp=2 accumulate 16 stages"))
        fail_msg("%d pipelines have cuts of their own: %s", found, strstr(text, "pp="));
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

/* A slower device gets fewer layers: times of both are put on one scale. */
static void unlike_devices(void **state)
{
    static const double times[] = {10, 10, 10, 10, 10, 10}, pace[] = {1, 3};
    const clt_trainer_options o = options_of();
    double measured[LAYERS];
    lab l = lab_on("pocl/2", NULL);
    (void)state;
    l.graph = equal_layers();
    for (int p = 0; p < LAYERS; p++) /* the second half ran on the slower device */
        measured[p] = times[p] * pace[2 * p / LAYERS];
    clt_meshes *meshes = choose(&l, &o, 0, times); /* balanced: no mesh is added */
    assert_int_equal(compare(meshes, times, alike, NULL), 0);
    for (int i = 0; i < meshes->count; i++) {
        clt_mesh_facts *f = &meshes->facts[i];
        f->recut = false;
        for (int k = 0; f->n_pieces && k < f->n_places; k++) {
            f->places[k].forward = f->places[k].whole = 0;
            for (int p = k * LAYERS / 2; p < (k + 1) * LAYERS / 2; p++) {
                f->places[k].pieces[2 * p] = measured[p] / 3;
                f->places[k].pieces[2 * p + 1] = measured[p];
                f->places[k].forward += measured[p] / 3;
                f->places[k].whole += measured[p];
            }
        }
    }
    meshes->base.pace = pace;
    ok(clt_meshes_recut(meshes));
    assert_int_equal(compare(meshes, times, pace, NULL), 4);
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Finds how many layers stage 0 of two can have. */
static void find_fits(const lab *l, const clt_trainer_options *o, bool fits[LAYERS + 1])
{
    clt_trainer_options own = *o;
    own.accumulate = 16;
    fits[0] = fits[LAYERS] = false;
    for (int k = 1; k < LAYERS; k++) {
        char name[16];
        clt_store_options so;
        clt_store *store;
        clt_graph *g = equal_layers();
        clt_store_options_init(&so);
        so.parallel = "pp=2";
        snprintf(name, sizeof name, "%d.weight", k);
        ok(clt_cut_before(g, name));
        ok(clt_store_outline(g, l->devices, l->n, &so, &store));
        fits[k] = clt_capacity_check(g, store, &own, 1, BATCH) == CLT_OK;
        clt_store_destroy(store);
        clt_graph_destroy(g);
    }
}

/* The best division does not fit. */
static void little_memory(void **state)
{
    static const double times[] = {10, 10, 10, 10, 10, 70};
    clt_trainer_options o = options_of();
    bool fits[LAYERS + 1];
    lab l = lab_on("pocl/2", NULL);
    (void)state;
    l.graph = equal_layers();
    o.accumulate = 16;
    o.memory = 1 << 20;
    do { /* until stage 0 can have four layers, not five */
        o.memory -= 1 << 10;
        find_fits(&l, &o, fits);
    } while (o.memory > 1 << 15 && fits[5]);
    assert_true(fits[4] && !fits[5]);
    clt_meshes *meshes = choose(&l, &o, 0, times);
    assert_int_equal(compare(meshes, times, alike, fits), 1);
    assert_true(best_of(times, alike, NULL, 0, 2, 0) < best_of(times, alike, fits, 0, 2, 0));
    clt_meshes_destroy(meshes);
    lab_close(&l);
}
#endif

int main(void)
{
#ifdef CLT_TESTING
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_at_hand), cmocka_unit_test(simulated_devices),
        cmocka_unit_test(unlike_devices), cmocka_unit_test(little_memory)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
#else
    return 77; /* the times are given by a testing hook */
#endif
}
