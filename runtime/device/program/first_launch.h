/*
 * Compiles kernels in advance, by the processes of clt_compile_processes, for drivers that compile
 * at the first launch and one kernel of a process at a time. A helper compiles a program from the
 * same source with the same options, and launches its kernels once on buffers of zeros. The driver
 * keeps both in its cache on disk, where this process finds them.
 */
#ifndef CLT_DEVICE_PROGRAM_FIRST_LAUNCH_H
#define CLT_DEVICE_PROGRAM_FIRST_LAUNCH_H

#include "base/str.h"
#include "device/core/device.h"

/* The first launch of a kernel. */
typedef struct clt_first_launch {
    clt_program_key key;
    int work_dim;
    size_t global[3], local[3]; /* local 0: the driver's choice */
    int n_args;
    clt_str args; /* from clt_first_arg and clt_first_buffer */
} clt_first_launch;

/* Append an argument: a buffer of so many bytes, or the bytes of a number. */
void clt_first_buffer(clt_first_launch *launch, int64_t bytes);
void clt_first_arg(clt_first_launch *launch, const void *value, int bytes);

/* Whether kernels of the device can be compiled in advance. */
bool clt_first_launches_help(const clt_device *device);

/* Copies launches, which the device's next clt_first_launches_compile compiles together with its
 * own: helpers share large lists best. Without memory they are compiled at their first launch. */
void clt_first_launches_later(clt_device *device, const clt_first_launch *launches, int count);

/* Forgets them. */
void clt_first_launches_forget(clt_device *device);

/* Compiles those kernels that no run has compiled so far. What fails is left for the caller to
 * compile and report. */
void clt_first_launches_compile(clt_device *device, const clt_first_launch *launches, int count);

#endif
