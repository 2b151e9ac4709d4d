/* Element types of files, and descriptions of tensors for messages. */
#ifndef CLT_CHECKPOINT_TENSOR_H
#define CLT_CHECKPOINT_TENSOR_H

#include <stdbool.h>

#include <cltrain/checkpoint.h>

/* Bytes of one element; 0 for an unknown type. */
int clt_file_dtype_size(clt_file_dtype dtype);

/* Parses a type's name; false if it is unknown. */
bool clt_file_dtype_parse(const char *name, clt_file_dtype *out);

/* Whether clt_tensors_find refuses this type. */
bool clt_file_dtype_opaque(clt_file_dtype dtype);

/* Text from a file, shortened and made fit for a message of one line: control characters become
 * '?'. */
typedef struct clt_short_text {
    char text[160];
} clt_short_text;

const char *clt_label_of(clt_short_text *label, const char *text);

/* Checks that I32 can hold all elements of an I64 tensor. MISMATCH names the first that does not
 * fit. */
clt_status clt_tensor_fits_i32(const clt_tensor *tensor);

/* Converts a tensor of F16, BF16, F32 or F64 to `count` elements of F16 or BF16, rounding to
 * nearest, ties to even. Errors: those of clt_tensor_to_f32, OUT_OF_MEMORY. */
clt_status clt_tensor_to_half(const clt_tensor *tensor, int64_t count, clt_file_dtype type,
                              uint16_t *out);

/* Describes type and shape, as "F32 [20, 1, 3, 3]". */
const char *clt_label_shape(clt_short_text *label, const clt_tensor *tensor);

#endif
