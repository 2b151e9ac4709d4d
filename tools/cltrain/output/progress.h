/* What a run prints: one line that is rewritten on a terminal, a line now and then elsewhere. */
#ifndef CLTRAIN_COMMAND_OUTPUT_PROGRESS_H
#define CLTRAIN_COMMAND_OUTPUT_PROGRESS_H

#include <cltrain/fit.h>

typedef struct progress {
    int quiet, terminal;
    int open;                     /* a line stands on the terminal without its end */
    int64_t first;                /* steps before this run's first; -1: not known yet */
    double shown;                 /* seconds of the run when something was printed last */
    int64_t samples;              /* since then */
    double rate;                  /* samples a second, as printed last */
    double epoch_seconds, waited; /* of the run, until the last epoch was printed */
} progress;

void progress_init(progress *p, int quiet);
void progress_step(progress *p, const clt_progress *step);
/* The division of the batch has changed with this step. */
void progress_split(progress *p, const clt_progress *now);
/* `graph` has the names of losses and metrics. */
void progress_epoch(progress *p, const clt_graph *graph, const clt_progress *epoch);

/* Ends an open line: before anything else is printed. */
void progress_end(progress *p);

#endif
