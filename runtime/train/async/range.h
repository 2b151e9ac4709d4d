/*
 * A holder's range of the parameters on its device, with the optimizer's state of this range. The
 * optimizer's kernels are those of all training (exec/update/update.h).
 */
#ifndef CLT_TRAIN_ASYNC_RANGE_H
#define CLT_TRAIN_ASYNC_RANGE_H

#include "train/async/layout.h"
#include <cltrain/device.h>
#include <cltrain/train.h>

typedef struct clt_slice clt_slice;

/* Makes the range of holder number `holder`, of zeros. `graph` is the model's. Borrows the layout
 * and the device. Free *slice with clt_slice_destroy. */
clt_status clt_slice_create(const clt_graph *graph, const clt_async_layout *layout, int holder,
                            clt_device *device, const clt_trainer_options *options,
                            clt_slice **slice);
void clt_slice_destroy(clt_slice *slice);

/* Returns the number of elements of the range, and of tensors that the optimizer keeps for each. */
int64_t clt_slice_elements(const clt_slice *slice);
int clt_slice_kept(const clt_slice *slice);

/* Sets the parameters from clt_slice_elements floats, and the optimizer's tensors from as many for
 * each of them. */
clt_status clt_slice_load(clt_slice *slice, const float *values, const float *kept);

/* Copies them out. `kept` may be NULL. */
clt_status clt_slice_save(clt_slice *slice, float *values, float *kept);

/* Returns the parameters, valid until the next change. Reads the device only after a change. */
clt_status clt_slice_values(clt_slice *slice, const float **values);

/* Makes update number `version` (0, 1, ...) with a gradient of the range. `squares` is the sum of
 * squares of the whole gradient, of all holders, by which it is clipped. */
clt_status clt_slice_apply(clt_slice *slice, const float *gradient, double squares,
                           int64_t version);

#endif
