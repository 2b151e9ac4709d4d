/* The files of --tensorboard: the numbers of each record of --metrics. */
#ifndef CLTRAIN_COMMAND_OUTPUT_SCALARS_H
#define CLTRAIN_COMMAND_OUTPUT_SCALARS_H

#include <cltrain/events.h>
#include <jansson.h>

/* Adds each number of a record at `step`, under the names of the fields. Lists and fields that only
 * number the record are left out, and so are numbers that are not finite. */
clt_status scalars_add(clt_event_file *file, const json_t *record, int64_t step);

#endif
