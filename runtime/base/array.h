/* Views of a caller's memory: what the parts of the library that take <cltrain/array.h> share. */
#ifndef CLT_BASE_ARRAY_H
#define CLT_BASE_ARRAY_H

#include <stdbool.h>

#include <cltrain/array.h>

/* True if graphs, data sets and collectives have elements of this type. */
bool clt_dtype_of_tensor(clt_dtype dtype);

/* Describes row-major memory without gaps, without checks. */
clt_array clt_array_dense(const void *host, clt_dtype dtype, int rank, const int64_t *shape);

/* Checks the array (clt_array_check) against a tensor: its shape is `shape`, and its elements can
 * become the tensor's. With `whole` only the memory is checked: `bytes`, if known, must be enough.
 * `what` names the array in messages ("feed x"). */
clt_status clt_array_fits(const clt_array *array, const char *what, clt_dtype dtype, int rank,
                          const int64_t *shape);

/* True if the tensor's bytes can be used where they lie: `whole`, a buffer, or dense, aligned
 * memory of the tensor's type. The array must fit. */
bool clt_array_in_place(const clt_array *array, clt_dtype dtype);

/* Prints a shape like "[2, 3]" into `text`. Returns `text`. */
enum { CLT_SHAPE_TEXT = 24 * CLT_MAX_RANK };
const char *clt_shape_text(int rank, const int64_t *shape, char text[CLT_SHAPE_TEXT]);

#endif
