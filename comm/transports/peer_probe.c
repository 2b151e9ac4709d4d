/*
 * Probes whether devices may exchange without the host. Copies of patterns between each pair of
 * devices, and reductions of each type, are compared bit by bit. Then all-reduces are timed against
 * all-reduces through the host, because a fast copy between two devices does not make the whole
 * fast. Failures are logged with their reasons.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/core/reduction.h"
#include "comm/transports/peer.h"
#include "device/core/cl.h"

#ifndef CL_DEVICE_NUM_P2P_DEVICES_AMD
#define CL_DEVICE_NUM_P2P_DEVICES_AMD 0x4088
#define CL_DEVICE_P2P_DEVICES_AMD 0x4089
#endif

/* Bytes and numbers of timed copies. Copies are long compared with the cost of a call. */
enum { TIMED_BYTES = 4 << 20, RACED_BYTES = 8 << 20, TIMES = 3 };

/* Elements per array, and arrays, that are reduced. Blocks of the host get whole pieces and
 * rests. */
enum { SUMMED = 1237, ARRAYS = 3, PIECE = 256 };

#ifdef CLT_TESTING
clt_peer_copy_fn clt_peer_testing_copy;
int clt_peer_testing_probe_all;
#endif

/* --- whether devices can copy ----------------------------------------------------------------- */

static bool has_neighbour(cl_device_id device, cl_device_id other)
{
    cl_device_id list[CLT_COMM_MAX_DEVICES];
    cl_uint count = 0;
    if (clGetDeviceInfo(device, CL_DEVICE_NUM_P2P_DEVICES_AMD, sizeof count, &count, NULL) ||
        count > CLT_COMM_MAX_DEVICES ||
        clGetDeviceInfo(device, CL_DEVICE_P2P_DEVICES_AMD, count * sizeof *list, list, NULL))
        return false;
    for (cl_uint i = 0; i < count; i++)
        if (list[i] == other)
            return true;
    return false;
}

/* Returns AMD's function for copies between two devices' contexts, or NULL. */
static clt_peer_copy_fn find_copy(const clt_comm_member *a, const clt_comm_member *b)
{
    char extensions[8192] = "";
    cl_platform_id platform, other;
#ifdef CLT_TESTING
    if (clt_peer_testing_copy)
        return clt_peer_testing_copy;
#endif
    if (clGetDeviceInfo(a->device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) ||
        clGetDeviceInfo(b->device, CL_DEVICE_PLATFORM, sizeof other, &other, NULL) ||
        platform != other ||
        clGetDeviceInfo(a->device, CL_DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL) ||
        !strstr(extensions, "cl_amd_copy_buffer_p2p") || !has_neighbour(a->device, b->device))
        return NULL;
    union {
        void *address;
        clt_peer_copy_fn function;
    } found = {clGetExtensionFunctionAddressForPlatform(platform, "clEnqueueCopyBufferP2PAMD")};
    return found.function;
}

static clt_status find_copies(clt_comm *comm)
{
    clt_peers *peers = comm->peers;
    peers->one_context = true;
    for (int i = 0; i < comm->count; i++)
        for (int k = 0; k < comm->count; k++) {
            const clt_comm_member *a = &comm->members[i], *b = &comm->members[k];
            if (a->context == b->context)
                continue;
            peers->one_context = false;
            peers->copy = find_copy(a, b);
            if (!peers->copy)
                return clt_fail(
                    CLT_UNSUPPORTED,
                    "devices %d and %d have a context each and no cl_amd_copy_buffer_p2p", i, k);
        }
    return CLT_OK;
}

/* --- copies ----------------------------------------------------------------------------------- */

typedef struct pair {
    clt_comm *comm;
    int from, to;
    cl_mem source, target;
    unsigned char *host; /* host memory for patterns */
} pair;

static clt_status finish(const pair *p, int device)
{
    return clt_peer_check(p->comm, device, "clFinish", clFinish(p->comm->members[device].up));
}

static clt_status write_pattern(const pair *p, int device, cl_mem mem, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        p->host[i] = (unsigned char)((seed += 0x9e3779b9u) >> 24);
    return clt_peer_check(p->comm, device, "writing a pattern",
                          clEnqueueWriteBuffer(p->comm->members[device].up, mem, CL_TRUE, 0, bytes,
                                               p->host, 0, NULL, NULL));
}

/* Copies a part at odd offsets. Repeats this with other content, because a driver that keeps its
 * own copies may miss the change. */
static clt_status check_copies(const pair *p)
{
    enum { BYTES = 70001, FROM = 13, TO = 5, COPIED = 65543 };
    for (uint32_t round = 0; round < 3; round++) {
        CLT_TRY(write_pattern(p, p->from, p->source, BYTES, 1 + round));
        CLT_TRY(write_pattern(p, p->to, p->target, BYTES, 100 + round));
        CLT_TRY(clt_peer_copy(p->comm, p->from, p->source, FROM, p->to, p->target, TO, COPIED));
        CLT_TRY(clt_peer_check(p->comm, p->to, "reading a pattern",
                               clEnqueueReadBuffer(p->comm->members[p->to].up, p->target, CL_TRUE,
                                                   0, BYTES, p->host, 0, NULL, NULL)));
        uint32_t seed = 1 + round, behind = 100 + round;
        for (int i = 0; i < FROM; i++)
            seed += 0x9e3779b9u;
        for (int i = 0; i < BYTES; i++) {
            behind += 0x9e3779b9u;
            const bool copied = i >= TO && i < TO + COPIED;
            if (copied)
                seed += 0x9e3779b9u;
            if (p->host[i] != (unsigned char)((copied ? seed : behind) >> 24))
                return clt_fail(CLT_MISMATCH, "a copy from device %d to device %d is wrong",
                                p->from, p->to);
        }
    }
    return CLT_OK;
}

static clt_status time_copy(const pair *p, double *seconds)
{
    *seconds = 1e9;
    for (int i = 0; i <= TIMES; i++) { /* the first warms up */
        const double began = clt_clock();
        CLT_TRY(clt_peer_copy(p->comm, p->from, p->source, 0, p->to, p->target, 0, TIMED_BYTES));
        CLT_TRY(finish(p, p->to));
        const double took = clt_clock() - began;
        *seconds = i && took < *seconds ? took : *seconds;
    }
    return CLT_OK;
}

/* Times the transfer through the host: down to one device's staging, up from the other's. A sum in
 * between is left out. */
static clt_status time_staging(const pair *p, double *seconds)
{
    clt_comm_member *a = &p->comm->members[p->from], *b = &p->comm->members[p->to];
    char *down, *up;
    int from, to;
    CLT_TRY(clt_staging_take(a, TIMED_BYTES, &from, &down));
    clt_status status = clt_staging_take(b, TIMED_BYTES, &to, &up);
    *seconds = 1e9;
    for (int i = 0; i <= TIMES && status == CLT_OK; i++) {
        const double began = clt_clock();
        status = clt_peer_check(
            p->comm, p->from, "reading",
            clEnqueueReadBuffer(a->up, p->source, CL_TRUE, 0, TIMED_BYTES, down, 0, NULL, NULL));
        CLT_NEXT(status, clt_peer_check(p->comm, p->to, "writing",
                                        clEnqueueWriteBuffer(b->up, p->target, CL_TRUE, 0,
                                                             TIMED_BYTES, up, 0, NULL, NULL)));
        const double took = clt_clock() - began;
        *seconds = i && took < *seconds ? took : *seconds;
    }
    clt_staging_give(a, from);
    if (status == CLT_OK)
        clt_staging_give(b, to);
    return status;
}

static clt_status probe_pair(pair *p, double *copy, double *staging)
{
    cl_int error;
    p->source = clCreateBuffer(p->comm->members[p->from].context, CL_MEM_READ_WRITE, TIMED_BYTES,
                               NULL, &error);
    CLT_TRY(clt_peer_check(p->comm, p->from, "clCreateBuffer", error));
    clt_object_created(CLT_OBJECT_BUFFER);
    p->target = clCreateBuffer(p->comm->members[p->to].context, CL_MEM_READ_WRITE, TIMED_BYTES,
                               NULL, &error);
    CLT_TRY(clt_peer_check(p->comm, p->to, "clCreateBuffer", error));
    clt_object_created(CLT_OBJECT_BUFFER);
    CLT_TRY(check_copies(p));
    CLT_TRY(time_copy(p, copy));
    return time_staging(p, staging);
}

static clt_status probe_pairs(clt_comm *comm)
{
    unsigned char *host = clt_alloc(TIMED_BYTES);
    clt_status status = host ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; i < comm->count * comm->count && status == CLT_OK; i++) {
        pair p = {.comm = comm, .from = i / comm->count, .to = i % comm->count, .host = host};
        double copy = 1, staging = 1;
        if (p.from == p.to)
            continue;
        status = probe_pair(&p, &copy, &staging);
        clt_release_buffer(p.source);
        clt_release_buffer(p.target);
        if (status == CLT_OK)
            clt_log(CLT_LOG_DEBUG,
                    "comm: from device %d to device %d: copies of %d MiB at %.2f GB/s, through the "
                    "host at %.2f GB/s",
                    p.from, p.to, TIMED_BYTES >> 20, 1e-9 * TIMED_BYTES / copy,
                    1e-9 * TIMED_BYTES / staging);
    }
    clt_free(host);
    return status;
}

/* --- sums ------------------------------------------------------------------------------------- */

/* Draws random bits, but no NaN, because sums of NaNs may have other bits. */
static void draw(clt_dtype dtype, unsigned char *x)
{
    const size_t size = (size_t)clt_dtype_size(dtype);
    uint32_t seed = 7;
    for (size_t i = 0; i < (size_t)ARRAYS * SUMMED; i++) {
        unsigned char *element = x + i * size;
        for (size_t k = 0; k < size; k++) {
            seed = seed * 1664525u + 1013904223u;
            element[k] = (unsigned char)(seed >> 24);
        }
        /* Changes the topmost exponent, which infinities and NaNs have. */
        if (dtype != CLT_I32)
            element[size - 1] &= 0xbf;
        /* Makes many values small, so that some are below the normal range. */
        if (dtype != CLT_I32 && i % 5 == 0)
            element[size - 1] &= 0x80;
        if (dtype == CLT_F32 && i % 5 == 0)
            element[size - 2] &= 0x3f;
    }
}

typedef struct sums {
    clt_comm *comm;
    unsigned char *x, *want, *got;
} sums;

static clt_status write_arrays(const sums *s, int device, size_t bytes)
{
    clt_peer_member *p = &s->comm->peers->members[device];
    CLT_TRY(clt_peer_scratch_reserve(s->comm, device, &p->others, bytes * ARRAYS));
    CLT_TRY(clt_peer_scratch_reserve(s->comm, device, &p->result, bytes));
    CLT_TRY(clt_peer_scratch_reserve(s->comm, device, &p->partial,
                                     (SUMMED / PIECE + 1) * CLT_REDUCE_LANES * 2 * sizeof(double)));
    return clt_peer_check(s->comm, device, "writing arrays",
                          clEnqueueWriteBuffer(s->comm->members[device].up, p->others.mem, CL_TRUE,
                                               0, bytes * ARRAYS, s->x, 0, NULL, NULL));
}

/* Compares a reduction, and the squares of its result, with the host's bits. */
static clt_status check_sum(const sums *s, int device, clt_dtype dtype,
                            clt_comm_reduction reduction, bool *right, bool *measured)
{
    clt_peer_member *p = &s->comm->peers->members[device];
    const cl_command_queue queue = s->comm->members[device].up;
    const size_t bytes = (size_t)SUMMED * (size_t)clt_dtype_size(dtype);
    const clt_peer_sum sum = {.dtype = dtype,
                              .reduction = reduction,
                              .before = 1,
                              .after = 1,
                              .has_own = true,
                              .own = p->others.mem,
                              .own_first = 2 * SUMMED,
                              .stride = SUMMED,
                              .count = SUMMED};
    const void *in[ARRAYS] = {s->x, s->x + 2 * bytes, s->x + bytes};
    void *out[1] = {s->want};
    bool finite;
    double squares = 0, found = 0, partial[(SUMMED / PIECE + 1) * CLT_REDUCE_LANES * 2];
    const int64_t pieces = (SUMMED + PIECE - 1) / PIECE;
    CLT_TRY(clt_peer_reduce(s->comm, device, &sum));
    CLT_TRY(clt_peer_check(
        s->comm, device, "reading a sum",
        clEnqueueReadBuffer(queue, p->result.mem, CL_TRUE, 0, bytes, s->got, 0, NULL, NULL)));
    clt_reduce_for(dtype, dtype)(in, ARRAYS, out, 1, SUMMED, reduction, ARRAYS, NULL, &finite);
    *right = !memcmp(s->got, s->want, bytes);
    if (!*right || !p->measure[dtype])
        return CLT_OK;
    CLT_TRY(clt_peer_measure(s->comm, device, dtype, SUMMED, PIECE, 0));
    CLT_TRY(clt_peer_check(
        s->comm, device, "reading sums of squares",
        clEnqueueReadBuffer(queue, p->partial.mem, CL_TRUE, 0,
                            (size_t)(pieces * CLT_REDUCE_LANES) * 2 * sizeof *partial, partial, 0,
                            NULL, NULL)));
    bool same_finite = true, all_finite = true;
    double *const sums_of = p->sums;
    p->sums = partial;
    clt_peer_add(p, dtype, 0, pieces, &found, &same_finite);
    p->sums = sums_of;
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t first = i * PIECE, n = SUMMED - first < PIECE ? SUMMED - first : PIECE;
        const void *piece[1] = {s->want + (size_t)first * (size_t)clt_dtype_size(dtype)};
        void *same[1] = {s->got};
        double of_piece = 0;
        bool is_finite = true;
        clt_reduce_for(dtype, dtype)(piece, 1, same, 1, n, CLT_COMM_SUM, 1, &of_piece, &is_finite);
        squares += of_piece;
        all_finite = all_finite && is_finite;
    }
    *measured = *measured && !memcmp(&squares, &found, sizeof found) && all_finite == same_finite;
    return CLT_OK;
}

static clt_status probe_sums(clt_comm *comm)
{
    clt_peers *peers = comm->peers;
    sums s = {.comm = comm, .x = clt_alloc((size_t)SUMMED * 8 * (ARRAYS + 2))};
    clt_status status = s.x ? CLT_OK : CLT_OUT_OF_MEMORY;
    s.want = s.x + (size_t)SUMMED * 8 * ARRAYS;
    s.got = s.want + (size_t)SUMMED * 8;
    peers->measures = true;
    for (int t = 0; t < CLT_PEER_TYPES * CLT_PEER_REDUCTIONS && status == CLT_OK; t++) {
        const clt_dtype dtype = (clt_dtype)(t / CLT_PEER_REDUCTIONS);
        const clt_comm_reduction reduction = (clt_comm_reduction)(t % CLT_PEER_REDUCTIONS);
        bool *right = &peers->reduces[dtype][reduction];
        *right = clt_reduce_for(dtype, dtype) != NULL;
        if (!*right)
            continue;
        draw(dtype, s.x);
        for (int d = 0; d < comm->count && status == CLT_OK && *right; d++) {
            *right = peers->members[d].reduce[dtype] != NULL;
            peers->measures = peers->measures && peers->members[d].has_double;
            if (!*right)
                continue;
            status = write_arrays(&s, d, (size_t)SUMMED * (size_t)clt_dtype_size(dtype));
            CLT_NEXT(status, check_sum(&s, d, dtype, reduction, right, &peers->measures));
            if (status == CLT_OK && !*right)
                clt_log(CLT_LOG_INFO,
                        "comm: the sums of device %d (%s) in %s (reduction %d) differ from the "
                        "host's, so the host sums",
                        d, comm->members[d].name, clt_dtype_name(dtype), (int)reduction);
        }
    }
    clt_free(s.x);
    return status;
}

/* --- all-reduces timed ------------------------------------------------------------------------ */

static clt_status reduce_once(clt_comm *trial, const cl_mem *mem)
{
    clt_comm_request *requests[CLT_COMM_MAX_DEVICES];
    for (int d = 0; d < trial->count; d++) {
        clt_comm_op op;
        clt_comm_op_init(&op);
        op.mem = mem[d];
        op.count = RACED_BYTES / (int)sizeof(float);
        CLT_TRY(clt_comm_start(trial, d, -1, &op, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < trial->count; d++)
        CLT_TRY(clt_comm_complete(requests[d], d, NULL, NULL));
    for (int d = 0; d < trial->count; d++)
        CLT_TRY(clt_peer_check(trial, d, "clFinish", clFinish(trial->members[d].queue)));
    return CLT_OK;
}

static clt_status time_reduction(clt_comm *trial, const cl_mem *mem, double *seconds)
{
    *seconds = 1e9;
    for (int i = 0; i <= TIMES; i++) { /* the first warms up */
        const double began = clt_clock();
        CLT_TRY(reduce_once(trial, mem));
        const double took = clt_clock() - began;
        *seconds = i && took < *seconds ? took : *seconds;
    }
    return CLT_OK;
}

static clt_status race(clt_comm *comm, clt_comm *trial, double *staged, double *peers)
{
    cl_mem mem[CLT_COMM_MAX_DEVICES] = {NULL};
    const cl_uint zero = 0;
    clt_status status = CLT_OK;
    for (int d = 0; d < comm->count && status == CLT_OK; d++) {
        cl_int error;
        mem[d] =
            clCreateBuffer(comm->members[d].context, CL_MEM_READ_WRITE, RACED_BYTES, NULL, &error);
        status = clt_peer_check(comm, d, "clCreateBuffer", error);
        if (status != CLT_OK)
            break;
        clt_object_created(CLT_OBJECT_BUFFER);
        status = clt_peer_check(comm, d, "clEnqueueFillBuffer",
                                clEnqueueFillBuffer(comm->members[d].queue, mem[d], &zero,
                                                    sizeof zero, 0, RACED_BYTES, 0, NULL, NULL));
    }
    CLT_NEXT(status, time_reduction(trial, mem, staged));
    trial->peers = comm->peers;
    trial->peers_lent = true;
    CLT_NEXT(status, time_reduction(trial, mem, peers));
    for (int d = 0; d < comm->count; d++)
        clt_release_buffer(mem[d]);
    return status;
}

/* Times real all-reduces, staged and by peers, with a communicator made for this. */
static clt_status compare_speeds(clt_comm *comm, double *staged, double *peers)
{
    clt_comm_device devices[CLT_COMM_MAX_DEVICES];
    clt_comm_options options = comm->options;
    clt_comm *trial;
    options.path = CLT_COMM_PATH_STAGED;
    options.timeout_ms = 0;
    options.max_in_flight = 2;
    for (int d = 0; d < comm->count; d++) {
        const clt_comm_member *m = &comm->members[d];
        clt_comm_device_init(&devices[d]);
        devices[d].context = m->context;
        devices[d].device = m->device;
        devices[d].compute = m->compute;
        devices[d].transfer = m->queue == m->compute ? NULL : m->queue;
    }
    CLT_TRY(clt_comm_create(devices, comm->count, &options, &trial));
    const clt_status status = race(comm, trial, staged, peers);
    /* A failed trial may have left requests to the reducer. */
    clt_comm_abort(trial, CLT_STOPPED, "the trial is over");
    clt_comm_destroy(trial);
    for (int d = 0; d < comm->count; d++) {
        clt_release_event(comm->peers->members[d].done);
        comm->peers->members[d].done = NULL;
    }
    return status;
}

/* --- the probe -------------------------------------------------------------------------------- */

static clt_status open_all(clt_comm *comm, bool forced)
{
    const char *means;
    double staged, peers;
    CLT_TRY(find_copies(comm));
    for (int d = 0; d < comm->count; d++)
        CLT_TRY(clt_peer_kernels_open(comm, d));
    CLT_TRY(probe_sums(comm));
    CLT_TRY(probe_pairs(comm));
    means = comm->peers->one_context ? "copies within their context" : "cl_amd_copy_buffer_p2p";
    if (forced) {
        snprintf(comm->transport_text, sizeof comm->transport_text,
                 "devices exchange by %s (asked for)", means);
        return CLT_OK;
    }
    CLT_TRY(compare_speeds(comm, &staged, &peers));
    if (peers > staged)
        return clt_fail(CLT_UNSUPPORTED,
                        "by %s an all-reduce of %d MiB takes %.2f ms, through the host %.2f ms",
                        means, RACED_BYTES >> 20, 1e3 * peers, 1e3 * staged);
    snprintf(comm->transport_text, sizeof comm->transport_text,
             "devices exchange by %s: %d MiB in %.2f ms, through the host in %.2f ms", means,
             RACED_BYTES >> 20, 1e3 * peers, 1e3 * staged);
    return CLT_OK;
}

clt_status clt_peers_open(clt_comm *comm, bool forced)
{
    comm->peers =
        clt_calloc(1, sizeof *comm->peers + (size_t)comm->count * sizeof(clt_peer_member));
    CLT_TRY_MEMORY(comm->peers);
    const clt_status status = open_all(comm, forced);
    if (status == CLT_OK)
        return CLT_OK;
    clt_peers_close(comm);
    return clt_fail_prefix(CLT_UNSUPPORTED, "comm: no exchange without the host: ");
}

void clt_peers_close(clt_comm *comm)
{
    if (!comm->peers)
        return;
    for (int d = 0; d < comm->count && !comm->peers_lent; d++)
        clt_peer_kernels_close(&comm->peers->members[d]);
    if (!comm->peers_lent)
        clt_free(comm->peers);
    comm->peers = NULL;
}
