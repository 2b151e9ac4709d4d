/* Makes the runtime of the command. */
#ifndef CLTRAIN_COMMAND_DEVICES_MAKE_RUNTIME_H
#define CLTRAIN_COMMAND_DEVICES_MAKE_RUNTIME_H

#include <cltrain/cltrain.h>

/* Creates the runtime, which finds the devices. Keeps compiled kernels below `cache_dir` if that is
 * not NULL. Warns if the folder for compiled kernels has no space left. */
clt_status make_runtime(char *cache_dir, clt_runtime **runtime);

#endif
