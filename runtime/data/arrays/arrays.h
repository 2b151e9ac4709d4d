/* Data sets of named arrays whose first axis is the sample: the common part of NPZ and HDF5
 * files. */
#ifndef CLT_DATA_ARRAYS_ARRAYS_H
#define CLT_DATA_ARRAYS_ARRAYS_H

#include "data/core/kinds.h"

/* An array in a file. `type` is numpy's: 'f', 'i' (signed) or 'u'; `bytes` is the size of an
 * element. */
typedef struct clt_stored_array {
    char name[96];
    char type;
    int bytes, rank;
    int64_t shape[CLT_MAX_RANK];
    int64_t place; /* set and used by the reader */
} clt_stored_array;

typedef struct clt_array_file {
    const char *path;
    clt_stored_array *arrays;
    int count, room;
    void *handle; /* set and used by the reader */
    /* Allocates *raw and reads all elements, in C order and in the machine's byte order. */
    clt_status (*read)(const struct clt_array_file *file, const clt_stored_array *array,
                       void **raw);
} clt_array_file;

/* Adds an array of the file, also one that will not be read. FORMAT or UNSUPPORTED, naming the file
 * and the array, if no field can be made of it. `dtype` is the type's name in messages. */
clt_status clt_arrays_add(clt_array_file *file, const clt_stored_array *array, const char *dtype);

/* Makes the data set of the split. `divided`: the file holds the arrays of this split only. */
clt_status clt_arrays_open(const clt_array_file *file, const clt_data_request *r, bool divided,
                           clt_dataset **out);

/* Returns the bytes of all elements. */
int64_t clt_array_bytes(const clt_stored_array *array);

#endif
