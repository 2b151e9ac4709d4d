/* Reads chunked arrays of HDF5 files without libhdf5's filters. */
#ifndef CLT_DATA_ARRAYS_HDF5_CHUNKS_H
#define CLT_DATA_ARRAYS_HDF5_CHUNKS_H

#include <stdbool.h>

#include <hdf5.h>

#include "data/arrays/arrays.h"

/* Reads all elements into `all`, in the machine's byte order. `object` is the array, `plist` its
 * creation properties, `type` the machine's type of its elements. `swapped`: the file has the other
 * byte order. The caller has checked the array's filters and chunk sizes. */
clt_status clt_hdf5_read_chunks(const clt_array_file *file, const clt_stored_array *array,
                                hid_t object, hid_t plist, hid_t type, bool swapped, void *all);

#endif
