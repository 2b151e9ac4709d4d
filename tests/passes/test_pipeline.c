/* Stages of a training graph: the stages' graphs, joined into one at their messages, give the bits
 * of the whole graph. Numbers are small integers, so sums are exact in any order. */
#include "train/lab.h"

#include "graph/graph.h"
#include "ops/collective/transfer.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

enum { MOST = 128, STAGES = 4, BATCH = 4, NAME = 192 };

typedef void (*build_fn)(clt_graph *graph);

/* --- numbers --------------------------------------------------------------------------------- */

static int64_t elements_of(const clt_type *type)
{
    return clt_type_elements(type, BATCH);
}

/* Element i of a tensor: an integer between -2 and 2; of integers: an index below 3. */
static void *numbers(const char *name, const clt_type *type)
{
    uint32_t state = 2166136261u;
    float *data = calloc((size_t)elements_of(type) + 1, sizeof *data);
    for (const char *c = name; *c; c++)
        state = (state ^ (uint8_t)*c) * 16777619u;
    for (int64_t i = 0; i < elements_of(type); i++) {
        state = state * 1664525u + 1013904223u;
        const int number = (int)(state >> 20);
        if (type->dtype == CLT_I32)
            ((int32_t *)data)[i] = number % 3;
        else
            data[i] = strstr(name, ".upstream") ? 0.5f : (float)(number % 5 - 2);
    }
    return data;
}

/* --- graphs ---------------------------------------------------------------------------------- */

typedef struct stage_graph {
    clt_graph *graph;
    clt_value **gradients;
    clt_value **twins; /* by value id: the value of the joined graph */
    int n_gradients, next;
} stage_graph;

typedef struct run {
    stage_graph stages[STAGES];
    int n_stages, zeroed; /* the message that is replaced by zeros; -1: none */
    clt_graph *joined;
    lab lab; /* owns `joined` */
    struct {
        char name[NAME];
        clt_value *value, *twin;
    } sent[MOST];
    int n_sent;
    int64_t floats; /* in all messages */
    clt_fetch fetches[MOST];
    clt_feed feeds[MOST];
    int n_fetches, n_feeds;
} run;

static clt_status make_stage(const clt_graph *whole, int stage, int stages, stage_graph *out)
{
    clt_str report = {0};
    ok(clt_graph_copy(whole, &out->graph));
    clt_graph *g = out->graph;
    CLT_TRY(stages > 1 ? clt_pass_stages(g, stages) : CLT_OK);
    out->gradients = calloc((size_t)g->n_values + 1, sizeof *out->gradients);
    for (int i = 0; i < g->n_values; i++)
        out->n_gradients += clt_value_trained(g->values[i]);
    CLT_TRY(clt_pass_train(g, out->gradients));
    CLT_TRY(clt_graph_clean(g, out->gradients, out->n_gradients));
    if (stages > 1)
        CLT_TRY(clt_pass_pipeline(g, stage, out->gradients, &out->n_gradients, &report));
    clt_str_free(&report);
    CLT_TRY(clt_pass_simplify(g));
    CLT_TRY(clt_pass_fuse(g));
    return clt_graph_clean(g, out->gradients, out->n_gradients);
}

static clt_value *leaf(run *r, const clt_value *v)
{
    clt_value *same = v->name ? clt_graph_find(r->joined, v->name) : NULL;
    if (v->kind == CLT_VALUE_CONSTANT)
        return clt_constant(r->joined, v->type.dtype, v->type.rank, v->type.dims, v->data);
    return same ? same : clt_input(r->joined, v->name, v->type.dtype, v->type.rank, v->type.dims);
}

static clt_value *message(run *r, const clt_node *node)
{
    for (int i = 0; i < r->n_sent; i++)
        if (!strcmp(r->sent[i].name, node->name)) {
            assert_true(clt_type_equal(&r->sent[i].value->type, &node->out[0]->type));
            return i == r->zeroed ? clt_scale(r->sent[i].twin, 0) : r->sent[i].twin;
        }
    return NULL;
}

/* Adds a stage's nodes up to one that receives what is not sent yet. */
static void join(run *r, stage_graph *s)
{
    for (; s->next < s->graph->n_nodes; s->next++) {
        const clt_node *node = s->graph->nodes[s->next];
        clt_value *in[64] = {NULL};
        if (node->op == &clt_op_receive) {
            clt_value *value = message(r, node);
            if (!value)
                return;
            s->twins[node->out[0]->id] = value;
            continue;
        }
        for (int i = 0; i < node->n_in; i++)
            in[i] = node->in[i] ? s->twins[node->in[i]->id] : NULL;
        if (node->op == &clt_op_send) {
            r->floats += elements_of(&node->in[0]->type);
            r->sent[r->n_sent].value = node->in[0];
            r->sent[r->n_sent].twin = in[0];
            snprintf(r->sent[r->n_sent++].name, NAME, "%s", node->name);
            continue;
        }
        const clt_node *twin = clt_graph_add(r->joined, node->op, in, node->n_in, node->attr);
        if (!twin)
            fail_msg("%s: %s", node->name, clt_error_message());
        for (int o = 0; o < node->n_out; o++)
            s->twins[node->out[o]->id] = twin->out[o];
    }
}

static void join_all(run *r)
{
    int ended = 0;
    ok(clt_graph_create(&r->joined));
    for (int s = 0; s < r->n_stages; s++) {
        stage_graph *own = &r->stages[s];
        own->twins = calloc((size_t)own->graph->n_values + 1, sizeof *own->twins);
        for (int i = 0; i < own->graph->n_values; i++)
            if (own->graph->values[i]->kind != CLT_VALUE_INTERMEDIATE)
                own->twins[i] = leaf(r, own->graph->values[i]);
    }
    for (int round = 0; ended < r->n_stages && round <= 2 * r->n_stages; round++) {
        ended = 0;
        for (int s = 0; s < r->n_stages; s++) {
            join(r, &r->stages[s]);
            ended += r->stages[s].next == r->stages[s].graph->n_nodes;
        }
    }
    assert_int_equal(ended, r->n_stages);
    ok(clt_graph_status(r->joined));
}

/* --- numbers of a run ------------------------------------------------------------------------ */

/* Adds up what several stages have of a value: losses that are 0 on others, tied gradients. */
static void want(run *r, const char *name, const clt_value *value, int stage)
{
    char full[NAME];
    snprintf(full, sizeof full, "=%s#%d", name, stage);
    clt_value *copy = clt_output(clt_copy(r->stages[stage].twins[value->id]), full);
    ok(clt_graph_status(r->joined));
    r->fetches[r->n_fetches++] = (clt_fetch){
        .name = clt_value_name(copy),
        .device = -1,
        .array = CLT_HOST(calloc((size_t)elements_of(&value->type) + 1, sizeof(float)))};
}

static void want_all(run *r)
{
    for (int s = 0; s < r->n_stages; s++) {
        const stage_graph *own = &r->stages[s];
        for (int i = 0; i < own->graph->n_losses; i++)
            want(r, own->graph->losses[i].name, own->graph->losses[i].sum, s);
        for (int i = 0, next = 0; i < own->graph->n_values; i++)
            if (clt_value_trained(own->graph->values[i]) && own->gradients[next++])
                want(r, own->graph->values[i]->name, own->gradients[next - 1], s);
    }
}

static void compute(run *r)
{
    for (int i = 0; i < r->joined->n_values; i++) {
        const clt_value *v = r->joined->values[i];
        if (v->kind == CLT_VALUE_INPUT)
            r->feeds[r->n_feeds++] =
                (clt_feed){.name = v->name, .array = CLT_HOST(numbers(v->name, &v->type))};
    }
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = r->feeds;
    batch.n_feeds = r->n_feeds;
    batch.fetches = r->fetches;
    batch.n_fetches = r->n_fetches;
    lab_compute(&r->lab, r->joined, &batch, 0);
    for (int i = 0; i < r->n_feeds; i++)
        free(r->feeds[i].array.host);
}

typedef struct outcome {
    struct {
        char name[NAME];
        float *data;
        int64_t count;
    } values[MOST];
    int n, messages;
    int64_t floats;
} outcome;

static void put_together(const run *r, const clt_graph *whole, outcome *out)
{
    for (int i = 0; i < r->n_fetches; i++) {
        char name[NAME];
        snprintf(name, sizeof name, "%s", r->fetches[i].name + 1);
        *strchr(name, '#') = '\0';
        int k = 0;
        while (k < out->n && strcmp(out->values[k].name, name))
            k++;
        if (k == out->n) {
            const clt_value *v = clt_graph_find((clt_graph *)(uintptr_t)whole, name);
            snprintf(out->values[k].name, NAME, "%s", name);
            out->values[k].count = v ? elements_of(&v->type) : 1;
            out->values[k].data = calloc((size_t)out->values[k].count + 1, sizeof(float));
            out->n++;
        }
        for (int64_t e = 0; e < out->values[k].count; e++)
            out->values[k].data[e] += ((const float *)r->fetches[i].array.host)[e];
        free(r->fetches[i].array.host);
    }
}

static outcome compute_on(build_fn build, int stages, int zeroed)
{
    run *r = calloc(1, sizeof *r);
    outcome out = {.n = 0};
    clt_graph *whole;
    r->n_stages = stages;
    r->zeroed = zeroed;
    ok(clt_graph_create(&whole));
    build(whole);
    ok(clt_graph_status(whole));
    for (int s = 0; s < stages; s++)
        ok(make_stage(whole, s, stages, &r->stages[s]));
    join_all(r);
    want_all(r);
    compute(r);
    put_together(r, whole, &out);
    lab_close(&r->lab);
    out.messages = r->n_sent;
    out.floats = r->floats;
    for (int s = 0; s < stages; s++) {
        clt_graph_destroy(r->stages[s].graph);
        free(r->stages[s].gradients);
        free(r->stages[s].twins);
    }
    clt_graph_destroy(whole);
    free(r);
    return out;
}

static void free_outcome(outcome *o)
{
    for (int i = 0; i < o->n; i++)
        free(o->values[i].data);
}

static const float *find(const outcome *o, const char *name)
{
    for (int i = 0; i < o->n; i++)
        if (!strcmp(o->values[i].name, name))
            return o->values[i].data;
    fail_msg("%s is missing", name);
    return NULL;
}

static bool equal(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        if (memcmp(a->values[i].data, find(b, a->values[i].name),
                   (size_t)a->values[i].count * sizeof(float)) != 0)
            return false;
    return true;
}

/* The stages give the bits of one device, with so many messages of so many floats. Without any one
 * of the messages they do not. */
static void check(build_fn build, int stages, int messages, int64_t floats)
{
    outcome one = compute_on(build, 1, -1), all = compute_on(build, stages, -1);
    for (int i = 0; i < one.n; i++)
        for (int64_t e = 0; e < one.values[i].count; e++)
            if (one.values[i].data[e] != find(&all, one.values[i].name)[e])
                fail_msg("%s[%d]: %g on one device, %g in %d stages", one.values[i].name, (int)e,
                         (double)one.values[i].data[e], (double)find(&all, one.values[i].name)[e],
                         stages);
    assert_true(equal(&one, &all));
    assert_int_equal(all.messages, messages);
    assert_int_equal(all.floats, floats);
    for (int k = 0; k < messages; k++) {
        outcome wrong = compute_on(build, stages, k);
        if (equal(&one, &wrong))
            fail_msg("message %d is not needed", k);
        free_outcome(&wrong);
    }
    free_outcome(&one);
    free_outcome(&all);
}

/* --- networks -------------------------------------------------------------------------------- */

static const clt_init zero = {CLT_INIT_ZERO, 0, 0};

static clt_value *parameter(clt_graph *g, const char *name, int64_t a, int64_t b)
{
    return clt_parameter(g, name, b ? 2 : 1, (const int64_t[]){a, b}, zero);
}

static clt_value *input(clt_graph *g, const char *name, int64_t width)
{
    return clt_input(g, name, CLT_F32, 2, (const int64_t[]){CLT_BATCH, width});
}

static void loss(clt_graph *g, const char *name, clt_value *y, const char *target, int64_t width)
{
    clt_value *sum, *weight;
    clt_mse(y, input(g, target, width), &sum, &weight);
    clt_loss(g, name, sum, weight, 1);
}

static clt_value *dense(clt_graph *g, clt_value *x, const char *weight, const char *bias,
                        int64_t in, int64_t out)
{
    return clt_linear(x, parameter(g, weight, out, in), parameter(g, bias, out, 0));
}

/* A chain: each border has one value forward and its gradient backward. */
static void chain(clt_graph *g, int cuts)
{
    clt_value *x = clt_relu(dense(g, input(g, "x", 5), "a", "a.bias", 5, 6));
    x = clt_relu(dense(g, cuts > 0 ? clt_cut(x) : x, "b", "b.bias", 6, 7));
    x = clt_relu(dense(g, cuts > 1 ? clt_cut(x) : x, "c", "c.bias", 7, 3));
    loss(g, "loss", dense(g, cuts > 2 ? clt_cut(x) : x, "d", "d.bias", 3, 2), "target", 2);
}

static void chain_2(clt_graph *g)
{
    chain(g, 1);
}

static void chain_4(clt_graph *g)
{
    chain(g, 3);
}

/* A value passes a stage by. Its gradient is added up on the later stage that uses it first, so
 * only the sum comes back. The first stage has a loss of its own. */
static void pass_by(clt_graph *g)
{
    clt_value *x = dense(g, input(g, "x", 5), "a", "a.bias", 5, 6);
    loss(g, "early", x, "early_target", 6);
    clt_value *h = clt_cut(clt_relu(x));
    clt_value *y = clt_cut(clt_relu(dense(g, h, "b", "b.bias", 6, 6)));
    loss(g, "late", clt_add(y, h), "target", 6);
}

/* The first and the last stage use one parameter. Each has its part of the gradient. */
static void tied(clt_graph *g)
{
    clt_value *table = parameter(g, "table", 6, 4);
    clt_value *at = clt_input(g, "at", CLT_I32, 1, (const int64_t[]){CLT_BATCH});
    clt_value *x =
        clt_cut(clt_relu(dense(g, clt_embedding(at, table, CLT_NO_PADDING), "a", "a.bias", 4, 4)));
    loss(g, "loss", clt_linear(x, table, NULL), "target", 6);
}

static void a_chain_of_two(void **state)
{
    (void)state;
    check(chain_2, 2, 2, 2 * BATCH * 6);
}

static void a_chain_of_four(void **state)
{
    (void)state;
    check(chain_4, 4, 6, 2 * BATCH * (6 + 7 + 3));
}

static void a_value_passes_a_stage_by(void **state)
{
    (void)state;
    check(pass_by, 3, 5, BATCH * 5 * 6);
}

static void tied_parameters_have_a_gradient_on_each_stage(void **state)
{
    (void)state;
    check(tied, 2, 2, 2 * BATCH * 4);
}

/* Of more cuts than needed, those are used that balance the work. */
/* The last stages of as many as a pipeline can have, each with one layer. */
static void the_most_stages(void **state)
{
    char name[16];
    clt_graph *whole;
    (void)state;
    ok(clt_graph_create(&whole));
    clt_value *x = input(whole, "x", 2);
    for (int s = 0; s < CLT_MOST_STAGES; s++) {
        snprintf(name, sizeof name, "w%d", s);
        x = clt_relu(clt_linear(s ? clt_cut(x) : x, parameter(whole, name, 2, 2), NULL));
    }
    loss(whole, "loss", x, "target", 2);
    for (int s = CLT_MOST_STAGES - 2; s < CLT_MOST_STAGES; s++) {
        stage_graph own = {0};
        int transfers = 0;
        ok(make_stage(whole, s, CLT_MOST_STAGES, &own));
        for (int i = 0; i < own.graph->n_nodes; i++)
            transfers += own.graph->nodes[i]->op->collective != CLT_OP_KERNELS;
        assert_int_equal(transfers,
                         s < CLT_MOST_STAGES - 1 ? 4 : 2); /* both ends, both directions */
        assert_int_equal(own.n_gradients, 1);
        clt_graph_destroy(own.graph);
        free(own.gradients);
    }
    clt_graph_destroy(whole);
}

static void work_is_balanced(void **state)
{
    static const int widths[] = {4, 64, 4, 64, 64, 4, 4};
    enum { LAYERS = sizeof widths / sizeof *widths - 1 };
    static const int wanted[LAYERS] = {0, 0, 0, 1, 2, 2}; /* the fourth layer is the largest */
    char name[] = "a";
    clt_graph *g;
    (void)state;
    ok(clt_graph_create(&g));
    clt_value *x = input(g, "x", widths[0]), *layers[LAYERS];
    for (int i = 0; i < LAYERS; i++, name[0]++) {
        x = layers[i] = clt_matmul(x, parameter(g, name, widths[i], widths[i + 1]), 0, 0);
        if (i < LAYERS - 1)
            clt_cut(x);
    }
    loss(g, "loss", x, "target", widths[LAYERS]);
    ok(clt_pass_stages(g, 3));
    for (int i = 0; i < LAYERS; i++)
        assert_int_equal(layers[i]->producer->stage, wanted[i]);
    clt_graph_destroy(g);
}

/* Names of nodes and of parameters choose stages, whatever the graph's own cuts are. */
static void layers_choose_stages(void **state)
{
    static const struct {
        const char *patterns;
        int stages, wanted[4];
    } cases[] = {{"b", 2, {0, 1, 1, 1}},
                 {"c.bias", 2, {0, 0, 1, 1}},
                 {"third|d", 3, {0, 0, 1, 2}},
                 {"[b]|[c]|[d]", 4, {0, 1, 2, 3}},
                 {"b*|d*", 2, {0, 1, 1, 1}}}; /* the cut that balances the work */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_graph *g;
        ok(clt_graph_create(&g));
        chain(g, 1);
        const clt_node *layers[4];
        for (int n = 0, l = 0; n < g->n_nodes; n++)
            if (!strcmp(g->nodes[n]->op->name, "linear"))
                layers[l++] = g->nodes[n];
        clt_label(layers[2]->out[0], "third");
        ok(clt_cut_before(g, cases[i].patterns));
        ok(clt_pass_stages(g, cases[i].stages));
        for (int l = 0; l < 4; l++)
            if (layers[l]->stage != cases[i].wanted[l])
                fail_msg("%s: layer %d is in stage %d", cases[i].patterns, l, layers[l]->stage);
        clt_graph_destroy(g);
    }
}

/* --- what is refused ------------------------------------------------------------------------- */

static void against_direction(clt_graph *g)
{
    clt_value *x = clt_relu(input(g, "x", 3)), *y = clt_relu(clt_scale(x, 2));
    clt_cut(y);
    clt_cut(x);
    loss(g, "loss", y, "target", 3);
}

static void empty_stage(clt_graph *g)
{
    clt_value *x = clt_cut(clt_relu(input(g, "x", 3)));
    loss(g, "loss", clt_cut(clt_reshape(x, 2, (const int64_t[]){CLT_BATCH, 3})), "target", 3);
}

static void nothing_behind(clt_graph *g)
{
    clt_value *sum, *weight;
    clt_mse(clt_scale(input(g, "x", 3), 2), input(g, "target", 3), &sum, &weight);
    clt_loss(g, "loss", clt_cut(sum), weight, 1);
}

static void cut_input(clt_graph *g)
{
    clt_cut(input(g, "x", 3));
}

static void refused_layers(const char *patterns, clt_status wanted, const char *message)
{
    clt_graph *g;
    ok(clt_graph_create(&g));
    chain(g, 1);
    assert_int_equal(clt_cut_before(g, patterns), wanted);
    assert_string_equal(clt_error_message(), message);
    assert_int_equal(g->cuts, 1); /* as it was */
    clt_graph_destroy(g);
}

static void bad_layers_are_refused(void **state)
{
    (void)state;
    refused_layers("b|e*", CLT_NOT_FOUND,
                   "stages: no layer matches \"e*\": cltrain inspect lists the layers of a model");
    refused_layers("b|", CLT_NOT_FOUND,
                   "stages: no layer matches \"\": cltrain inspect lists the layers of a model");
    refused_layers("a", CLT_INVALID_ARGUMENT,
                   "stages: \"a\" begins at linear_0, where the first stage begins");
    refused_layers(
        "c|b", CLT_INVALID_ARGUMENT,
        "stages: \"b\" begins at linear_2, in front of the stage before it: name layers in "
        "the order in which data pass them");
    refused_layers("b|b*", CLT_INVALID_ARGUMENT,
                   "stages: \"b*\" begins at linear_2, where another stage begins already");
}

static void refused(build_fn build, int stages, const char *message)
{
    clt_graph *g;
    ok(clt_graph_create(&g));
    build(g);
    clt_status status = clt_graph_status(g);
    if (status == CLT_OK)
        status = clt_pass_stages(g, stages);
    assert_int_equal(status, CLT_INVALID_ARGUMENT);
    assert_string_equal(clt_error_message(), message);
    clt_graph_destroy(g);
}

static void bad_cuts_are_refused(void **state)
{
    (void)state;
    refused(chain_2, 3,
            "mesh: pp=3 needs 2 cuts of the graph, which has 1: name the layers at which stages "
            "begin (clt_cut_before; --stages)");
    refused(against_direction, 3,
            "mesh: cut 2, behind relu_0, is against the data's direction: cut 1 lies behind it");
    refused(empty_stage, 3,
            "mesh: stage 1 of axis pp has no node between the cuts behind relu_0 "
            "and reshape_1");
    refused(nothing_behind, 2, "mesh: stage 1 of axis pp has no node behind the cut at mse_1");
    refused(cut_input, 2, "cut: x is computed by no node, so it ends no stage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_of_two),
        cmocka_unit_test(a_chain_of_four),
        cmocka_unit_test(a_value_passes_a_stage_by),
        cmocka_unit_test(tied_parameters_have_a_gradient_on_each_stage),
        cmocka_unit_test(the_most_stages),
        cmocka_unit_test(work_is_balanced),
        cmocka_unit_test(layers_choose_stages),
        cmocka_unit_test(bad_cuts_are_refused),
        cmocka_unit_test(bad_layers_are_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
