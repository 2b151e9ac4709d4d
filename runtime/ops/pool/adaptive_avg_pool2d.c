/* Builds adaptive average pooling of pooling or resample2d. */
#include "base/error.h"
#include "ops/core/ops.h"
#include "ops/pool/resample2d.h"
#include <cltrain/ops.h>

static int window_begin(int i, int in, int out)
{
    return (int)((int64_t)i * in / out);
}

static int window_end(int i, int in, int out)
{
    return (int)((((int64_t)i + 1) * in + out - 1) / out);
}

static clt_status adaptive_axis(int in, int out, clt_resample_axis *axis)
{
    int taps = 1;
    for (int i = 0; i < out; i++) {
        const int count = window_end(i, in, out) - window_begin(i, in, out);
        taps = count > taps ? count : taps;
    }
    CLT_TRY(clt_resample_axis_create(in, out, taps, axis));
    for (int i = 0; i < out; i++) {
        axis->begin[i] = window_begin(i, in, out);
        axis->count[i] = window_end(i, in, out) - axis->begin[i];
        for (int t = 0; t < axis->count[i]; t++)
            axis->weight[(int64_t)t * out + i] = 1.0f / (float)axis->count[i];
    }
    return CLT_OK;
}

clt_value *clt_adaptive_avg_pool2d(clt_value *x, int height, int width)
{
    if (!x || !clt_resample_accepts("adaptive_avg_pool2d", x))
        return NULL;
    const int in[2] = {(int)x->type.dims[2], (int)x->type.dims[3]}, out[2] = {height, width};
    if (height < 1 || width < 1 || height > CLT_RESAMPLE_MOST || width > CLT_RESAMPLE_MOST)
        return clt_graph_failed(x->graph,
                                clt_fail(CLT_INVALID_ARGUMENT,
                                         "adaptive_avg_pool2d: the result %dx%d must have 1 to "
                                         "%d rows and columns",
                                         height, width, CLT_RESAMPLE_MOST));
    if (height == 1 && width == 1)
        return clt_global_avg_pool2d(x);
    if (in[0] % height == 0 && in[1] % width == 0) {
        clt_pool2d_options o;
        clt_pool2d_options_init(&o);
        for (int i = 0; i < 2; i++)
            o.kernel[i] = in[i] / out[i];
        return clt_avg_pool2d(x, &o);
    }
    clt_resample_axis axes[2] = {{0}, {0}};
    clt_status status = adaptive_axis(in[0], out[0], &axes[0]);
    CLT_NEXT(status, adaptive_axis(in[1], out[1], &axes[1]));
    if (status != CLT_OK)
        clt_graph_failed(x->graph, status);
    clt_value *y =
        status == CLT_OK ? clt_resample2d(x, CLT_RESAMPLE_ADAPTIVE_AVG, false, axes) : NULL;
    for (int i = 0; i < 2; i++)
        clt_resample_axis_free(&axes[i]);
    return y;
}

typedef struct size_call {
    int size[2];
} size_call;

CLT_CALLABLE(adaptive_avg_pool2d, size_call,
             c->out[0] = clt_adaptive_avg_pool2d(c->in[0], a->size[0], a->size[1]),
             .doc = "The mean of each window. The windows divide x evenly.", .operands = "x bchw",
             .results = "y bcij",
             CLT_ATTRIBUTES(size_call,
                            {CLT_ATTRIBUTE(INT, "size", size_call, size, "Size of the result."),
                             .count = 2, .least = 1, .most = CLT_RESAMPLE_MOST,
                             .default_value = 1}),
             .whole = "hwij");
