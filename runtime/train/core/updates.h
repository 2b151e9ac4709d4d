/* The optimizer on one device. */
#ifndef CLT_TRAIN_CORE_UPDATES_H
#define CLT_TRAIN_CORE_UPDATES_H

#include "device/core/shared.h"
#include "exec/update/average.h"
#include "exec/update/shard_sums.h"
#include "exec/update/update.h"
#include "train/core/session.h"

typedef struct clt_updates {
    clt_update *update;
    clt_averager *averager;  /* NULL: no averages are kept */
    float *step_status;      /* by ring entry: CLT_STEP_STATUS floats */
    clt_shared reports;      /* of `step_status`; zeros: the host has a copy */
    clt_scaling scaling;     /* with several devices: state after the last complete step */
    const cl_mem *gradients; /* by bucket; the plan writes them */
    const cl_mem *sent;      /* by bucket; devices exchange them */
    bool rounded;            /* the sum of this step's micro-batches was rounded */
    bool keeps;              /* the step is committed, so its residuals count */
    clt_shard_sums
        *shard_sums;     /* of the gradients; NULL: the device has one virtual shard, or none */
    int votes;           /* votes of the last step */
    int64_t begun, done; /* steps whose updates are enqueued: at least in part, and completely */
} clt_updates;

/* Bytes of a device's `step_status`. */
enum { CLT_STEP_STATUS_BYTES = CLT_RESULT_RING * CLT_STEP_STATUS * (int)sizeof(float) };

#endif
