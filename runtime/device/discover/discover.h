/* Finds devices and their capabilities. */
#ifndef CLT_DEVICE_DISCOVER_DISCOVER_H
#define CLT_DEVICE_DISCOVER_DISCOVER_H

#include <pthread.h>

#include "device/core/device.h"

typedef struct clt_device_row {
    clt_device_info info;
    clt_caps caps;
    cl_platform_id platform;
    cl_device_id id;
    int quirks;
} clt_device_row;

struct clt_runtime {
    clt_device_row *rows;
    int count, room;
    char remark[320];
    char *cache_dir; /* NULL: no cache */
};

/* Held while devices are listed or split: PoCL fails if two threads do so at once. */
extern pthread_mutex_t clt_discovery_lock;

/* Appends a row for each device of each platform. */
clt_status clt_discover(clt_runtime *runtime);

/* Fills info, caps and quirks of one device. The caller sets info.index and duplicate_of. */
void clt_describe_device(cl_platform_id platform, cl_device_id id, clt_device_row *row);

/* Returns bits of clt_quirk. `text` gets a description for people. */
int clt_find_quirks(const clt_device_info *info, char *text, size_t bytes);

#endif
