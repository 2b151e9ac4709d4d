/* Normalisation: layer, RMS, batch, group and instance norm. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_NORM_H
#define CLTRAIN_OPS_NORM_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* PyTorch's defaults for `eps`. */
#define CLT_NORM_EPS 1e-5                      /* layer, batch, group and instance norm */
#define CLT_RMS_NORM_EPS 1.1920928955078125e-7 /* RMS norm: the f32 epsilon */

/*
 * Computes layer norm (Ba et al., 2016) over the last `axes` axes of x, which may not depend on the
 * batch:
 *
 *     (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * with the mean and the biased variance of these axes. weight and bias have the dimensions of these
 * axes. NULL stands for 1 and 0. The result has the type of x. Errors: SHAPE if weight or bias do
 * not fit; INVALID_ARGUMENT if `axes` is not between 1 and the number of axes, or eps is negative.
 */
CLT_API clt_value *clt_layer_norm(clt_value *x, int axes, clt_value *weight, clt_value *bias,
                                  double eps);

/* Computes RMS norm (Zhang and Sennrich, 2019): x / sqrt(mean of x^2 + eps) * weight, otherwise as
 * clt_layer_norm. */
CLT_API clt_value *clt_rms_norm(clt_value *x, int axes, clt_value *weight, double eps);

typedef struct clt_batch_norm_options {
    size_t struct_size;
    double eps;       /* CLT_NORM_EPS */
    double momentum;  /* 0.1, between 0 and 1: the share of a new batch in the running statistics */
    int synchronised; /* 0; not 0: use the samples of all devices of all ranks, as one device with
                         the whole (micro-)batch would (torch.nn.SyncBatchNorm) */
} clt_batch_norm_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_batch_norm_options_init(clt_batch_norm_options *options);

/*
 * Computes batch norm (Ioffe and Szegedy, 2015) of x [B, C, d..], for each channel:
 *
 *     (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * weight and bias are [C]. NULL stands for 1 and 0. In training, mean and biased variance are those
 * of the samples of this device (see options.synchronised). The variance of no sample, or of one
 * value a channel, is 0. running_mean and running_var [C] (usually made by clt_state, from 0 and 1)
 * are then assigned (clt_assign):
 *
 *     running_mean = (1 - momentum) running_mean + momentum mean
 *     running_var = (1 - momentum) running_var + momentum variance n / (n - 1)
 *
 * with n values a channel. For n = 1 (which PyTorch refuses) running_var stays; for n = 0 both
 * stay. num_batches_tracked (i32, one element, or NULL) grows by 1 in every step. On several
 * devices without `synchronised` the running statistics are means over the devices (see
 * clt_assign).
 *
 * Evaluation normalises by the running statistics. Without them (both NULL, and num_batches_tracked
 * too) it uses those of the batch, as PyTorch with track_running_stats=False.
 *
 * Errors: SHAPE if x is not [B, C, d..] or an operand has another number of channels;
 * INVALID_ARGUMENT if only one of the running statistics is given, if they are no states, or if an
 * option is out of range.
 */
CLT_API clt_value *clt_batch_norm(clt_value *x, clt_value *weight, clt_value *bias,
                                  clt_value *running_mean, clt_value *running_var,
                                  clt_value *num_batches_tracked,
                                  const clt_batch_norm_options *options);

/*
 * Compute group norm (Wu and He, 2018) and instance norm of x [B, C, d..]. The channels of a sample
 * form `groups` groups of C / groups neighbours. Each group is normalised by its own mean and
 * biased variance:
 *
 *     (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * weight and bias are [C]. NULL stands for 1 and 0. In instance norm each channel is a group. Both
 * consist of clt_layer_norm without weight and bias, and of a product and a sum in one kernel.
 *
 * Errors: SHAPE if x is not [B, C, d..], or weight or bias have another number of channels;
 * INVALID_ARGUMENT if `groups` does not divide C, or eps is negative.
 */
CLT_API clt_value *clt_group_norm(clt_value *x, int groups, clt_value *weight, clt_value *bias,
                                  double eps);
CLT_API clt_value *clt_instance_norm(clt_value *x, clt_value *weight, clt_value *bias, double eps);

CLT_END_DECLS

#endif
