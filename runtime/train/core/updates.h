/* The optimizer on one device. */
#ifndef CLT_TRAIN_CORE_UPDATES_H
#define CLT_TRAIN_CORE_UPDATES_H

#include "exec/update.h"

typedef struct clt_updates {
    clt_update *update;
    float *step_status;  /* the status of the last steps: CLT_STEP_STATUS floats by ring entry */
    clt_scaling scaling; /* several devices: after the last step that is done whole */
    const cl_mem *gradients[2]; /* of the first and of further micro-batches, by bucket */
    int votes;                  /* of the last step */
    int64_t begun, done;        /* steps whose updates are enqueued, in part and whole */
} clt_updates;

#endif
