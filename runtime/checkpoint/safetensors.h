/*
 * safetensors: 8 bytes header length (little-endian), a JSON header of that length, the data.
 * https://github.com/huggingface/safetensors describes it.
 */
#ifndef CLT_CHECKPOINT_SAFETENSORS_H
#define CLT_CHECKPOINT_SAFETENSORS_H

#include "checkpoint/outfile.h"
#include <cltrain/checkpoint.h>

/* What the reference implementation accepts. */
#define CLT_SAFETENSORS_MAX_HEADER 100000000

/* The tensor of that name, of any type, or NULL. */
const clt_tensor *clt_tensors_lookup(const clt_tensors *tensors, const char *name);

/* `copy` of the file is to be the tensor `name` a second time: MISMATCH where it differs, in type,
 * shape or a bit. */
clt_status clt_tensors_check_tied(const clt_tensors *tensors, const clt_tensor *copy,
                                  const char *name);

/* The whole file as it was read, for its hash. */
const void *clt_tensors_bytes(const clt_tensors *tensors, int64_t *bytes);

const char *clt_tensors_path(const clt_tensors *tensors);

/* Writes header and data to an open file. */
clt_status clt_tensors_write(clt_outfile *file, const clt_tensors_desc *desc);

#endif
