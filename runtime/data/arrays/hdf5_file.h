/* Opens an HDF5 file with libhdf5 as one regular file, through a driver of our own. */
#ifndef CLT_DATA_ARRAYS_HDF5_FILE_H
#define CLT_DATA_ARRAYS_HDF5_FILE_H

#include <stdint.h>

#include <hdf5.h>

#include <cltrain/status.h>

typedef struct clt_hdf5_file {
    const char *path; /* borrowed */
    int fd;
    int64_t bytes;
    hid_t driver, file;
    hid_t access; /* properties for opening links: none may lead out of the file */
} clt_hdf5_file;

/* Opens the file for reading. Errors: NOT_FOUND, IO, FORMAT; the message names the file. After an
 * error there is nothing to close. */
clt_status clt_hdf5_open(const char *path, clt_hdf5_file *out);

/* Makes this thread's reads of elements fail unless they have exactly so many bytes; 0: any number.
 * H5Dread_chunk reads as many bytes as a damaged file says, whatever memory it was given. */
void clt_hdf5_expect_bytes(int64_t bytes);

/* Closes the file. Arrays and groups of the file must be closed before. */
void clt_hdf5_close(clt_hdf5_file *file);

#endif
