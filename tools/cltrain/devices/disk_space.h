/* The folders where OpenCL drivers keep compiled kernels, and a warning if their disk is nearly
 * full. */
#ifndef CLTRAIN_COMMAND_DEVICES_DISK_SPACE_H
#define CLTRAIN_COMMAND_DEVICES_DISK_SPACE_H

#include <cltrain/device.h>

/* Moves PoCL's kernel cache into the command's cache folder, which is created if needed. PoCL reads
 * this setting only from the environment. Keeps POCL_CACHE_DIR if the user set it. Warns and
 * changes nothing if others may write to the folder. */
void move_pocl_cache(const char *cache_dir);

/* Warns if the disk of PoCL's cache is full. PoCL, or LLVM in it, ends the process if it cannot
 * write compiled kernels. */
void warn_of_full_caches(const clt_runtime *runtime);

#endif
