/*
 * Reads and writes safetensors files: 8 bytes header length (little-endian), a JSON header of that
 * length, the data. See https://github.com/huggingface/safetensors.
 */
#ifndef CLT_CHECKPOINT_SAFETENSORS_H
#define CLT_CHECKPOINT_SAFETENSORS_H

#include "checkpoint/outfile.h"
#include <cltrain/checkpoint.h>

/* The largest header that the reference implementation accepts. */
#define CLT_SAFETENSORS_MAX_HEADER 100000000

/* Finds a tensor by name, of any type; NULL if there is none. */
const clt_tensor *clt_tensors_lookup(const clt_tensors *tensors, const char *name);

/* Checks that the file's tensor `copy` equals tensor `name`, because the model has one tensor for
 * both. MISMATCH if type, shape or a bit differs. A missing `name` is no error. */
clt_status clt_tensors_check_tied(const clt_tensors *tensors, const clt_tensor *copy,
                                  const char *name);

/* Returns the bytes of the whole file, for its hash. */
const void *clt_tensors_bytes(const clt_tensors *tensors, int64_t *bytes);

const char *clt_tensors_path(const clt_tensors *tensors);

/* Writes the header and the data to an open file. */
clt_status clt_tensors_write(clt_outfile *file, const clt_tensors_desc *desc);

#endif
