/* Where OpenCL drivers keep what they compile, and whether that disk is nearly full. */
#ifndef CLTRAIN_COMMAND_DEVICES_DISK_SPACE_H
#define CLTRAIN_COMMAND_DEVICES_DISK_SPACE_H

#include <cltrain/device.h>

/* Moves PoCL's own cache into the command's folder, made as needed, which only the environment can
 * do. Not where the user set POCL_CACHE_DIR, nor where others may write to the folder: a warning.
 */
void move_pocl_cache(const char *cache_dir);

/* PoCL, or LLVM in it, ends the process where it cannot write compiled kernels: a line says so
 * before. */
void warn_of_full_caches(const clt_runtime *runtime);

#endif
