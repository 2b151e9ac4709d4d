/* Layers of model files. If the file gives only the operand x, the operator creates its parameters
 * as "NAME.weight" and "NAME.bias". */
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "builders.h"
#include "node.h"

static clt_value *parameter(const model_node *n, const char *kind, int rank, const int64_t *dims,
                            clt_init init)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", n->prefix, kind);
    return clt_model_parameter(n->graph, name, rank, dims, init);
}

static void add_operand(model_node *n, clt_value *value)
{
    n->in[n->n_in++] = value;
}

/* --- linear and convolutions ------------------------------------------------------------------ */

#define OUT_KEY                                                                                    \
    {                                                                                              \
        .name = "out", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = INT_MAX                      \
    }
#define BIAS_KEY                                                                                   \
    {                                                                                              \
        .name = "bias", .kind = CLT_ATTRIBUTE_FLAG, .default_value = 1                             \
    }
#define KERNEL_KEY(COUNT)                                                                          \
    {                                                                                              \
        .name = "kernel", .kind = CLT_ATTRIBUTE_INT, .count = COUNT, .least = 1, .most = INT_MAX   \
    }
static const clt_attribute linear_keys[] = {OUT_KEY, BIAS_KEY, {0}};
static const clt_attribute conv1d_keys[] = {OUT_KEY, KERNEL_KEY(0), BIAS_KEY, {0}};
static const clt_attribute conv2d_keys[] = {OUT_KEY, KERNEL_KEY(2), BIAS_KEY, {0}};
static const clt_attribute conv3d_keys[] = {OUT_KEY, KERNEL_KEY(3), BIAS_KEY, {0}};

/* The size of x's dimension that `letter` names in the schema; 0 if x has none. */
static int64_t size_in_x(const model_node *n, const char *dims, char letter)
{
    const char *at = strchr(dims, letter);
    const int rank = clt_value_rank(n->in[0]);
    if (!at)
        return 0;
    return clt_value_dim(n->in[0], dims[0] == '*' ? rank - (int)strlen(at) : (int)(at - dims));
}

/* Initialises weight and bias as PyTorch does. The weight's second dimension, which belongs to one
 * group, counts as the number of inputs. */
static int prepare_product(model_node *n)
{
    const clt_attribute *keys = n->op->keys;
    const clt_operator *schema = clt_operator_find(n->op->name);
    clt_operand_schema x, weight;
    int64_t dims[CLT_MAX_RANK], kernel[NODE_LIST], out = node_int(n, "out");
    const int given = node_list(n, "kernel", kernel), rank = clt_value_rank(n->in[0]);
    clt_operator_operand(schema, 0, &x);
    clt_operator_operand(schema, 1, &weight);
    if (n->n_in > 1)
        return node_has_none(n, keys, "the operands are its parameters");
    if (!out || (keys != linear_keys && !given)) {
        model_text_fail(n->text, n->json, NULL, "%s: give 'out'%s, or the weight as an operand",
                        n->name, keys != linear_keys ? " and 'kernel'" : "");
        return 0;
    }
    if (x.dims[0] == '*' ? rank < 1 : rank != (int)strlen(x.dims)) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: the operand has %d dimensions, the batch among them, and must have %d",
                        n->name, rank, (int)strlen(x.dims));
        return 0;
    }
    double fan_in = 1;
    int windows = 0;
    for (int i = 0; weight.dims[i]; i++) {
        const int64_t of_x = size_in_x(n, x.dims, weight.dims[i]);
        dims[i] = of_x ? of_x : weight.dims[i] == 'o' ? out : kernel[given > 1 ? windows++ : 0];
        if (i == 1 && keys != linear_keys)
            dims[i] /= node_int(n, "groups");
        fan_in *= i ? (double)dims[i] : 1;
    }
    const clt_init init = {CLT_INIT_UNIFORM, fan_in > 0 ? 1 / sqrt(fan_in) : 0, 0};
    add_operand(n, parameter(n, "weight", (int)strlen(weight.dims), dims, init));
    if (node_int(n, "bias"))
        add_operand(n, parameter(n, "bias", 1, &out, init));
    return 1;
}

/* --- norms ------------------------------------------------------------------------------------ */

static const clt_init zeros = {CLT_INIT_ZERO, 0, 0}, ones = {CLT_INIT_CONSTANT, 1, 0};

/* Parameters over the last axes, with the sizes of these axes. */
static int prepare_last(model_node *n, bool bias)
{
    const int rank = clt_value_rank(n->in[0]), axes = (int)node_int(n, "axes");
    int64_t dims[CLT_MAX_RANK] = {1};
    for (int i = 0; i < axes && i < rank; i++)
        dims[i] = clt_value_dim(n->in[0], rank - (axes < rank ? axes : rank) + i);
    add_operand(n, parameter(n, "weight", axes, dims, ones));
    if (bias)
        add_operand(n, parameter(n, "bias", axes, dims, zeros));
    return 1;
}

static int prepare_layer_norm(model_node *n)
{
    return prepare_last(n, true);
}

static int prepare_rms_norm(model_node *n)
{
    return prepare_last(n, false);
}

static int64_t channels_of(const model_node *n)
{
    return clt_value_rank(n->in[0]) > 1 ? clt_value_dim(n->in[0], 1) : 1;
}

static int prepare_channels(model_node *n)
{
    const int64_t channels = channels_of(n);
    add_operand(n, parameter(n, "weight", 1, &channels, ones));
    add_operand(n, parameter(n, "bias", 1, &channels, zeros));
    return 1;
}

/* torch.nn.InstanceNorm2d has weight and bias only if `affine` is set. */
static const clt_attribute instance_keys[] = {{.name = "affine", .kind = CLT_ATTRIBUTE_FLAG}, {0}};

static int prepare_instance(model_node *n)
{
    return !node_int(n, "affine") || prepare_channels(n);
}

static int prepare_batch_norm(model_node *n)
{
    static const char *const names[] = {"running_mean", "running_var", "num_batches_tracked"};
    const int64_t channels = channels_of(n);
    prepare_channels(n);
    for (int i = 0; i < 3; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s.%s", n->prefix, names[i]);
        add_operand(n, clt_state(n->graph, name, i < 2 ? CLT_F32 : CLT_I32, i < 2, &channels,
                                 i == 1 ? ones : zeros));
    }
    return 1;
}

/* --- embedding and recurrent layers ------------------------------------------------------------
 */

static const clt_attribute embedding_keys[] = {
    {.name = "count", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = INT_MAX},
    {.name = "width", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = INT_MAX},
    {0}};

static int prepare_embedding(model_node *n)
{
    const int64_t dims[] = {node_int(n, "count"), node_int(n, "width")};
    if (n->n_in == 1 && (!dims[0] || !dims[1])) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: give 'count' and 'width', or the weight as an operand", n->name);
        return 0;
    }
    if (n->n_in > 1 && !node_has_none(n, embedding_keys, "the operands are its parameters"))
        return 0;
    if (n->n_in == 1) /* the initialisation of torch.nn.Embedding */
        add_operand(n, parameter(n, "weight", 2, dims, (clt_init){CLT_INIT_NORMAL, 0, 1}));
    const int64_t rows = n->in[1] && clt_value_rank(n->in[1]) ? clt_value_dim(n->in[1], 0) : 0;
    if (rows < 1 || rows >= n->in_classes[0])
        return 1;
    model_text_fail(n->text, n->json, NULL, "%s: %lld rows, but the tokens have %lld numbers",
                    n->name, (long long)rows, (long long)n->in_classes[0]);
    return 0;
}

static const clt_attribute recurrent_keys[] = {
    {.name = "hidden", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = INT_MAX, .required = 1},
    {.name = "layers", .kind = CLT_ATTRIBUTE_INT, .least = 1, .most = INT_MAX, .default_value = 1},
    {.name = "bidirectional", .kind = CLT_ATTRIBUTE_FLAG},
    {.name = "dropout", .kind = CLT_ATTRIBUTE_REAL, .most = 1},
    {0}};

typedef clt_value *(*recurrent_layer)(clt_graph *graph, clt_value *x, const char *name,
                                      clt_layer_recurrent *layer);

static clt_value *build_recurrent(const model_node *n, recurrent_layer add)
{
    clt_layer_recurrent layer = {.hidden = node_int(n, "hidden"),
                                 .layers = (int)node_int(n, "layers"),
                                 .bidirectional = (int)node_int(n, "bidirectional"),
                                 .dropout = node_real(n, "dropout")};
    clt_value *y = add(n->graph, n->in[0], n->prefix, &layer);
    if (!y && clt_graph_status(n->graph) == CLT_OK)
        model_text_fail(n->text, n->json, NULL, "%s: so many layers are not possible", n->name);
    return y;
}

static clt_value *build_lstm(const model_node *n)
{
    return build_recurrent(n, clt_layer_lstm);
}

static clt_value *build_gru(const model_node *n)
{
    return build_recurrent(n, clt_layer_gru);
}

const model_op model_layers[] = {
    {"linear", 1, 3, linear_keys, 1, prepare_product, NULL},
    {"conv1d", 1, 3, conv1d_keys, 1, prepare_product, NULL},
    {"conv2d", 1, 3, conv2d_keys, 1, prepare_product, NULL},
    {"conv3d", 1, 3, conv3d_keys, 1, prepare_product, NULL},
    {"conv_transpose1d", 1, 3, conv1d_keys, 1, prepare_product, NULL},
    {"conv_transpose2d", 1, 3, conv2d_keys, 1, prepare_product, NULL},
    {"batch_norm", 1, 1, NULL, 1, prepare_batch_norm, NULL},
    {"layer_norm", 1, 1, NULL, 1, prepare_layer_norm, NULL},
    {"rms_norm", 1, 1, NULL, 1, prepare_rms_norm, NULL},
    {"group_norm", 1, 1, NULL, 1, prepare_channels, NULL},
    {"instance_norm", 1, 1, instance_keys, 1, prepare_instance, NULL},
    {"embedding", 1, 2, embedding_keys, 1, prepare_embedding, NULL},
    {"lstm", 1, 1, recurrent_keys, 1, NULL, build_lstm},
    {"gru", 1, 1, recurrent_keys, 1, NULL, build_gru},
};
const int model_layer_count = sizeof model_layers / sizeof *model_layers;
