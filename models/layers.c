/* Layers with PyTorch's parameter names and default initialisation: uniform within
 * 1 / sqrt(fan in), for weight and bias (torch.nn.Linear and the convolutions of torch.nn). */
#include <cltrain/models.h>

#include <math.h>
#include <stdio.h>

static clt_value *parameter(clt_graph *graph, const char *layer, const char *kind, int rank,
                            const int64_t *dims, double fan_in)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", layer, kind);
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt(fan_in), 0};
    return clt_parameter(graph, name, rank, dims, init);
}

clt_value *clt_layer_linear(clt_graph *graph, clt_value *x, const char *name, int64_t out)
{
    if (!x)
        return NULL;
    const int64_t in = clt_value_dim(x, clt_value_rank(x) - 1);
    const int64_t dims[] = {out, in};
    clt_value *weight = parameter(graph, name, "weight", 2, dims, (double)in);
    clt_value *bias = parameter(graph, name, "bias", 1, dims, (double)in);
    return clt_linear(x, weight, bias);
}

clt_value *clt_layer_conv2d(clt_graph *graph, clt_value *x, const char *name, int64_t out,
                            int kernel, const clt_conv2d_options *options)
{
    if (!x)
        return NULL;
    const int64_t in = clt_value_dim(x, 1) / (options ? options->groups : 1);
    const int64_t dims[] = {out, in, kernel, kernel};
    const double fan_in = (double)(in * kernel * kernel);
    clt_value *weight = parameter(graph, name, "weight", 4, dims, fan_in);
    clt_value *bias = parameter(graph, name, "bias", 1, dims, fan_in);
    return clt_conv2d(x, weight, bias, options);
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

/* PyTorch takes a transposed weight's second dimension for the number of inputs. */
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
