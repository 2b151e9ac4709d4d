/*
 * Collectives on OpenCL buffers: all-reduce, broadcast and their relatives between the devices of
 * this process (and, through a communicator made elsewhere, of other processes). Usable without the
 * rest of the library by any OpenCL program; this header needs <CL/cl.h>, cltrain.h does not
 * include it.
 *
 * A collective is two calls, made once per participating device:
 *
 *     clt_comm_start(comm, device, -1, &op, 1, &written, &request);      enqueues a download or map
 *     ... enqueue whatever does not need the result, start further collectives ...
 *     clt_comm_complete(request, device, NULL, &arrived);                enqueues an upload or
 * unmap
 *
 * - Every device starts the same collectives in the same order: the k-th start of one device joins
 *   the k-th start of every other. There is no other matching, and no matching by time of arrival.
 * - start never blocks. complete blocks until the host's part of that request is done, never for
 *   the device: its upload is only enqueued. So one thread may serve all devices of a communicator
 *   (start on all of them, then complete on all of them), or each device may have a thread.
 * - The calls for one device come from one thread at a time. Different devices may be used by
 *   different threads at once. clt_comm_abort, clt_comm_status and clt_comm_test may be called by
 *   any thread at any time.
 * - Between the wait list of start and the event of complete the caller's commands leave the
 *   operation's buffers alone. Commands on other buffers may have to wait there: CPUs whose drivers
 *   run host functions in a queue do the host's part with the devices' own threads, which wait for
 *   the other ranks.
 * - The result's bits depend on the data, the count and the order of the devices in the
 *   communicator, never on timing or on the number of threads; all devices get the same bits.
 * - Events in a wait list belong to the device's own context (OpenCL's rule). Do not put a user
 *   event there: drivers stall a queue for it.
 * - After the first use of each size, or clt_comm_reserve, neither memory nor any OpenCL object but
 *   events is created: at most two for each device and operation, and one for each megabyte that is
 *   copied in chunks.
 */
#ifndef CLTRAIN_COMM_H
#define CLTRAIN_COMM_H

#include <stdint.h>

#include <CL/cl.h>

#include <cltrain/export.h>
#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

/* A group of devices that take part in collectives together. */
typedef struct clt_comm clt_comm;

/* One collective under way; shared by the devices that take part in it. */
typedef struct clt_comm_request clt_comm_request;

/* One device of this process that takes part. */
typedef struct clt_comm_device {
    int64_t struct_size; /* set by clt_comm_device_init */
    cl_context context;
    cl_device_id device;
    cl_command_queue compute;  /* in order; the caller's kernels run here */
    cl_command_queue transfer; /* in order; NULL: transfers go to `compute` too */
} clt_comm_device;

/* How the data of one device reaches the host. */
typedef enum clt_comm_path {
    CLT_COMM_PATH_AUTO = 0, /* mapped where device and operation allow it, else staged; for devices
                               with memory of their own `peer`, where a probe of each pair finds
                               copies correct and faster */
    CLT_COMM_PATH_MAPPED = 1, /* mapped in place: devices that share the host's memory */
    CLT_COMM_PATH_STAGED = 2, /* non-blocking copies through pinned host memory, in chunks on queues
                                 of the communicator's: what devices with memory of their own have
                                 anyway */
    CLT_COMM_PATH_PEER = 3 /* without the host: devices copy each other's buffers and sum on their
                              own, to the same bits (but a NaN's). Only between devices of one
                              process that share a context, or have AMD's cl_amd_copy_buffer_p2p
                              and a context each; sends, receives and data in the host's memory
                              go through staging all the same */
} clt_comm_path;

typedef struct clt_comm_options {
    int64_t struct_size; /* set by clt_comm_options_init */
    clt_comm_path path;
    int threads;       /* host threads that sum; 0: the devices' own, where the drivers of all are
                          for CPUs and run host functions in a queue, else one */
    int max_in_flight; /* requests that one device may have started and not completed; 0: 256 */
    int timeout_ms;    /* a complete that waits longer aborts the communicator; 0: never */
    int wait_poll_us;  /* 0: block in clWaitForEvents; else sleep this long between looks, for
                          drivers whose wait spins */
} clt_comm_options;

/*
 * In place (`out` is NULL), the two kinds that move blocks use one range of count x participants
 * elements from `offset` on, in which block i belongs to participant i: reduce-scatter reads all of
 * it and writes the own block, all-gather reads the own block and writes all of it.
 *
 * Sends and receives are matched within the requests of the same number: the j-th send of a to b
 * goes to the j-th receive of b from a. A participant may bring any number of them as a group, with
 * no other kind among them; one that has none brings a barrier. Participants do not send to
 * themselves.
 */
typedef enum clt_comm_kind {
    CLT_COMM_ALL_REDUCE = 0,     /* all get the reduction of all */
    CLT_COMM_REDUCE_SCATTER = 1, /* `count` of each result; the input has count x participants */
    CLT_COMM_ALL_GATHER = 2,     /* `count` of each input; the output has count x participants */
    CLT_COMM_BROADCAST = 3,      /* all get what `root` has */
    CLT_COMM_REDUCE = 4,         /* `root` gets the reduction of all */
    CLT_COMM_SEND = 5,           /* to `peer` */
    CLT_COMM_RECEIVE = 6,        /* from `peer`, as many elements of the same type */
    CLT_COMM_BARRIER = 7         /* no data */
} clt_comm_kind;

/*
 * Of f32, f64, f16, bf16 and i32, in the order of the participants. f16 and bf16 are added in f32
 * and rounded once, to the nearest, at the end; integers wrap. A NaN makes a minimum or maximum
 * NaN. Where all participants are empty, a sum and a mean are 0, a minimum is the largest value of
 * the type (infinity), a maximum the least.
 */
typedef enum clt_comm_reduction {
    CLT_COMM_SUM = 0,
    CLT_COMM_MEAN = 1, /* the sum divided by the number of participants that are not empty;
                          integers are rounded towards 0 */
    CLT_COMM_MIN = 2,
    CLT_COMM_MAX = 3
} clt_comm_reduction;

/* Flags of an operation; add them up. */
enum {
    /* Reductions only. This device has no data: its buffer is not read and nothing is added for
     * it, but it gets the result. May differ from device to device. */
    CLT_COMM_EMPTY = 1,
    /* Reductions only: compute clt_comm_result's sum of squares and finite flag. The same on all
     * devices. */
    CLT_COMM_MEASURE = 2,
    /* No other command uses any part of the buffer object, not only of the range, between the wait
     * list and complete's event; so a part of the object may be mapped. An operation over a whole
     * object need not say so. */
    CLT_COMM_EXCLUSIVE = 4,
    /* complete without a result need not wait for the host's part: where devices are CPUs whose
     * drivers run host functions in a queue, what it enqueues waits in the queue itself. So nobody
     * is woken between the devices' kernels before and after the collective; a failure shows in
     * clt_comm_status and in later calls. For devices that compute at the same time and threads
     * that do not wait for a queue before all devices have started the request: else they wait for
     * each other for ever. Elsewhere it changes nothing. Of a group, the first operation's counts.
     */
    CLT_COMM_QUEUED = 8
};

/* What one device brings to a collective. kind, dtype, count, reduction, root and MEASURE are the
 * same on all devices (but for sends and receives), and so is the number of operations of a group.
 * Fill with clt_comm_op_init, then set what differs. */
typedef struct clt_comm_op {
    int64_t struct_size; /* set by clt_comm_op_init */
    clt_comm_kind kind;
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int flags;
    int root;       /* participant, for broadcast and reduce */
    int peer;       /* participant, for send and receive */
    int timeout_ms; /* of this request; 0: the communicator's, -1: none */
    int64_t count;  /* elements; 0 is legal */
    cl_mem mem;     /* input, and output unless `out` is set */
    int64_t offset; /* in elements */
    cl_mem out;     /* output; NULL: in place. Distinct devices use distinct buffers */
    int64_t out_offset;
    const char *label;              /* for messages, as "bucket 3 (fc1.weight)"; NULL: none.
                                       Stays valid until complete */
    const struct clt_comm_op *next; /* further operations of the same request (a group), on other
                                       elements. Read by start only */
    void *host; /* data in the host's memory, instead of `mem` and `out`: in place, from `offset`
                   elements on. The host's part may touch it from start to complete */
    int vote;   /* bits of this device's, read in a group's first operation; see clt_comm_result */
} clt_comm_op;

/* What the host learned about the result while it was there. */
typedef struct clt_comm_result {
    int64_t struct_size; /* set by clt_comm_result_init */
    double sum_squares;  /* of the elements of all results in the group, added in a fixed order: the
                            same bits for all participants. 0 without CLT_COMM_MEASURE */
    int finite;          /* 1: no element of them is NaN or infinite; 1 without MEASURE */
    int contributors;    /* participants that were not empty (of a group: in its first operation) */
    int votes;           /* the bitwise or of all participants' `vote` */
    /* Seconds of CLOCK_MONOTONIC: when this device's data were seen on the host, and when the
     * result was there. */
    double ready, done;
} clt_comm_result;

/*
 * How data moves, in the order of preference. A collective passes one of the first four, between
 * the devices of this process, and one of the last two if there are several ranks.
 */
typedef enum clt_comm_transport {
    CLT_COMM_PEER = 0,          /* devices copy each other's buffers and reduce them */
    CLT_COMM_IN_QUEUE = 1,      /* the devices' own threads reduce, called back in their queues */
    CLT_COMM_MAPPED = 2,        /* the host reduces in the mapped buffers */
    CLT_COMM_STAGED = 3,        /* the host reduces copies in pinned memory */
    CLT_COMM_SHARED_MEMORY = 4, /* ranks of one node */
    CLT_COMM_MPI = 5,           /* nodes, through a clt_comm_bridge */
    CLT_COMM_TRANSPORTS = 6
} clt_comm_transport;

/* What has passed a transport; see clt_comm_counts. */
typedef struct clt_comm_count {
    int64_t struct_size; /* set by clt_comm_count_init */
    int64_t calls;       /* operations, once for all devices; each send and receive on its own */
    int64_t payload;     /* bytes of their whole tensors, once for all devices */
    double sent;         /* bytes that each participant of the transport sends, on average */
} clt_comm_count;

/* Sets all fields to their defaults and struct_size. */
CLT_API void clt_comm_device_init(clt_comm_device *device);
CLT_API void clt_comm_options_init(clt_comm_options *options);
CLT_API void clt_comm_op_init(clt_comm_op *op);
CLT_API void clt_comm_result_init(clt_comm_result *result);
CLT_API void clt_comm_count_init(clt_comm_count *count);

/* The name of a kind, "all-reduce", or transport, "in-queue"; NULL: there is none of that number.
 * Thread-safe. */
CLT_API const char *clt_comm_kind_name(clt_comm_kind kind);
CLT_API const char *clt_comm_transport_name(clt_comm_transport transport);

/*
 * A communicator over `count` devices of this process; participant i is devices[i], and sums are
 * formed in this order. Devices may share a context or have one each, and may be of different
 * platforms; a device may be in several communicators. The array is copied. Contexts and queues
 * stay the caller's: they are retained until clt_comm_destroy. Devices whose data is copied in
 * chunks get two queues of the communicator's own, so that what is on the caller's queues waits for
 * no transfer but by complete. One thread of the library's own is started, and `threads` - 1
 * helpers, unless the devices' own threads sum. `options` NULL: defaults. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY, OPENCL; UNSUPPORTED where a queue is out of order or a path is asked for that a
 * device does not have.
 */
CLT_API clt_status clt_comm_create(const clt_comm_device *devices, int count,
                                   const clt_comm_options *options, clt_comm **comm);

/*
 * How the first ranks of several nodes reach each other. All make the same calls of gather,
 * exchange and broadcast in the same order, one at a time. These may wait, and ask `cancelled(arg)`
 * now and then: where it is not CLT_OK they return that, and are not called again. What they return
 * well from has left this node. They work with host memory. All functions are there; the others do
 * not wait, and may be called while one of these waits.
 */
typedef struct clt_comm_bridge {
    int64_t struct_size; /* set by clt_comm_bridge_init */
    int node, nodes;     /* at most 64 */
    int main_thread;     /* 1: only the thread that makes the communicator may call them: it does so
                            while it is in clt_comm_complete or clt_comm_progress */
    /* All nodes' `bytes` bytes, in the order of the nodes. */
    clt_status (*gather)(void *user, const void *mine, int64_t bytes, void *all,
                         int (*cancelled)(void *arg), void *arg);
    /* Block i of `bytes` bytes goes to node i; block i of what is received is from node i. */
    clt_status (*exchange)(void *user, const void *blocks, int64_t bytes, void *received,
                           int (*cancelled)(void *arg), void *arg);
    /* `bytes` bytes of node `root` to all. */
    clt_status (*broadcast)(void *user, int root, void *data, int64_t bytes,
                            int (*cancelled)(void *arg), void *arg);
    /* Bit n: the call under way, or that was cancelled, waits for node n. Any thread. */
    uint64_t (*missing)(void *user);
    /* Whether memory that was given to a call that was cancelled may still be read or written; it
     * is never freed then. */
    int (*busy)(void *user);
    /* Sends a notice of at most 512 bytes, as long on all nodes, to all other nodes: once, at an
     * abort or a destroy, unless all ranks passed clt_comm_finalize. */
    void (*tell)(void *user, const void *notice, int64_t bytes);
    /* 1: a notice from another node, of so many bytes; 0: there is none now. */
    int (*hear)(void *user, void *notice, int64_t bytes);
    const int *first_ranks; /* of each node, among all ranks; read on first ranks, copied */
    void *user;
} clt_comm_bridge;

CLT_API void clt_comm_bridge_init(clt_comm_bridge *bridge);

/*
 * The processes ("ranks") of one machine, or of several nodes, between which a communicator is
 * made, all with the same numbers. `shared` is memory that they share (MPI_Win_allocate_shared,
 * mmap before fork), of clt_comm_shared_bytes(ranks) bytes, at the beginning of a page, zero before
 * the first rank creates its communicator; it belongs to the communicators from then on and lives
 * as long as the last of them. <cltrain/mpi.h> does this for an MPI_Comm.
 */
typedef struct clt_comm_ranks {
    int64_t struct_size; /* set by clt_comm_ranks_init */
    int rank, ranks;
    const int *devices; /* by rank: its number of devices */
    void *shared;       /* NULL with one rank */
    int64_t shared_bytes;
    void (*release)(void *user, int aborted); /* called at the end of clt_comm_destroy; `aborted`:
                                                 this rank has not passed clt_comm_finalize, and
                                                 others may not come; may be NULL */
    void *user;
    /* Several nodes; NULL: one. Then `shared` belongs to the ranks of each node, and has room for
     * node_ranks. The bridge is copied. */
    const clt_comm_bridge *bridge;
    int node_rank, node_ranks; /* this rank's number among those of its node, and how many */
    int processes; /* 1: no two ranks share a process, so that devices' threads may wait for other
                      ranks */
} clt_comm_ranks;

CLT_API void clt_comm_ranks_init(clt_comm_ranks *ranks);
CLT_API int64_t clt_comm_shared_bytes(int ranks);

/*
 * As clt_comm_create, between the devices of several ranks: those of rank 0 are the first
 * participants, then come those of rank 1. Each rank calls it with its own devices; nobody waits.
 * Results' bits depend on the number of ranks and devices too: the devices of each rank are added
 * first, then the ranks in their order. A rank that fails or destroys its communicator aborts the
 * others', on all nodes: what waits for it ends, with its message. (Between nodes the first ranks
 * pass it on while they are in a call of the communicator; where the communicator may call MPI from
 * a thread of its own, at once.) `ranks` NULL: one process. Further errors: INVALID_ARGUMENT
 * (numbers that do not fit), UNSUPPORTED (more than 64 ranks).
 */
CLT_API clt_status clt_comm_create_between(const clt_comm_device *devices, int count,
                                           const clt_comm_options *options,
                                           const clt_comm_ranks *ranks, clt_comm **comm);

/*
 * Frees the communicator; takes NULL. Safe with requests in flight and with threads blocked in
 * complete: it aborts, waits until they have returned and until the transfers already enqueued have
 * ended, and unmaps what is mapped. No other call may begin once this one has.
 */
CLT_API void clt_comm_destroy(clt_comm *comm);

/* Participants in all processes; those of this process; the number, among all participants, of this
 * process' device. -1 for a device that does not exist. Thread-safe. */
CLT_API int clt_comm_size(const clt_comm *comm);
CLT_API int clt_comm_device_count(const clt_comm *comm);
CLT_API int clt_comm_participant(const clt_comm *comm, int device);

/* How data gets from device to device, for people to read: "devices exchange by copies within their
 * context: 8 MiB in 1.20 ms, through the host in 2.90 ms", or why they do not. Valid as long as the
 * communicator. Thread-safe. */
CLT_API const char *clt_comm_way(const clt_comm *comm);

/*
 * Whether this communicator has an implementation of the operation for this device: CLT_OK or
 * CLT_UNSUPPORTED with the reason in clt_error_message. Buffers are not looked at. Thread-safe.
 */
CLT_API clt_status clt_comm_supports(const clt_comm *comm, int device, const clt_comm_op *op);

/*
 * Tells whether a transport takes an operation of this device; without `op`, whether it takes any
 * of this communicator. An operation takes the first transport that accepts it. CLT_OK, or
 * UNSUPPORTED with the reason in clt_error_message. Looks at the operation's buffers. Other errors:
 * those of clt_comm_start, before anything happens. Thread-safe.
 */
CLT_API clt_status clt_comm_accepts(const clt_comm *comm, int device, clt_comm_transport transport,
                                    const clt_comm_op *op);

/*
 * Tells what the collectives of a kind have moved over a transport since the communicator was made.
 * A request counts when the host's part has ended. The participants of a transport are the g
 * devices of this process (peer, in-queue, mapped, staged), the g ranks of this node (shared
 * memory) or the nodes (MPI). With n bytes in the whole tensor, `sent` grows by
 *
 *     all-reduce                            2 (g - 1) / g x n
 *     reduce-scatter, all-gather,
 *     reduce, broadcast                     (g - 1) / g x n
 *     send                                  n, from its device (n / g on average) or rank
 *     receive, barrier                      0
 *
 * These are the bytes that the best algorithms send, whatever moved in fact. Over MPI, `sent` is
 * what this process has given to MPI for other nodes, with the words by which nodes agree on a
 * request. The root of a broadcast counts the bytes once for each other node. The whole tensor of
 * reduce-scatter and all-gather has `count` elements of each participant of the communicator.
 * Errors: INVALID_ARGUMENT. Thread-safe.
 */
CLT_API clt_status clt_comm_counts(clt_comm *comm, clt_comm_kind kind, clt_comm_transport transport,
                                   clt_comm_count *count);

/*
 * Allocates now the staging that `requests` requests of `bytes` bytes, in flight at once, need on
 * this device; otherwise it is allocated when first used. Not while a request of this device is in
 * flight. Errors: STATE, OUT_OF_MEMORY, OPENCL.
 */
CLT_API clt_status clt_comm_reserve(clt_comm *comm, int device, int64_t bytes, int requests);

/*
 * Joins this device's next collective: enqueues the download or map of `op` behind the wait list
 * and flushes the queue. Does not block (but for the device's earlier commands where staging of a
 * new size is allocated: see clt_comm_reserve).
 *
 * device      index into this process' devices
 * sequence    the collective's number, counted from 0, to have the order checked; -1: the next one
 * wait_count  events (of this device's context) after which the data is ready and the buffers may
 *             be used; 0 where the transfers' queue already orders it. Flush their queue before,
 *             unless it is `compute`
 * request     for clt_comm_complete with this device; belongs to the communicator
 *
 * Errors. INVALID_ARGUMENT, UNSUPPORTED, STATE (too many in flight, finalized): nothing happened.
 * Any other aborts the communicator, since the others would wait for this device for ever: MISMATCH
 * (out of order, or devices that disagree on the operation), OUT_OF_MEMORY, OPENCL. ABORTED: the
 * communicator was aborted before.
 */
CLT_API clt_status clt_comm_start(clt_comm *comm, int device, int64_t sequence,
                                  const clt_comm_op *op, int wait_count, const cl_event *wait_list,
                                  clt_comm_request **request);

/*
 * Blocks until the host's part of the request is done, enqueues the upload or unmap for this device
 * and flushes. To be called by the thread that owns the device's queues, once for each start, in
 * the order of the starts or another.
 *
 * result   may be NULL
 * event    of the upload or unmap, in this device's context: the result is in the buffer when it is
 *          complete; the caller releases it. NULL: none is made (enough where the queue orders it)
 *
 * Errors. INVALID_ARGUMENT, STATE (this device did not start the request, or completed it before).
 * ABORTED with the message of the abort: the outputs' content is unspecified, nothing stays mapped.
 * TIMEOUT: the deadline passed; the communicator is aborted and the message names what is missing.
 * Between nodes whoever waits for a rank that itself waits gives it a quarter of the time more, at
 * most a second, twice: the one that knows which rank is missing says so first.
 * OPENCL: the communicator is aborted.
 */
CLT_API clt_status clt_comm_complete(clt_comm_request *request, int device, clt_comm_result *result,
                                     cl_event *event);

/* Whether complete would return without blocking: *done is 1 or 0. Thread-safe while the request is
 * not completed on this device. */
CLT_API clt_status clt_comm_test(clt_comm_request *request, int device, int *done);

/*
 * Ends all work of the communicator: every complete that is blocked, and every later start and
 * complete, returns CLT_ABORTED with this message. The first abort's status and message stay.
 * `status` says why and is what clt_comm_status returns; OK counts as ABORTED. Any thread, driver
 * callbacks too; does not block.
 */
CLT_API void clt_comm_abort(clt_comm *comm, clt_status status, const char *message);

/* CLT_OK, or the status of the abort with its message in clt_error_message; where another rank
 * aborted, that rank's. Thread-safe. */
CLT_API clt_status clt_comm_status(clt_comm *comm);

/* Whether the communicator needs the thread that made it: 1 between nodes where only that thread
 * may call MPI. It works on that thread while it is in clt_comm_complete, or calls
 * clt_comm_progress. Thread-safe. */
CLT_API int clt_comm_needs_progress(const clt_comm *comm);

/* Lets the communicator work on the calling thread; takes as long as that work does. Nothing where
 * clt_comm_needs_progress is 0. */
CLT_API clt_status clt_comm_progress(clt_comm *comm);

/*
 * Ends the orderly use: later starts return CLT_STATE. Between processes it waits until all have
 * called it. STATE if a request is not completed on all devices of this process; then nothing
 * changes. ABORTED if the communicator was aborted. Between processes a failure to wait aborts it:
 * TIMEOUT (the message names who did not come), MISMATCH (between nodes: others are at a
 * collective), MPI.
 */
CLT_API clt_status clt_comm_finalize(clt_comm *comm);

CLT_END_DECLS

#endif
