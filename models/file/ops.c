/* The operators of model files by name: the library's operators, layers, and operators with other
 * keys in files than in programs. */
#include <stdlib.h>
#include <string.h>

#include "builders.h"
#include "node.h"

/* --- what the file says in another way ---------------------------------------------------------
 */

static const clt_attribute constant_keys[] = {
    {.name = "number", .kind = CLT_ATTRIBUTE_REAL, .required = 1},
    {.name = "shape",
     .kind = CLT_ATTRIBUTE_INT,
     .count = CLT_MAX_RANK,
     .list = 1,
     .least = 1,
     .most = 1 << 24},
    {0}};

/* A tensor of one number, which broadcasts. With a shape, all its elements are the number. */
static clt_value *build_constant(const model_node *n)
{
    int64_t dims[NODE_LIST] = {1}, elements = 1;
    const int rank = node_list(n, "shape", dims), most = 1 << 24;
    for (int i = 0; i < rank; i++) {
        if (elements * dims[i] > most) {
            model_text_fail(n->text, n->json, "shape", "%s: 'shape' has more than %d elements",
                            n->name, most);
            return NULL;
        }
        elements *= dims[i];
    }
    float *data = malloc((size_t)elements * sizeof *data);
    for (int64_t i = 0; data && i < elements; i++)
        data[i] = (float)node_real(n, "number");
    clt_value *value = data ? clt_constant(n->graph, CLT_F32, rank ? rank : 1, dims, data) : NULL;
    if (!data)
        clt_error_set(CLT_OUT_OF_MEMORY, "memory does not suffice");
    free(data);
    return value;
}

static const clt_attribute pow_keys[] = {{.name = "exponent", .kind = CLT_ATTRIBUTE_REAL}, {0}};

/* The exponent is the second operand or a number. */
static clt_value *build_pow(const model_node *n)
{
    const json_t *exponent = json_object_get(n->json, "exponent");
    if (!exponent == (n->n_in < 2)) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: give the exponent, either as a number or as a second operand",
                        n->name);
        return NULL;
    }
    return exponent ? clt_pow_scalar(n->in[0], json_number_value(exponent))
                    : clt_pow(n->in[0], n->in[1]);
}

static const clt_attribute split_keys[] = {
    {.name = "sizes", .kind = CLT_ATTRIBUTE_INT, .count = NODE_LIST, .list = 1, .required = 1},
    {.name = "part", .kind = CLT_ATTRIBUTE_INT, .required = 1},
    {.name = "axis", .kind = CLT_ATTRIBUTE_INT, .default_value = 1},
    {0}};

/* A node has one value, so it returns one of the parts. Parts that are not used cost nothing. */
static clt_value *build_split(const model_node *n)
{
    int64_t sizes[NODE_LIST];
    clt_value *parts[NODE_LIST];
    const int count = node_list(n, "sizes", sizes), part = (int)node_int(n, "part");
    if (part < 0 || part >= count) {
        model_text_fail(n->text, n->json, "part", "%s: 'part' must be 0 to %d", n->name, count - 1);
        return NULL;
    }
    clt_split_with_sizes(n->in[0], sizes, count, (int)node_int(n, "axis"), parts);
    return parts[part];
}

static const clt_attribute reshape_keys[] = {
    {.name = "shape", .kind = CLT_ATTRIBUTE_INT, .count = CLT_MAX_RANK, .list = 1, .required = 1},
    {0}};

/* The file gives the shape of a sample. If x has a batch dimension, it is added in front. */
static clt_value *build_reshape(const model_node *n)
{
    int64_t dims[NODE_LIST + 1] = {CLT_BATCH};
    const int batched = clt_value_rank(n->in[0]) > 0 && clt_value_dim(n->in[0], 0) < 0;
    const int count = node_list(n, "shape", dims + batched);
    if (count + batched > CLT_MAX_RANK) {
        model_text_fail(n->text, n->json, "shape", "%s: at most %d dimensions", n->name,
                        CLT_MAX_RANK - batched);
        return NULL;
    }
    return clt_reshape(n->in[0], count + batched, dims);
}

static const clt_attribute scale_key[] = {{.name = "scale", .kind = CLT_ATTRIBUTE_REAL}, {0}};

static int prepare_upsample(model_node *n)
{
    return !json_object_get(n->json, "size") || node_has_none(n, scale_key, "'size' says it");
}

static const model_op others[] = {
    {"constant", 0, 0, constant_keys, 0, NULL, build_constant},
    {"pow", 1, 2, pow_keys, 0, NULL, build_pow},
    {"split", 1, 1, split_keys, 0, NULL, build_split},
    {"reshape", 1, 1, reshape_keys, 0, NULL, build_reshape},
    {"upsample2d", 1, 1, NULL, 0, prepare_upsample, NULL},
};

/* --- operators by name -------------------------------------------------------------------------
 */

enum { NAMES = 256, OTHERS = sizeof others / sizeof *others };

/* Losses and metrics have the results sum and weight. */
static int is_mean(const clt_operator *op)
{
    clt_operand_schema first, second;
    return clt_operator_result(op, 0, &first) && !strcmp(first.name, "sum") &&
           clt_operator_result(op, 1, &second) && !strcmp(second.name, "weight");
}

static model_op of_schema(const clt_operator *op)
{
    clt_operand_schema one;
    model_op found = {.name = clt_operator_name(op)};
    for (int i = 0; clt_operator_operand(op, i, &one); i++) {
        found.min_in += !one.optional;
        found.max_in = one.repeated ? CLT_MAX_OPERANDS : i + 1;
    }
    return found;
}

static int find_in(const model_op *list, int count, const char *name, model_op *op)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) {
            *op = list[i];
            return 1;
        }
    return 0;
}

/* Finds an operator of the schema. `means`: a loss or a metric; `differentiable`: no metric without
 * gradient. Otherwise the nearest of these names and the `count` others. */
static int find_in_schema(const char *name, int means, int differentiable, const char **names,
                          int count, model_op *op, const char **near)
{
    for (int i = 0; i < clt_operator_count() && count < NAMES; i++) {
        const clt_operator *one = clt_operator_at(i);
        if (!clt_operator_callable(one) || is_mean(one) != means ||
            (differentiable && !clt_operator_differentiable(one)))
            continue;
        if (!strcmp(clt_operator_name(one), name)) {
            *op = of_schema(one);
            return 1;
        }
        names[count++] = clt_operator_name(one);
    }
    *near = clt_nearest(name, names, count);
    return 0;
}

int model_op_find(const char *name, model_op *op, const char **near)
{
    const char *names[NAMES];
    if (find_in(others, OTHERS, name, op) || find_in(model_layers, model_layer_count, name, op))
        return 1;
    for (int i = 0; i < OTHERS; i++)
        names[i] = others[i].name;
    return find_in_schema(name, 0, 0, names, OTHERS, op, near);
}

clt_value *model_op_build(model_node *node)
{
    const model_op *op = node->op;
    clt_value *results[CLT_MAX_RESULTS];
    if (op->prepare && !op->prepare(node))
        return NULL;
    if (op->build)
        return op->build(node);
    return node_apply(node, op->name, results) == CLT_OK ? results[0] : NULL;
}

/* --- losses and metrics ------------------------------------------------------------------------
 */

/* The mean of any value. */
static const model_op mean = {"mean", 1, 1, NULL, 0, NULL, NULL};

int model_mean_find(const char *name, int is_loss, model_op *op, const char **near)
{
    const char *names[NAMES] = {mean.name};
    return find_in(&mean, 1, name, op) || find_in_schema(name, 1, is_loss, names, 1, op, near);
}

/* Fails early for labels without a logit. Otherwise the first step would fail with NaN. */
static clt_status check_classes(const model_node *n)
{
    const int rank = clt_value_rank(n->in[0]);
    const int64_t logits = n->n_in > 1 && rank > 1 && rank == clt_value_rank(n->in[1]) + 1
                               ? clt_value_dim(n->in[0], 1)
                               : 0;
    if (logits < 1 || logits >= n->in_classes[1])
        return CLT_OK;
    return model_text_fail(n->text, n->json, NULL,
                           "%s: the labels have %lld classes, the logits %lld", n->name,
                           (long long)n->in_classes[1], (long long)logits);
}

static clt_status build_weighted(const model_node *n, clt_value **sum, clt_value **weight)
{
    clt_cross_entropy_options o;
    const int64_t logits = clt_value_rank(n->in[0]) == 2 ? clt_value_dim(n->in[0], 1) : 0;
    if (logits != n->classes || n->in_classes[1] != n->classes)
        return model_text_fail(n->text, n->json, NULL,
                               "%s: weights of %lld classes need logits [batch, %lld] and labels "
                               "with as many classes",
                               n->name, (long long)n->classes, (long long)n->classes);
    clt_cross_entropy_options_init(&o);
    o.label_smoothing = node_real(n, "label_smoothing");
    o.ignore_index = json_object_get(n->json, "ignore_index") ? (int)node_int(n, "ignore_index")
                                                              : n->ignore_index;
    o.class_weights = n->class_weights;
    return clt_cross_entropy(n->in[0], n->in[1], &o, sum, weight);
}

clt_status model_mean_build(model_node *node, clt_value **sum, clt_value **weight)
{
    clt_value *results[CLT_MAX_RESULTS], *unused;
    MODEL_TRY(check_classes(node));
    if (node->class_weights && !strcmp(node->op->name, "cross_entropy"))
        return build_weighted(node, sum, weight);
    if (!strcmp(node->op->name, mean.name)) { /* mse's weight is the number of elements */
        clt_value *x = clt_detach(node->in[0]);
        const clt_status status = clt_mse(x, x, &unused, weight);
        *sum = clt_reduce_sum(node->in[0], NULL, 0, 0);
        return status != CLT_OK ? status : clt_graph_status(node->graph);
    }
    const clt_status status = node_apply(node, node->op->name, results);
    *sum = results[0];
    *weight = results[1];
    return status;
}
