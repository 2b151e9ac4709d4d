/*
 * The table of functions through which training and graphs exchange data between devices. It hides
 * the communicator: train/ranks/connect.c fills it. start and complete mean the same as
 * clt_comm_start and clt_comm_complete in <cltrain/comm.h>.
 */
#ifndef CLT_EXEC_COLLECTIVE_H
#define CLT_EXEC_COLLECTIVE_H

#include <stdbool.h>

#include "base/str.h"
#include "device/core/device.h"

typedef enum clt_collective_kind {
    CLT_COLLECTIVE_ALL_REDUCE,
    CLT_COLLECTIVE_REDUCE,         /* only `root` gets the result */
    CLT_COLLECTIVE_REDUCE_SCATTER, /* each participant gets `count` elements of the result, from
                                      `count` x participants */
    CLT_COLLECTIVE_ALL_GATHER,     /* from `count` elements of each participant */
    CLT_COLLECTIVE_BROADCAST,      /* from `root` */
    CLT_COLLECTIVE_SEND,    /* to `peer`. A participant that neither sends nor receives starts a
                               barrier */
    CLT_COLLECTIVE_RECEIVE, /* from `peer` */
    CLT_COLLECTIVE_SHIFT,   /* from the participant `step` numbers before. One whose number is then
                               out of range receives nothing */
    CLT_COLLECTIVE_BARRIER
} clt_collective_kind;

/* For the kinds that reduce. */
typedef enum clt_collective_reduction {
    CLT_COLLECTIVE_SUM,
    CLT_COLLECTIVE_MIN,
    CLT_COLLECTIVE_MAX
} clt_collective_reduction;

/* What rounding sums to 16 bits has left over on this rank: clt_comm_residual in <cltrain/comm.h>.
 */
typedef struct clt_collective_residual clt_collective_residual;

/* Who rounds: clt_comm_rounding in <cltrain/comm.h>. */
enum { CLT_ROUNDS_RANK, CLT_ROUNDS_NODE, CLT_ROUNDS_SUM, CLT_ROUNDINGS };

/* One device's part in a collective on a buffer. */
typedef struct clt_collective {
    clt_collective_kind kind;
    clt_collective_reduction reduction;
    int group; /* 0: all devices of all ranks. Other numbers come from `split` */
    cl_mem buffer;
    void *host;            /* memory of the host, used instead of `buffer` */
    int64_t offset, count; /* elements */
    cl_mem out;            /* the result; NULL: in place */
    int64_t out_offset;
    clt_dtype dtype;
    int root, peer;    /* participants, numbered within the group */
    int step;          /* for SHIFT */
    bool whole;        /* no other command uses the buffer object meanwhile */
    bool empty;        /* this device has no data to add in this step */
    bool measure;      /* compute the sum of squares and the finite flag of the result */
    int vote;          /* this device's bits of the vote */
    int64_t leaves;    /* sums: as clt_comm_op.leaves; 0: in the order of the participants */
    const char *label; /* for messages; valid until completed */
    clt_collective_residual *residual; /* error feedback of a sum in 16 bits; NULL: none */
    double residual_scale;             /* the residual is kept divided by it */
} clt_collective;

/* Facts about the result that the host learns, identical on all participants. */
typedef struct clt_collective_result {
    double sum_squares;
    bool finite;
    int votes; /* the bitwise OR over all participants */
    /* Seconds of CLOCK_MONOTONIC: when this device's data were on the host, and when the result
     * was. */
    double ready, done;
} clt_collective_result;

/* A collective of a device between start and complete. */
typedef struct clt_collective_request {
    void *request;
    int group;
} clt_collective_request;

/* All zero: there is one device, without anyone to exchange with. */
typedef struct clt_collectives {
    void *self;

    /* Enqueues the download or map behind the wait list; does not block. */
    clt_status (*start)(void *self, int device, const clt_collective *what, cl_uint n_wait,
                        const cl_event *wait, clt_collective_request *request);

    /* Blocks until the host's part is done, enqueues the upload or unmap on the device's queue. */
    clt_status (*complete)(void *self, int device, const clt_collective_request *request,
                           clt_collective_result *result);

    /* Allocates memory for `requests` requests of a group, of `bytes` bytes each, at once on a
     * device. No request of the group may be in flight on it. */
    clt_status (*reserve)(void *self, int group, int device, int64_t bytes, int requests);

    /*
     * Divides all participants into groups: those with the same colour form a group, in their
     * order. With a negative colour a participant is in none. *group becomes the number by which
     * each device calls the group that it is in. Members of a group start its collectives in the
     * same order, independently of other groups. All ranks must call it, with the same colours.
     * `sends`: a device may send before it starts what the receiver needs from it, in another
     * group. Its queue then never waits for the receiver.
     */
    clt_status (*split)(void *self, const int *colours, bool sends, int *group);

    /* Error feedback for sums of `count` elements in a group of all devices. The residual is closed
     * when no request uses it, before or after the collectives. These functions are
     * clt_comm_residual_create, _accept and so on. */
    clt_status (*residual_open)(void *self, int group, int64_t count,
                                clt_collective_residual **residual);
    void (*residual_close)(clt_collective_residual *residual);
    void (*residual_accept)(clt_collective_residual *residual);
    int (*residual_has)(const clt_collective_residual *residual, int rounding);
    void (*residual_get)(const clt_collective_residual *residual, int rounding, float *data);
    clt_status (*residual_set)(clt_collective_residual *residual, int rounding, const float *data);

    /* Makes every blocked complete of all devices and groups return ABORTED. A failure of start or
     * complete does the same. Any thread may call it. */
    void (*stop)(void *self, clt_status status, const char *message);

    /* Returns OK, or why the communicator was stopped, here or by another rank. Any thread may call
     * it. */
    clt_status (*status)(void *self);

    /* Whether the thread that made the table must call `progress` while the device threads work. */
    bool (*needs_progress)(void *self);
    void (*progress)(void *self);

    /* Waits until all ranks have called it. Nothing may be started afterwards. */
    clt_status (*finish)(void *self);

    /* Writes one line for each transport: which one takes such a collective on the first device,
     * and why the others do not. */
    void (*explain)(void *self, const clt_collective *what, clt_str *text);

    void (*close)(void *self);
} clt_collectives;

#endif
