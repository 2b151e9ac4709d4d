/* What tells two data sets of equal size apart. */
#ifndef CLT_DATA_CORE_DIGEST_H
#define CLT_DATA_CORE_DIGEST_H

#include "data/core/dataset.h"

/*
 * A hash of the fields' names, types and samples, after a wait for a decode in the background. Of a
 * field of more than 64 MiB, 1024 blocks of 64 KiB at equal distances count, the first and the last
 * bytes among them: what differs elsewhere alone is not noticed. 0 for data sets that are not in
 * host memory. Errors: those of the decode.
 */
clt_status clt_dataset_digest(clt_dataset *dataset, uint64_t *digest);

#endif
