/* Checksums of a replica's parameters, states and gradients; the kernel is
 * clkernels/train/portable/checksum.cl. */
#ifndef CLT_EXEC_CHECKSUM_H
#define CLT_EXEC_CHECKSUM_H

#include "exec/replica.h"

typedef struct clt_checksum clt_checksum;

/* Returns the bytes of the buffer that clt_checksum_create makes. */
int64_t clt_checksum_bytes(const clt_replica *replica);

clt_status clt_checksum_create(const clt_replica *replica, clt_checksum **checksum);

/* Takes NULL. */
void clt_checksum_destroy(clt_checksum *checksum);

/* Waits for all enqueued commands. sums[slot] becomes the checksum of a slot of the layout. Equal
 * bits have equal checksums on any device. */
clt_status clt_checksum_run(clt_checksum *checksum, uint64_t *sums);

/* The same for gradients of a precision (F32, F16 or BF16). Those that the device lacks have 0. */
clt_status clt_checksum_gradients(clt_checksum *checksum, clt_dtype precision, uint64_t *sums);

#endif
