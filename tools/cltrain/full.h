/* A disk that is nearly full, where OpenCL drivers keep what they compile. */
#ifndef CLTRAIN_COMMAND_FULL_H
#define CLTRAIN_COMMAND_FULL_H

#include <cltrain/device.h>

/* PoCL, or LLVM in it, ends the process where it cannot write compiled kernels: a line says so
 * before. */
void warn_of_full_caches(const clt_runtime *runtime);

#endif
