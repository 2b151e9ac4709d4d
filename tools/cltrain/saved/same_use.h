/* Compares data and options with the section "use" of a checkpoint. */
#ifndef CLTRAIN_COMMAND_SAVED_SAME_USE_H
#define CLTRAIN_COMMAND_SAVED_SAME_USE_H

#include <jansson.h>

#include "job/job.h"

/* Checks that classes have the names that they have in `use`, where both have names. Labels of
 * folders are numbered by the folders' names. Returns an exit code. */
int use_same_classes(const json_t *use, const clt_dataset *data);

/* Checks that a resumed run has the classes, columns, adapters and weights of its checkpoint. Rank
 * 0 alone compares, since others need not have the checkpoint. Call it after job_data. Returns an
 * exit code. */
int use_same_run(const job *j, const settings *s);

#endif
