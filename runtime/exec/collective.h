/*
 * How exec reaches collectives without knowing the communicator: a table that train fills. The two
 * calls have the meaning of clt_comm_start and clt_comm_complete in <cltrain/comm.h>.
 */
#ifndef CLT_EXEC_COLLECTIVE_H
#define CLT_EXEC_COLLECTIVE_H

#include <stdbool.h>

#include "device/core/device.h"

typedef enum clt_collective_kind {
    CLT_COLLECTIVE_ALL_REDUCE, /* sum */
    CLT_COLLECTIVE_REDUCE,     /* sum, for `root` alone */
    CLT_COLLECTIVE_BROADCAST,  /* from `root` */
    CLT_COLLECTIVE_ALL_GATHER  /* `count` elements of each participant */
} clt_collective_kind;

/* One device's part in a collective on a buffer. */
typedef struct clt_collective {
    clt_collective_kind kind;
    cl_mem buffer;
    void *host;            /* instead of `buffer`: the host's memory */
    int64_t offset, count; /* elements */
    cl_mem out;            /* the result; NULL: in place */
    int64_t out_offset;
    clt_dtype dtype;
    int root;          /* participant */
    bool whole;        /* the range is the whole buffer object */
    bool empty;        /* this device has no data to add in this step */
    bool measure;      /* want the sum of squares and finite flag of the result */
    int vote;          /* bits of this device's */
    const char *label; /* for messages; valid until completed */
} clt_collective;

/* What the host learned of the result: identical on all participants. */
typedef struct clt_collective_result {
    double sum_squares;
    bool finite;
    int votes; /* the bitwise or over all participants */
    /* Seconds of CLOCK_MONOTONIC: this device's data were on the host; the result was there. */
    double ready, done;
} clt_collective_result;

typedef struct clt_collectives {
    void *self;

    /* Enqueues the download or map behind the wait list; does not block. */
    clt_status (*start)(void *self, int device, const clt_collective *what, cl_uint n_wait,
                        const cl_event *wait, void **request);

    /* Blocks until the host's part is done, enqueues the upload or unmap on the device's queue. */
    clt_status (*complete)(void *self, int device, void *request, clt_collective_result *result);

    /* Makes every device's blocked complete return ABORTED. */
    void (*stop)(void *self, clt_status status, const char *message);
} clt_collectives;

#endif
