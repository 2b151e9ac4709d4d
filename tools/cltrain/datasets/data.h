/* Opening of data sets as the options say, and parts of `cltrain data`. */
#ifndef CLTRAIN_COMMAND_DATASETS_DATA_H
#define CLTRAIN_COMMAND_DATASETS_DATA_H

#include <cltrain/data.h>

#include "options/options.h"

/* Sets the options of a data set from --classes, --image-size, --resize and --seq-len. */
clt_status data_options(const settings *s, clt_dataset_options *options);

/* Checks that a field of the test samples has the same type and shape as in the training samples.
 * Errors: NOT_FOUND, MISMATCH. */
clt_status same_field(const clt_dataset *train, const clt_dataset *test, const char *name);

/* Runs `cltrain data tokenize`. Returns an exit code. */
int run_tokenize(const settings *s);

#endif
