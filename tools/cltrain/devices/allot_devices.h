/* Assigns the devices and cores of a node to its ranks. */
#ifndef CLTRAIN_COMMAND_DEVICES_ALLOT_DEVICES_H
#define CLTRAIN_COMMAND_DEVICES_ALLOT_DEVICES_H

#include <sched.h>

#include "options/options.h"

/* The devices that --devices selects on this node. */
typedef struct found {
    int code; /* an exit code */
    int devices;
    int cpu; /* index of the only CPU device, -1 if there are none or several */
    int cores;
} found;

/* Limits PoCL's threads to the number of cores of this process. PoCL starts a thread for each core
 * of the machine, and too many threads would slow each other down. Call this before the first
 * OpenCL call. */
void share_out_threads(void);

/* Finds the devices in a child process. An OpenCL driver keeps to the cores that its process had at
 * the first OpenCL call, and this process may be restricted later. Returns an exit code. */
int look_apart(const settings *s, found *f);

/* Selects the devices of rank `k` of the node's `n` ranks. `own[0..n-1]` are the cores of each
 * rank. Sets the first device and the number of devices. Count 0 stands for all devices. May
 * restrict this process to a part of its cores. Returns an exit code. */
int share_out_devices(const found *f, int k, int n, const cpu_set_t *own, int *first, int *count);

#endif
