/*
 * The inside of a communicator: a ring of request slots, in which a request's place follows from
 * its sequence number.
 *
 * Who writes what: a slot's side belongs to the thread of its device from start to complete. The
 * reducer reads the side (buffers, `ready`, `host_in`, `host_out`) from the moment when all devices
 * have joined until the slot is `done`. All other fields that change, of slots and communicator,
 * are protected by `lock`.
 */
#ifndef CLT_COMM_INTERNAL_H
#define CLT_COMM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include <cltrain/comm.h>

#include "comm/core/reduction.h"
#include "comm/core/tasks.h"
#include "comm/core/team.h"
#include "comm/ranks/cluster.h"
#include "comm/ranks/node_ranks.h"

struct clt_peers; /* transports/peer.h */

enum { CLT_COMM_KINDS = CLT_COMM_BARRIER + 1, CLT_REASON = 240 };

/* A piece of a device's pinned host memory. */
typedef struct clt_staging {
    cl_mem mem; /* only for its host pointer, never an argument of a copy or kernel */
    char *host;
    size_t bytes;
    bool used;
} clt_staging;

/* One device of this process. */
typedef struct clt_comm_member {
    cl_context context;
    cl_device_id device;
    cl_command_queue compute;
    cl_command_queue queue;    /* for transfers; may be `compute` */
    cl_command_queue down, up; /* queues of the communicator, if the member is `piped` */
    bool piped;                /* its buffers are copied in chunks: transports/staged.c */
    bool can_map;              /* shares the host's memory */
    bool gives_memory;         /* gives a buffer's memory to functions in its queue */
    bool wait_inside; /* its threads compute only while the host blocks in an OpenCL call */
    char name[64];
    pthread_mutex_t staging_lock; /* guards the staging */
    clt_staging *staging;
    int staging_count, staging_room;
    pthread_cond_t done;  /* its thread waits here in complete, with the communicator's lock */
    int64_t next;         /* sequence number of the next start */
    _Atomic int64_t last; /* next - 1, for threads that do not hold the lock */
    int64_t oldest;       /* all requests before this one are completed */
} clt_comm_member;

/* A range of elements of a buffer. */
typedef struct clt_comm_range {
    int64_t first, count;
} clt_comm_range;

/* One operation of a device's request. */
typedef struct clt_comm_part {
    clt_comm_op op;
    clt_comm_range in;  /* elements of `mem` that the host reads */
    clt_comm_range out; /* elements of `out` or `mem` that the host writes */
    bool maps;          /* the buffer can be mapped in place */
    bool direct;        /* the device's function is given the buffer's memory: see in_queue.c */
    cl_event ready; /* event of the download, map or marker; with on_devices, event of the native
                       kernel behind the last part. Released by complete or destroy */
    bool silent;    /* the download, map or marker makes no event */
    char *host_in, *host_out; /* host memory that is read and written; NULL: none */
    void *mapped;             /* the buffer itself; NULL: the host works in staging */
    int staging;              /* index of the staging, or -1 */
    /* For piped members: the downloads, and the bytes that the reducer has seen and sent. */
    int first_chunk, chunk_count, chunks_seen; /* in `chunks`; the last one's event is `ready` */
    size_t chunk_bytes, written, uploaded;
} clt_comm_part;

/* One device's part of a request. */
typedef struct clt_comm_side {
    clt_comm_request *request;
    int device;
    bool brought;  /* `parts` can be compared with the parts of other sides */
    int transport; /* the first transport that accepts all parts */
    bool joined, completed;
    bool queued;          /* the device waits in its queue, and no thread in complete */
    atomic_int sent;      /* written before the device's thread learns of the side */
    atomic_int guest;     /* what the device's function does about a request that others do; see
                             in_queue.c */
    atomic_bool waits;    /* a thread is in complete and has not enqueued the upload or unmap yet */
    clt_comm_part *parts; /* kept from request to request */
    int part_count, part_room;
    cl_event *chunks; /* kept from request to request: events of the downloads of a piped member */
    int chunk_count, chunk_room;
    cl_event gate;    /* for piped members: from this event on their buffers may be used */
    cl_event arrived; /* for piped members, set by the reducer: all uploads have ended */
    double ready_at;  /* when its data were on the host, in seconds of CLOCK_MONOTONIC */
} clt_comm_side;

struct clt_comm_request {
    clt_comm *comm;
    int64_t sequence; /* -1: the slot is free */
    int transport;    /* the transport that runs it: the last one of its sides' transports */
    int joined, completed;
    bool busy; /* a thread reads or writes host memory of this request */
    bool done;
    bool late;        /* the reducer's deadline passed while it waited for this request's ranks */
    atomic_int ready; /* with `on_devices`: number of devices whose data the host may use */
    double sum_squares;
    bool finite;
    int contributors, votes;
    double done_at;
    clt_comm_side *sides; /* one for each device */
};

/*
 * A kind of collective. Each has a file in comm/kinds. `ranges` gives the ranges of a device's
 * buffers that the host reads and writes. If an operation is in place and moves blocks of several
 * participants, block i belongs to participant i. `tasks` lists the host's tasks for operation k of
 * a request, after all devices have joined. NULL: there are none, or kinds/send_receive.c lists
 * them.
 */
typedef struct clt_comm_algorithm {
    const char *name;
    /* Returns OK, or UNSUPPORTED or INVALID_ARGUMENT with the reason. */
    clt_status (*accepts)(const clt_comm *comm, int device, const clt_comm_op *op);
    void (*ranges)(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out);
    clt_status (*tasks)(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *tasks);
    /* For clt_comm_counts: g participants together send passes x (g - 1) x payload bytes. */
    int passes;
    bool blocks;  /* the whole tensor has `count` elements of each participant */
    bool message; /* only its own participant sends or receives */
} clt_comm_algorithm;

/* The kinds, by clt_comm_kind; see kinds/kinds.c. */
extern const clt_comm_algorithm *const clt_comm_kinds[CLT_COMM_KINDS];

/*
 * A transport. Each has a file in comm/transports. A collective uses one transport within this
 * process and, if there are several ranks, one between them. A device's part of a request is taken
 * by the first transport of the table that accepts all its operations (clt_transport_of). If
 * devices chose differently, the last of their transports runs the request.
 */
typedef struct clt_transport {
    const char *name;
    bool between; /* works between ranks */
    /* Whether the transport takes a device's operation or, without `part`, any operation of this
     * communicator. If not, and `why` is not NULL, writes the reason there (CLT_REASON bytes). */
    bool (*accepts)(const clt_comm *comm, int device, const clt_comm_part *part, char *why);
    /* Called in start, on the device's thread: enqueues the transfers of the data. Does not
     * block. */
    clt_status (*begin)(clt_comm *comm, clt_comm_side *side, int wait_count,
                        const cl_event *wait_list);
    /* Called after all devices of this process have joined: moves and reduces the data, and sets
     * the request's results. Returns ABORTED if the communicator was aborted meanwhile. The request
     * may be `busy` or not on return, because the caller marks it as done. */
    clt_status (*run)(clt_comm *comm, clt_comm_request *request);
    /* Called in complete, on the device's thread: enqueues the transfers of the result. `undo`: the
     * request was aborted, and nothing is written. `event` may be NULL. */
    clt_status (*end)(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event);
} clt_transport;

/* The transports, by clt_comm_transport, in the order of preference; see
 * transports/transports.c. */
extern const clt_transport *const clt_transports[CLT_COMM_TRANSPORTS];

/* Finds the transport within the process for all parts of a side. Fails with UNSUPPORTED and the
 * reason. */
clt_status clt_transport_of(const clt_comm *comm, const clt_comm_side *side, int *transport);

/* Returns the transport between ranks; NULL: there is one rank. */
const clt_transport *clt_transport_between(const clt_comm *comm);

/* Writes a reason, if `why` is not NULL. Returns false. */
bool clt_declines(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The counts of a kind and transport. */
typedef struct clt_count {
    int64_t calls, payload;
    double sent;
} clt_count;

/* A send or a receive of one participant. */
typedef struct clt_message {
    int32_t kind, from, to, dtype;
    int64_t count;
    char *host; /* NULL: in another process */
} clt_message;

struct clt_comm {
    clt_comm_options options;
    clt_comm_member *members;
    int count;  /* devices of this process */
    int total;  /* participants in all processes */
    int first;  /* number of this process' first participant */
    int number; /* of this rank, in messages */
    int ranks;
    bool processes;               /* each rank is a process of its own */
    bool leads;                   /* this rank calls the bridge, if there is one */
    int node_ranks;               /* ranks of this process' node */
    clt_ranks *node;              /* NULL: one process on this node */
    clt_cluster *cluster;         /* NULL: one node */
    const clt_transport *between; /* the transport between ranks; NULL: there is one rank */
    void (*release)(void *user, int aborted);
    void *release_user;
    clt_comm_request *ring;
    int ring_size;
    clt_comm_side *sides; /* ring_size x count */

    pthread_mutex_t lock;
    pthread_cond_t work; /* the reducer waits here for a complete request, an abort or the stop */
    pthread_cond_t done; /* finalize waits here until requests have ended, and destroy until no
                            thread is inside */
    int inside;          /* threads within start, complete, reserve */
    bool stop, finalized;
    bool orderly;            /* all ranks have finalized, so a rank that ends is not missed */
    clt_status abort_status; /* OK: not aborted */
    char abort_message[512];
    clt_ranks_notice notice; /* the notice of the abort, from the rank where it began */
    atomic_bool aborted;     /* like abort_status, for loops that do not hold the lock */

    /* A call of the bridge that the reducer gives to the thread that made the communicator, and its
     * result. `step` is NULL if there is none. */
    pthread_t owner;
    bool needs_owner;
    clt_comm *next_owned;
    clt_link_step step;
    void *step_arg;
    bool stepping, step_begun;
    clt_status step_status;
    char step_message[512];

    bool piped;                      /* some members are piped */
    struct clt_peers *peers;         /* NULL: data goes through the host */
    char no_peers[CLT_REASON];       /* why `peers` is NULL */
    bool peers_lent;                 /* `peers` belongs to another communicator */
    char transport_text[CLT_REASON]; /* the text of clt_comm_describe_transport */
    bool on_devices;       /* the devices' own threads do the host's part: see in_queue.c */
    bool separate;         /* all members are different devices, which may wait for each other */
    int64_t wake_at;       /* the piece at which waiting threads are woken */
    atomic_int helpers;    /* devices' threads that wait to help */
    atomic_int visits;     /* devices' threads that are within the communicator */
    _Atomic int64_t ended; /* number of requests that are done; their host's parts end in order */
    pthread_t reducer;
    bool reducer_started;
    clt_team *team;
    /* For the request that the reducer works on. */
    clt_task_list tasks;
    clt_message *messages;
    int message_count, message_room;

    clt_count counts[CLT_COMM_KINDS][CLT_COMM_TRANSPORTS]; /* counts of requests that are done */
};

/* Returns the device of this process that is the participant, or -1. */
static inline int clt_comm_device_of(const clt_comm *comm, int participant)
{
    const int device = participant - comm->first;
    return device >= 0 && device < comm->count ? device : -1;
}

/* Returns the time-out of an operation; 0: there is none. */
static inline int clt_comm_timeout_ms(const clt_comm *comm, const clt_comm_op *op)
{
    const int ms = op->timeout_ms ? op->timeout_ms : comm->options.timeout_ms;
    return ms > 0 ? ms : 0;
}

/* --- communicator/comm.c ---------------------------------------------------------------------- */

/* Stores the abort, of which the first one counts, and wakes all threads. The lock is held. */
void clt_comm_abort_locked(clt_comm *comm, clt_status status, const char *message);

/* Sets the abort's message for this thread and returns CLT_ABORTED. The lock is held. */
clt_status clt_comm_aborted_locked(const clt_comm *comm);

/* Registers the calling thread as inside, until clt_comm_leave. */
void clt_comm_enter(clt_comm *comm);
void clt_comm_leave(clt_comm *comm);

/* --- communicator/counts.c --- */

/* Counts a request that is done. The lock is held. */
void clt_counts_add_locked(clt_comm *comm, const clt_comm_request *request);

/* --- communicator/main_thread.c --- */

/* Add a communicator to those that need their owners, and remove it. */
void clt_comm_own(clt_comm *comm);
void clt_comm_disown(const clt_comm *comm);

/* A clt_link_run for `comm`: its owner does the steps. */
clt_status clt_comm_call_on_owner(void *comm, clt_link_step step, void *arg);

/* Wakes the threads that wait for requests of the communicator, and owners. Faster without the
 * lock, which the woken threads take; it was held when what they wait for came true. */
void clt_comm_wake(clt_comm *comm);

/* Wakes those that wait in complete of one device, and owners. */
void clt_comm_wake_device(clt_comm *comm, int device);

/* Whether the calling thread owns a communicator that needs its owner. */
bool clt_comm_owns(void);

/* For such threads, without a lock. owner_turn does a step for each of their communicators, and
 * then waits a moment if there is nothing to do, unless an owner was woken since `calls` was read.
 * Begin with *looks 0. owner_progress does steps without waiting. */
uint32_t clt_comm_owner_calls(void);
void clt_comm_owner_turn(uint32_t calls, int *looks);
void clt_comm_owner_progress(void);

/* Aborts if a rank of another node has, and tells other nodes of an abort here. Does nothing
 * without nodes, or on threads that may not call the bridge. The lock is held. */
void clt_comm_listen_locked(clt_comm *comm);

/* Called by destroy: tells other nodes that this rank ends. */
void clt_comm_part_nodes(clt_comm *comm);

/* Returns the time until which a listening thread may wait. */
struct timespec clt_comm_next_look(void);

/* --- communicator/request.c ------------------------------------------------------------------- */

/* Frees the slot of a request that is done and completed by all devices. The lock is held. */
void clt_comm_free_slot_locked(const clt_comm *comm, clt_comm_request *request);

/* Releases the buffers that start retained. */
void clt_comm_release_buffers(const clt_comm_side *side);

/* Releases all events of a piped member's side except the parts' `ready`. */
void clt_comm_release_chunks(clt_comm_side *side);

/* Checks an operation, copies it into a part, and sets the part's ranges. */
clt_status clt_comm_read_part(const clt_comm *comm, int device, const clt_comm_op *op,
                              clt_comm_part *part);

/* --- kinds/kinds.c --- */

/* Whether the kind is send or receive. Requests of these are matched by peers, not by position. */
bool clt_comm_is_exchange(clt_comm_kind kind);

/* Fails unless the root is a participant. */
clt_status clt_comm_check_root(const clt_comm *comm, const clt_comm_op *op);

/* clt_comm_algorithm.accepts of kinds that copy. */
clt_status clt_comm_accepts_copies(const clt_comm *comm, int device, const clt_comm_op *op);

/* Finds the algorithm that takes the operation. Fails with UNSUPPORTED and the reason. */
clt_status clt_comm_choose(const clt_comm *comm, int device, const clt_comm_op *op,
                           const clt_comm_algorithm **algorithm);

/* Whether the operations may be part of an exchange: sends and receives, or a single barrier. */
bool clt_comm_may_exchange(const clt_comm_side *side);

/* Lists the host's tasks for a request that all devices have joined in comm->tasks. For exchanges,
 * the ranks tell each other their messages. */
clt_status clt_comm_list_tasks(clt_comm *comm, const clt_comm_request *request,
                               const clt_ranks_job *job);

/* --- kinds/send_receive.c --- */

/* Lists the copies of sends to receives in comm->tasks. */
clt_status clt_comm_exchange_tasks(clt_comm *comm, const clt_comm_request *request,
                                   const clt_ranks_job *job);

/* --- kinds/reducing.c: functions of all kinds that reduce ------------------------------------- */

/* clt_comm_algorithm.accepts of kinds that reduce. */
clt_status clt_comm_accepts_reduction(const clt_comm *comm, int device, const clt_comm_op *op);

/* Adds a task that reduces elements [first, first + count) of the host's input from each device of
 * this process. The result is written to `to[device]`; NULL: it is not written. */
clt_status clt_comm_reduction_task(const clt_comm *comm, const clt_comm_request *request, int k,
                                   int64_t first, int64_t count, char *const *to,
                                   clt_task_list *tasks);

/* --- communicator/reducer.c --- */

/* The function of the communicator's thread. The argument is the communicator. */
void *clt_comm_reducer(void *comm);

/* Does the host's part of a request whose transfers have ended: lists its tasks and does them, with
 * other ranks if there are any. Leaves the request `busy`. Returns ABORTED if the communicator was
 * aborted. */
clt_status clt_comm_do(clt_comm *comm, clt_comm_request *request);

/* A transport's `run` for requests that the host does as a whole: waits for all transfers first. */
clt_status clt_comm_do_whole(clt_comm *comm, clt_comm_request *request);

/* For transports that do the host's part in steps. busy_begin marks that the request's memory is in
 * use; it returns false if the communicator was aborted. busy_end ends the use. */
bool clt_comm_busy_begin(clt_comm *comm, clt_comm_request *request);
void clt_comm_busy_end(clt_comm *comm, clt_comm_request *request);

/* Marks the request as done, without waking those that wait in complete. If `status` is an error,
 * aborts the communicator, which wakes all, and returns false. */
bool clt_comm_mark_done(clt_comm *comm, clt_comm_request *request, clt_status status);

/* Returns the facts about a request that ranks exchange. Contributors and votes are those of this
 * process only. */
clt_ranks_job clt_comm_job_of(clt_comm *comm, const clt_comm_request *request);

/* Waits for all transfers of one device. */
clt_status clt_comm_wait_for_side(clt_comm *comm, clt_comm_request *request, int device);

/* Puts the name of the device whose transfer failed before the message. */
clt_status clt_comm_transfer_failed(clt_status status, const clt_comm_request *request, int device,
                                    const clt_comm_part *part);

/* --- transports/peer_probe.c --- */

/* Sets up and probes exchanges between all devices of the communicator: whether each pair copies
 * and each device reduces correctly and, unless `forced`, whether an all-reduce is faster than
 * through the host. Sets comm->peers and comm->transport_text. Fails with UNSUPPORTED and the
 * reason if exchanges are impossible or slower; nothing is set then. */
clt_status clt_peers_open(clt_comm *comm, bool forced);
void clt_peers_close(clt_comm *comm);

#ifdef CLT_TESTING
/* 1: devices that share the host's memory are probed like others. */
extern int clt_peer_testing_probe_all;
#endif

/* --- transports/in_queue.c --- */

/* Whether the devices' own threads can do the host's part; otherwise writes the reason.
 * clt_in_queue_separate says whether the devices can wait for each other. */
bool clt_in_queue_possible(const clt_comm *comm, char *why);
bool clt_in_queue_separate(const clt_comm *comm);

/* Probes whether functions in the member's queue can be given a buffer's memory. */
bool clt_in_queue_gives_memory(const clt_comm_member *member);

/* Does all pieces of comm->tasks with the devices' threads that wait and, if it is worth it,
 * threads that wait in complete. */
void clt_in_queue_sum(clt_comm *comm);

/* Called in complete with the lock: helps with the work under way, or gives it a moment to end.
 * Returns false if it is time to sleep and nothing has changed. */
bool clt_in_queue_wait_locked(clt_comm *comm, clt_comm_request *request);

/* --- transports/staged.c --- */

/* Make and release the queues of a piped member. */
clt_status clt_comm_pipe_open(clt_comm_member *member);
void clt_comm_pipe_close(clt_comm_member *member);

/* Called in start: marks the point from which the buffers of a piped member may be used. */
clt_status clt_comm_pipe_gate(clt_comm *comm, clt_comm_side *side, int wait_count,
                              const cl_event *wait_list);

/* Called in complete: makes the member's queue wait for the uploads. */
clt_status clt_comm_pipe_end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event);

#ifdef CLT_TESTING
/* Bytes of a chunk; 0: the default. */
extern atomic_llong clt_comm_testing_chunk_bytes;

/* The communicator is aborted after this number of groups of pieces. Negative: never. */
extern atomic_int clt_comm_testing_groups_until_abort;
#endif

/* --- transports/on_queue.c: transfers on the device's own queue ------------------------------- */

/* A transport's begin and end. */
clt_status clt_on_queue_begin(clt_comm *comm, clt_comm_side *side, int wait_count,
                              const cl_event *wait_list);
clt_status clt_on_queue_end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event);

/* Returns the bytes of `elements` elements of a part. */
static inline size_t clt_comm_bytes_of(const clt_comm_part *part, int64_t elements)
{
    return (size_t)elements * (size_t)clt_dtype_size(part->op.dtype);
}

/* Whether the host reads and writes nothing. */
static inline bool clt_comm_is_nothing(const clt_comm_part *part)
{
    return !part->in.count && !part->out.count;
}

/* Sets the host memory of a part that is not mapped and not empty: the caller's memory, or
 * staging. */
clt_status clt_comm_place_on_host(clt_comm *comm, int device, clt_comm_part *part);

/* Returns OK, or fails with a message if the call failed. */
clt_status clt_comm_check_call(const clt_comm *comm, int device, const clt_comm_part *part,
                               const char *what, cl_int error);

/* Whether this operation's buffer can be mapped on this device; otherwise writes the reason. */
bool clt_comm_maps(const clt_comm *comm, int device, const clt_comm_part *part, char *why);

/* Enqueues the download or map of one part. Sets ready, host_in, host_out, mapped and staging. The
 * caller flushes the member's queue. */
clt_status clt_comm_transfer_begin(clt_comm *comm, int device, clt_comm_part *part, int wait_count,
                                   const cl_event *wait_list);

/* Enqueues the upload or unmap of one part, and flushes. With `undo` nothing is written, only
 * unmapped. `event` may be NULL. */
clt_status clt_comm_transfer_end(clt_comm *comm, int device, clt_comm_part *part, bool undo,
                                 cl_event *event);

/* Blocks until the event is complete; polls if the options say so. Returns CLT_ABORTED if the
 * communicator is aborted while polling. */
clt_status clt_comm_wait_event(clt_comm *comm, cl_event event);

/* The same for an event that has ended, or NULL. */
clt_status clt_comm_ended_event(cl_event event);

#ifdef CLT_TESTING
/* A fault for tests: this number of waits succeed, then one fails. Negative: none fails. */
extern atomic_int clt_comm_testing_waits_until_fault;
#endif

/* --- transports/staging_pool.c --- */

/* Takes a free piece of at least `bytes`, and allocates one if there is none. Sets *index to its
 * number among the member's pieces. */
clt_status clt_staging_take(clt_comm_member *member, size_t bytes, int *index, char **host);
void clt_staging_give(clt_comm_member *member, int index);

/* Makes sure that `requests` pieces of at least `bytes` exist and are free. */
clt_status clt_staging_reserve(clt_comm_member *member, size_t bytes, int requests);

/* Frees all pieces. No transfer may be under way. */
void clt_staging_free(clt_comm_member *member);

#endif
