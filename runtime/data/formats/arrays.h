/* Data sets of named arrays whose first axis are the samples: what NPZ and HDF5 files have in
 * common. */
#ifndef CLT_DATA_FORMATS_ARRAYS_H
#define CLT_DATA_FORMATS_ARRAYS_H

#include "data/core/kinds.h"

/* An array in a file. Types are numpy's: 'f', 'i' (signed) or 'u', with their bytes. */
typedef struct clt_array {
    char name[96];
    char type;
    int bytes, rank;
    int64_t shape[CLT_MAX_RANK];
    int64_t place; /* the reader's own */
} clt_array;

typedef struct clt_array_file {
    const char *path;
    clt_array *arrays;
    int count, room;
    void *handle; /* the reader's own */
    /* Allocates and reads all elements, in rows (C order), in the machine's byte order. */
    clt_status (*read)(const struct clt_array_file *file, const clt_array *array, void **raw);
} clt_array_file;

/* Adds an array of the file; FORMAT or UNSUPPORTED with the file and the array for what no field
 * can be made of. `type` as found, also one that is not read; `dtype` is its name in messages. */
clt_status clt_arrays_add(clt_array_file *file, const clt_array *array, const char *dtype);

/* Makes the data set of the split; `divided`: the file's arrays are the split's already. */
clt_status clt_arrays_open(const clt_array_file *file, const clt_data_request *r, bool divided,
                           clt_dataset **out);

/* Bytes of all elements. */
int64_t clt_array_bytes(const clt_array *array);

#endif
