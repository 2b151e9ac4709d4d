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

/* As clt_tensors_open, but the data stay in the file: `data` of the tensors is NULL, and
 * clt_tensors_load reads one tensor. */
clt_status clt_tensors_open_apart(const char *path, clt_tensors **tensors);

/* Sets *data to a tensor's elements, wherever they are. Free *owned with clt_free after their use.
 * Errors: IO also if the tensor was changed after clt_tensors_hash. */
clt_status clt_tensors_load(const clt_tensors *tensors, const clt_tensor *tensor, const void **data,
                            void **owned);

/* Finds the size and the hash of the whole file, at most once for each opening. */
clt_status clt_tensors_hash(clt_tensors *tensors, int64_t *bytes, uint64_t *hash);

const char *clt_tensors_path(const clt_tensors *tensors);

/* As clt_checkpoint_open, but tensors stay in the files, as with clt_tensors_open_apart. Each file
 * is read twice, and one tensor at a time is in memory. */
clt_status clt_checkpoint_open_apart(const char *path, clt_checkpoint **checkpoint);

/* Writes the header and the data to an open file. */
clt_status clt_tensors_write(clt_outfile *file, const clt_tensors_desc *desc);

#endif
