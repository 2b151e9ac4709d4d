/* Operators over all devices that train together. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_COLLECTIVE_H
#define CLTRAIN_OPS_COLLECTIVE_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/*
 * The sum of x over the devices of all ranks: PyTorch's torch.distributed.nn.functional.all_reduce.
 * x is f32 of constant dimensions: what a device made of its images of a (micro-)batch, as a sum
 * over the batch's axis (clt_reduce_sum). The result has x's shape. It is added in the order of the
 * devices, those of rank 0 first, and has the same bits on all of them. The gradient of x is the
 * all-reduce of the result's gradient, since every device's part of the losses depends on it.
 *
 * The k-th micro-batches of all devices belong together. A device that has no images in one takes
 * part, adds nothing, and gets the sum; without images on any device the sum is 0. What it would
 * add does not count, nor do gradients behind it, even where they do not depend on images: an
 * all-reduce of a constant 1 is the number of devices that have images.
 *
 * With one device in all, it is x itself and costs nothing. With several, each costs about the time
 * of a small copy to the host and back, for which the devices wait for each other: values that are
 * known together are better one value (clt_concat). Evaluation and prediction have it too:
 * clt_trainer_evaluate is for all ranks in any case, clt_trainer_predict then is as well. What
 * evaluation does not depend on, it leaves out. A loss or metric is given the device's own sum and
 * weight, which the trainer adds up: an all-reduced one would count once for each device.
 *
 * Errors: SHAPE where x depends on the batch, UNSUPPORTED where it is not f32.
 */
CLT_API clt_value *clt_all_reduce(clt_value *x);

CLT_END_DECLS

#endif
