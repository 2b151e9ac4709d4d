/* Operators of model files by name, further layers: one and three dimensions, transposed
 * convolutions, norms, rotary embedding, attention with masks. */
#include <math.h>
#include <stdio.h>

#include "builders.h"
#include "node.h"

clt_value *node_parameter(const model_node *n, const char *kind, int rank, const int64_t *dims,
                          clt_init init)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", n->prefix, kind);
    return clt_model_parameter(n->graph, name, rank, dims, init);
}

/* --- convolutions ---------------------------------------------------------------------------- */

enum { SIZES = 3 };

typedef struct convolution {
    clt_value *weight, *bias;
    int kernel[SIZES], stride[SIZES], padding[SIZES], dilation[SIZES], output_padding[SIZES];
    int groups;
} convolution;

/* Reads the attributes, and takes weight and bias from the operands or makes them: with PyTorch's
 * initialisation, for which the second dimension counts as the number of inputs. */
static int read_convolution(const model_node *n, int sizes, int transposed, convolution *c)
{
    const int64_t out = node_int(n, "out", 0);
    node_sizes(n, "kernel", c->kernel, sizes, 0);
    node_sizes(n, "stride", c->stride, sizes, 1);
    node_sizes(n, "padding", c->padding, sizes, 0);
    node_sizes(n, "output_padding", c->output_padding, sizes, 0);
    node_sizes(n, "dilation", c->dilation, sizes, 1);
    c->groups = (int)node_int(n, "groups", 1);
    c->weight = n->n_in > 1 ? n->in[1] : NULL;
    c->bias = n->n_in > 2 ? n->in[2] : NULL;
    if (c->weight)
        return node_has_none(n, "out kernel bias parameters", "the operands are its parameters");
    if (!out || !c->kernel[0]) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: give 'out' and 'kernel', or the weight as an operand", n->name);
        return 0;
    }
    if (clt_value_rank(n->in[0]) != sizes + 2) {
        model_text_fail(n->text, n->json, NULL,
                        "%s: the operand has %d dimensions, the batch among them, and must have %d",
                        n->name, clt_value_rank(n->in[0]), sizes + 2);
        return 0;
    }
    const int64_t in = clt_value_dim(n->in[0], 1);
    int64_t dims[SIZES + 2] = {transposed ? in : out, (transposed ? out : in) / c->groups};
    double fan_in = (double)dims[1];
    for (int i = 0; i < sizes; i++) {
        dims[2 + i] = c->kernel[i];
        fan_in *= c->kernel[i];
    }
    const clt_init init = {CLT_INIT_UNIFORM, fan_in > 0 ? 1 / sqrt(fan_in) : 0, 0};
    c->weight = node_parameter(n, "weight", sizes + 2, dims, init);
    if (node_int(n, "bias", 1))
        c->bias = node_parameter(n, "bias", 1, &out, init);
    return 1;
}

static void copy_sizes(int *to, const int *from, int sizes)
{
    for (int i = 0; i < sizes; i++)
        to[i] = from[i];
}

static clt_value *build_conv1d(const model_node *n)
{
    convolution c;
    clt_conv1d_options o;
    if (!read_convolution(n, 1, 0, &c))
        return NULL;
    clt_conv1d_options_init(&o);
    o.stride = c.stride[0];
    o.padding = c.padding[0];
    o.dilation = c.dilation[0];
    o.groups = c.groups;
    return clt_conv1d(n->in[0], c.weight, c.bias, &o);
}

static clt_value *build_conv3d(const model_node *n)
{
    convolution c;
    clt_conv3d_options o;
    if (!read_convolution(n, 3, 0, &c))
        return NULL;
    clt_conv3d_options_init(&o);
    copy_sizes(o.stride, c.stride, 3);
    copy_sizes(o.padding, c.padding, 3);
    copy_sizes(o.dilation, c.dilation, 3);
    o.groups = c.groups;
    return clt_conv3d(n->in[0], c.weight, c.bias, &o);
}

static clt_value *build_conv_transpose1d(const model_node *n)
{
    convolution c;
    clt_conv_transpose1d_options o;
    if (!read_convolution(n, 1, 1, &c))
        return NULL;
    clt_conv_transpose1d_options_init(&o);
    o.stride = c.stride[0];
    o.padding = c.padding[0];
    o.output_padding = c.output_padding[0];
    o.dilation = c.dilation[0];
    o.groups = c.groups;
    return clt_conv_transpose1d(n->in[0], c.weight, c.bias, &o);
}

static clt_value *build_conv_transpose2d(const model_node *n)
{
    convolution c;
    clt_conv_transpose2d_options o;
    if (!read_convolution(n, 2, 1, &c))
        return NULL;
    clt_conv_transpose2d_options_init(&o);
    copy_sizes(o.stride, c.stride, 2);
    copy_sizes(o.padding, c.padding, 2);
    copy_sizes(o.output_padding, c.output_padding, 2);
    copy_sizes(o.dilation, c.dilation, 2);
    o.groups = c.groups;
    return clt_conv_transpose2d(n->in[0], c.weight, c.bias, &o);
}

/* --- pooling of one dimension ----------------------------------------------------------------- */

static void read_pool(const model_node *n, clt_pool1d_options *o)
{
    clt_pool1d_options_init(o);
    node_sizes(n, "kernel", &o->kernel, 1, 2);
    node_sizes(n, "stride", &o->stride, 1, 0);
    node_sizes(n, "padding", &o->padding, 1, 0);
    node_sizes(n, "dilation", &o->dilation, 1, 1);
    o->ceil_mode = (int)node_int(n, "ceil_mode", 0);
    o->count_include_pad = (int)node_int(n, "count_include_pad", 1);
}

static clt_value *build_avg_pool1d(const model_node *n)
{
    clt_pool1d_options o;
    read_pool(n, &o);
    return clt_avg_pool1d(n->in[0], &o);
}

static clt_value *build_max_pool1d(const model_node *n)
{
    clt_pool1d_options o;
    read_pool(n, &o);
    return clt_max_pool1d(n->in[0], &o);
}

static clt_value *build_adaptive_avg_pool1d(const model_node *n)
{
    return clt_adaptive_avg_pool1d(n->in[0], (int)node_int(n, "size", 1));
}

/* --- norms ----------------------------------------------------------------------------------- */

static clt_value *vector(const model_node *n, const char *kind, int axis, double value)
{
    const int rank = clt_value_rank(n->in[0]);
    const int64_t size = axis < rank ? clt_value_dim(n->in[0], axis < 0 ? rank - 1 : axis) : 1;
    return node_parameter(n, kind, 1, &size, (clt_init){CLT_INIT_CONSTANT, value, 0});
}

static clt_value *build_rms_norm(const model_node *n)
{
    return clt_rms_norm(n->in[0], 1, vector(n, "weight", -1, 1),
                        node_real(n, "eps", CLT_RMS_NORM_EPS));
}

static clt_value *build_group_norm(const model_node *n)
{
    return clt_group_norm(n->in[0], (int)node_int(n, "groups", 1), vector(n, "weight", 1, 1),
                          vector(n, "bias", 1, 0), node_real(n, "eps", CLT_NORM_EPS));
}

/* torch.nn.InstanceNorm2d has no weight and bias unless it is told to. */
static clt_value *build_instance_norm(const model_node *n)
{
    const int affine = (int)node_int(n, "affine", 0);
    return clt_instance_norm(n->in[0], affine ? vector(n, "weight", 1, 1) : NULL,
                             affine ? vector(n, "bias", 1, 0) : NULL,
                             node_real(n, "eps", CLT_NORM_EPS));
}

/* --- attention -------------------------------------------------------------------------------- */

static clt_value *build_scaled_dot_product_attention(const model_node *n)
{
    clt_attention_options o;
    clt_attention_options_init(&o);
    o.scale = node_real(n, "scale", 0);
    o.is_causal = (int)node_int(n, "causal", 0);
    o.dropout = node_real(n, "dropout", 0);
    o.attn_mask = n->n_in > 3 ? n->in[3] : NULL;
    return clt_scaled_dot_product_attention(n->in[0], n->in[1], n->in[2], &o);
}

static clt_value *build_rotary(const model_node *n)
{
    clt_rotary_options o;
    clt_rotary_options_init(&o);
    o.base = node_real(n, "base", o.base);
    o.offset = node_int(n, "offset", 0);
    o.halves = (int)node_int(n, "halves", 0);
    o.size = node_int(n, "size", 0);
    o.heads = node_int(n, "heads", 0);
    return clt_rotary(n->in[0], &o);
}

#define CONV1D                                                                                     \
    MODEL_OWN "out:count kernel:size bias:flag stride:size padding:size dilation:size "            \
              "groups:count"
#define CONV2D                                                                                     \
    MODEL_OWN "out:count kernel:pair bias:flag stride:pair padding:pair dilation:pair "            \
              "groups:count"
#define CONV3D                                                                                     \
    MODEL_OWN "out:count kernel:triple bias:flag stride:triple padding:triple dilation:triple "    \
              "groups:count"
#define POOL1D "kernel:size stride:size padding:size ceil_mode:flag "

static const model_op ops[] = {
    {"conv1d", 1, 3, CONV1D, build_conv1d},
    {"conv3d", 1, 3, CONV3D, build_conv3d},
    {"conv_transpose1d", 1, 3, CONV1D " output_padding:size", build_conv_transpose1d},
    {"conv_transpose2d", 1, 3, CONV2D " output_padding:pair", build_conv_transpose2d},
    {"avg_pool1d", 1, 1, POOL1D "count_include_pad:flag", build_avg_pool1d},
    {"max_pool1d", 1, 1, POOL1D "dilation:size", build_max_pool1d},
    {"adaptive_avg_pool1d", 1, 1, "size:count", build_adaptive_avg_pool1d},
    {"rms_norm", 1, 1, MODEL_OWN "eps:real", build_rms_norm},
    {"group_norm", 1, 1, MODEL_OWN "groups:count! eps:real", build_group_norm},
    {"instance_norm", 1, 1, MODEL_OWN "affine:flag eps:real", build_instance_norm},
    {"scaled_dot_product_attention", 3, 4, "scale:real causal:flag dropout:real",
     build_scaled_dot_product_attention},
    {"rotary", 1, 1, "base:real offset:int halves:flag size:count heads:count", build_rotary},
};

const model_op_list model_layer_ops = {ops, sizeof ops / sizeof *ops};
