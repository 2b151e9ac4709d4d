/* Which of the node's devices and cores a rank has. */
#ifndef CLTRAIN_COMMAND_DEVICES_ALLOT_DEVICES_H
#define CLTRAIN_COMMAND_DEVICES_ALLOT_DEVICES_H

#include <sched.h>

#include "options/options.h"

/* What the list opens on this node. */
typedef struct found {
    int code; /* an exit code */
    int devices;
    int cpu; /* the only whole CPU among them, -1: none or several */
    int cores;
} found;

/* Has PoCL's device be as large as this process' cores are many: it counts the machine's, and its
 * threads would stand in each other's way on fewer. Before the first call of OpenCL. */
void deal_threads(void);

/* Looks in a process of its own: an OpenCL driver keeps to the cores that its process had when it
 * was first called. Returns an exit code. */
int look_apart(const settings *s, found *f);

/* Rank `k` of the node's `n`, whose cores are `own[0..n-1]`. Sets the first and the number of the
 * devices that are its own; count 0: all. May restrict this process to some cores. Returns an exit
 * code. */
int deal_devices(const found *f, int k, int n, const cpu_set_t *own, int *first, int *count);

#endif
