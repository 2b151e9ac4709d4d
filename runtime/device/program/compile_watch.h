/* Tells the host program how far compiling has come (clt_compile_set). */
#ifndef CLT_DEVICE_PROGRAM_COMPILE_WATCH_H
#define CLT_DEVICE_PROGRAM_COMPILE_WATCH_H

#include "device/core/device.h"

/* Whether there is a callback. */
bool clt_compile_is_watched(void);

/* Calls the callback if there is one. */
void clt_compile_report(const clt_device *device, bool kernels, int done, int total);

/* Whether the first launches of kernels are to be reported: there is a callback, and the device
 * compiles at the first launch. */
bool clt_compile_is_late(const clt_device *device);

#endif
