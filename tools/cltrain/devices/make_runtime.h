/* The discovery of devices. */
#ifndef CLTRAIN_COMMAND_DEVICES_MAKE_RUNTIME_H
#define CLTRAIN_COMMAND_DEVICES_MAKE_RUNTIME_H

#include <cltrain/cltrain.h>

/* Finds the devices. Compiled kernels are kept below `cache_dir` if that is not NULL. Warns where
 * a folder for compiled kernels has no space left. */
clt_status make_runtime(char *cache_dir, clt_runtime **runtime);

#endif
