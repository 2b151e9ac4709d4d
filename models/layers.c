/* Layers with the parameter names and default initialisation of torch.nn.Linear and torch.nn's
 * convolutions. Weight and bias are uniform within 1 / sqrt(fan in). */
#include <math.h>
#include <stdio.h>

#include "builders.h"

clt_value *clt_model_split_rows(clt_value *image)
{
    return image && clt_shard_value(image, CLT_AXIS_SPACE, 2) == CLT_OK ? image : NULL;
}

clt_value *clt_model_parameter(clt_graph *graph, const char *name, int rank, const int64_t *dims,
                               clt_init init)
{
    clt_value *shared = clt_graph_find(graph, name);
    int same = shared && clt_value_rank(shared) == rank;
    for (int i = 0; same && i < rank; i++)
        same = clt_value_dim(shared, i) == dims[i];
    return same ? shared : clt_parameter(graph, name, rank, dims, init);
}

clt_status clt_model_shard(clt_graph *graph, const clt_model_split *rows)
{
    for (const clt_model_split *row = rows; row->pattern; row++)
        MODEL_TRY(clt_shard(graph, row->pattern, CLT_AXIS_TENSOR, row->dim, row->blocks, NULL));
    return CLT_OK;
}

static clt_value *parameter(clt_graph *graph, const char *layer, const char *kind, int rank,
                            const int64_t *dims, double fan_in)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", layer, kind);
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt(fan_in), 0};
    return clt_model_parameter(graph, name, rank, dims, init);
}

clt_value *clt_layer_linear_with(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                 int bias)
{
    if (!x)
        return NULL;
    const int rank = clt_value_rank(x);
    const int64_t in = rank ? clt_value_dim(x, rank - 1) : 1;
    const int64_t dims[] = {out, in};
    clt_value *weight = parameter(graph, name, "weight", 2, dims, (double)in);
    clt_value *b = bias ? parameter(graph, name, "bias", 1, dims, (double)in) : NULL;
    return clt_label(clt_linear(x, weight, b), name);
}

clt_value *clt_layer_linear(clt_graph *graph, clt_value *x, const char *name, int64_t out)
{
    return clt_layer_linear_with(graph, x, name, out, 1);
}

clt_value *clt_layer_conv2d_with(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                 const int kernel[2], int bias, const clt_conv2d_options *options)
{
    if (!x)
        return NULL;
    const int64_t channels = clt_value_rank(x) > 1 ? clt_value_dim(x, 1) : 1;
    const int64_t in = channels / (options ? options->groups : 1);
    const int64_t dims[] = {out, in, kernel[0], kernel[1]};
    const double fan_in = (double)(in * kernel[0] * kernel[1]);
    clt_value *weight = parameter(graph, name, "weight", 4, dims, fan_in);
    clt_value *b = bias ? parameter(graph, name, "bias", 1, dims, fan_in) : NULL;
    return clt_label(clt_conv2d(x, weight, b, options), name);
}

clt_value *clt_layer_conv2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv2d_options *options)
{
    const int both[] = {kernel, kernel};
    return clt_layer_conv2d_with(graph, x, name, out, both, 1, options);
}

clt_value *clt_layer_conv1d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv1d_options *options)
{
    if (!x)
        return NULL;
    const int64_t in = clt_value_dim(x, 1) / (options ? options->groups : 1);
    const int64_t dims[] = {out, in, kernel};
    const double fan_in = (double)(in * kernel);
    clt_value *weight = parameter(graph, name, "weight", 3, dims, fan_in);
    clt_value *bias = parameter(graph, name, "bias", 1, &out, fan_in);
    return clt_conv1d(x, weight, bias, options);
}

/* For the fan in, PyTorch takes the second dimension of a transposed weight as the number of
 * inputs. */
clt_value *clt_layer_conv_transpose2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                                      int kernel, const clt_conv_transpose2d_options *options)
{
    if (!x)
        return NULL;
    const int64_t of_group = out / (options ? options->groups : 1);
    const int64_t dims[] = {clt_value_dim(x, 1), of_group, kernel, kernel};
    const double fan_in = (double)(of_group * kernel * kernel);
    clt_value *weight = parameter(graph, name, "weight", 4, dims, fan_in);
    clt_value *bias = parameter(graph, name, "bias", 1, &out, fan_in);
    return clt_conv_transpose2d(x, weight, bias, options);
}

clt_value *clt_layer_conv3d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv3d_options *options)
{
    if (!x)
        return NULL;
    const int64_t in = clt_value_dim(x, 1) / (options ? options->groups : 1);
    const int64_t dims[] = {out, in, kernel, kernel, kernel};
    const double fan_in = (double)(in * kernel * kernel * kernel);
    clt_value *weight = parameter(graph, name, "weight", 5, dims, fan_in);
    clt_value *bias = parameter(graph, name, "bias", 1, &out, fan_in);
    return clt_conv3d(x, weight, bias, options);
}

/* Returns a parameter with one number a channel, or a state if `state` is set. */
static clt_value *per_channel(clt_graph *graph, const char *layer, const char *kind, int state,
                              int64_t channels, clt_init init)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", layer, kind);
    clt_value *shared = state ? clt_graph_find(graph, name) : NULL;
    if (shared)
        return shared;
    return state ? clt_state(graph, name, CLT_F32, 1, &channels, init)
                 : clt_model_parameter(graph, name, 1, &channels, init);
}

clt_value *clt_layer_batch_norm(clt_graph *graph, clt_value *x, const char *name,
                                const clt_batch_norm_options *options)
{
    if (!x)
        return NULL;
    char tracked_name[256];
    const int64_t channels = clt_value_rank(x) > 1 ? clt_value_dim(x, 1) : 1;
    const clt_init zero = {CLT_INIT_ZERO, 0, 0}, one = {CLT_INIT_CONSTANT, 1, 0};
    clt_value *weight = per_channel(graph, name, "weight", 0, channels, one);
    clt_value *bias = per_channel(graph, name, "bias", 0, channels, zero);
    clt_value *mean = per_channel(graph, name, "running_mean", 1, channels, zero);
    clt_value *var = per_channel(graph, name, "running_var", 1, channels, one);
    snprintf(tracked_name, sizeof tracked_name, "%s.num_batches_tracked", name);
    clt_value *tracked = clt_state(graph, tracked_name, CLT_I32, 0, NULL, zero);
    return clt_label(clt_batch_norm(x, weight, bias, mean, var, tracked, options), name);
}

clt_value *clt_layer_layer_norm(clt_graph *graph, clt_value *x, const char *name, double eps)
{
    if (!x)
        return NULL;
    const int64_t width = clt_value_rank(x) ? clt_value_dim(x, clt_value_rank(x) - 1) : 1;
    const clt_init zero = {CLT_INIT_ZERO, 0, 0}, one = {CLT_INIT_CONSTANT, 1, 0};
    clt_value *weight = per_channel(graph, name, "weight", 0, width, one);
    clt_value *bias = per_channel(graph, name, "bias", 0, width, zero);
    return clt_label(clt_layer_norm(x, 1, weight, bias, eps), name);
}
