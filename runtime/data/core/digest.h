/* A hash of a data set's content, so that a resumed run notices other data of equal size. */
#ifndef CLT_DATA_CORE_DIGEST_H
#define CLT_DATA_CORE_DIGEST_H

#include "data/core/dataset.h"

/*
 * Hashes the fields' names, types and samples. Waits for a decode in the background first. Of a
 * field of more than 64 MiB, only 1024 blocks of 64 KiB at equal distances are hashed. The first
 * and the last bytes are among them. Differences outside these blocks are not noticed. *digest is 0
 * for data sets that are not in host memory and have no content hash of their own. Errors: the
 * errors of the decode.
 */
clt_status clt_dataset_digest(clt_dataset *dataset, uint64_t *digest);

#endif
