/* Records reductions for profiles. */
#ifndef CLT_TRAIN_STEP_PROFILE_H
#define CLT_TRAIN_STEP_PROFILE_H

#include "exec/collective.h"
#include <cltrain/unstable.h>

/* Records a reduction of `bytes` bytes of a bucket or node on a device. Runs on the device's
 * thread. */
void clt_profile_reduction(clt_profile *profile, int device, const char *label, bool backward,
                           int64_t bytes, const clt_collective_result *result);

/* Records a reduction of a synchronisation (<cltrain/local.h>), on the trainer's first device after
 * its last step. The trainer must not run a step meanwhile. The label must stay valid until the
 * profile is stopped. */
void clt_profile_synchronisation(clt_profile *profile, const char *label, int64_t bytes,
                                 const clt_collective_result *result);

#endif
