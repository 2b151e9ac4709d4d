/*
 * Exchanges between devices that copy each other's buffers: within a context by OpenCL's copy,
 * between contexts by AMD's extension. Each device reduces a block of all participants' data in
 * their order, to the same bits as the host, and the others fetch the block. No buffer is written
 * while a command of another device uses it.
 */
#ifndef CLT_COMM_PEER_H
#define CLT_COMM_PEER_H

#include <stdbool.h>

#include "comm/communicator/internal.h"

typedef struct clt_peers clt_peers;

/* The type of clEnqueueCopyBufferP2PAMD of cl_amd_copy_buffer_p2p. The queue belongs to either
 * buffer's context. The contexts differ and have one device each. */
typedef cl_int(CL_API_CALL *clt_peer_copy_fn)(cl_command_queue queue, cl_mem from, cl_mem to,
                                              size_t from_offset, size_t to_offset, size_t bytes,
                                              cl_uint wait_count, const cl_event *wait_list,
                                              cl_event *event);

/* --- shared by peer.c, peer_kernels.c and peer_probe.c ---------------------------------------- */

enum { CLT_PEER_TYPES = 6, CLT_PEER_REDUCTIONS = 4 };

typedef struct clt_peer_scratch {
    cl_mem mem;
    size_t bytes;
} clt_peer_scratch;

typedef struct clt_peer_member {
    cl_program program;
    cl_kernel reduce[CLT_PEER_TYPES], measure[CLT_PEER_TYPES]; /* by clt_dtype; NULL: none */
    bool is_cpu, has_double;
    clt_peer_scratch others, result, partial;
    cl_event done;           /* end of the last round: nobody reads its result any more */
    double *sums;            /* partial sums on the host */
    int64_t sum_room, pairs; /* pairs that `sums` has room for; pairs of this request */
} clt_peer_member;

struct clt_peers {
    bool one_context; /* events of one device can order the commands of the others */
    bool measures;    /* all devices can compute sums of squares */
    bool reduces[CLT_PEER_TYPES][CLT_PEER_REDUCTIONS]; /* whether all devices do so correctly */
    clt_peer_copy_fn copy;                             /* between contexts */
    clt_peer_member members[];
};

/* The arrays that a device reduces, in their order. */
typedef struct clt_peer_sum {
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int before, after; /* arrays in `others` that come before and behind the device's own array */
    bool has_own;
    cl_mem own;
    int64_t own_first, stride, count;
} clt_peer_sum;

/* Opens a device's kernels. Devices are opened in their order, from the first one on. */
clt_status clt_peer_kernels_open(clt_comm *comm, int device);
void clt_peer_kernels_close(clt_peer_member *member);

/* Makes a scratch buffer at least `bytes` large. Its content is lost. */
clt_status clt_peer_scratch_reserve(clt_comm *comm, int device, clt_peer_scratch *scratch,
                                    size_t bytes);

/* Enqueue on the device's `up` queue. clt_peer_reduce reduces the member's `others` and the own
 * array to `result`. clt_peer_measure adds the squares of `result` in pieces of `piece` elements,
 * and writes pairs from `at` on to `partial`. */
clt_status clt_peer_reduce(clt_comm *comm, int device, const clt_peer_sum *sum);
clt_status clt_peer_measure(clt_comm *comm, int device, clt_dtype dtype, int64_t count,
                            int64_t piece, int64_t at);

/* Adds the partial sums of `pieces` pieces from pair `at` on, in the same way as
 * clt_tasks_measured. */
void clt_peer_add(const clt_peer_member *member, clt_dtype dtype, int64_t at, int64_t pieces,
                  double *sum_squares, bool *finite);

/* Enqueues a copy from a buffer of device `from` (which may be `to`) on device `to`'s `up`
 * queue. */
clt_status clt_peer_copy(clt_comm *comm, int from, cl_mem source, size_t source_offset, int to,
                         cl_mem target, size_t target_offset, size_t bytes);

/* Returns OK, or fails with a message if the call failed on the device. */
clt_status clt_peer_check(const clt_comm *comm, int device, const char *what, cl_int error);

#ifdef CLT_TESTING
/* Replaces the extension's function. Devices of different contexts then count as peers. */
extern clt_peer_copy_fn clt_peer_testing_copy;
#endif

#endif
