/* Builds upsampling of resample2d. */
#include <math.h>

#include "base/error.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "ops/pool/resample2d.h"
#include <cltrain/ops.h>

/* Computes the index in f32 as PyTorch does, because rounding decides between neighbours. */
static clt_status nearest_axis(int in, int out, double scale, clt_resample_axis *axis)
{
    const float step = scale > 0 ? (float)(1.0 / scale) : (float)in / (float)out;
    CLT_TRY(clt_resample_axis_create(in, out, 1, axis));
    for (int i = 0; i < out; i++) {
        const float at = floorf((float)i * step);
        axis->begin[i] = out == in                         ? i
                         : (int64_t)out == 2 * (int64_t)in ? i / 2
                         : at < (float)(in - 1)            ? (int)at
                                                           : in - 1;
        axis->count[i] = 1;
        axis->weight[i] = 1;
    }
    return CLT_OK;
}

static clt_status bilinear_axis(int in, int out, double scale, bool align, clt_resample_axis *axis)
{
    const double step = align       ? (out > 1 ? (double)(in - 1) / (out - 1) : 0)
                        : scale > 0 ? 1 / scale
                                    : (double)in / out;
    CLT_TRY(clt_resample_axis_create(in, out, 2, axis));
    for (int i = 0; i < out; i++) {
        /* Like PyTorch, also if a given scale does not change the size. */
        const double at = out == in ? i : align ? i * step : fmax((i + 0.5) * step - 0.5, 0);
        const double low = fmin(floor(at), in - 1);
        const float part = (float)fmin(at - low, 1);
        axis->begin[i] = (int)low;
        axis->count[i] = low < in - 1 && part > 0 ? 2 : 1;
        axis->weight[i] = axis->count[i] == 2 ? 1 - part : 1;
        axis->weight[(int64_t)out + i] = axis->count[i] == 2 ? part : 0;
    }
    return CLT_OK;
}

/* Sets the sizes in `own`. A scale of 0 means that the caller gave a size. */
static clt_status sizes_of(const clt_value *x, clt_upsample2d_options *own)
{
    char text[CLT_TYPE_TEXT];
    clt_type_text(&x->type, text);
    if (own->mode != CLT_UPSAMPLE_NEAREST && own->mode != CLT_UPSAMPLE_BILINEAR)
        return clt_fail(CLT_INVALID_ARGUMENT, "upsample2d: mode %d does not exist", (int)own->mode);
    if (own->align_corners && own->mode == CLT_UPSAMPLE_NEAREST)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "upsample2d: align_corners is for the bilinear mode only");
    for (int i = 0; i < 2; i++) {
        if (own->size[i] < 0 || own->size[i] > CLT_RESAMPLE_MOST)
            return clt_fail(CLT_INVALID_ARGUMENT, "upsample2d: size %dx%d must be from 1 to %d",
                            own->size[0], own->size[1], CLT_RESAMPLE_MOST);
        if (own->size[i]) {
            own->scale[i] = 0;
            continue;
        }
        const double size = floor((double)x->type.dims[2 + i] * own->scale[i]);
        if (!(own->scale[i] > 0) || !(size >= 1) || size > CLT_RESAMPLE_MOST)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "upsample2d: scale %gx%g of %s does not make 1 to %d rows and columns",
                            own->scale[0], own->scale[1], text, CLT_RESAMPLE_MOST);
        own->size[i] = (int)size;
    }
    return CLT_OK;
}

clt_value *clt_upsample2d(clt_value *x, const clt_upsample2d_options *options)
{
    clt_upsample2d_options own;
    clt_upsample2d_options_init(&own);
    if (!x)
        return NULL;
    clt_status status = clt_options_read("upsample2d", &own, sizeof own, options);
    if (status == CLT_OK && !clt_resample_accepts("upsample2d", x))
        return NULL;
    CLT_NEXT(status, sizes_of(x, &own));
    const bool bilinear = own.mode == CLT_UPSAMPLE_BILINEAR;
    clt_resample_axis axes[2] = {{0}, {0}};
    for (int i = 0; i < 2 && status == CLT_OK; i++) {
        const int in = (int)x->type.dims[2 + i];
        status = bilinear
                     ? bilinear_axis(in, own.size[i], own.scale[i], own.align_corners, &axes[i])
                     : nearest_axis(in, own.size[i], own.scale[i], &axes[i]);
    }
    if (status != CLT_OK)
        clt_graph_failed(x->graph, status);
    clt_value *y = status == CLT_OK
                       ? clt_resample2d(x, bilinear ? CLT_RESAMPLE_BILINEAR : CLT_RESAMPLE_NEAREST,
                                        false, axes)
                       : NULL;
    for (int i = 0; i < 2; i++)
        clt_resample_axis_free(&axes[i]);
    return y;
}

CLT_CALLABLE_OPTIONS(
    upsample2d, clt_upsample2d_options, c->out[0] = clt_upsample2d(c->in[0], a),
    .doc = "x resampled to another size.", .operands = "x bchw", .results = "y bcij",
    CLT_ATTRIBUTES(
        clt_upsample2d_options,
        {CLT_ATTRIBUTE(INT, "size", clt_upsample2d_options, size,
                       "Size of the result; 0: the size of x times the scale."),
         .count = 2, .most = CLT_RESAMPLE_MOST},
        {CLT_ATTRIBUTE(REAL, "scale", clt_upsample2d_options, scale,
                       "Factor from the size of x to the size of the result."),
         .count = 2, .most = CLT_RESAMPLE_MOST, .above = 1, .default_value = 2},
        {CLT_ATTRIBUTE(FLAG, "bilinear", clt_upsample2d_options, mode,
                       "Interpolates between neighbours instead of taking the nearest.")},
        {CLT_ATTRIBUTE(FLAG, "align_corners", clt_upsample2d_options, align_corners,
                       "The corners of x and of the result coincide; bilinear only.")}),
    .whole = "hwij");
