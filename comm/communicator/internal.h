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
#include <time.h>

#include <cltrain/comm.h>

#include "comm/core/reduction.h"
#include "comm/core/tasks.h"
#include "comm/core/team.h"
#include "comm/ranks/cluster.h"
#include "comm/ranks/node.h"

struct clt_peers; /* transports/peer.h */

enum { CLT_COMM_KINDS = CLT_COMM_BARRIER + 1, CLT_REASON = 240 };

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
    cl_command_queue queue;    /* for transfers; may be `compute` */
    cl_command_queue down, up; /* the communicator's own, of a member that is `piped` */
    bool piped;                /* its buffers are copied in chunks: transports/staged.c */
    bool can_map;              /* shares the host's memory */
    bool wait_inside;          /* its threads compute only while the host blocks inside OpenCL */
    char name[64];
    pthread_mutex_t staging_lock; /* of the device's thread, and the reducer */
    clt_staging *staging;
    int staging_count, staging_room;
    int64_t next;   /* sequence number of its next start */
    int64_t oldest; /* all before this one are completed */
} clt_comm_member;

/* Elements of a buffer. */
typedef struct clt_comm_range {
    int64_t first, count;
} clt_comm_range;

/* One operation of a device's request. */
typedef struct clt_comm_part {
    clt_comm_op op;
    clt_comm_range in;  /* of `mem`, what the host reads */
    clt_comm_range out; /* of `out` or `mem`, what the host writes */
    bool maps;          /* the buffer can be mapped in place */
    cl_event ready; /* of the download, map or marker, or of what on_devices enqueues after the last
                       part's; released by complete or destroy */
    bool silent;    /* the download, map or marker makes none */
    char *host_in, *host_out; /* where the host reads and writes; NULL: nowhere */
    void *mapped;             /* the buffer itself; NULL: the host works in staging */
    int staging;              /* index, or -1 */
    /* Of a piped member: its downloads, and what the reducer has seen and sent, in bytes. */
    int first_chunk, chunk_count, chunks_seen; /* in the side's `chunks`; the last one's is ready */
    size_t chunk_bytes, written, uploaded;
} clt_comm_part;

/* What one device brings to a request. */
typedef struct clt_comm_side {
    clt_comm_request *request;
    int device;
    bool brought;  /* `parts` can be compared with those of others */
    int transport; /* the first that accepts all parts */
    bool joined, completed;
    bool queued;          /* the device waits in its queue, nobody in complete */
    atomic_int sent;      /* written before the device's thread is told of the side */
    atomic_bool waits;    /* a thread is in complete, and has not enqueued the upload or unmap */
    clt_comm_part *parts; /* kept from request to request */
    int part_count, part_room;
    cl_event *chunks; /* kept likewise: of the downloads of a piped member */
    int chunk_count, chunk_room;
    cl_event gate;    /* of a piped member: its buffers may be used; until what waits for it */
    cl_event arrived; /* of a piped member, set by the reducer: all uploads have ended */
    double ready_at;  /* seconds of CLOCK_MONOTONIC: its data were seen on the host */
} clt_comm_side;

struct clt_comm_request {
    clt_comm *comm;
    int64_t sequence; /* -1: the slot is free */
    int transport;    /* that runs it: the last one of its sides' */
    int joined, completed;
    bool busy; /* the reducer touches host memory of this request */
    bool done;
    atomic_int ready; /* devices whose data the host may touch; where `on_devices` */
    double sum_squares;
    bool finite;
    int contributors, votes;
    double done_at;
    clt_comm_side *sides; /* one a device */
};

/*
 * A kind of collective, one file each in comm/kinds. `ranges` says what of a device's buffers the
 * host reads and writes. Where an operation is in place and moves blocks of several participants,
 * block i belongs to participant i. `tasks` lists what the host does for operation k of a request,
 * once all have joined. NULL: nothing, or see kinds/send_receive.c.
 */
typedef struct clt_comm_algorithm {
    const char *name;
    /* OK, or UNSUPPORTED or INVALID_ARGUMENT with the reason. */
    clt_status (*accepts)(const clt_comm *comm, int device, const clt_comm_op *op);
    void (*ranges)(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out);
    clt_status (*tasks)(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *tasks);
    /* For clt_comm_counts. g participants send passes x (g - 1) x payload together. */
    int passes;
    bool blocks;  /* the whole tensor has `count` elements of each participant */
    bool message; /* its participant alone sends or receives */
} clt_comm_algorithm;

/* By kind: kinds/kinds.c. */
extern const clt_comm_algorithm *const clt_comm_kinds[CLT_COMM_KINDS];

/*
 * A transport, one file each in comm/transports. A collective passes one that works within this
 * process and, among several ranks, one between them. The first one of the table that accepts all
 * operations of a device's request takes that device's part of the request: clt_transport_of. A
 * request in which devices chose differently is run by the last one of theirs.
 */
typedef struct clt_transport {
    const char *name;
    bool between; /* ranks */
    /* Whether it takes an operation of a device or, without `part`, any operation of this
     * communicator. If not and `why` is not NULL, writes the reason there: CLT_REASON bytes. */
    bool (*accepts)(const clt_comm *comm, int device, const clt_comm_part *part, char *why);
    /* In start, on the device's thread: enqueues what brings the data. Does not block. */
    clt_status (*begin)(clt_comm *comm, clt_comm_side *side, int wait_count,
                        const cl_event *wait_list);
    /* Once all devices of this process have joined: moves and reduces the data, and sets what the
     * request has learned. ABORTED: the communicator was aborted meanwhile. Whether the request is
     * `busy` when it returns does not matter: the caller marks it as done. */
    clt_status (*run)(clt_comm *comm, clt_comm_request *request);
    /* In complete, on the device's thread: enqueues what takes the result back. `undo`: the request
     * was aborted, nothing is written. `event` may be NULL. */
    clt_status (*end)(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event);
} clt_transport;

/* By clt_comm_transport, in the order of preference: transports/transports.c. */
extern const clt_transport *const clt_transports[CLT_COMM_TRANSPORTS];

/* The transport within the process for all parts of a side, or UNSUPPORTED with the reason. */
clt_status clt_transport_of(const clt_comm *comm, const clt_comm_side *side, int *transport);

/* The one between ranks; NULL: there is one rank. */
const clt_transport *clt_transport_between(const clt_comm *comm);

/* Writes a reason, if `why` is not NULL; false. */
bool clt_declines(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of a kind and transport. */
typedef struct clt_count {
    int64_t calls, payload;
    double sent;
} clt_count;

/* A send or a receive of one participant. */
typedef struct clt_message {
    int32_t kind, from, to, dtype;
    int64_t count;
    char *host; /* NULL: another process' */
} clt_message;

struct clt_comm {
    clt_comm_options options;
    clt_comm_member *members;
    int count; /* devices of this process */
    int total; /* participants in all processes */
    int first; /* number of this process' first participant */
    int rank, ranks;
    bool processes;               /* the ranks are */
    bool leads;                   /* calls the bridge, if there is one */
    int node_ranks;               /* of this process' node */
    clt_ranks *node;              /* NULL: one process on this node */
    clt_cluster *cluster;         /* NULL: one node */
    const clt_transport *between; /* ranks; NULL: there is one */
    void (*release)(void *user, int aborted);
    void *release_user;
    clt_comm_request *ring;
    int ring_size;
    clt_comm_side *sides; /* ring_size x count */

    pthread_mutex_t lock;
    pthread_cond_t work; /* the reducer waits: a request is complete, abort, stop */
    pthread_cond_t done; /* callers wait: a request is done, abort; destroy: nobody inside */
    int inside;          /* threads within start, complete, reserve */
    bool stop, finalized;
    bool orderly;            /* all ranks have finalized: none is missed any more */
    clt_status abort_status; /* OK: not aborted */
    char abort_message[512];
    clt_ranks_notice notice; /* the abort's, of the rank where it began */
    atomic_bool aborted;     /* the same, for loops that do not hold the lock */

    /* What the reducer asks the thread that made the communicator to do, and how it ended. */
    pthread_t owner;
    bool needs_owner;
    clt_cluster_fn errand;
    void *errand_arg;
    bool errand_done;
    clt_status errand_status;
    char errand_message[512];

    bool piped;                /* some members are */
    struct clt_peers *peers;   /* NULL: data goes through the host */
    char no_peers[CLT_REASON]; /* why */
    bool peers_lent;           /* another communicator's */
    char way[CLT_REASON];      /* clt_comm_way */
    bool on_devices;           /* the devices' own threads do the host's part: in_queue.c */
    bool apart;                /* they are different devices, which may wait for each other */
    int64_t wake_at;           /* piece */
    atomic_int helpers;        /* of them that wait to help */
    atomic_int visits;         /* of them that are within the communicator */
    _Atomic int64_t ended;     /* requests that are done: their host's parts end in order */
    pthread_t reducer;
    bool reducer_started;
    clt_team *team;
    /* Of the request that the reducer works on. */
    clt_task_list tasks;
    clt_message *messages;
    int message_count, message_room;

    clt_count counts[CLT_COMM_KINDS][CLT_COMM_TRANSPORTS]; /* of requests that are done */
};

/* The device of this process that is a participant, or -1. */
static inline int clt_comm_device_of(const clt_comm *comm, int participant)
{
    const int device = participant - comm->first;
    return device >= 0 && device < comm->count ? device : -1;
}

/* How long an operation may take; 0: without end. */
static inline int clt_comm_timeout_ms(const clt_comm *comm, const clt_comm_op *op)
{
    const int ms = op->timeout_ms ? op->timeout_ms : comm->options.timeout_ms;
    return ms > 0 ? ms : 0;
}

/* --- comm.c --- */

/* Stores the abort (first one wins) and wakes everybody; the lock is held. */
void clt_comm_abort_locked(clt_comm *comm, clt_status status, const char *message);

/* Sets the abort's message for this thread and returns CLT_ABORTED; the lock is held. */
clt_status clt_comm_aborted_locked(const clt_comm *comm);

/* Registers the calling thread as being inside; leave again with clt_comm_leave. */
void clt_comm_enter(clt_comm *comm);
void clt_comm_leave(clt_comm *comm);

/* --- communicator/counts.c --- */

/* Counts a request that is done; the lock is held. */
void clt_counts_add_locked(clt_comm *comm, const clt_comm_request *request);

/* --- communicator/main_thread.c --- */

/* Runs fn(arg) on the thread that made the communicator, when that thread is in it next. */
clt_status clt_comm_errand(void *comm, clt_cluster_fn fn, void *arg);

/* Does what was asked for, if this is the thread; the lock is held. */
void clt_comm_errand_locked(clt_comm *comm);

/* Between nodes, for threads that may call the bridge; the lock is held: aborts where a rank of
 * another node has, and tells other nodes of an abort here. Elsewhere nothing. */
void clt_comm_listen_locked(clt_comm *comm);

/* Whether this thread should listen now and then while it waits in the communicator. */
bool clt_comm_listens(const clt_comm *comm);

/* In destroy: tells other nodes of this end. */
void clt_comm_part_nodes(clt_comm *comm);

/* How often: waits until then at most. */
struct timespec clt_comm_next_look(void);

/* --- request.c --- */

/* A request that is done and completed by all makes room for another; the lock is held. */
void clt_comm_free_slot_locked(const clt_comm *comm, clt_comm_request *request);

/* Gives back the buffers that start retained. */
void clt_comm_release_buffers(const clt_comm_side *side);

/* Releases the events of a piped member's side but for the parts' `ready`. */
void clt_comm_release_chunks(clt_comm_side *side);

/* Copies an operation into a part, checked, with its ranges. */
clt_status clt_comm_read_part(const clt_comm *comm, int device, const clt_comm_op *op,
                              clt_comm_part *part);

/* --- kinds/kinds.c --- */

/* Whether this is a send or a receive: their requests are matched by peers, not by position. */
bool clt_comm_is_exchange(clt_comm_kind kind);

/* What the kinds that copy accept: OK, or the reason. */
clt_status clt_comm_accepts_copies(const clt_comm_op *op);

/* The algorithm that takes the operation, or UNSUPPORTED with the reason. */
clt_status clt_comm_choose(const clt_comm *comm, int device, const clt_comm_op *op,
                           const clt_comm_algorithm **algorithm);

/* Whether these operations may be part of an exchange: sends and receives, or a barrier alone. */
bool clt_comm_may_exchange(const clt_comm_side *side);

/* Lists in comm->tasks what the host does for a request that all have joined; for exchanges the
 * ranks tell each other what they have. */
clt_status clt_comm_list_tasks(clt_comm *comm, const clt_comm_request *request,
                               const clt_ranks_job *job);

/* --- kinds/send_receive.c --- */

/* Lists the copies of sends to receives in comm->tasks. */
clt_status clt_comm_exchange_tasks(clt_comm *comm, const clt_comm_request *request,
                                   const clt_ranks_job *job);

/* --- kinds/reducing.c: what the kinds that reduce share --- */

/* OK, or UNSUPPORTED with the reason. */
clt_status clt_comm_accepts_reduction(const clt_comm_op *op);

/* A task that reduces elements [first, first + count) of what the host reads from each device of
 * this process, and writes the result where `to` (by device; NULL: nowhere) says. */
clt_status clt_comm_reduction_task(const clt_comm *comm, const clt_comm_request *request, int k,
                                   int64_t first, int64_t count, char *const *to,
                                   clt_task_list *tasks);

/* --- communicator/reducer.c --- */

/* The thread's function; the argument is the communicator. */
void *clt_comm_reducer(void *comm);

/* The host's part of a request whose transfers have ended: lists its tasks and does them, with
 * other ranks where there are some. Leaves the request `busy`. ABORTED: the communicator was. */
clt_status clt_comm_do(clt_comm *comm, clt_comm_request *request);

/* As clt_transport's run where the host does a request as a whole: waits for all transfers. */
clt_status clt_comm_do_whole(clt_comm *comm, clt_comm_request *request);

/* For host's parts that are done bit by bit: begins to touch the request's memory, false once the
 * communicator is aborted; and stops touching it. */
bool clt_comm_busy_begin(clt_comm *comm, clt_comm_request *request);
void clt_comm_busy_end(clt_comm *comm, clt_comm_request *request);

/* Marks the request as done and wakes who waits for it, or aborts the communicator: false. */
bool clt_comm_done(clt_comm *comm, clt_comm_request *request, clt_status status);

/* What ranks tell each other of a request; its contributors and votes alone are this process'. */
clt_ranks_job clt_comm_job_of(clt_comm *comm, const clt_comm_request *request);

/* Waits for all transfers of one device. */
clt_status clt_comm_wait_for_side(clt_comm *comm, clt_comm_request *request, int device);

/* Puts before the message which device's transfer has failed. */
clt_status clt_comm_transfer_failed(clt_status status, const clt_comm_request *request, int device,
                                    const clt_comm_part *part);

/* --- transports/peer_probe.c --- */

/* Sets up and probes exchanges between all devices of the communicator: whether each pair copies
 * and each device sums correctly, and, unless `forced`, whether an all-reduce is faster than
 * through the host. Sets comm->peers and comm->way. UNSUPPORTED with the reason if it cannot be, or
 * would be slower; then nothing is set. */
clt_status clt_peers_open(clt_comm *comm, bool forced);
void clt_peers_close(clt_comm *comm);

#ifdef CLT_TESTING
/* 1: devices that share the host's memory are probed as others are. */
extern int clt_peer_testing_probe_all;
#endif

/* --- transports/in_queue.c --- */

/* Whether the devices' own threads can do the host's part, else why not; and, if so, whether they
 * can wait for each other. */
bool clt_in_queue_possible(const clt_comm *comm, char *why);
bool clt_in_queue_apart(const clt_comm *comm);

/* Does all pieces of comm->tasks, with the threads of the devices that wait and, where it
 * is worth it, those that wait in complete. */
void clt_in_queue_sum(clt_comm *comm);

/* In complete, with the lock: helps with what is under way or gives it a moment to end; false: it
 * is time to sleep, and nothing has changed. */
bool clt_in_queue_wait_locked(clt_comm *comm, clt_comm_request *request);

/* --- transports/staged.c --- */

/* Makes and releases the queues of a piped member. */
clt_status clt_comm_pipe_open(clt_comm_member *member);
void clt_comm_pipe_close(clt_comm_member *member);

/* In start: marks when the buffers of a piped member may be used. */
clt_status clt_comm_pipe_gate(clt_comm *comm, clt_comm_side *side, int wait_count,
                              const cl_event *wait_list);

/* In complete: orders the member's queue behind the uploads. */
clt_status clt_comm_pipe_end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event);

#ifdef CLT_TESTING
/* Bytes of a chunk; 0: as in use. */
extern atomic_llong clt_comm_testing_chunk_bytes;

/* So many groups of pieces are summed, then the communicator is aborted. Negative: it is not. */
extern atomic_int clt_comm_testing_groups_until_abort;
#endif

/* --- transports/on_queue.c: data that comes on the device's own queue --- */

/* As clt_transport's begin and end. */
clt_status clt_on_queue_begin(clt_comm *comm, clt_comm_side *side, int wait_count,
                              const cl_event *wait_list);
clt_status clt_on_queue_end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event);

/* Bytes of so many elements of a part. */
static inline size_t clt_comm_bytes_of(const clt_comm_part *part, int64_t elements)
{
    return (size_t)elements * (size_t)clt_dtype_size(part->op.dtype);
}

/* Whether the host neither reads nor writes anything. */
static inline bool clt_comm_is_nothing(const clt_comm_part *part)
{
    return !part->in.count && !part->out.count;
}

/* Where the host reads and writes a part that is neither mapped nor nothing: the caller's memory,
 * or staging. */
clt_status clt_comm_place_on_host(clt_comm *comm, int device, clt_comm_part *part);

/* OK, or the message of a call that failed. */
clt_status clt_comm_check_call(const clt_comm *comm, int device, const clt_comm_part *part,
                               const char *what, cl_int error);

/* Whether this operation's buffer can be mapped on this device, else why not. */
bool clt_comm_maps(const clt_comm *comm, int device, const clt_comm_part *part, char *why);

/* Enqueues the download or map of one part; sets ready, host_in, host_out, mapped, staging. Flush
 * the member's queue afterwards. */
clt_status clt_comm_transfer_begin(clt_comm *comm, int device, clt_comm_part *part, int wait_count,
                                   const cl_event *wait_list);

/* Enqueues the upload or unmap and flushes. With `undo` nothing is written, only unmapped. `event`
 * may be NULL. */
clt_status clt_comm_transfer_end(clt_comm *comm, int device, clt_comm_part *part, bool undo,
                                 cl_event *event);

/* Blocks until the event is complete, polling where the options say so. CLT_ABORTED when polling
 * and the communicator is aborted. */
clt_status clt_comm_wait_event(clt_comm *comm, cl_event event);

/* The same for an event that has ended, or NULL. */
clt_status clt_comm_ended_event(cl_event event);

#ifdef CLT_TESTING
/* A fault for tests: so many waits succeed, then one fails. Negative: none does. */
extern atomic_int clt_comm_testing_waits_until_fault;
#endif

/* --- transports/staging.c --- */

/* A free piece of at least `bytes`, allocated if need be; *index into the member's pieces. */
clt_status clt_staging_take(clt_comm_member *member, size_t bytes, int *index, char **host);
void clt_staging_give(clt_comm_member *member, int index);

/* Makes sure that `requests` pieces of at least `bytes` exist and are free. */
clt_status clt_staging_reserve(clt_comm_member *member, size_t bytes, int requests);

/* Frees all pieces; no transfer may be under way. */
void clt_staging_free(clt_comm_member *member);

#endif
