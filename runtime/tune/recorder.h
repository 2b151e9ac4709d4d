/* Records which commands a device runs, and when, through the device's watcher. */
#ifndef CLT_TUNE_RECORDER_H
#define CLT_TUNE_RECORDER_H

#include "plan/plan.h"
#include "device/core/device.h"

typedef struct clt_recorded {
    clt_command command;
    int64_t tag;
    double start, end; /* seconds on the device's clock */
} clt_recorded;

typedef struct clt_recorder clt_recorder;

/* Watches a device that was opened with profiling. *tag (may be NULL) is read at each command. */
clt_status clt_recorder_create(clt_device *device, const int64_t *tag, clt_recorder **recorder);

/* Stops watching. Takes NULL. */
void clt_recorder_destroy(clt_recorder *recorder);

/* Waits for the device and returns all records so far, in the order of running. A time plus *shift
 * is in seconds since the recorder was made. */
clt_status clt_recorder_read(clt_recorder *recorder, const clt_recorded **records, int *count,
                             double *shift);

#endif
