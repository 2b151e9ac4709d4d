/*
 * How training and graphs exchange data between devices, without knowing the communicator: a table
 * of functions that train/ranks/connect.c fills. start and complete mean what clt_comm_start and
 * clt_comm_complete mean in <cltrain/comm.h>.
 */
#ifndef CLT_EXEC_COLLECTIVE_H
#define CLT_EXEC_COLLECTIVE_H

#include <stdbool.h>

#include "base/str.h"
#include "device/core/device.h"

typedef enum clt_collective_kind {
    CLT_COLLECTIVE_ALL_REDUCE,
    CLT_COLLECTIVE_REDUCE,         /* for `root` alone */
    CLT_COLLECTIVE_REDUCE_SCATTER, /* `count` elements for each participant, from `count` x
                                      participants */
    CLT_COLLECTIVE_ALL_GATHER,     /* `count` elements of each participant */
    CLT_COLLECTIVE_BROADCAST,      /* from `root` */
    CLT_COLLECTIVE_SEND,    /* to `peer`. A participant that neither sends nor receives brings
                               a barrier */
    CLT_COLLECTIVE_RECEIVE, /* from `peer` */
    CLT_COLLECTIVE_BARRIER
} clt_collective_kind;

/* Of the kinds that reduce. */
typedef enum clt_collective_reduction {
    CLT_COLLECTIVE_SUM,
    CLT_COLLECTIVE_MIN,
    CLT_COLLECTIVE_MAX
} clt_collective_reduction;

/* One device's part in a collective on a buffer. */
typedef struct clt_collective {
    clt_collective_kind kind;
    clt_collective_reduction reduction;
    int group; /* 0: all devices of all ranks. Others: see `split` */
    cl_mem buffer;
    void *host;            /* instead of `buffer`: the host's memory */
    int64_t offset, count; /* elements */
    cl_mem out;            /* the result; NULL: in place */
    int64_t out_offset;
    clt_dtype dtype;
    int root, peer;    /* participants, numbered within the group */
    bool whole;        /* no other command uses the buffer object meanwhile */
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

/* What is under way on a device, between start and complete. */
typedef struct clt_collective_request {
    void *request;
    int group;
} clt_collective_request;

/* Zero: one device, which has nobody to exchange with. */
typedef struct clt_collectives {
    void *self;

    /* Enqueues the download or map behind the wait list; does not block. */
    clt_status (*start)(void *self, int device, const clt_collective *what, cl_uint n_wait,
                        const cl_event *wait, clt_collective_request *request);

    /* Blocks until the host's part is done, enqueues the upload or unmap on the device's queue. */
    clt_status (*complete)(void *self, int device, const clt_collective_request *request,
                           clt_collective_result *result);

    /* Allocates what `requests` requests of `bytes` bytes need at once on a device, none of which
     * is in flight. */
    clt_status (*reserve)(void *self, int device, int64_t bytes, int requests);

    /*
     * Divides the participants: those of one colour (by participant of group 0, not negative) form
     * a group of their own. Afterwards `group` stands on each device for the one it is in. Members
     * of a group start its collectives in the same order, whatever other groups do. Collective over
     * all ranks. UNSUPPORTED: a colour has devices of several ranks, but not of all.
     */
    clt_status (*split)(void *self, const int *colours, int *group);

    /* Makes every device's blocked complete return ABORTED. Any thread. */
    void (*stop)(void *self, clt_status status, const char *message);

    /* OK, or why it was stopped, here or by another rank. Any thread. */
    clt_status (*status)(void *self);

    /* NULL, or what the thread that made the table calls while the devices' threads work. */
    void (*progress)(void *self);

    /* Waits until all ranks have called it; nothing is started afterwards. */
    clt_status (*finish)(void *self);

    /* One line a transport: what takes a collective like this one on the first device, and why the
     * others do not. */
    void (*explain)(void *self, const clt_collective *what, clt_str *text);

    void (*close)(void *self);
} clt_collectives;

#endif
