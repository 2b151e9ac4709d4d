/* Normalisation: layer, RMS, batch, group and instance norm. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_NORM_H
#define CLTRAIN_OPS_NORM_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* PyTorch's defaults for `eps`. */
#define CLT_NORM_EPS 1e-5                      /* layer, batch, group and instance norm */
#define CLT_RMS_NORM_EPS 1.1920928955078125e-7 /* RMS norm: the f32 epsilon */

/*
 * Layer norm (Ba et al., 2016) over the last `axes` axes of x, which may not depend on the batch:
 *
 *     (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * with the mean and the biased variance of those axes' elements. weight and bias have the
 * dimensions of the last `axes` axes, or are NULL: 1 and 0. The result has x's type. SHAPE, if
 * weight or bias do not fit; INVALID_ARGUMENT, if x has fewer axes or eps is negative. Between one
 * and all axes.
 */
CLT_API clt_value *clt_layer_norm(clt_value *x, int axes, clt_value *weight, clt_value *bias,
                                  double eps);

/* RMS norm (Zhang and Sennrich, 2019): x / sqrt(mean of x^2 + eps) * weight; else as
 * clt_layer_norm. */
CLT_API clt_value *clt_rms_norm(clt_value *x, int axes, clt_value *weight, double eps);

typedef struct clt_batch_norm_options {
    size_t struct_size;
    double eps;       /* CLT_NORM_EPS */
    double momentum;  /* 0.1, between 0 and 1: the share of a new batch in the running statistics */
    int synchronised; /* 0; not 0: over the images of all devices of all ranks, as one device with
                         the whole (micro-)batch would: torch.nn.SyncBatchNorm */
} clt_batch_norm_options;

CLT_API void clt_batch_norm_options_init(clt_batch_norm_options *options);

/*
 * Batch norm (Ioffe and Szegedy, 2015) of x [B, C, d..], per channel:
 *
 *     (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * weight and bias [C], or NULL: 1 and 0. While training, mean and biased variance are those of the
 * batch: of this device's images (see options.synchronised), so that of no images and of one value
 * per channel the variance is 0. running_mean and running_var [C] (usually from clt_state, starting
 * as 0 and as 1) are then assigned (clt_assign)
 *
 *     running_mean = (1 - momentum) running_mean + momentum mean
 *     running_var = (1 - momentum) running_var + momentum variance n / (n - 1)
 *
 * with n values per channel, and num_batches_tracked (i32, of one element, or NULL) is increased by
 * 1 in every step. For n = 1 (which PyTorch refuses) running_var stays, for n = 0 both. On several
 * devices without `synchronised` these are means over the devices, see clt_assign. Evaluation
 * normalises by the running statistics. Without them (both NULL, and num_batches_tracked too) it
 * takes the batch's, like PyTorch's track_running_stats=False.
 *
 * SHAPE: x is not [B, C, d..], or an operand does not have x's C channels. INVALID_ARGUMENT: only
 * one of the running statistics is given, they are no states, or an option is out of its range.
 */
CLT_API clt_value *clt_batch_norm(clt_value *x, clt_value *weight, clt_value *bias,
                                  clt_value *running_mean, clt_value *running_var,
                                  clt_value *num_batches_tracked,
                                  const clt_batch_norm_options *options);

/*
 * Group norm (Wu and He, 2018) of x [B, C, d..]: the channels of an image in `groups` groups of
 * C / groups neighbours, each normalised by its own mean and biased variance,
 *
 *     (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * weight and bias [C], or NULL: 1 and 0. Instance norm is the same with a group a channel. Both are
 * made of clt_layer_norm, without weight and bias, and of a product and a sum that are one kernel.
 * SHAPE: x is not [B, C, d..], or weight or bias do not have its C channels. INVALID_ARGUMENT:
 * `groups` does not divide C, or eps is negative.
 */
CLT_API clt_value *clt_group_norm(clt_value *x, int groups, clt_value *weight, clt_value *bias,
                                  double eps);
CLT_API clt_value *clt_instance_norm(clt_value *x, clt_value *weight, clt_value *bias, double eps);

CLT_END_DECLS

#endif
