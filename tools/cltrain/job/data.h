/* Parts of `cltrain data`, and what it shares with the commands that train. */
#ifndef CLTRAIN_COMMAND_JOB_DATA_H
#define CLTRAIN_COMMAND_JOB_DATA_H

#include <cltrain/data.h>

#include "options/options.h"

/* How --classes, --seq-len and the like say to open data. */
clt_status data_options(const settings *s, clt_dataset_options *options);

/* Whether test samples have a field as the training samples have it: NOT_FOUND, MISMATCH. */
clt_status same_field(const clt_dataset *train, const clt_dataset *test, const char *name);

/* `cltrain data tokenize`. */
int run_tokenize(const settings *s);

#endif
