/* The operators of model files by name. Layers make parameters of their own, "NAME.weight" and
 * "NAME.bias", where only x is given; given as further operands, those are used. */
#include <string.h>

#include "node.h"

/* --- layers ---------------------------------------------------------------------------------- */

static const char GIVEN[] = "the operands are its parameters";

/* With its parameters as operands a layer has its sizes from them. */
static clt_value *wants_out(const model_node *n)
{
    model_text_fail(n->text, n->json, NULL,
                    "%s: give 'out' (and what else the layer takes), or the weight as an operand",
                    n->name);
    return NULL;
}

static clt_value *build_linear(const model_node *n)
{
    if (n->n_in > 1)
        return node_has_none(n, "out bias parameters", GIVEN)
                   ? clt_linear(n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : NULL)
                   : NULL;
    const int64_t out = node_int(n, "out", 0);
    return out ? clt_layer_linear_with(n->graph, n->in[0], n->prefix, out,
                                       (int)node_int(n, "bias", 1))
               : wants_out(n);
}

static clt_value *build_conv2d(const model_node *n)
{
    clt_conv2d_options o;
    int kernel[2];
    clt_conv2d_options_init(&o);
    node_pair(n, "stride", o.stride, 1);
    node_pair(n, "padding", o.padding, 0);
    node_pair(n, "dilation", o.dilation, 1);
    node_pair(n, "kernel", kernel, 0);
    o.groups = (int)node_int(n, "groups", 1);
    if (n->n_in > 1)
        return node_has_none(n, "out kernel bias parameters", GIVEN)
                   ? clt_conv2d(n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : NULL, &o)
                   : NULL;
    const int64_t out = node_int(n, "out", 0);
    return out && kernel[0] ? clt_layer_conv2d_with(n->graph, n->in[0], n->prefix, out, kernel,
                                                    (int)node_int(n, "bias", 1), &o)
                            : wants_out(n);
}

/* --- pooling --------------------------------------------------------------------------------- */

static void read_pool(const model_node *n, clt_pool2d_options *o)
{
    clt_pool2d_options_init(o);
    node_pair(n, "kernel", o->kernel, 2);
    node_pair(n, "stride", o->stride, 0);
    node_pair(n, "padding", o->padding, 0);
    node_pair(n, "dilation", o->dilation, 1);
    o->ceil_mode = (int)node_int(n, "ceil_mode", 0);
    o->count_include_pad = (int)node_int(n, "count_include_pad", 1);
}

static clt_value *build_avg_pool2d(const model_node *n)
{
    clt_pool2d_options o;
    read_pool(n, &o);
    return clt_avg_pool2d(n->in[0], &o);
}

static clt_value *build_max_pool2d(const model_node *n)
{
    clt_pool2d_options o;
    read_pool(n, &o);
    return clt_max_pool2d(n->in[0], &o);
}

static clt_value *build_adaptive_avg_pool2d(const model_node *n)
{
    int size[2];
    node_pair(n, "size", size, 1);
    return clt_adaptive_avg_pool2d(n->in[0], size[0], size[1]);
}

static clt_value *build_upsample2d(const model_node *n)
{
    clt_upsample2d_options o;
    clt_upsample2d_options_init(&o);
    if (json_object_get(n->json, "size") && !node_has_none(n, "scale", "'size' says it"))
        return NULL;
    node_pair(n, "size", o.size, 0);
    o.scale[0] = o.scale[1] = node_real(n, "scale", 2);
    o.mode = node_int(n, "bilinear", 0) ? CLT_UPSAMPLE_BILINEAR : CLT_UPSAMPLE_NEAREST;
    o.align_corners = (int)node_int(n, "align_corners", 0);
    return clt_upsample2d(n->in[0], &o);
}

/* --- norms, attention, recurrent layers --------------------------------------------------------
 */

static clt_value *build_batch_norm(const model_node *n)
{
    clt_batch_norm_options o;
    clt_batch_norm_options_init(&o);
    o.eps = node_real(n, "eps", CLT_NORM_EPS);
    o.momentum = node_real(n, "momentum", 0.1);
    o.synchronised = (int)node_int(n, "synchronised", 0);
    return clt_layer_batch_norm(n->graph, n->in[0], n->prefix, &o);
}

static clt_value *build_layer_norm(const model_node *n)
{
    return clt_layer_layer_norm(n->graph, n->in[0], n->prefix, node_real(n, "eps", CLT_NORM_EPS));
}

static clt_value *build_embedding(const model_node *n)
{
    const int64_t dims[] = {node_int(n, "count", 0), node_int(n, "width", 0)};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 1}; /* torch.nn.Embedding's */
    if (n->n_in == 1 && (!dims[0] || !dims[1])) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: give 'count' and 'width', or the weight as an operand", n->name);
        return NULL;
    }
    if (n->n_in > 1 && !node_has_none(n, "count width parameters", GIVEN))
        return NULL;
    clt_value *weight = n->n_in > 1 ? n->in[1] : node_parameter(n, "weight", 2, dims, normal);
    const int64_t rows = weight ? clt_value_dim(weight, 0) : 0;
    if (rows > 0 && rows < n->in_classes[0]) {
        model_text_fail(n->text, n->json, NULL, "%s: %lld rows, but the tokens have %lld numbers",
                        n->name, (long long)rows, (long long)n->in_classes[0]);
        return NULL;
    }
    return clt_embedding(n->in[0], weight, CLT_NO_PADDING);
}

/* One operand: packed rows of q, k and v; three: as torch.nn.MultiheadAttention projects them; the
 * fourth: what is added to the scores. */
static clt_value *build_attention(const model_node *n)
{
    clt_attention_options o;
    clt_attention_options_init(&o);
    const int heads = (int)node_int(n, "heads", 1);
    o.is_causal = (int)node_int(n, "causal", 0);
    o.dropout = node_real(n, "dropout", 0);
    o.attn_mask = n->n_in > 3 ? n->in[3] : NULL;
    return n->n_in == 1
               ? clt_attention_packed(n->in[0], heads, 0, &o)
               : clt_attention(n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : n->in[1], heads, &o);
}

static clt_value *build_recurrent(const model_node *n, int gru)
{
    clt_layer_recurrent layer = {.hidden = node_int(n, "hidden", 0),
                                 .layers = (int)node_int(n, "layers", 1),
                                 .bidirectional = (int)node_int(n, "bidirectional", 0),
                                 .dropout = node_real(n, "dropout", 0)};
    clt_value *y = gru ? clt_layer_gru(n->graph, n->in[0], n->prefix, &layer)
                       : clt_layer_lstm(n->graph, n->in[0], n->prefix, &layer);
    if (!y && clt_graph_status(n->graph) == CLT_OK)
        model_text_fail(n->text, n->json, NULL, "%s: so many layers are not possible", n->name);
    return y;
}

static clt_value *build_lstm(const model_node *n)
{
    return build_recurrent(n, 0);
}

static clt_value *build_gru(const model_node *n)
{
    return build_recurrent(n, 1);
}

/* --- element by element ---------------------------------------------------------------------- */

MODEL_UNARY(relu)
MODEL_UNARY(sigmoid)
MODEL_UNARY(tanh)
MODEL_UNARY(gelu)
MODEL_UNARY(gelu_tanh)
MODEL_UNARY(silu)
MODEL_UNARY(exp)
MODEL_UNARY(sqrt)
MODEL_UNARY(abs)
MODEL_UNARY(flatten)
MODEL_BINARY(add)
MODEL_BINARY(sub)
MODEL_BINARY(mul)
MODEL_BINARY(div)
MODEL_BINARY(swiglu)

static clt_value *build_leaky_relu(const model_node *n)
{
    return clt_leaky_relu(n->in[0], node_real(n, "slope", 0.01));
}

static clt_value *build_scale(const model_node *n)
{
    return clt_scale(n->in[0], node_real(n, "factor", 1));
}

static clt_value *build_add_scalar(const model_node *n)
{
    return clt_add_scalar(n->in[0], node_real(n, "term", 0));
}

static clt_value *build_dropout(const model_node *n)
{
    return clt_dropout(n->in[0], node_real(n, "p", 0.5));
}

/* --- products, reductions, shapes ------------------------------------------------------------- */

static clt_value *build_matmul(const model_node *n)
{
    return clt_matmul(n->in[0], n->in[1], (int)node_int(n, "trans_a", 0),
                      (int)node_int(n, "trans_b", 0));
}

static clt_value *build_softmax(const model_node *n)
{
    return clt_softmax(n->in[0], (int)node_int(n, "axis", -1));
}

static clt_value *build_log_softmax(const model_node *n)
{
    return clt_log_softmax(n->in[0], (int)node_int(n, "axis", -1));
}

#define REDUCTION(NAME)                                                                            \
    static clt_value *build_##NAME(const model_node *n)                                            \
    {                                                                                              \
        int axes[NODE_LIST];                                                                       \
        const int count = node_ints(n, "axes", axes);                                              \
        return clt_##NAME(n->in[0], axes, count, (int)node_int(n, "keepdims", 0));                 \
    }
REDUCTION(reduce_sum)
REDUCTION(reduce_mean)
REDUCTION(reduce_max)

/* The shape of a sample, in the file; the batch stands in front where x has one. */
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

/* As many entries as x has dimensions, or a message. */
static int list_of_rank(const model_node *n, const char *name, int64_t *list, int64_t otherwise)
{
    const int rank = clt_value_rank(n->in[0]), count = node_list(n, name, list);
    if (!count)
        for (int i = 0; i < rank; i++)
            list[i] = otherwise;
    if (!count || count == rank)
        return 1;
    model_text_fail(n->text, n->json, name, "%s: '%s' has %d entries, and x has %d dimensions",
                    n->name, name, count, rank);
    return 0;
}

static clt_value *build_transpose(const model_node *n)
{
    int64_t wide[NODE_LIST];
    int permutation[NODE_LIST];
    if (!list_of_rank(n, "permutation", wide, 0))
        return NULL;
    node_ints(n, "permutation", permutation);
    return clt_transpose(n->in[0], permutation);
}

static clt_value *build_concat(const model_node *n)
{
    return clt_concat(n->in, n->n_in, (int)node_int(n, "axis", 1));
}

static clt_value *build_slice(const model_node *n)
{
    int64_t start[NODE_LIST], stop[NODE_LIST], step[NODE_LIST];
    if (!list_of_rank(n, "start", start, 0) || !list_of_rank(n, "stop", stop, CLT_TO_END) ||
        !list_of_rank(n, "step", step, 1))
        return NULL;
    return clt_slice(n->in[0], start, stop, step);
}

static clt_value *build_pad(const model_node *n)
{
    int64_t before[NODE_LIST], after[NODE_LIST];
    if (!list_of_rank(n, "before", before, 0) || !list_of_rank(n, "after", after, 0))
        return NULL;
    return clt_pad(n->in[0], before, after, node_real(n, "value", 0));
}

#define CONV                                                                                       \
    MODEL_OWN "out:count kernel:pair bias:flag stride:pair padding:pair dilation:pair "            \
              "groups:count"
#define POOL "kernel:pair stride:pair padding:pair ceil_mode:flag "

static const model_op ops[] = {
    {"linear", 1, 3, MODEL_OWN "out:count bias:flag", build_linear},
    {"conv2d", 1, 3, CONV, build_conv2d},
    {"avg_pool2d", 1, 1, POOL "count_include_pad:flag", build_avg_pool2d},
    {"max_pool2d", 1, 1, POOL "dilation:pair", build_max_pool2d},
    {"adaptive_avg_pool2d", 1, 1, "size:pair", build_adaptive_avg_pool2d},
    {"upsample2d", 1, 1, "size:pair scale:real bilinear:flag align_corners:flag", build_upsample2d},
    {"batch_norm", 1, 1, MODEL_OWN "eps:real momentum:real synchronised:flag", build_batch_norm},
    {"layer_norm", 1, 1, MODEL_OWN "eps:real", build_layer_norm},
    {"embedding", 1, 2, MODEL_OWN "count:count width:count", build_embedding},
    {"attention", 1, 4, "heads:count! causal:flag dropout:real", build_attention},
    {"lstm", 1, 1, MODEL_OWN "hidden:count! layers:count bidirectional:flag dropout:real",
     build_lstm},
    {"gru", 1, 1, MODEL_OWN "hidden:count! layers:count bidirectional:flag dropout:real",
     build_gru},
    {"relu", 1, 1, "", build_relu},
    {"leaky_relu", 1, 1, "slope:real", build_leaky_relu},
    {"sigmoid", 1, 1, "", build_sigmoid},
    {"tanh", 1, 1, "", build_tanh},
    {"gelu", 1, 1, "", build_gelu},
    {"gelu_tanh", 1, 1, "", build_gelu_tanh},
    {"silu", 1, 1, "", build_silu},
    {"swiglu", 2, 2, "", build_swiglu},
    {"exp", 1, 1, "", build_exp},
    {"sqrt", 1, 1, "", build_sqrt},
    {"abs", 1, 1, "", build_abs},
    {"add", 2, 2, "", build_add},
    {"sub", 2, 2, "", build_sub},
    {"mul", 2, 2, "", build_mul},
    {"div", 2, 2, "", build_div},
    {"scale", 1, 1, "factor:real!", build_scale},
    {"add_scalar", 1, 1, "term:real!", build_add_scalar},
    {"dropout", 1, 1, "p:real", build_dropout},
    {"matmul", 2, 2, "trans_a:flag trans_b:flag", build_matmul},
    {"softmax", 1, 1, "axis:int", build_softmax},
    {"log_softmax", 1, 1, "axis:int", build_log_softmax},
    {"reduce_sum", 1, 1, "axes:ints keepdims:flag", build_reduce_sum},
    {"reduce_mean", 1, 1, "axes:ints keepdims:flag", build_reduce_mean},
    {"reduce_max", 1, 1, "axes:ints keepdims:flag", build_reduce_max},
    {"flatten", 1, 1, "", build_flatten},
    {"reshape", 1, 1, "shape:ints!", build_reshape},
    {"transpose", 1, 1, "permutation:ints!", build_transpose},
    {"concat", 1, NODE_OPERANDS, "axis:int", build_concat},
    {"slice", 1, 1, "start:ints stop:ends step:ints", build_slice},
    {"pad", 1, 1, "before:ints after:ints value:real", build_pad},
};

/* --- losses and metrics ----------------------------------------------------------------------- */

/* Labels beyond the logits would be found by the guard of the first step, as NaN. */
static clt_status check_classes(const model_node *n)
{
    const int rank = clt_value_rank(n->in[0]);
    const int64_t logits =
        rank > 1 && rank == clt_value_rank(n->in[1]) + 1 ? clt_value_dim(n->in[0], 1) : 0;
    if (logits < 1 || logits >= n->in_classes[1])
        return CLT_OK;
    return model_text_fail(n->text, n->json, NULL,
                           "%s: the labels have %lld classes, the logits %lld", n->name,
                           (long long)n->in_classes[1], (long long)logits);
}

static clt_status build_cross_entropy(const model_node *n, clt_value **sum, clt_value **weight)
{
    clt_cross_entropy_options o;
    const clt_status status = check_classes(n);
    if (status != CLT_OK)
        return status;
    clt_cross_entropy_options_init(&o);
    o.label_smoothing = node_real(n, "label_smoothing", 0);
    o.ignore_index = n->ignore_index;
    return clt_cross_entropy(n->in[0], n->in[1], &o, sum, weight);
}

static clt_status build_mse(const model_node *n, clt_value **sum, clt_value **weight)
{
    return clt_mse(n->in[0], n->in[1], sum, weight);
}

static clt_status build_huber(const model_node *n, clt_value **sum, clt_value **weight)
{
    return clt_huber(n->in[0], n->in[1], node_real(n, "delta", 1), sum, weight);
}

static clt_status build_bce(const model_node *n, clt_value **sum, clt_value **weight)
{
    return clt_bce_with_logits(n->in[0], n->in[1], n->n_in > 2 ? n->in[2] : NULL, sum, weight);
}

static clt_status build_smooth_l1(const model_node *n, clt_value **sum, clt_value **weight)
{
    return clt_smooth_l1(n->in[0], n->in[1], node_real(n, "beta", 1), sum, weight);
}

static clt_status build_kl_div(const model_node *n, clt_value **sum, clt_value **weight)
{
    clt_kl_div_options o;
    clt_kl_div_options_init(&o);
    o.log_target = (int)node_int(n, "log_target", 0);
    o.batchmean = (int)node_int(n, "batchmean", 0);
    return clt_kl_div(n->in[0], n->in[1], &o, sum, weight);
}

/* The mean of any value. A loss that has the number of elements lends it. */
static clt_status build_mean(const model_node *n, clt_value **sum, clt_value **weight)
{
    clt_value *unused, *x = clt_detach(n->in[0]);
    const clt_status status = clt_mse(x, x, &unused, weight);
    *sum = clt_reduce_sum(n->in[0], NULL, 0, 0);
    return status != CLT_OK ? status : clt_graph_status(n->graph);
}

static clt_status build_correct(const model_node *n, clt_value **sum, clt_value **weight)
{
    const clt_status status = check_classes(n);
    if (status != CLT_OK)
        return status;
    return clt_correct(n->in[0], n->in[1], (int)node_int(n, "k", 1), n->ignore_index, sum, weight);
}

static const model_mean means[] = {
    {"cross_entropy", 2, 2, "label_smoothing:real", build_cross_entropy, 1},
    {"mse", 2, 2, "", build_mse, 1},
    {"huber", 2, 2, "delta:real", build_huber, 1},
    {"smooth_l1", 2, 2, "beta:real", build_smooth_l1, 1},
    {"bce_with_logits", 2, 3, "", build_bce, 1},
    {"kl_div", 2, 2, "log_target:flag batchmean:flag", build_kl_div, 1},
    {"mean", 1, 1, "", build_mean, 1},
    {"mse", 2, 2, "", build_mse, 0},
    {"mean", 1, 1, "", build_mean, 0},
    {"correct", 2, 2, "k:count", build_correct, 0},
};

enum { MEANS = sizeof means / sizeof *means, NAMES = 256 };

static const model_op_list basic_ops = {ops, sizeof ops / sizeof *ops};

const model_op *model_op_find(const char *name, const char **near)
{
    const model_op_list *const lists[] = {&basic_ops, &model_layer_ops, &model_tensor_ops};
    const char *names[NAMES];
    int count = 0;
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (int i = 0; i < lists[l]->count && count < NAMES; i++) {
            names[count++] = lists[l]->ops[i].name;
            if (!strcmp(lists[l]->ops[i].name, name))
                return &lists[l]->ops[i];
        }
    if (near)
        *near = clt_nearest(name, names, count);
    return NULL;
}

const model_mean *model_mean_find(const char *name, int is_loss, const char **near)
{
    const char *names[MEANS];
    int count = 0;
    for (int i = 0; i < MEANS; i++) {
        if (means[i].is_loss != is_loss)
            continue;
        names[count++] = means[i].name;
        if (!strcmp(means[i].name, name))
            return &means[i];
    }
    if (near)
        *near = clt_nearest(name, names, count);
    return NULL;
}
