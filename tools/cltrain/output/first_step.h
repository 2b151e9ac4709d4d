/* Where the time until the end of the first step goes (--first-step). */
#ifndef CLTRAIN_COMMAND_OUTPUT_FIRST_STEP_H
#define CLTRAIN_COMMAND_OUTPUT_FIRST_STEP_H

#include <cltrain/device.h>

/* Begins with the time since the process was started. Call it once, before any other. */
void first_step_begin(void);

/* The stage that ends now. `name` is a literal. */
void first_step_stage(const char *name);

/* Counts the time of programs and of kernels, and prints the progress of long compilations. It is
 * the callback of clt_compile_set. `user` is NULL. */
void first_step_compile(void *user, const char *device, int kernels, int done, int total);

/* Call it before each measurement of kernels. */
void first_step_measures(void);

/* Ends the first step. Prints a line: stages in seconds, and how many programs and kernels the
 * devices have. `processes` compiled them. */
void first_step_print(clt_device *const *devices, int n_devices, int processes);

#endif
