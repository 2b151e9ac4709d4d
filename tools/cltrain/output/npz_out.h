/* Writing of numpy's NPZ format: a zip archive of uncompressed NPY arrays. */
#ifndef CLTRAIN_COMMAND_OUTPUT_NPZ_OUT_H
#define CLTRAIN_COMMAND_OUTPUT_NPZ_OUT_H

#include <cltrain/types.h>
#include <stdint.h>

typedef struct npz_array {
    const char *name;
    clt_dtype dtype; /* f32, i32, u8 or f64 */
    int rank;
    int64_t dims[CLT_MAX_RANK];
    const void *data; /* row-major */
} npz_array;

/* Writes the archive to a temporary file beside `path` and renames the file. Returns an exit code,
 * after a message. Fails for element types that numpy does not have. */
int npz_write(const char *path, const npz_array *arrays, int count);

#endif
