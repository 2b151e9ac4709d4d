/* Writing numpy's NPZ: a zip archive of NPY arrays, stored. */
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

/* Writes the file beside `path` and renames it. Returns an exit code, after a message: also for
 * types that numpy does not have. */
int npz_write(const char *path, const npz_array *arrays, int count);

#endif
