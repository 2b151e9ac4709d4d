/* The file of --metrics, with one JSON object a line, and the files of --tensorboard. */
#ifndef CLTRAIN_COMMAND_OUTPUT_METRICS_H
#define CLTRAIN_COMMAND_OUTPUT_METRICS_H

#include <cltrain/fit.h>
#include <jansson.h>

#include "output/file_lock.h"

typedef struct metrics metrics;

/* Opens the metrics file for writing. Its old content stays until the first record is written.
 *   - `path`: NULL if only `board` is wanted.
 *   - `board`: the folder of --tensorboard, or NULL. It gets a file with the first record.
 *   - `resume`: keep the records of steps before the first new step.
 *   - `scaled`: losses are scaled, so records of steps have the scale and the number of skipped
 *     steps.
 * A regular file is locked until metrics_close, so no other run writes to it. Returns an exit code,
 * after a message. */
int metrics_open(const char *path, const char *board, int resume, int scaled, patience *p,
                 metrics **out);

/* Write the record of a step or an epoch. `graph` has the names of losses and metrics. Return 0, or
 * -1 if the file cannot be written, which metrics_close reports. */
int metrics_step(metrics *m, const clt_progress *progress);
int metrics_epoch(metrics *m, const clt_graph *graph, const clt_progress *progress);
/* Of a validation that does not end an epoch. */
int metrics_validation(metrics *m, const clt_graph *graph, const clt_progress *progress);

/* Writes a record without step before that of the step `first`, and releases it. NULL stands for a
 * record that memory did not suffice for. Returns as metrics_step. */
int metrics_change(metrics *m, json_t *record, const clt_progress *first);

/* Writes all pending records to the file. Returns as metrics_step. */
int metrics_flush(metrics *m);

/* Writes all pending records and closes the file. Removes a file that metrics_open made if no
 * record was written. Takes NULL. Returns an exit code, after a message. */
int metrics_close(metrics *m);

#endif
