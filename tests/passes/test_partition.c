/* Partitions of training graphs over tp: the places' graphs, joined into one, give the numbers of
 * the whole graph. Numbers are small integers, so sums are exact in any order, and bits are equal.
 */
#include "train/lab.h"

#include "graph/sharding.h"
#include "merge.h"
#include "passes/passes.h"
#include "train/split_networks.h"

enum { MOST = 128 };

/* --- one run --------------------------------------------------------------------------------- */

typedef struct tensor {
    char name[MERGE_NAME];
    clt_type type;
    float *data;
} tensor;

typedef struct outcome {
    tensor values[MOST];
    int n, gathers, collectives;
    double flops;
} outcome;

static void free_outcome(outcome *o)
{
    for (int i = 0; i < o->n; i++)
        free(o->values[i].data);
}

static bool sequence; /* the mesh's option */

typedef struct run {
    build_fn build;
    int places, limit;
    merge_fault fault;
    int fault_at;
    clt_graph *whole, *graphs[MERGE_PLACES];
    clt_value **gradients[MERGE_PLACES];
    merger m;
    lab lab;
    clt_feed feeds[MOST];
    clt_fetch fetches[MOST];
    int n_feeds, n_fetches;
} run;

/* Makes the graph of one place, with its gradients. */
static void make_place(run *r, int place, outcome *out)
{
    char text[32];
    clt_mesh mesh;
    clt_partition_report report = {0};
    clt_graph *g;
    ok(clt_graph_copy(r->whole, &g));
    clt_value **gradients = calloc((size_t)g->n_values + 1, sizeof *gradients);
    int n = 0;
    for (int i = 0; i < g->n_values; i++)
        n += clt_value_trained(g->values[i]);
    ok(clt_pass_train(g, gradients));
    ok(clt_graph_clean(g, gradients, n));
    snprintf(text, sizeof text, "tp=%d%s", r->places, sequence ? ":sequence" : "");
    ok(clt_mesh_parse(text, r->places, &mesh));
    ok(clt_pass_partition(g, &mesh, place, BATCH, gradients, n, &report));
    out->gathers = report.gathers;
    clt_str_free(&report.text);
    for (int i = 0; place == 0 && i < g->n_nodes; i++) {
        const clt_node *node = g->nodes[i];
        out->collectives += node->op->collective != CLT_OP_KERNELS;
        out->flops += strstr(node->op->name, "matmul") || strstr(node->op->name, "linear")
                          ? node->op->flops(node, BATCH)
                          : 0;
    }
    r->graphs[place] = g;
    r->gradients[place] = gradients;
}

static void want(run *r, int place, const clt_value *value, const char *name)
{
    char full[MERGE_NAME];
    snprintf(full, sizeof full, "%s#%d", name, place);
    clt_value *copy = clt_output(clt_copy(r->m.twins[place][value->id]), full);
    ok(clt_graph_status(r->m.graph));
    assert_true(r->n_fetches < MOST);
    clt_fetch *f = &r->fetches[r->n_fetches++];
    *f = (clt_fetch){.name = clt_value_name(copy),
                     .device = -1,
                     .array =
                         CLT_HOST(calloc((size_t)elements_of(&value->type) + 1, sizeof(float)))};
}

static void want_all(run *r)
{
    for (int p = 0; p < r->places; p++) {
        const clt_graph *g = r->graphs[p];
        for (int i = 0; i < g->n_losses; i++) {
            want(r, p, g->losses[i].sum, g->losses[i].name);
            want(r, p, g->losses[i].weight, "weight");
        }
        for (int i = 0, next = 0; i < g->n_values; i++)
            if (clt_value_trained(g->values[i])) {
                if (r->gradients[p][next])
                    want(r, p, r->gradients[p][next], g->values[i]->name);
                next++;
            }
    }
}

static clt_sharding sharding_of(const run *r, const char *name)
{
    const clt_value *v = clt_graph_find(r->whole, name);
    return v && r->places > 1 ? v->shardings[CLT_AXIS_TENSOR] : (clt_sharding){0, 0};
}

/* Copies between a whole tensor and the part of a place. */
static void copy_part(const run *r, const char *name, const clt_type *whole, int place,
                      float *of_whole, float *of_part, bool to_whole)
{
    const clt_sharding sharding = sharding_of(r, name);
    const clt_coordinate at = {place, r->places};
    for (int64_t i = 0; i < clt_sharding_pieces(whole, sharding); i++) {
        const clt_piece piece = clt_sharding_piece(whole, sharding, at, i);
        float *a = of_whole + piece.whole, *b = of_part + piece.part;
        memcpy(to_whole ? a : b, to_whole ? b : a, (size_t)piece.count * sizeof *a);
    }
}

static void feed_all(run *r)
{
    for (int i = 0; i < r->m.graph->n_values; i++) {
        const clt_value *v = r->m.graph->values[i];
        char name[MERGE_NAME];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        snprintf(name, sizeof name, "%s", v->name);
        char *at = strchr(name, '@');
        void *data = calloc((size_t)elements_of(&v->type) + 1, sizeof(float));
        if (at) {
            *at = '\0';
            const clt_value *whole = clt_graph_find(r->whole, name);
            float *all = calloc((size_t)elements_of(&whole->type) + 1, sizeof(float));
            fill(name, &whole->type, r->limit, all);
            copy_part(r, name, &whole->type, atoi(at + 1), all, data, false);
            free(all);
        } else {
            fill(name, &v->type, r->limit, data);
        }
        if (strstr(name, ".upstream"))
            *(float *)data = 0.5f;
        assert_true(r->n_feeds < MOST);
        r->feeds[r->n_feeds++] = (clt_feed){.name = v->name, .array = CLT_HOST(data)};
    }
}

static void compute(run *r)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = r->feeds;
    batch.n_feeds = r->n_feeds;
    batch.fetches = r->fetches;
    batch.n_fetches = r->n_fetches;
    lab_compute(&r->lab, r->m.graph, &batch, 0);
}

static tensor *find_tensor(outcome *o, const char *name)
{
    for (int i = 0; i < o->n; i++)
        if (!strcmp(o->values[i].name, name))
            return &o->values[i];
    assert_true(o->n < MOST);
    tensor *t = &o->values[o->n++];
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

/* Puts the fetched parts together. Whole values must be equal at all places. */
static void put_together(run *r, outcome *out)
{
    for (int i = 0; i < r->n_fetches; i++) {
        char name[MERGE_NAME];
        snprintf(name, sizeof name, "%s", r->fetches[i].name);
        char *at = strchr(name, '#');
        *at = '\0';
        const clt_value *whole = clt_graph_find(r->whole, name);
        tensor *t = find_tensor(out, name);
        const bool first = !t->data;
        t->type = whole ? whole->type : (clt_type){CLT_F32, 1, {1}};
        if (first)
            t->data = calloc((size_t)elements_of(&t->type) + 1, sizeof(float));
        if (!first && !r->fault && !sharding_of(r, name).blocks)
            assert_memory_equal(t->data, r->fetches[i].array.host,
                                (size_t)elements_of(&t->type) * sizeof(float));
        copy_part(r, name, &t->type, atoi(at + 1), t->data, r->fetches[i].array.host, true);
        free(r->fetches[i].array.host);
    }
}

static outcome compute_on(build_fn build, int limit, int places, merge_fault fault, int fault_at)
{
    run r = {.build = build, .places = places, .limit = limit};
    outcome out = {.n = 0};
    r.fault = fault;
    ok(clt_graph_create(&r.whole));
    build(r.whole);
    ok(clt_graph_status(r.whole));
    for (int p = 0; p < places; p++)
        make_place(&r, p, &out);
    merge_graphs(&r.m, r.graphs, places, fault, fault_at);
    want_all(&r);
    feed_all(&r);
    compute(&r);
    put_together(&r, &out);
    lab_close(&r.lab);
    for (int i = 0; i < r.n_feeds; i++)
        free(r.feeds[i].array.host);
    for (int p = 0; p < places; p++) {
        clt_graph_destroy(r.graphs[p]);
        free(r.gradients[p]);
    }
    merge_free(&r.m);
    clt_graph_destroy(r.whole);
    return out;
}

static bool equal(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->values[i].data, b->values[i].data,
                   (size_t)elements_of(&a->values[i].type) * sizeof(float)))
            return false;
    return true;
}

/* What a partition must give. */
typedef struct expected {
    int limit;        /* indices are below */
    int collectives;  /* in the graph */
    int gathers;      /* nodes that no rule divides */
    double work;      /* place 0 does at most so much of its fair part of the products */
    double tolerance; /* of the largest element of a tensor; 0: bits are equal */
} expected;

static void compare(const tensor *one, const tensor *all, double tolerance)
{
    double largest = 0;
    for (int64_t e = 0; e < elements_of(&one->type); e++)
        largest = fmax(largest, fabs((double)one->data[e]));
    for (int64_t e = 0; e < elements_of(&one->type); e++)
        if (!(fabs((double)one->data[e] - (double)all->data[e]) <= tolerance * largest))
            fail_msg("%s[%d]: %.9g on one device, %.9g on the places together", one->name, (int)e,
                     (double)one->data[e], (double)all->data[e]);
}

/* All places give what one device gives. Each collective in turn is
 * replaced: the numbers must differ then, or the collective was not needed. */
static void check(build_fn build, int places, const expected *x)
{
    outcome one = compute_on(build, x->limit, 1, MERGE_RIGHT, 0);
    outcome all = compute_on(build, x->limit, places, MERGE_RIGHT, 0);
    assert_int_equal(one.n, all.n);
    for (int i = 0; i < one.n; i++)
        compare(&one.values[i], &all.values[i], x->tolerance);
    assert_int_equal(all.gathers, x->gathers);
    assert_int_equal(all.collectives, x->collectives);
    if (all.flops > one.flops / places * x->work)
        fail_msg("place 0 does %g of the work of one device", all.flops / one.flops);
    for (int k = 0; k < x->collectives; k++)
        for (int fault = MERGE_IDENTITY; fault <= MERGE_ZEROS; fault++) {
            outcome wrong = compute_on(build, x->limit, places, (merge_fault)fault, k);
            if (equal(&all, &wrong))
                fail_msg("collective %d is not needed: fault %d changes nothing", k, fault);
            free_outcome(&wrong);
        }
    free_outcome(&one);
    free_outcome(&all);
}

/* --- tests ---------------------------------------------------------------------------------- */

static void exact(build_fn build, int places, int collectives, double work)
{
    const expected x = {.limit = 1, .collectives = collectives, .work = work};
    check(build, places, &x);
}

static void mlp(void **state)
{
    (void)state;
    exact(two_layers, 2, 1, 1.4);
    exact(two_layers, 3, 1, 1.4);
}

static void skips(void **state)
{
    (void)state;
    exact(blocks, 2, 3, 1.01);
    exact(blocks, 3, 3, 1.01);
}

static void split_results(void **state)
{
    (void)state;
    exact(split_result, 2, 3, 1.6);
}

/* Softmax exchanges its largest elements and its sums, and its gradient a sum. The fourth
 * collective is the second layer's sum. */
static void softmaxes(void **state)
{
    (void)state;
    const expected x = {.limit = 1, .collectives = 4, .work = 1.5, .tolerance = 2e-6};
    check(softmax_of_parts, 2, &x);
    check(softmax_of_parts, 3, &x);
    check(log_softmax_of_parts, 2, &x);
}

/* Parts that are joined stay divided. */
static void joins(void **state)
{
    (void)state;
    exact(joined, 2, 1, 1.01);
    exact(joined, 3, 1, 1.01);
}

/* Five channels have no equal parts: they are gathered where images become rows, and back. */
static void uneven_channels(void **state)
{
    (void)state;
    const expected x = {.limit = 1, .collectives = 1, .gathers = 1, .work = 2.01};
    check(flattened, 2, &x);
}

/* Forward: embedding, 2 a block, maximum of the logits, sum and logit of the label. Backward: 2 a
 * block, and the gradient of the last layer. */
static void transformers(void **state)
{
    (void)state;
    const expected x = {.limit = 11, .collectives = 8, .work = 1.1, .tolerance = 2e-6};
    check(transformer, 2, &x);
}

/* Forward one sum, as for other heads. Backward the gradients of keys and of values are sums. */
static void lone_heads(void **state)
{
    (void)state;
    const expected x = {.limit = 1, .collectives = 3, .work = 1.7, .tolerance = 2e-6};
    check(one_key_head, 2, &x);
    check(one_key_head, 3, &x);
}

/* Norms and sums beside the split layers are divided over the positions. Without positions, layers
 * are divided as ever. */
static void sequences(void **state)
{
    (void)state;
    const expected x = {.limit = 11, .collectives = 22, .work = 1.1, .tolerance = 2e-6};
    sequence = true;
    check(transformer, 2, &x);
    exact(two_layers, 2, 1, 1.4);
    exact(blocks, 2, 3, 1.01);
    sequence = false;
}

/* A layer whose result is put together has too many blocks. */
static void many_blocks(void **state)
{
    enum { BLOCKS = 300 };
    clt_mesh mesh;
    clt_partition_report report = {0};
    clt_graph *g;
    (void)state;
    ok(clt_graph_create(&g));
    clt_value *y = clt_linear(input(g, "x", 4), parameter(g, "a", 2 * BLOCKS, 4), NULL);
    clt_output(clt_softmax(y, 1), "y");
    ok(clt_shard(g, "a", CLT_AXIS_TENSOR, 0, BLOCKS, NULL));
    ok(clt_mesh_parse("tp=2", 2, &mesh));
    assert_int_equal(clt_pass_partition(g, &mesh, 0, BATCH, NULL, 0, &report), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "300 blocks"));
    clt_str_free(&report.text);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp),           cmocka_unit_test(skips),
        cmocka_unit_test(split_results), cmocka_unit_test(softmaxes),
        cmocka_unit_test(joins),         cmocka_unit_test(uneven_channels),
        cmocka_unit_test(transformers),  cmocka_unit_test(lone_heads),
        cmocka_unit_test(sequences),     cmocka_unit_test(many_blocks)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
