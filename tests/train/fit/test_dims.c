/* Dimensions behave as the schema says. Every operator and its gradient operators are computed on
 * whole operands and on operands split along each dimension. The parts of a result must equal the
 * whole:
 *
 *   - side by side for a parallel dimension, added for a summed one. The node of each part has the
 *     attributes that clt_op.localise sets;
 *   - for a halo, parts overlap, and each row of the whole is a row of a part. Results that lack
 * the dimension (gradients of weights) are added, of parts that overlap in the larger operand only;
 *   - for a scan, the second part gets the states that the first one gave. Gradients are those
 *     of the whole, too.
 */
#include "train/fit/dims_parts.h"
#include "train/lab.h"

#include "ops/core/ops.h"
#include "ops/core/schema_cases.h"
#include "passes/passes.h"
#include <cltrain/predict.h>

enum { NODES = 512, OUTPUTS = 1 << 15, PARTS = 2, MOST_PARTS = 3 };

/* Where a result went: output `whole`, or the parts of it along dimension `axis` (-1: it lacks the
 * dimension). */
typedef struct result {
    const clt_op *op;
    int label, output, axis, blocks;
    clt_dim_behaviour behaviour;
    int places, parts[MOST_PARTS], whole; /* numbers of outputs */
    bool adds;                            /* over the dimension that it lacks */
} result;

typedef struct bench {
    clt_graph *graph; /* with all nodes, whole and in parts, on constants */
    int outputs, n_results, n_nodes;
    result results[OUTPUTS];
    float *values[OUTPUTS];
    clt_type types[OUTPUTS];
    int splits[5]; /* by behaviour */
    int refused;   /* splits that localise refuses */
} bench;

/* --- the nodes -------------------------------------------------------------------------------- */

/* More cases of operators, with other sizes and attributes. */
static const schema_case more_cases[] = {
    {.op = "attention", .attributes = "heads=4 causal=true", .sizes = "w48"},
    {.op = "attention", .attributes = "heads=4 kv_heads=2", .sizes = "w32"},
    {.op = "attention", .attributes = "heads=6", .sizes = "w12 v12", .given = 7},
    {.op = "attention", .attributes = "heads=4", .sizes = "w16 v8", .given = 15, .star = 2},
    {.op = "attention", .attributes = "heads=6", .sizes = "w12 v2", .given = 7},
    {.op = "scaled_dot_product_attention", .sizes = "h6 g6"},
    {.op = "scaled_dot_product_attention", .sizes = "h6 g1"},
    {.op = "scaled_dot_product_attention", .sizes = "h6 g1", .given = 15, .star = 2},
    {.op = "scaled_dot_product_attention", .sizes = "h4 g2", .given = 15, .star = 2},
    {.op = "rotary", .attributes = "size=2", .sizes = "w12"},
    {.op = "rotary", .attributes = "size=2 heads=5", .sizes = "w24"},
    {.op = "reshape", .attributes = "shape=2,2,2"},
    {.op = "reshape", .attributes = "shape=8"},
    {.op = "group_norm", .attributes = "groups=4", .sizes = "c12"},
    {.op = "slice", .attributes = "start=0,2 stop=2,4"},
    {.op = "instance_norm", .sizes = "c6"},
};

/* A graph of the case's operator with its gradients. */
static clt_graph *graph_of(const clt_op *op, schema_case c)
{
    static const float zeros[MOST];
    clt_value *in[CLT_MAX_OPERANDS], *out[CLT_MAX_RESULTS], *seeds[CLT_MAX_RESULTS];
    clt_value *wanted[CLT_MAX_OPERANDS], *dx[CLT_MAX_OPERANDS];
    clt_graph *graph;
    int n_wanted = 0, n_out = 0;
    ok(clt_graph_create(&graph));
    const int count = schema_operands(graph, &c, op, in);
    ok(clt_apply_op(graph, op, in, count, c.attributes, out));
    for (int i = 0; i < count; i++)
        if (in[i]->kind == CLT_VALUE_PARAMETER)
            wanted[n_wanted++] = in[i];
    for (; n_out < CLT_MAX_RESULTS && out[n_out]; n_out++) {
        const clt_type *type = &out[n_out]->type;
        if (type->dtype != CLT_F32)
            return graph;
        seeds[n_out] = clt_constant(graph, CLT_F32, type->rank, type->dims, zeros);
    }
    if (n_wanted && clt_operator_differentiable(op))
        ok(clt_autodiff(graph, out, seeds, n_out, wanted, n_wanted, dx));
    return graph;
}

static bool is_tested(const clt_op *op)
{
    static const char *const others[] = {"dropout", "all_reduce", "batch_rows", "batch_rows_put",
                                         "layout"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i], op->name))
            return false;
    return true;
}

/* Makes the value an output. Returns the output's number. */
static int add_output(bench *b, clt_value *value)
{
    char name[32];
    assert_true(b->outputs < OUTPUTS);
    b->types[b->outputs] = value->type;
    snprintf(name, sizeof name, "r%d", b->outputs);
    /* A view of a constant is no result of its own. */
    clt_output(clt_value_root(value) == value ? value : clt_copy(value), name);
    return b->outputs++;
}

/* Adds the node on constants, whole or a part of it. Returns the number of its first output; -1:
 * the operator refuses the split. */
static int add_node(bench *b, const clt_node *node, const clt_node_dims *dims, const split *s,
                    int half, char (*data)[4 * MOST])
{
    static char part[4 * MOST], attr[4096];
    clt_value *in[CLT_MAX_OPERANDS] = {NULL};
    assert_true(node->op->attr_bytes <= sizeof attr);
    if (!part_attributes(node, s, half, attr))
        return -1;
    for (int i = 0; i < node->n_in; i++) {
        clt_operand_schema one;
        if (!node->in[i])
            continue;
        clt_type type = node->in[i]->type;
        const int axis = s->label < 0 ? -1 : axis_of(dims->in[i], type.rank, s->label);
        memcpy(part, data[i], sizeof part);
        if (axis >= 0)
            take_part(s, &node->in[i]->type, axis, dims->in_blocks[i][axis], half, data[i], &type,
                      part);
        if (s->label >= 0 && half && clt_operand_at(node->op->operands, i, &one) && one.once &&
            s->behaviour == CLT_DIM_SUMMED)
            memset(part, 0, sizeof part);
        in[i] = clt_constant(b->graph, type.dtype, type.rank, type.dims, part);
    }
    const clt_node *added = clt_graph_add(b->graph, node->op, in, node->n_in, attr);
    if (!added)
        fail_msg("%s, half %d of dimension %d: %s", node->op->name, half, s->label,
                 clt_error_message());
    const int first = b->outputs;
    for (int o = 0; o < added->n_out; o++)
        add_output(b, added->out[o]);
    return first;
}

static void add_split(bench *b, const clt_node *node, const clt_node_dims *dims, const split *s,
                      int whole, char (*data)[4 * MOST])
{
    int parts[MOST_PARTS];
    for (int p = 0; p < s->places; p++)
        parts[p] = add_node(b, node, dims, s, p, data);
    b->refused += parts[0] < 0;
    b->splits[s->behaviour] += parts[0] >= 0;
    for (int o = 0; o < node->n_out && parts[0] >= 0; o++) {
        result *r = &b->results[b->n_results++];
        *r = (result){.op = node->op,
                      .label = s->label,
                      .output = o,
                      .axis = axis_of(dims->out[o], node->out[o]->type.rank, s->label),
                      .behaviour = s->behaviour,
                      .places = s->places,
                      .whole = whole + o};
        r->adds = r->axis < 0 && dims->adds[o];
        r->blocks = r->axis < 0 ? 1 : s->blocks * dims->out_blocks[o][r->axis];
        for (int p = 0; p < s->places; p++)
            r->parts[p] = parts[p] + o;
    }
}

/* The node whole, and in parts along every dimension that allows it. */
static void add_parts(bench *b, const clt_node *node)
{
    static char data[CLT_MAX_OPERANDS][4 * MOST];
    static const split none = {.label = -1};
    static const int divisions[3][2] = {{2, 1}, {3, 1}, {2, 2}}; /* places, blocks */
    clt_node_dims dims;
    clt_node_dims_of(node, &dims);
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i])
            fill(&node->in[i]->type, data[i]);
        if (i && node->op == &clt_op_resample2d) /* its tables */
            memcpy(data[i], node->in[i]->data,
                   (size_t)clt_type_elements(&node->in[i]->type, 1) * sizeof(float));
    }
    const int whole = add_node(b, node, &dims, &none, 0, data);
    for (int label = 0; label < CLT_DIM_LABELS; label++)
        for (int d = 0; d < 3 && dims.behaviour[label] <= CLT_DIM_HALO; d++) {
            split s = {.label = label,
                       .behaviour = dims.behaviour[label],
                       .places = divisions[d][0],
                       .blocks = divisions[d][1]};
            if ((d && s.behaviour == CLT_DIM_HALO) || !find_split(node, &dims, &s))
                continue;
            add_split(b, node, &dims, &s, whole, data);
        }
}

/* --- scans ------------------------------------------------------------------------------------ */

/* Returns the result that holds the state after the last step, for the operand of the state before
 * the first: h_n for h0. -1 if the operand is not such a state. */
static int state_after(const clt_op *op, int operand)
{
    clt_operand_schema in, out;
    const int found = clt_operator_operand(op, operand, &in);
    const size_t length = found ? strlen(in.name) : 0;
    for (int o = 0; length > 1 && in.name[length - 1] == '0' && clt_operator_result(op, o, &out);
         o++)
        if (!strncmp(out.name, in.name, length - 1) && !strcmp(out.name + length - 1, "_n"))
            return o;
    return -1;
}

static int axis_in(const char *dims, char letter)
{
    const char *at = strchr(dims, letter);
    return at ? (int)(at - dims) : -1;
}

/* Operands of a scan, then gradients of its results. */
typedef struct scan_data {
    clt_type types[CLT_MAX_OPERANDS]; /* of operands */
    int count;                        /* of operands */
    char data[CLT_MAX_OPERANDS + CLT_MAX_RESULTS][4 * MOST];
} scan_data;

/* A scan in one or two parts, with gradients by operand and part. */
typedef struct scan {
    int parts;
    clt_value *in[PARTS][CLT_MAX_OPERANDS], *out[PARTS][CLT_MAX_RESULTS];
    clt_value *dx[CLT_MAX_OPERANDS * PARTS];
} scan;

/* Makes part p of numbers whose whole has `type`. axis -1: all of them. */
static clt_value *scan_constant(bench *b, const scan *s, int p, clt_type type, int axis,
                                const char *data)
{
    static char part[4 * MOST];
    const clt_type whole = type;
    if (axis < 0)
        return clt_constant(b->graph, type.dtype, type.rank, type.dims, data);
    type.dims[axis] /= s->parts;
    cut(&whole, axis, p * type.dims[axis], type.dims[axis], data, part);
    return clt_constant(b->graph, type.dtype, type.rank, type.dims, part);
}

/* Adds part p. It begins with the states that the part before it gave. */
static void add_scan_part(bench *b, const clt_op *op, const scan_data *d, int p, scan *s)
{
    clt_operand_schema one;
    for (int i = 0; clt_operator_operand(op, i, &one); i++) {
        const int axis = axis_in(one.dims, *op->scan), after = state_after(op, i);
        s->in[p][i] = NULL;
        if (p && after >= 0)
            s->in[p][i] = s->out[p - 1][after];
        else if (p && axis < 0)
            s->in[p][i] = s->in[0][i];
        else if (i < d->count)
            s->in[p][i] = scan_constant(b, s, p, d->types[i], axis, d->data[i]);
    }
    ok(clt_apply_op(b->graph, op, s->in[p], clt_op_most(op), NULL, s->out[p]));
}

/* Adds a scan with its gradients. */
static void add_scan(bench *b, const clt_op *op, const scan_data *d, scan *s)
{
    clt_value *from[PARTS * CLT_MAX_RESULTS], *seeds[PARTS * CLT_MAX_RESULTS];
    clt_value *wanted[PARTS * CLT_MAX_OPERANDS];
    clt_operand_schema one;
    int n = 0, n_wanted = 0;
    for (int p = 0; p < s->parts; p++) {
        add_scan_part(b, op, d, p, s);
        for (int o = 0; clt_operator_result(op, o, &one); o++) {
            const int axis = axis_in(one.dims, *op->scan);
            clt_type type = s->out[p][o]->type;
            if (axis < 0 && p < s->parts - 1) /* a state: the next part uses it */
                continue;
            if (axis >= 0)
                type.dims[axis] *= s->parts;
            from[n] = s->out[p][o];
            seeds[n++] = scan_constant(b, s, p, type, axis, d->data[CLT_MAX_OPERANDS + o]);
        }
    }
    for (int i = 0; i < d->count; i++)
        for (int p = 0; p < s->parts; p++)
            wanted[n_wanted++] = s->in[p][i];
    ok(clt_autodiff(b->graph, from, seeds, n, wanted, n_wanted, s->dx));
    for (int k = 0; k < b->graph->n_nodes; k++)
        b->graph->nodes[k]->backward = false; /* a predictor runs forward nodes only */
}

static void add_scan_result(bench *b, const clt_op *op, int number, int axis, clt_value *whole,
                            clt_value *first, clt_value *last)
{
    result *r = &b->results[b->n_results++];
    *r = (result){.op = op,
                  .output = number,
                  .axis = axis,
                  .blocks = 1,
                  .behaviour = CLT_DIM_SCAN,
                  .places = PARTS};
    r->label = *op->scan - 'a';
    r->whole = add_output(b, whole);
    r->parts[1] = add_output(b, last);
    r->parts[0] = axis < 0 ? r->parts[1] : add_output(b, first);
}

/* The operator and its gradients, whole and in two parts. Numbers of gradients follow those of
 * results. */
static void add_scans(bench *b, const clt_op *op)
{
    static scan_data d;
    const schema_case c = schema_case_of(op->name);
    clt_value *in[CLT_MAX_OPERANDS];
    clt_operand_schema one;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    d.count = schema_operands(graph, &c, op, in);
    for (int i = 0; i < d.count; i++) {
        d.types[i] = in[i]->type;
        fill(&d.types[i], d.data[i]);
    }
    clt_graph_destroy(graph);
    const clt_type floats = {.dtype = CLT_F32, .rank = 1, .dims = {MOST}};
    for (int o = 0; o < CLT_MAX_RESULTS; o++)
        fill(&floats, d.data[CLT_MAX_OPERANDS + o]);
    scan whole = {.parts = 1}, s = {.parts = PARTS};
    add_scan(b, op, &d, &whole);
    add_scan(b, op, &d, &s);
    b->splits[CLT_DIM_SCAN]++;
    int o = 0;
    for (; clt_operator_result(op, o, &one); o++)
        add_scan_result(b, op, o, axis_in(one.dims, *op->scan), whole.out[0][o], s.out[0][o],
                        s.out[1][o]);
    for (int i = 0; i < d.count && clt_operator_operand(op, i, &one); i++)
        add_scan_result(b, op, o + i, axis_in(one.dims, *op->scan), whole.dx[i], s.dx[i * PARTS],
                        s.dx[i * PARTS + 1]);
}

/* --- comparing -------------------------------------------------------------------------------- */

static bool near(float got, float want)
{
    return (isnan(got) && isnan(want)) || fabsf(got - want) <= 1e-4F * (1 + fabsf(want));
}

static void fail_at(const result *r, int64_t i, float got, float want)
{
    fail_msg("%s, result %d, dimension %d is %s: element %lld is %g, not %g", r->op->name,
             r->output, r->label, clt_dim_behaviour_name(r->behaviour), (long long)i, (double)got,
             (double)want);
}

/* Whether row `row` of the whole is row `at` of a part. */
static bool same_row(const bench *b, const result *r, int64_t row, int part, int64_t at)
{
    static float want[MOST], got[MOST];
    const clt_type *whole = &b->types[r->whole], *own = &b->types[part];
    if (at < 0 || at >= own->dims[r->axis])
        return false;
    cut(whole, r->axis, row, 1, (const char *)b->values[r->whole], (char *)want);
    cut(own, r->axis, at, 1, (const char *)b->values[part], (char *)got);
    for (int64_t i = 0; i < clt_type_elements(whole, 1) / whole->dims[r->axis]; i++)
        if (!near(got[i], want[i]))
            return false;
    return true;
}

/* The first part begins with the whole, the last part ends with it. */
static void compare_overlap(const bench *b, const result *r)
{
    const int64_t rows = b->types[r->whole].dims[r->axis];
    const int64_t before = rows - b->types[r->parts[1]].dims[r->axis];
    for (int64_t row = 0; row < rows; row++)
        if (!same_row(b, r, row, r->parts[0], row) &&
            !same_row(b, r, row, r->parts[1], row - before))
            fail_msg("%s, result %d, dimension %d is halo: row %lld of %lld is in no part",
                     r->op->name, r->output, r->label, (long long)row, (long long)rows);
}

static void compare(const bench *b, const result *r)
{
    const clt_type *type = &b->types[r->whole];
    const float *whole = b->values[r->whole];
    static float half[MOST];
    if (type->dtype != CLT_F32)
        return;
    if (r->behaviour == CLT_DIM_HALO && r->axis >= 0) {
        compare_overlap(b, r);
        return;
    }
    const bool added = r->behaviour == CLT_DIM_SUMMED || r->behaviour == CLT_DIM_HALO || r->adds;
    const split s = {.behaviour = r->behaviour, .places = r->places, .blocks = r->blocks};
    for (int p = 0; p < r->places; p++) {
        clt_type part = *type;
        if (r->axis >= 0)
            take_part(&s, type, r->axis, 1, p, (const char *)whole, &part, (char *)half);
        const float *want = r->axis < 0 ? whole : half;
        for (int64_t i = 0; i < clt_type_elements(&part, 1); i++) {
            float got = added ? 0 : b->values[r->parts[p]][i];
            for (int k = 0; added && k < r->places; k++)
                got += b->values[r->parts[k]][i];
            if (!near(got, want[i]))
                fail_at(r, i, got, want[i]);
        }
    }
}

static void run(bench *b)
{
    lab l = lab_on(clt_test_devices("pocl"), NULL);
    clt_predictor *predictor;
    clt_predictor_options options;
    clt_step_batch batch;
    clt_fetch *fetches = calloc((size_t)b->outputs, sizeof *fetches);
    char(*names)[16] = calloc((size_t)b->outputs, sizeof *names);
    assert_true(fetches && names);
    lab_store(&l, b->graph, 1);
    clt_predictor_options_init(&options);
    options.portable = 1;
    ok(clt_predictor_create(b->graph, l.store, &options, &predictor));
    for (int i = 0; i < b->outputs; i++) {
        b->values[i] = calloc((size_t)clt_type_elements(&b->types[i], 1), sizeof(float));
        snprintf(names[i], sizeof names[i], "r%d", i);
        fetches[i] = (clt_fetch){names[i], -1, CLT_HOST(b->values[i])};
    }
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.fetches = fetches;
    batch.n_fetches = b->outputs;
    ok(clt_predictor_run(predictor, &batch, NULL));
    ok(clt_predictor_wait(predictor));
    clt_predictor_destroy(predictor);
    lab_close(&l);
    free(fetches);
    free(names);
}

/* Operators with a split. */
static int operators_of(const bench *b)
{
    const clt_op *seen[NODES];
    int count = 0;
    for (int i = 0; i < b->n_results; i++) {
        int k = 0;
        while (k < count && seen[k] != b->results[i].op)
            k++;
        if (k == count)
            seen[count++] = b->results[i].op;
    }
    return count;
}

static void add_nodes(bench *b, const clt_graph *graph)
{
    for (int k = 0; k < graph->n_nodes; k++)
        if (is_tested(graph->nodes[k]->op)) {
            add_parts(b, graph->nodes[k]);
            b->n_nodes++;
        }
}

/* Convolutions with groups: the schema's letters do not tell their sizes. */
static clt_graph *grouped_conv(int axes)
{
    static const float zeros[MOST];
    const int64_t x_dims[] = {2, 12, 4, 4, 4}, w_dims[] = {6, 2, 3, 3, 3}, o = 6;
    const clt_init init = {CLT_INIT_UNIFORM, 1, 0};
    clt_graph *graph;
    clt_conv2d_options two;
    clt_conv3d_options three;
    clt_conv2d_options_init(&two);
    clt_conv3d_options_init(&three);
    two.groups = three.groups = 6;
    ok(clt_graph_create(&graph));
    clt_value *wanted[] = {clt_parameter(graph, "x", 2 + axes, x_dims, init),
                           clt_parameter(graph, "w", 2 + axes, w_dims, init),
                           clt_parameter(graph, "bias", 1, &o, init)};
    clt_value *y = axes == 2 ? clt_conv2d(wanted[0], wanted[1], wanted[2], &two)
                             : clt_conv3d(wanted[0], wanted[1], wanted[2], &three);
    ok(clt_graph_status(graph));
    clt_value *seed = clt_constant(graph, CLT_F32, y->type.rank, y->type.dims, zeros), *dx[3];
    ok(clt_autodiff(graph, &y, &seed, 1, wanted, 3, dx));
    return graph;
}

/* A tensor is split into parts of one size, and the parts are joined again. */
static clt_graph *split_graph(void)
{
    static const float zeros[MOST];
    const int64_t dims[] = {3, 12};
    const clt_init init = {CLT_INIT_UNIFORM, 1, 0};
    clt_graph *graph;
    clt_value *parts[3], *dx;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_parameter(graph, "x", 2, dims, init);
    ok(clt_chunk(x, 3, 1, parts));
    clt_value *y = clt_concat((clt_value *[]){parts[1], parts[2], parts[0]}, 3, 0);
    clt_value *seed = clt_constant(graph, CLT_F32, 2, y->type.dims, zeros);
    ok(clt_autodiff(graph, &y, &seed, 1, &x, 1, &dx));
    return graph;
}

static void test_dims(void **state)
{
    (void)state;
    static bench b;
    clt_graph *graphs[NODES];
    const int64_t one = 1;
    int n_graphs = 0;
    ok(clt_graph_create(&b.graph));
    clt_output(clt_relu(clt_parameter(b.graph, "p", 1, &one, (clt_init){CLT_INIT_ZERO, 0, 0})),
               "store");
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_op *op = clt_operator_at(i);
        if (!op->callable || !is_tested(op))
            continue;
        graphs[n_graphs++] = graph_of(op, schema_case_of(op->name));
        if (op->scan)
            add_scans(&b, op);
    }
    for (size_t i = 0; i < sizeof more_cases / sizeof *more_cases; i++)
        graphs[n_graphs++] = graph_of(clt_operator_find(more_cases[i].op), more_cases[i]);
    graphs[n_graphs++] = grouped_conv(2);
    graphs[n_graphs++] = grouped_conv(3);
    graphs[n_graphs++] = split_graph();
    for (int i = 0; i < n_graphs; i++)
        add_nodes(&b, graphs[i]);
    assert_true(b.splits[CLT_DIM_PARALLEL] > 200 && b.splits[CLT_DIM_SUMMED] > 30);
    assert_true(b.splits[CLT_DIM_HALO] > 15 && b.splits[CLT_DIM_SCAN] == 2);
    run(&b);
    for (int i = 0; i < b.n_results; i++)
        compare(&b, &b.results[i]);
    printf("%d nodes of %d operators; splits of dimensions: %d parallel, %d summed, %d halo, "
           "%d scan; %d refused\n",
           b.n_nodes, operators_of(&b), b.splits[CLT_DIM_PARALLEL], b.splits[CLT_DIM_SUMMED],
           b.splits[CLT_DIM_HALO], b.splits[CLT_DIM_SCAN], b.refused);
    assert_true(operators_of(&b) > 100);
    for (int i = 0; i < b.outputs; i++)
        free(b.values[i]);
    for (int i = 0; i < n_graphs; i++)
        clt_graph_destroy(graphs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dims)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
