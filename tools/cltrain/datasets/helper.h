/* Opens data sets whose reader may crash on damaged files. A helper process reads them first. */
#ifndef CLTRAIN_COMMAND_DATASETS_HELPER_H
#define CLTRAIN_COMMAND_DATASETS_HELPER_H

#include <cltrain/data.h>

/* As clt_dataset_open. For hdf5:FILE, a helper process reads the whole file first, because libhdf5
 * may crash or hang on a damaged file. Such a file is reported as FORMAT. */
clt_status open_dataset(const char *spec, const clt_dataset_options *options, clt_dataset **out);

/* The helper process: `cltrain --try-data SPEC SPLIT CLASSES`. Its exit code is the status, and its
 * output is the message. The parent does not read a file again that the helper could not read:
 * libhdf5 may print messages when a process ends after such a failure. */
#define TRY_DATA "--try-data"
int try_data(int argc, char **argv);

#endif
