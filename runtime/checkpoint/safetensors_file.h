/* An open safetensors file, as its readers share it. */
#ifndef CLT_CHECKPOINT_SAFETENSORS_FILE_H
#define CLT_CHECKPOINT_SAFETENSORS_FILE_H

#include <stdbool.h>

#include <jansson.h>

#include "checkpoint/safetensors.h"

struct clt_tensors {
    char *path;
    bool apart;           /* data stay in the file until they are asked for */
    int fd;               /* -1: all has been read */
    int64_t size;         /* of the file */
    unsigned char *bytes; /* the whole file; NULL if data stay in the file */
    unsigned char *head;  /* while there is `fd`: length and header */
    int64_t head_bytes;
    json_t *header; /* owns the names and the metadata */
    json_t *metadata;
    clt_tensor *items; /* in the order of the data */
    const clt_tensor **by_name;
    int64_t *offsets; /* by item: of its data in the file */
    uint64_t *hashes; /* by item: of its data, found by clt_tensors_hash; NULL: not yet */
    int count;
    unsigned char *copies; /* copies of tensors that are not aligned in the file */
};

/* Reads the data of all items, unless they stay in the file. */
clt_status clt_tensors_read_data(clt_tensors *tensors);

/* Closes the file and frees what only reading needs. */
void clt_tensors_end_reading(clt_tensors *tensors);

#endif
