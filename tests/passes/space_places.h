/* Runs a graph divided over axis PLACES_AXIS: the places' graphs, joined into one, on one device.
 * The work of nodes whose operator's name contains PLACES_WORK is counted. */
#ifndef TESTS_PASSES_SPACE_PLACES_H
#define TESTS_PASSES_SPACE_PLACES_H

#include "train/lab.h"

#include "graph/mesh.h"
#include "merge.h"
#include "ops/collective/collective.h"
#include "passes/passes.h"

#ifndef PLACES_AXIS
#define PLACES_AXIS "space"
#define PLACES_WORK "conv"
#endif

enum { MOST = 128, BATCH = 2 };

typedef void (*build_fn)(clt_graph *graph);

/* --- one run --------------------------------------------------------------------------------- */

/* A tensor that one run computes: added over the places, or equal at all of them. */
typedef struct tensor {
    char name[MERGE_NAME];
    int64_t count;
    float *data;
} tensor;

typedef struct outcome {
    tensor values[MOST];
    int n, gathers, collectives;
    double flops;
} outcome;

typedef struct run {
    build_fn build;
    int places;
    clt_graph *graphs[MERGE_PLACES];
    clt_value **gradients[MERGE_PLACES];
    merger m;
    clt_feed feeds[MOST];
    clt_fetch fetches[MOST];
    int n_feeds, n_fetches;
} run;

static inline void free_outcome(outcome *o)
{
    for (int i = 0; i < o->n; i++)
        free(o->values[i].data);
}

/* Element i of a tensor: an integer from -1 to 1, or a label. */
static inline void fill(const char *name, const clt_type *type, void *data)
{
    uint32_t state = 2166136261u;
    for (const char *c = name; *c; c++)
        state = (state ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < clt_type_elements(type, BATCH); i++) {
        state = state * 1664525u + 1013904223u;
        const int number = (int)(state >> 20) % 3;
        if (type->dtype == CLT_I32)
            ((int32_t *)data)[i] = number;
        else
            ((float *)data)[i] = (float)(number - 1);
    }
}

/* Makes the graph of one place, with its gradients. */
static inline void make_place(run *r, int place, outcome *out)
{
    char text[32];
    clt_mesh mesh;
    clt_partition_report report = {0};
    clt_graph *g;
    ok(clt_graph_create(&g));
    r->build(g);
    ok(clt_graph_status(g));
    snprintf(text, sizeof text, PLACES_AXIS "=%d", r->places);
    ok(clt_mesh_parse(text, r->places, &mesh));
    ok(clt_pass_partition_forward(g, &mesh, place, BATCH, &report));
    clt_value **gradients = calloc((size_t)g->n_values + 1, sizeof *gradients);
    int n = 0;
    for (int i = 0; i < g->n_values; i++)
        n += clt_value_trained(g->values[i]);
    ok(clt_pass_train(g, gradients));
    ok(clt_pass_drop_collectives(g));
    ok(clt_graph_clean(g, gradients, n));
    ok(clt_pass_simplify(g));
    ok(clt_graph_clean(g, gradients, n));
    out->gathers = report.gathers;
    clt_str_free(&report.text);
    for (int i = 0; place == 0 && i < g->n_nodes; i++) {
        const clt_node *node = g->nodes[i];
        out->collectives += node->op->collective != CLT_OP_KERNELS;
        out->flops += strstr(node->op->name, PLACES_WORK) ? node->op->flops(node, BATCH) : 0;
    }
    r->graphs[place] = g;
    r->gradients[place] = gradients;
}

static inline void want(run *r, int place, const clt_value *value, const char *name)
{
    char full[MERGE_NAME];
    snprintf(full, sizeof full, "%.120s#%d", name, place);
    clt_value *copy = clt_output(clt_copy(r->m.twins[place][value->id]), full);
    ok(clt_graph_status(r->m.graph));
    assert_true(r->n_fetches < MOST);
    r->fetches[r->n_fetches++] = (clt_fetch){
        .name = clt_value_name(copy),
        .device = -1,
        .array = CLT_HOST(calloc((size_t)clt_type_elements(&value->type, BATCH) + 1, 4))};
}

static inline void want_all(run *r)
{
    for (int p = 0; p < r->places; p++) {
        const clt_graph *g = r->graphs[p];
        for (int i = 0; i < g->n_losses + g->n_metrics; i++) {
            const clt_mean *mean = i < g->n_losses ? &g->losses[i] : &g->metrics[i - g->n_losses];
            char name[MERGE_NAME];
            snprintf(name, sizeof name, "+%.60s.sum", mean->name);
            want(r, p, mean->sum, name);
            snprintf(name, sizeof name, "+%.60s.weight", mean->name);
            want(r, p, mean->weight, name);
        }
        for (int i = 0, next = 0; i < g->n_values; i++) {
            const clt_value *v = g->values[i];
            char name[MERGE_NAME];
            if (v->output)
                want(r, p, v, v->name);
            if (!clt_value_trained(v))
                continue;
            snprintf(name, sizeof name, "+%.60s", v->name);
            if (r->gradients[p][next])
                want(r, p, r->gradients[p][next], name);
            next++;
        }
    }
}

static inline void feed_all(run *r)
{
    for (int i = 0; i < r->m.graph->n_values; i++) {
        const clt_value *v = r->m.graph->values[i];
        char name[MERGE_NAME];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        void *data = calloc((size_t)clt_type_elements(&v->type, BATCH) + 1, 4);
        snprintf(name, sizeof name, "%s", v->name);
        name[strcspn(name, "@")] = '\0';
        fill(name, &v->type, data);
        if (strstr(name, ".upstream"))
            *(float *)data = 0.5f;
        assert_true(r->n_feeds < MOST);
        r->feeds[r->n_feeds++] = (clt_feed){.name = v->name, .array = CLT_HOST(data)};
    }
}

static inline void compute(run *r, lab *l)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = r->feeds;
    batch.n_feeds = r->n_feeds;
    batch.fetches = r->fetches;
    batch.n_fetches = r->n_fetches;
    lab_compute(l, r->m.graph, &batch, 1);
}

/* Adds up shares, named "+...", over the places. Other values must be equal at all of them. */
static inline void collect(run *r, bool faulty, outcome *out)
{
    for (int i = 0; i < r->n_fetches; i++) {
        const clt_fetch *f = &r->fetches[i];
        const clt_value *v = clt_graph_find(r->m.graph, f->name);
        const int64_t count = clt_type_elements(&v->type, BATCH);
        const size_t length = strcspn(f->name, "#");
        tensor *t = out->values;
        while (t < out->values + out->n && (strncmp(t->name, f->name, length) || t->name[length]))
            t++;
        if (t == out->values + out->n) {
            assert_true(out->n++ < MOST);
            snprintf(t->name, sizeof t->name, "%.*s", (int)length, f->name);
            t->count = count;
            t->data = f->array.host;
            continue;
        }
        for (int64_t e = 0; *t->name == '+' && e < count; e++)
            t->data[e] += ((const float *)f->array.host)[e];
        if (*t->name != '+' && !faulty)
            assert_memory_equal(t->data, f->array.host, (size_t)count * sizeof(float));
        free(f->array.host);
    }
}

static inline outcome compute_on(build_fn build, int places, merge_fault fault, int fault_at)
{
    run r = {.build = build, .places = places};
    outcome out = {.n = 0};
    lab l;
    for (int p = 0; p < places; p++)
        make_place(&r, p, &out);
    merge_graphs(&r.m, r.graphs, places, fault, fault_at);
    want_all(&r);
    feed_all(&r);
    compute(&r, &l);
    collect(&r, fault != MERGE_RIGHT, &out);
    lab_close(&l);
    for (int i = 0; i < r.n_feeds; i++)
        free(r.feeds[i].array.host);
    for (int p = 0; p < places; p++) {
        clt_graph_destroy(r.graphs[p]);
        free(r.gradients[p]);
    }
    merge_free(&r.m);
    return out;
}

static inline const tensor *find(const outcome *o, const char *name)
{
    for (int i = 0; i < o->n; i++)
        if (!strcmp(o->values[i].name, name))
            return &o->values[i];
    fail_msg("no %s", name);
    return NULL;
}

/* The largest difference, relative to the largest element of its tensor or to 1. */
static inline double distance(const outcome *a, const outcome *b)
{
    double most = 0;
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        const tensor *x = &a->values[i], *y = find(b, x->name);
        double largest = 1, apart = 0;
        for (int64_t e = 0; e < x->count; e++) {
            largest = fmax(largest, fabs((double)x->data[e]));
            apart = fmax(apart, fabs((double)x->data[e] - (double)y->data[e]));
        }
        most = apart > 0 ? fmax(most, apart / largest) : most;
    }
    return most;
}

/* All places together give what one device gives: to the bit if `bound` is 0. Place 0 does at most
 * `work` times its part of the counted work. Each collective in turn is replaced; the numbers must
 * differ then, or the collective was not needed. */
static inline void check_to(build_fn build, int places, int collectives, int gathers, double work,
                            double bound)
{
    outcome one = compute_on(build, 1, MERGE_RIGHT, 0);
    outcome all = compute_on(build, places, MERGE_RIGHT, 0);
    const double apart = distance(&one, &all);
    if (apart > bound)
        fail_msg("%d places: numbers differ by %g from one device's", places, apart);
    assert_int_equal(all.gathers, gathers);
    assert_int_equal(all.collectives, collectives);
    if (all.flops > one.flops / places * work)
        fail_msg("place 0 does %g of the work of one device", all.flops / one.flops);
    for (int k = 0; k < collectives; k++)
        for (int fault = MERGE_IDENTITY; fault <= MERGE_ZEROS; fault++) {
            outcome wrong = compute_on(build, places, (merge_fault)fault, k);
            if (distance(&one, &wrong) <= bound)
                fail_msg("collective %d is not needed: fault %d changes nothing", k, fault);
            free_outcome(&wrong);
        }
    free_outcome(&one);
    free_outcome(&all);
}

static inline void check(build_fn build, int places, int collectives, int gathers, double work)
{
    check_to(build, places, collectives, gathers, work, 0);
}

#endif
