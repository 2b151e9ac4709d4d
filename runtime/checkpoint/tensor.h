/* Element types of files, and tensors as text for messages. */
#ifndef CLT_CHECKPOINT_TENSOR_H
#define CLT_CHECKPOINT_TENSOR_H

#include <stdbool.h>

#include <cltrain/checkpoint.h>

/* Bytes of one element; 0 for an unknown type. */
int clt_file_dtype_size(clt_file_dtype dtype);

/* False if no type has this name in files. */
bool clt_file_dtype_parse(const char *name, clt_file_dtype *out);

/* True for the types that clt_tensors_find refuses. */
bool clt_file_dtype_opaque(clt_file_dtype dtype);

/* Text that came from a file, made fit for a message of one line: control characters become '?',
 * and long text is cut. */
typedef struct clt_label {
    char text[160];
} clt_label;

const char *clt_label_of(clt_label *label, const char *text);

/* MISMATCH for the first element of an I64 tensor that I32 cannot hold. */
clt_status clt_tensor_fits_i32(const clt_tensor *tensor);

/* "F32 [20, 1, 3, 3]" */
const char *clt_label_shape(clt_label *label, const clt_tensor *tensor);

#endif
