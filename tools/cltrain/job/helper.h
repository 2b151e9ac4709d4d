/* Opening data sets whose reader may crash on damaged files: a helper process opens them first. */
#ifndef CLTRAIN_COMMAND_JOB_HELPER_H
#define CLTRAIN_COMMAND_JOB_HELPER_H

#include <cltrain/data.h>

/* clt_dataset_open. Of hdf5:FILE all is read by a helper process before, since libhdf5 may crash or
 * never end where a file is damaged: FORMAT then says so. */
clt_status open_dataset(const char *spec, const clt_dataset_options *options, clt_dataset **out);

/* The helper: `cltrain --try-data SPEC SPLIT CLASSES`. Its exit code is the status, its output the
 * message. A file that it cannot read is not read again: libhdf5 may print when such a process
 * ends. */
#define TRY_DATA "--try-data"
int try_data(int argc, char **argv);

#endif
