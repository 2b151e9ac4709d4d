/* Processes that compile kernels beside this one. */
#ifndef CLTRAIN_COMMAND_JOB_COMPILE_PROCESSES_H
#define CLTRAIN_COMMAND_JOB_COMPILE_PROCESSES_H

#include "options/options.h"

/* Starts the processes of --compile-processes, before OpenCL is used. Without the option there is
 * one for each core, but none under a process manager, where the other ranks have the cores. Sets
 * *count. Returns an exit code. */
int start_compile_processes(const settings *s, int *count);

#endif
