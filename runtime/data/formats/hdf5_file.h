/* An HDF5 file as libhdf5 sees it: one regular file, through a driver of our own. */
#ifndef CLT_DATA_FORMATS_HDF5_FILE_H
#define CLT_DATA_FORMATS_HDF5_FILE_H

#include <stdint.h>

#include <hdf5.h>

#include <cltrain/status.h>

typedef struct clt_hdf5_file {
    const char *path; /* borrowed */
    int fd;
    int64_t bytes;
    hid_t driver, file;
    hid_t access; /* for opening links: none leads out of the file */
} clt_hdf5_file;

/* Opens the file for reading. Errors: NOT_FOUND, IO, FORMAT; the message names the file. After a
 * failure there is nothing to close. */
clt_status clt_hdf5_open(const char *path, clt_hdf5_file *out);

/* Closes the file; arrays and groups of it must be closed. */
void clt_hdf5_close(clt_hdf5_file *file);

#endif
