/* Dimensions behave as the schema says. Every operator and its gradient operators are computed on
 * whole operands and on operands split along each dimension. The parts of a result must equal the
 * whole: side by side for a parallel dimension, added for a summed one. */
#include "train/lab.h"

#include "ops/core/ops.h"
#include "ops/schema_cases.h"
#include "passes/passes.h"
#include <cltrain/predict.h>

enum { NODES = 512, OUTPUTS = 8192, PARTS = 2, MOST = 1 << 14 };

/* Where a result went: output `whole`, or the parts of it along a dimension. */
typedef struct result {
    const clt_node *node;
    int label, output;
    clt_dim_behaviour behaviour;
    int names[PARTS], whole; /* numbers of outputs */
} result;

typedef struct bench {
    clt_graph *graph; /* with all nodes, whole and in parts, on constants */
    int outputs, n_results;
    result results[OUTPUTS];
    float *values[OUTPUTS];
    clt_type types[OUTPUTS];
    int splits[5]; /* by behaviour */
} bench;

/* --- the nodes -------------------------------------------------------------------------------- */

/* A graph of an operator with its gradients. */
static clt_graph *graph_of(const clt_op *op)
{
    static const float zeros[MOST];
    const schema_case c = schema_case_of(op->name);
    clt_value *in[CLT_MAX_OPERANDS], *out[CLT_MAX_RESULTS], *seeds[CLT_MAX_RESULTS];
    clt_value *wanted[CLT_MAX_OPERANDS], *dx[CLT_MAX_OPERANDS];
    clt_graph *graph;
    int n_wanted = 0, n_out = 0;
    ok(clt_graph_create(&graph));
    const int count = schema_operands(graph, &c, op, in);
    ok(clt_apply_text(graph, op->name, in, count, c.attributes, out));
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

/* --- parts of operands ------------------------------------------------------------------------ */

static uint64_t random_state = 1;

static void fill(const clt_type *type, char *data)
{
    const int64_t count = clt_type_elements(type, 1);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t bits = (uint32_t)(random_state >> 33);
        if (type->dtype == CLT_F32)
            ((float *)(void *)data)[i] = 0.25f + (float)(bits % 1000) / 1000;
        else if (type->dtype == CLT_I32)
            ((int32_t *)(void *)data)[i] = (int32_t)(bits % 4);
        else
            data[i] = (char)(bits % 2);
    }
}

/* Halves of a dimension of an array: from `data` into `part`, of another type. */
static void cut(const clt_type *type, int axis, int half, const char *data, char *part)
{
    const size_t bytes = (size_t)clt_dtype_size(type->dtype);
    size_t outer = 1, inner = bytes;
    for (int k = 0; k < axis; k++)
        outer *= (size_t)type->dims[k];
    for (int k = axis + 1; k < type->rank; k++)
        inner *= (size_t)type->dims[k];
    const size_t row = (size_t)type->dims[axis] / PARTS * inner;
    for (size_t i = 0; i < outer; i++)
        memcpy(part + i * row, data + (i * PARTS + (size_t)half) * row, row);
}

static int axis_of(const signed char *labels, int rank, int label)
{
    for (int k = 0; k < rank; k++)
        if (labels[k] == label)
            return k;
    return -1;
}

/* The attributes of a part: types and shapes are those of its result. */
static void cut_attributes(const clt_node *node, const clt_node_dims *dims, int label, char *attr)
{
    memcpy(attr, node->attr ? node->attr : "", node->op->attr_bytes);
    for (const clt_attribute *a = node->op->attributes; a && a->name; a++) {
        const int axis = label < 0 ? -1 : axis_of(dims->out[0], node->out[0]->type.rank, label);
        if (axis >= 0 && a->kind == CLT_ATTRIBUTE_TYPE)
            ((clt_type *)(void *)(attr + a->offset))->dims[axis] /= PARTS;
        else if (axis >= 0 && !strcmp(node->op->name, "reshape"))
            ((int64_t *)(void *)(attr + a->offset))[axis] /= PARTS;
    }
}

/* Adds the node on constants: `half` of `label`, or whole for label -1. Returns the number of its
 * first output. */
static int add_node(bench *b, const clt_node *node, const clt_node_dims *dims, int label, int half,
                    char (*data)[4 * MOST])
{
    static char part[4 * MOST], attr[4096];
    clt_value *in[CLT_MAX_OPERANDS] = {NULL};
    assert_true(node->op->attr_bytes <= sizeof attr);
    cut_attributes(node, dims, label, attr);
    for (int i = 0; i < node->n_in; i++) {
        clt_operand_schema one;
        if (!node->in[i])
            continue;
        clt_type type = node->in[i]->type;
        const int axis = label < 0 ? -1 : axis_of(dims->in[i], type.rank, label);
        memcpy(part, data[i], sizeof part);
        if (axis >= 0) {
            cut(&node->in[i]->type, axis, half, data[i], part);
            type.dims[axis] /= PARTS;
        }
        if (label >= 0 && half && clt_operand_at(node->op->operands, i, &one) && one.once &&
            dims->behaviour[label] == CLT_DIM_SUMMED)
            memset(part, 0, sizeof part);
        in[i] = clt_constant(b->graph, type.dtype, type.rank, type.dims, part);
    }
    const clt_node *added = clt_graph_add(b->graph, node->op, in, node->n_in, attr);
    if (!added)
        fail_msg("%s, half %d of dimension %d: %s", node->op->name, half, label,
                 clt_error_message());
    for (int o = 0; o < added->n_out; o++) {
        char name[32];
        b->types[b->outputs + o] = added->out[o]->type;
        snprintf(name, sizeof name, "r%d", b->outputs + o);
        /* A view of a constant is no result of its own. */
        clt_output(node->op->view ? clt_copy(added->out[o]) : added->out[o], name);
    }
    b->outputs += added->n_out;
    assert_true(b->outputs < OUTPUTS);
    return b->outputs - added->n_out;
}

static bool can_split(const clt_node *node, const clt_node_dims *dims, int label)
{
    bool found = false;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const bool is_result = i >= node->n_in;
        const clt_value *value = is_result ? node->out[i - node->n_in] : node->in[i];
        const int axis = !value ? -1
                                : axis_of(is_result ? dims->out[i - node->n_in] : dims->in[i],
                                          value->type.rank, label);
        if (axis >= 0 && value->type.dims[axis] % PARTS)
            return false;
        found = found || axis >= 0;
    }
    return found;
}

/* The node whole, and in parts along every dimension that allows it. */
static void add_parts(bench *b, const clt_node *node)
{
    static char data[CLT_MAX_OPERANDS][4 * MOST];
    clt_node_dims dims;
    clt_node_dims_of(node, &dims);
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i])
            fill(&node->in[i]->type, data[i]);
        if (i && node->op == &clt_op_resample2d) /* its tables */
            memcpy(data[i], node->in[i]->data,
                   (size_t)clt_type_elements(&node->in[i]->type, 1) * sizeof(float));
    }
    const int whole = add_node(b, node, &dims, -1, 0, data);
    for (int label = 0; label < CLT_DIM_LABELS; label++) {
        const clt_dim_behaviour behaviour = dims.behaviour[label];
        if ((behaviour != CLT_DIM_PARALLEL && behaviour != CLT_DIM_SUMMED) ||
            !can_split(node, &dims, label))
            continue;
        const int parts[PARTS] = {add_node(b, node, &dims, label, 0, data),
                                  add_node(b, node, &dims, label, 1, data)};
        b->splits[behaviour]++;
        for (int o = 0; o < node->n_out; o++)
            b->results[b->n_results++] = (result){.node = node,
                                                  .label = label,
                                                  .output = o,
                                                  .behaviour = behaviour,
                                                  .names = {parts[0] + o, parts[1] + o},
                                                  .whole = whole + o};
    }
}

/* --- comparing -------------------------------------------------------------------------------- */

static void compare(const bench *b, const result *r)
{
    const clt_type *type = &b->types[r->whole];
    const int64_t count = clt_type_elements(type, 1);
    clt_node_dims dims;
    clt_node_dims_of(r->node, &dims);
    const int axis = axis_of(dims.out[r->output], type->rank, r->label);
    const bool added = r->behaviour == CLT_DIM_SUMMED;
    const float *whole = b->values[r->whole];
    static char cuts[PARTS][4 * MOST];
    if (type->dtype != CLT_F32)
        return;
    for (int p = 0; p < PARTS; p++)
        if (axis >= 0)
            cut(type, axis, p, (const char *)whole, cuts[p]);
    for (int p = 0; p < PARTS; p++) {
        const float *part = b->values[r->names[p]];
        const float *want = axis >= 0 ? (const float *)(const void *)cuts[p] : whole;
        for (int64_t i = 0; i < (axis >= 0 ? count / PARTS : count); i++) {
            const double got =
                added ? (double)b->values[r->names[0]][i] + (double)b->values[r->names[1]][i]
                      : (double)part[i];
            if (isnan(got) && isnan(want[i]))
                continue;
            if (!(fabs(got - (double)want[i]) <= 1e-4 * (1 + fabs((double)want[i]))))
                fail_msg("%s, result %d, dimension %d is %s: element %lld is %g, not %g",
                         r->node->op->name, r->output, r->label,
                         clt_dim_behaviour_name(r->behaviour), (long long)i, got, (double)want[i]);
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
        fetches[i] = (clt_fetch){names[i], -1, b->values[i], NULL, 0, 0};
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
        while (k < count && seen[k] != b->results[i].node->op)
            k++;
        if (k == count)
            seen[count++] = b->results[i].node->op;
    }
    return count;
}

static void test_dims(void **state)
{
    (void)state;
    static bench b;
    clt_graph *graphs[NODES];
    const int64_t one = 1;
    int n_graphs = 0, n_nodes = 0;
    ok(clt_graph_create(&b.graph));
    clt_output(clt_relu(clt_parameter(b.graph, "p", 1, &one, (clt_init){CLT_INIT_ZERO, 0, 0})),
               "store");
    for (int i = 0; i < clt_operator_count(); i++) {
        const clt_op *op = clt_operator_at(i);
        if (!op->callable || !is_tested(op))
            continue;
        clt_graph *graph = graphs[n_graphs++] = graph_of(op);
        for (int k = 0; k < graph->n_nodes; k++)
            if (is_tested(graph->nodes[k]->op)) {
                add_parts(&b, graph->nodes[k]);
                n_nodes++;
            }
    }
    assert_true(b.splits[CLT_DIM_PARALLEL] > 200 && b.splits[CLT_DIM_SUMMED] > 30);
    run(&b);
    for (int i = 0; i < b.n_results; i++)
        compare(&b, &b.results[i]);
    printf("%d nodes of %d operators; %d splits of parallel and %d of summed dimensions\n", n_nodes,
           operators_of(&b), b.splits[CLT_DIM_PARALLEL], b.splits[CLT_DIM_SUMMED]);
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
