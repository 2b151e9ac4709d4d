/* The file of --metrics: one JSON object a line. */
#ifndef CLTRAIN_COMMAND_OUTPUT_METRICS_H
#define CLTRAIN_COMMAND_OUTPUT_METRICS_H

#include <cltrain/fit.h>

#include "output/file_lock.h"

typedef struct metrics metrics;

/* Finds out whether the file can be written; what it holds stays until the first record. With
 * `resume`, the records of steps before the first new one are kept. `scaled`: losses are scaled, so
 * that records of steps say by how much, and how many steps were skipped. A regular file is held
 * until metrics_close, so that no other run writes to it. Returns an exit code, after a message. */
int metrics_open(const char *path, int resume, int scaled, patience *p, metrics **out);

/* Write one record; `graph` has the names of losses and metrics. Each returns 0, or -1 when the
 * file cannot be written, which metrics_close reports. */
int metrics_step(metrics *m, const clt_progress *progress);
int metrics_epoch(metrics *m, const clt_graph *graph, const clt_progress *progress);

/* Brings what was written so far into the file. Returns as metrics_step. */
int metrics_flush(metrics *m);

/* Writes what is left and closes; a file that metrics_open made and nothing was written to is
 * removed. Takes NULL. Returns an exit code, after a message. */
int metrics_close(metrics *m);

#endif
