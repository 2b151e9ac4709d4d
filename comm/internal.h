/*
 * The communicator's inside: a ring of request slots, joined by sequence number.
 *
 * Who writes what: a slot's side belongs to the thread of its device from start to complete, but
 * the reducer reads it (buffers, `ready`, `host`) from the moment all devices have joined until the
 * slot is `done`. Everything else in a slot and in the communicator that changes is under `lock`.
 */
#ifndef CLT_COMM_INTERNAL_H
#define CLT_COMM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <cltrain/comm.h>

#include "comm/local/team.h"

/* A piece of pinned host memory of one device. */
typedef struct clt_staging {
    cl_mem mem; /* only ever a host pointer, never an argument of a copy or kernel */
    char *host;
    size_t bytes;
    bool used;
} clt_staging;

/* One device of this process. */
typedef struct clt_comm_member {
    cl_context context;
    cl_device_id device;
    cl_command_queue compute;
    cl_command_queue queue; /* for transfers; may be `compute` */
    bool can_map;           /* shares the host's memory */
    bool wait_inside;       /* its threads compute only while the host blocks inside OpenCL */
    char name[64];
    clt_staging *staging; /* used by the device's own thread only */
    int staging_count, staging_room;
    int64_t next;   /* sequence number of its next start */
    int64_t oldest; /* all before this one are completed */
} clt_comm_member;

/* One device's part in a request. */
typedef struct clt_comm_side {
    bool joined, completed;
    bool reads;  /* the host reads this device's data */
    bool writes; /* the host writes data for this device */
    clt_comm_op op;
    cl_event ready; /* of the download, map or marker; released by complete or destroy */
    char *host;     /* where the host reads and writes; NULL when there is nothing */
    bool mapped;    /* `host` is the buffer itself */
    int staging;    /* index, or -1 */
} clt_comm_side;

struct clt_comm_algorithm;

struct clt_comm_request {
    clt_comm *comm;
    int64_t sequence; /* -1: the slot is free */
    const struct clt_comm_algorithm *algorithm;
    int joined, completed;
    bool busy; /* the reducer touches host memory of this request */
    bool done;
    double sum_squares;
    bool finite;
    int contributors;
    clt_comm_side *sides; /* one a device */
};

/*
 * A way to do one kind of collective, one file each. `side_roles` says whether the host reads and
 * writes a device's data. `work` does the host's part in pieces of a fixed layout: it is called by
 * several threads at once with the same arguments and takes pieces off `team` until none is left;
 * `finish` is called once, afterwards.
 */
typedef struct clt_comm_algorithm {
    const char *name;
    /* OK, or UNSUPPORTED with the reason. */
    clt_status (*accepts)(const clt_comm *comm, const clt_comm_op *op);
    void (*side_roles)(const clt_comm *comm, const clt_comm_op *op, int device, bool *reads,
                       bool *writes);
    int64_t (*pieces)(const clt_comm *comm, const clt_comm_request *request);
    void (*work)(clt_comm *comm, clt_comm_request *request, int64_t piece);
    void (*finish)(clt_comm *comm, clt_comm_request *request);
} clt_comm_algorithm;

extern const clt_comm_algorithm clt_comm_local_all_reduce;
extern const clt_comm_algorithm clt_comm_local_broadcast;

/* Most pieces whose partial sums of squares are kept apart. */
enum { CLT_COMM_MAX_PIECES = 8192 };

/* One partial result of MEASURE. */
typedef struct clt_comm_partial {
    double sum_squares;
    bool finite;
} clt_comm_partial;

struct clt_comm {
    clt_comm_options options;
    clt_comm_member *members;
    int count;
    clt_comm_request *ring;
    int ring_size;
    clt_comm_side *sides; /* ring_size x count */

    pthread_mutex_t lock;
    pthread_cond_t work; /* the reducer waits: a request is complete, abort, stop */
    pthread_cond_t done; /* callers wait: a request is done, abort; destroy: nobody inside */
    int inside;          /* threads within start, complete, reserve */
    bool stop, finalized;
    clt_status abort_status; /* OK: not aborted */
    char abort_message[512];
    atomic_bool aborted; /* the same, for loops that do not hold the lock */

    pthread_t reducer;
    bool reducer_started;
    clt_team *team;
    clt_comm_partial *partials; /* of the request that the reducer works on */
};

/* --- comm.c --- */

/* Stores the abort (first one wins) and wakes everybody; the lock is held. */
void clt_comm_abort_locked(clt_comm *comm, clt_status status, const char *message);

/* Sets the abort's message for this thread and returns CLT_ABORTED; the lock is held. */
clt_status clt_comm_aborted_locked(const clt_comm *comm);

/* Registers the calling thread as being inside; leave again with clt_comm_leave. */
void clt_comm_enter(clt_comm *comm);
void clt_comm_leave(clt_comm *comm);

/* --- algorithms.c --- */

/* The first algorithm that takes the operation, or UNSUPPORTED with the reason of the last. */
clt_status clt_comm_choose(const clt_comm *comm, int device, const clt_comm_op *op,
                           const clt_comm_algorithm **algorithm);

/* --- local/reducer.c --- */

/* The thread's function; the argument is the communicator. */
void *clt_comm_reducer(void *comm);

/* --- local/transfer.c --- */

/* Whether this operation's data is mapped on this device. */
bool clt_comm_maps(const clt_comm *comm, int device, const clt_comm_op *op);

/* Enqueues the download or map and flushes; sets side->ready, host, mapped, staging. */
clt_status clt_comm_transfer_begin(clt_comm *comm, int device, clt_comm_side *side, int wait_count,
                                   const cl_event *wait_list);

/* Enqueues the upload or unmap and flushes. With `undo` nothing is written, only unmapped. `event`
 * may be NULL. */
clt_status clt_comm_transfer_end(clt_comm *comm, int device, clt_comm_side *side, bool undo,
                                 cl_event *event);

/* Blocks until the event is complete, polling where the options say so. CLT_ABORTED when polling
 * and the communicator is aborted. */
clt_status clt_comm_wait_event(clt_comm *comm, cl_event event);

#ifdef CLT_TESTING
/* A fault for tests: so many waits succeed, then one fails. Negative: none does. */
extern atomic_int clt_comm_testing_waits_until_fault;
#endif

/* --- local/staging.c --- */

/* A free piece of at least `bytes`, allocated if need be; *index into the member's pieces. */
clt_status clt_staging_take(clt_comm_member *member, size_t bytes, int *index);

/* Makes sure that `requests` pieces of at least `bytes` exist and are free. */
clt_status clt_staging_reserve(clt_comm_member *member, size_t bytes, int requests);

/* Frees all pieces; no transfer may be under way. */
void clt_staging_free(clt_comm_member *member);

#endif
