/* An operator over all devices that train together. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_COLLECTIVE_H
#define CLTRAIN_OPS_COLLECTIVE_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/*
 * Adds x over the devices of all ranks, as torch.distributed.nn.functional.all_reduce. x is f32 of
 * constant dimensions, such as a sum over the batch (clt_reduce_sum) of a device's samples. The
 * result has the shape of x. Devices are added in order, those of rank 0 first, and all get the
 * same bits. The gradient of x is the all-reduce of the result's gradient, because the losses of
 * all devices depend on x.
 *
 * - The k-th micro-batches of all devices belong together. A device without samples in a
 *   micro-batch still joins the all-reduce. It adds nothing and gets the sum. Without samples on
 *   any device the sum is 0. So an all-reduce of a constant 1 is the number of devices with
 *   samples.
 * - With one device it is x itself and costs nothing. With several devices each all-reduce costs
 *   about a small copy to the host and back, and the devices wait for each other. Join values that
 *   are known together (clt_concat).
 * - Evaluation and prediction have it too, if their results depend on it. All ranks then call
 *   clt_trainer_predict together, as they always do for clt_trainer_evaluate.
 * - Give a loss or metric the device's own sum and weight, which the trainer adds. A reduced value
 *   would count once for each device.
 *
 * Errors: SHAPE if x depends on the batch, UNSUPPORTED if x is not f32.
 */
CLT_API clt_value *clt_all_reduce(clt_value *x);

CLT_END_DECLS

#endif
