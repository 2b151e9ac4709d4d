/* Averages of a replica's parameters and states over the steps of training. They lie beside the
 * parameters, in buckets of the same layout (clt_replica.averages). The kernels are in
 * clkernels/train/portable/average.cl. */
#ifndef CLT_EXEC_UPDATE_AVERAGE_H
#define CLT_EXEC_UPDATE_AVERAGE_H

#include "exec/replica.h"
#include <cltrain/train.h>

typedef struct clt_averager clt_averager;

/* Makes the kernels and, if the replica has none, averages of no step. `status` is the step status
 * of its clt_update, which is borrowed. */
clt_status clt_averager_create(clt_replica *replica, const clt_average *how, cl_mem status,
                               clt_averager **averager);

/* Takes NULL. */
void clt_averager_destroy(clt_averager *averager);

/* Enqueues step number `step` (0, 1, ...), whose parameters are new, if averages take it. They do
 * so on the device only if the step is committed. */
clt_status clt_averager_step(clt_averager *averager, int64_t step);

/* Exchanges parameters and states with their averages. Twice, this changes no bit. */
clt_status clt_averager_exchange(clt_averager *averager);

/* Get and set the number of steps in the averages; wait for the device. */
clt_status clt_averager_count(clt_averager *averager, int64_t *steps);
clt_status clt_averager_set_count(clt_averager *averager, int64_t steps);

#endif
