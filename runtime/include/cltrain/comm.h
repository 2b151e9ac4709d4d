/*
 * Collectives on OpenCL buffers: all-reduce, broadcast and others, between the devices of this
 * process and of other processes. Any OpenCL program may use them without the rest of the library.
 * This header needs <CL/cl.h>. cltrain.h does not include it.
 *
 * A collective is two calls for each participating device:
 *
 *     clt_comm_start(comm, device, -1, &op, 1, &written, &request);      enqueues a download or map
 *     ... enqueue whatever does not need the result, start further collectives ...
 *     clt_comm_complete(request, device, NULL, &arrived);                enqueues the way back
 *
 * - Every device starts the same collectives in the same order. The k-th start of one device joins
 *   the k-th start of every other device. Time of arrival does not matter.
 * - start never blocks. complete blocks until the host's part of the request is done. It does not
 *   wait for the device, whose upload is only enqueued. So one thread may serve all devices of a
 *   communicator (start on all of them, then complete on all of them), or each device may have a
 *   thread.
 * - One thread at a time makes the calls for a device. Different devices may have different threads
 *   at once. Any thread may call clt_comm_abort, clt_comm_status and clt_comm_test at any time.
 * - Between the wait list of start and the event of complete, the caller's commands must not touch
 *   the buffers of the operation. Commands on other buffers may be delayed: on CPUs whose drivers
 * run host functions in a queue, the devices' own threads do the host's part, and wait for other
 * ranks.
 * - The bits of the result depend on the data, the count and the order of the devices in the
 *   communicator, never on timing or the number of threads. All devices get the same bits.
 * - Events in a wait list belong to the device's own context (OpenCL's rule). Do not use a user
 *   event: drivers stall a queue for it.
 * - After the first use of each size, or clt_comm_reserve, a collective allocates nothing and
 * creates no OpenCL object but events: at most two for each device and operation, and one for each
 * megabyte that is copied in chunks.
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

/* A collective under way. The devices that take part share it. */
typedef struct clt_comm_request clt_comm_request;

/* What rounding sums to 16 bits has left over, on one rank; see clt_comm_residual_create. */
typedef struct clt_comm_residual clt_comm_residual;

/* One device of this process that takes part. */
typedef struct clt_comm_device {
    int64_t struct_size; /* set by clt_comm_device_init */
    cl_context context;
    cl_device_id device;
    cl_command_queue compute;  /* in order; the caller's kernels run here */
    cl_command_queue transfer; /* in order; NULL: transfers go to `compute` too */
} clt_comm_device;

/*
 * How the data of a device travels.
 *
 * - AUTO: MAPPED if device and operation allow it, else STAGED. Devices with memory of their own
 *   use PEER if a probe of each pair finds copies correct and faster.
 * - MAPPED: buffers are mapped in place. For devices that share the host's memory.
 * - STAGED: non-blocking copies through pinned host memory, in chunks, on queues of the
 *   communicator.
 * - PEER: devices copy each other's buffers and sum without the host, to the same bits (but those
 *   of a NaN). Only between devices of one process that share a context, or that have a context
 *   each and AMD's cl_amd_copy_buffer_p2p. Sends, receives and data in host memory are staged.
 */
typedef enum clt_comm_path {
    CLT_COMM_PATH_AUTO = 0,
    CLT_COMM_PATH_MAPPED = 1,
    CLT_COMM_PATH_STAGED = 2,
    CLT_COMM_PATH_PEER = 3
} clt_comm_path;

typedef struct clt_comm_options {
    int64_t struct_size; /* set by clt_comm_options_init */
    clt_comm_path path;
    int threads;       /* host threads that sum. 0: the devices' own threads, if all are CPUs whose
                          drivers run host functions in a queue, else one */
    int max_in_flight; /* most requests that a device has started and not completed; 0: 256 */
    int timeout_ms;    /* a complete that waits longer aborts the communicator; 0: never */
    int wait_poll_us;  /* 0: block in clWaitForEvents; else poll and sleep this long in between, for
                          drivers whose wait spins */
} clt_comm_options;

/*
 * The kinds of collectives.
 *
 * Reduce-scatter and all-gather in place (`out` is NULL) use one range of count x participants
 * elements from `offset` on. Block i belongs to participant i. Reduce-scatter reads the whole range
 * and writes the own block; all-gather reads the own block and writes the whole range.
 *
 * Sends and receives match within requests of the same number: the j-th send of a to b goes to the
 * j-th receive of b from a. A participant may bring any number of sends and receives as a group,
 * without other kinds. A participant without any brings a barrier. None sends to itself.
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

/* Flags of an operation; add them up. */
enum {
    /* Reductions only. This device has no data: its buffer is not read, but it gets the result.
     * Devices may differ. */
    CLT_COMM_EMPTY = 1,
    /* Reductions only: compute clt_comm_result's sum of squares and finite flag. The same on all
     * devices. */
    CLT_COMM_MEASURE = 2,
    /* No other command uses any part of the buffer object between the wait list and the event of
     * complete. So a part of the object may be mapped. Operations over a whole object need no flag.
     */
    CLT_COMM_EXCLUSIVE = 4,
    /* complete without a result does not wait for the host's part, on CPUs whose drivers run host
     * functions in a queue: the queue itself waits. So no thread is woken between the kernels
     * before and after the collective. A failure shows in clt_comm_status and in later calls. Use
     * it only if devices compute at the same time, and if no thread waits for a queue before all
     * devices have started the request: otherwise they wait for each other for ever. Other devices
     * ignore it. In a group, the flag of the first operation counts. */
    CLT_COMM_QUEUED = 8
};

/* The part of one device in a collective. Fill it with clt_comm_op_init, then set what differs.
 * kind, dtype, count, reduction, root and MEASURE are the same on all devices, except for sends and
 * receives. The number of operations in a group is the same too. */
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
    const char *label;              /* for messages, such as "bucket 3 (fc1.weight)"; NULL: none.
                                       Must be valid until complete */
    const struct clt_comm_op *next; /* further operations of the same request (a group), on other
                                       elements. Read by start only */
    void *host; /* data in host memory instead of `mem` and `out`: in place, from `offset` elements
                   on. The host's part may use it from start to complete */
    int vote;   /* bits of this device, read in the first operation of a group; see
                   clt_comm_result */
    /* Sums only. 0: the order of clt_comm_create_between. Else the order is a fixed binary tree
     * over leaves, whatever the number of participants: this device's data is the sum of so many
     * consecutive leaves, which form a node of the tree. So `leaves` is a power of two, at most
     * 2^20, and devices may differ, as 1, 1, 2. The devices of a rank must form a node, and so must
     * the ranks of a node and all together (else MISMATCH). f16 and bf16 are rounded at each node
     * of the tree. No device may be EMPTY. In a group all operations have the same leaves. */
    int64_t leaves;
    /* Error feedback of sums in 16 bits, without leaves; NULL: none. The same on all devices of a
     * rank. */
    clt_comm_residual *residual;
    double residual_scale; /* a power of two: the residual is kept divided by it */
} clt_comm_op;

/* What the host knows about a result. */
typedef struct clt_comm_result {
    int64_t struct_size; /* set by clt_comm_result_init */
    double sum_squares;  /* of all elements of the group's results, in a fixed order: all
                            participants get the same bits. 0 without CLT_COMM_MEASURE */
    int finite;          /* 1: all these elements are finite; 1 without MEASURE */
    int contributors;    /* participants that were not empty, in a group's first operation */
    int votes;           /* the bitwise or of all participants' `vote` */
    /* Seconds of CLOCK_MONOTONIC: when this device's data had reached the host, and when the result
     * was ready. */
    double ready, done;
} clt_comm_result;

/*
 * The transports, in the order of preference. A collective uses one of the first four between the
 * devices of this process, and one of the last two between ranks.
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

/* Counts of a transport; see clt_comm_counts. */
typedef struct clt_comm_count {
    int64_t struct_size; /* set by clt_comm_count_init */
    int64_t calls;       /* operations, once for all devices; every send and receive counts */
    int64_t payload;     /* bytes of the whole tensors, once for all devices */
    double sent;         /* bytes that each participant of the transport sends, on average */
} clt_comm_count;

/* Sets all fields to their defaults and struct_size. */
CLT_API void clt_comm_device_init(clt_comm_device *device);
CLT_API void clt_comm_options_init(clt_comm_options *options);
CLT_API void clt_comm_op_init(clt_comm_op *op);
CLT_API void clt_comm_result_init(clt_comm_result *result);
CLT_API void clt_comm_count_init(clt_comm_count *count);

/* Return the name of a kind ("all-reduce") or transport ("in-queue"); NULL for another number.
 * Thread-safe. */
CLT_API const char *clt_comm_kind_name(clt_comm_kind kind);
CLT_API const char *clt_comm_transport_name(clt_comm_transport transport);

/*
 * Creates a communicator of `count` devices of this process. Participant i is devices[i], and sums
 * are formed in this order. `options` NULL: defaults.
 *
 * - Devices may share a context or have one each, and may be of different platforms. A device may
 *   be in several communicators.
 * - The array is copied. Contexts and queues stay the caller's; they are retained until
 *   clt_comm_destroy.
 * - Devices whose data is copied in chunks get two queues of the communicator. So commands in the
 *   caller's queues wait for no transfer before complete.
 * - The library starts one thread, and `threads` - 1 helpers, unless the devices' own threads sum.
 *
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, OPENCL; UNSUPPORTED if a queue is out of order or a
 * device lacks the wanted path.
 */
CLT_API clt_status clt_comm_create(const clt_comm_device *devices, int count,
                                   const clt_comm_options *options, clt_comm **comm);

/* Data that a node sends to another node, or receives from it. */
typedef struct clt_comm_message {
    int send; /* 1: to `node`, 0: from `node`, which is another one */
    int node;
    void *data; /* of a send: only read */
    int64_t bytes;
} clt_comm_message;

/*
 * How the first ranks of several nodes reach each other. All functions must be set. They work with
 * host memory.
 *
 * No function waits. gather, exchange, broadcast and transfer begin an exchange, one at a time. All
 * first ranks begin the same exchanges in the same order, except for transfers. The memory that
 * they are given is in use until `test` says that the exchange is done, or until `cancel`. After a
 * failure nothing is begun any more.
 */
typedef struct clt_comm_bridge {
    int64_t struct_size; /* set by clt_comm_bridge_init */
    int node, nodes;     /* at most 64 */
    int main_thread; /* 1: only the thread that makes the communicator may call the functions. It
                        does so while it is in clt_comm_complete or clt_comm_progress of any of its
                        communicators */
    /* Gathers `bytes` bytes of each node, in the order of the nodes. */
    clt_status (*gather)(void *user, const void *mine, int64_t bytes, void *all);
    /* Sends block i of `bytes` bytes to node i. Block i of `received` comes from node i. */
    clt_status (*exchange)(void *user, const void *blocks, int64_t bytes, void *received);
    /* Sends `bytes` bytes of node `root` to all nodes. */
    clt_status (*broadcast)(void *user, int root, void *data, int64_t bytes);
    /* Sends and receives all messages at once. Only nodes with messages call it. The j-th message
     * from a node to another goes to the j-th receive there, which has the same number of bytes. */
    clt_status (*transfer)(void *user, const clt_comm_message *messages, int count);
    /* Makes progress. Sets *done to 1 if the data of the exchange have come, and its own have left
     * this node. */
    clt_status (*test)(void *user, int *done);
    /* Gives up the exchange that was begun last. */
    void (*cancel)(void *user);
    /* Returns a set of nodes. Bit n: the exchange under way, or the cancelled one, waits for node
     * n. Any thread. */
    uint64_t (*missing)(void *user);
    /* Returns 1 if a cancelled exchange may still read or write the memory that it was given. Such
     * memory is never freed. */
    int (*busy)(void *user);
    /* Sends a notice of at most 512 bytes, of one length on all nodes, to all other nodes. Called
     * once, at an abort or a destroy, unless all ranks passed clt_comm_finalize. */
    void (*tell)(void *user, const void *notice, int64_t bytes);
    /* Returns 1 if it received a notice of `bytes` bytes from another node, 0 if there is none. */
    int (*hear)(void *user, void *notice, int64_t bytes);
    const int *first_ranks; /* number of each node's first rank; read on first ranks, copied */
    void *user;
} clt_comm_bridge;

/* Sets struct_size and the defaults. */
CLT_API void clt_comm_bridge_init(clt_comm_bridge *bridge);

/*
 * The processes ("ranks") of one machine or of several nodes that share a communicator. All give
 * the same numbers. <cltrain/mpi.h> does this for an MPI_Comm.
 *
 * `shared` is memory that the ranks share (MPI_Win_allocate_shared, mmap before fork):
 * clt_comm_shared_bytes(ranks) bytes from the beginning of a page, which are zero before the first
 * rank creates its communicator. The communicators own it then, and it must live as long as the
 * last of them.
 */
typedef struct clt_comm_ranks {
    int64_t struct_size; /* set by clt_comm_ranks_init */
    int rank, ranks;
    const int *devices; /* number of devices of each rank */
    void *shared;       /* NULL with one rank */
    int64_t shared_bytes;
    void (*release)(void *user, int aborted); /* called at the end of clt_comm_destroy; may be NULL.
                                                 `aborted`: this rank has not passed
                                                 clt_comm_finalize, and others may not come */
    void *user;
    /* Several nodes; NULL: one. With a bridge, the ranks of each node have a `shared` of their own,
     * with room for node_ranks. The bridge is copied. */
    const clt_comm_bridge *bridge;
    int node_rank, node_ranks; /* number of this rank on its node, and of ranks there */
    int processes; /* 1: each rank is a process of its own, so devices' threads may wait for other
                      ranks */
    int number;    /* messages name this rank by this number; -1: by `rank` */
} clt_comm_ranks;

/* Sets struct_size and the defaults. */
CLT_API void clt_comm_ranks_init(clt_comm_ranks *ranks);

/* Returns the bytes of shared memory that so many ranks of a node need. Thread-safe. */
CLT_API int64_t clt_comm_shared_bytes(int ranks);

/*
 * Creates a communicator between the devices of several ranks, as clt_comm_create. Each rank calls
 * it with its own devices, without waiting. `ranks` NULL: one process.
 *
 * - The devices of rank 0 are the first participants, then those of rank 1 follow.
 * - The devices of each rank are added first, then the ranks in their order. So the bits of results
 *   depend on the number of ranks and devices too, unless operations have `leaves`.
 * - A rank that fails or destroys its communicator aborts those of all other ranks, on all nodes.
 *   Calls that wait for it end with its message. Between nodes the first ranks pass the abort on:
 *   at once if the communicator may call MPI from a thread of its own, else while they are in one
 *   of its calls.
 *
 * Errors also: INVALID_ARGUMENT (numbers that do not fit), UNSUPPORTED (more than 64 ranks).
 */
CLT_API clt_status clt_comm_create_between(const clt_comm_device *devices, int count,
                                           const clt_comm_options *options,
                                           const clt_comm_ranks *ranks, clt_comm **comm);

/*
 * Frees the communicator. Takes NULL. Requests may be in flight and threads may be blocked in
 * complete: it aborts, waits until the threads have returned and the enqueued transfers have ended,
 * and unmaps the buffers. No other call may begin after this one.
 */
CLT_API void clt_comm_destroy(clt_comm *comm);

/* Return the number of participants of all processes, the number of devices of this process, and
 * the participant that a device of this process is (-1 for a device that does not exist).
 * Thread-safe. */
CLT_API int clt_comm_size(const clt_comm *comm);
CLT_API int clt_comm_device_count(const clt_comm *comm);
CLT_API int clt_comm_participant(const clt_comm *comm, int device);

/* Returns a sentence about the transport between devices: "devices exchange by copies within their
 * context: 8 MiB in 1.20 ms, through the host in 2.90 ms", or why they do not. Valid as long as the
 * communicator. Thread-safe. */
CLT_API const char *clt_comm_describe_transport(const clt_comm *comm);

/* Deprecated: the former name of clt_comm_describe_transport. It stays until version 1.0. */
CLT_DEPRECATED("use clt_comm_describe_transport")
CLT_API const char *clt_comm_way(const clt_comm *comm);

/*
 * Tells whether this communicator implements the operation for this device. Does not look at
 * buffers. Errors: UNSUPPORTED with the reason. Thread-safe.
 */
CLT_API clt_status clt_comm_supports(const clt_comm *comm, int device, const clt_comm_op *op);

/*
 * Tells whether a transport takes an operation of this device; without `op`, whether it takes any
 * of this communicator. An operation takes the first transport that accepts it. CLT_OK, or
 * UNSUPPORTED. Then clt_error_message names the kind, the device, the reason and, if something can
 * be done about it, what. Looks at the operation's buffers. Other errors:
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
 * These are the bytes that the best algorithms send, whatever moved in fact. The whole tensor of
 * reduce-scatter and all-gather has `count` elements of each participant of the communicator.
 *
 * Over MPI, `sent` is what this process has given to MPI for other nodes. It differs from the
 * formula in four points:
 *
 *   - The words by which nodes agree on a request are counted.
 *   - A mean of f16 or bf16 travels as f32, which is twice as long.
 *   - A reduce is an all-reduce of the nodes.
 *   - The root of a broadcast counts the bytes once for each other node.
 *
 * Errors: INVALID_ARGUMENT. Thread-safe.
 */
CLT_API clt_status clt_comm_counts(clt_comm *comm, clt_comm_kind kind, clt_comm_transport transport,
                                   clt_comm_count *count);

/*
 * Error feedback for sums in 16 bits.
 *
 * With `residual` in its operation, a sum of F16 or BF16 travels in 16 bits over every link, and
 * what a rank rounds away is added to the same sum of the next request. The kinds are all-reduce,
 * reduce-scatter and reduce. The sum is computed in f32, in the same order as without a residual.
 * Who rounds it, in this order:
 *
 *     rank   each rank rounds the sum of its devices for the other ranks of its node
 *     node   the first rank of a node rounds the sum of its node for other nodes
 *     sum    the owner rounds the result for all. The owner of a slice is one node. Within a node,
 *            each rank computes the same result and keeps the same residual
 *
 * Each rounds v = fl(sum + residual) to s, the nearest 16-bit number (ties to even). The new
 * residual is v - s, which is exact. So s + new residual = fl(sum + old residual), bit for bit. A
 * rank with one device, or a node with one participant, has nothing to round there.
 *
 * `residual_scale` S serves sums that are multiplied by a scale which changes: v = fl(sum + S x
 * residual), and the new residual is (v - s) / S.
 *
 * A request whose result the caller drops must not change residuals. So a new residual counts only
 * after clt_comm_residual_accept.
 */
typedef enum clt_comm_rounding {
    CLT_COMM_ROUNDS_RANK = 0,
    CLT_COMM_ROUNDS_NODE = 1,
    CLT_COMM_ROUNDS_SUM = 2
} clt_comm_rounding;

/*
 * Makes a residual of zeros for sums of `count` elements: for a reduce-scatter, those of all
 * participants. Each rank makes one for each of its buffers. It takes 8 bytes an element for each
 * rounding that the communicator needs. It belongs to the caller, who destroys it when no request
 * uses it, before or after the communicator. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
 */
CLT_API clt_status clt_comm_residual_create(const clt_comm *comm, int64_t count,
                                            clt_comm_residual **residual);

/* Frees the residual. Takes NULL. */
CLT_API void clt_comm_residual_destroy(clt_comm_residual *residual);

/* Says that the last request counts. Without this call the next request begins with the residual
 * before the last one. A device's thread calls it after its complete and before its next start with
 * this residual; one device of a rank is enough. All ranks make the same decision. */
CLT_API void clt_comm_residual_accept(clt_comm_residual *residual);

/* Tells whether this rank has a residual of the rounding. Of residuals of sums that all ranks of a
 * node have, the first rank's counts: 2 says that another rank has the same. */
CLT_API int clt_comm_residual_has(const clt_comm_residual *residual, clt_comm_rounding rounding);

/* Copy all elements, f32, as of the last request that counts. No request may use the residual, and
 * set undoes one that does not count. get gives zeros if the rank does not have the rounding; set
 * then makes room, so that the residual is added to the rank's next sum. Errors: UNSUPPORTED for a
 * rounding that the communicator never does, OUT_OF_MEMORY. */
CLT_API void clt_comm_residual_get(const clt_comm_residual *residual, clt_comm_rounding rounding,
                                   float *data);
CLT_API clt_status clt_comm_residual_set(clt_comm_residual *residual, clt_comm_rounding rounding,
                                         const float *data);

/*
 * Allocates the staging memory of a device for `requests` requests of `bytes` bytes in flight at
 * once. Without this call the first use allocates it. No request of the device may be in flight.
 * Errors: STATE, OUT_OF_MEMORY, OPENCL.
 */
CLT_API clt_status clt_comm_reserve(clt_comm *comm, int device, int64_t bytes, int requests);

/*
 * Joins the next collective of a device. Enqueues the download or map of `op` behind the wait list
 * and flushes the queue. Does not block, except for earlier commands of the device if staging
 * memory of a new size is allocated (see clt_comm_reserve).
 *
 * device      index into this process' devices
 * sequence    number of the collective, from 0, to check the order; -1: the next one
 * wait_count  events of this device's context after which the buffers may be used; 0 if the queue
 * of transfers orders them already. Flush the events' queue before, unless it is `compute` request
 * for clt_comm_complete with this device; belongs to the communicator
 *
 * Errors: INVALID_ARGUMENT, UNSUPPORTED, STATE (too many in flight, finalized); nothing happened.
 * ABORTED: the communicator was aborted before. Any other error aborts the communicator, because
 * the other devices would wait for ever: MISMATCH (wrong order, or devices disagree on the
 * operation), OUT_OF_MEMORY, OPENCL.
 */
CLT_API clt_status clt_comm_start(clt_comm *comm, int device, int64_t sequence,
                                  const clt_comm_op *op, int wait_count, const cl_event *wait_list,
                                  clt_comm_request **request);

/*
 * Completes a request on a device. Blocks until the host's part is done, enqueues the upload or
 * unmap and flushes. The thread that owns the device's queues calls it once for each start, in any
 * order.
 *
 * result   may be NULL event    of the upload or unmap, in this device's context. Once it is
 * complete, the result is in
 *          the buffer. The caller releases it. NULL: no event, if the queue orders later commands
 *
 * Errors:
 *
 * - INVALID_ARGUMENT, STATE (this device did not start the request, or completed it before).
 * - ABORTED, with the message of the abort. The content of outputs is unspecified, and nothing
 *   stays mapped.
 * - TIMEOUT: the deadline passed. The communicator is aborted, and the message names who is
 *   missing. Between nodes, a rank that waits for a waiting rank gives it a quarter of the time
 *   more, at most a second, twice. So the rank that knows who is missing reports first.
 * - OPENCL: the communicator is aborted.
 */
CLT_API clt_status clt_comm_complete(clt_comm_request *request, int device, clt_comm_result *result,
                                     cl_event *event);

/* Tells whether complete would return without blocking: *done is 1 or 0. Thread-safe until the
 * request is completed on this device. */
CLT_API clt_status clt_comm_test(clt_comm_request *request, int device, int *done);

/*
 * Ends all work of the communicator. Every blocked complete, and every later start and complete,
 * returns CLT_ABORTED with this message. `status` is the reason, which clt_comm_status returns; OK
 * counts as ABORTED. The status and message of the first abort stay. Any thread may call it, and
 * callbacks of drivers too. Does not block.
 */
CLT_API void clt_comm_abort(clt_comm *comm, clt_status status, const char *message);

/* Returns CLT_OK, or the status of the abort, also of another rank, with its message in
 * clt_error_message. Thread-safe. */
CLT_API clt_status clt_comm_status(clt_comm *comm);

/* Returns 1 if the communicator needs the thread that made it, because only that thread may call
 * MPI between nodes. The communicator works while that thread is in clt_comm_complete or
 * clt_comm_progress, also of another communicator that it made. Thread-safe. */
CLT_API int clt_comm_needs_progress(const clt_comm *comm);

/* Does the work that waits for the calling thread, for all communicators that it made, without
 * waiting. Then returns as clt_comm_status. */
CLT_API clt_status clt_comm_progress(clt_comm *comm);

/*
 * Ends the use of the communicator. Later starts return STATE. Waits until all processes have
 * called it. Errors: STATE if a request is not completed on all devices of this process, which
 * changes nothing; ABORTED if the communicator was aborted. These abort the communicator: TIMEOUT
 * (the message names who did not come), MISMATCH (other nodes are at a collective), MPI.
 */
CLT_API clt_status clt_comm_finalize(clt_comm *comm);

CLT_END_DECLS

#endif
