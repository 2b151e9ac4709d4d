/* The progress lines of a run: on a terminal one line that is rewritten, elsewhere a line every 2
 * seconds. */
#ifndef CLTRAIN_COMMAND_OUTPUT_PROGRESS_H
#define CLTRAIN_COMMAND_OUTPUT_PROGRESS_H

#include <cltrain/fit.h>

typedef struct progress {
    int quiet, terminal;
    int open;                     /* the terminal's line has no newline yet */
    int64_t first;                /* steps before the first step of this run, -1 if not known yet */
    double shown;                 /* seconds of the run at the last line */
    int64_t samples;              /* samples since the last line */
    double rate;                  /* samples a second in the last line */
    double epoch_seconds, waited; /* seconds of the run at the end of the previous epoch */
} progress;

void progress_init(progress *p, int quiet);
void progress_step(progress *p, const clt_progress *step);
/* Prints the new division of the batch. */
void progress_split(progress *p, const clt_progress *now);
/* Prints the results of an epoch. `graph` has the names of losses and metrics. */
void progress_epoch(progress *p, const clt_graph *graph, const clt_progress *epoch);

/* Prints the results of a validation that does not end an epoch. */
void progress_validation(progress *p, const clt_graph *graph, const clt_progress *now);
/* Prints what a policy did after a step. */
void progress_note(progress *p, int64_t step, const char *what);

/* Prints how many kernels are left to compile, if compiling takes long. `user` is NULL. It is the
 * callback of clt_compile_set. */
void progress_compile(void *user, const char *device, int kernels, int done, int total);

/* Ends an open line. Call this before anything else is printed. */
void progress_end(progress *p);

#endif
