/*
 * Exchanges between devices that copy each other's buffers: within a context by OpenCL's own copy,
 * between contexts by AMD's extension. Each device reduces a block of all participants' data in
 * their order, to the bits that the host would give, and the others fetch it. No buffer is written
 * while a command of another device uses it.
 */
#ifndef CLT_COMM_PEER_H
#define CLT_COMM_PEER_H

#include <stdbool.h>

#include "comm/communicator/internal.h"

typedef struct clt_peers clt_peers;

/* clEnqueueCopyBufferP2PAMD of cl_amd_copy_buffer_p2p. The queue is of either buffer's context; the
 * contexts differ and have one device each. */
typedef cl_int(CL_API_CALL *clt_peer_copy_fn)(cl_command_queue queue, cl_mem from, cl_mem to,
                                              size_t from_offset, size_t to_offset, size_t bytes,
                                              cl_uint wait_count, const cl_event *wait_list,
                                              cl_event *event);

/* --- inside: peer.c, peer_kernels.c, peer_probe.c ----------------------------------------------
 */

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
    cl_event done;           /* of the last round: nobody reads its result any more */
    double *sums;            /* partial sums on the host */
    int64_t sum_room, pairs; /* pairs of this request */
} clt_peer_member;

struct clt_peers {
    bool one_context; /* events of one device order the others' commands */
    bool measures;    /* all devices can */
    bool reduces[CLT_PEER_TYPES][CLT_PEER_REDUCTIONS]; /* correctly, on all devices */
    clt_peer_copy_fn copy;                             /* between contexts */
    clt_peer_member members[];
};

/* What a device reduces: arrays in their order. */
typedef struct clt_peer_sum {
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int before, after; /* arrays in `others` that come before and behind the own one */
    bool has_own;
    cl_mem own;
    int64_t own_first, stride, count;
} clt_peer_sum;

/* Device by device, from the first one on. */
clt_status clt_peer_kernels_open(clt_comm *comm, int device);
void clt_peer_kernels_close(clt_peer_member *member);

/* Makes a scratch buffer at least so large; its content is lost. */
clt_status clt_peer_scratch_reserve(clt_comm *comm, int device, clt_peer_scratch *scratch,
                                    size_t bytes);

/* Enqueue on the device's `up` queue: a sum of the member's `others` and the own array to `result`;
 * its squares as so many pieces of `piece` elements, to pairs from `at` on of `partial`. */
clt_status clt_peer_reduce(clt_comm *comm, int device, const clt_peer_sum *sum);
clt_status clt_peer_measure(clt_comm *comm, int device, clt_dtype dtype, int64_t count,
                            int64_t piece, int64_t at);

/* Adds the partial sums of so many pieces from pair `at` on, as clt_tasks_measured does. */
void clt_peer_add(const clt_peer_member *member, clt_dtype dtype, int64_t at, int64_t pieces,
                  double *sum_squares, bool *finite);

/* Enqueues on device `to`'s `up` queue a copy from another's buffer, or its own. */
clt_status clt_peer_copy(clt_comm *comm, int from, cl_mem source, size_t source_offset, int to,
                         cl_mem target, size_t target_offset, size_t bytes);

/* OK, or the message of a call that failed on a device. */
clt_status clt_peer_check(const clt_comm *comm, int device, const char *what, cl_int error);

#ifdef CLT_TESTING
/* Stands for the extension's function: then devices of different contexts are taken for peers. */
extern clt_peer_copy_fn clt_peer_testing_copy;
#endif

#endif
