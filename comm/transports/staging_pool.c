/*
 * Pinned host memory, per device because it is pinned per context. Pieces live as long as the
 * communicator. A piece may be taken again as soon as complete gave it back, even if its upload is
 * still under way: the next host write to the piece waits for an event that comes after this
 * upload. The same in-order queue reaches that event after the upload. In transports/staged.c the
 * member's queue was ordered behind the upload or, for a request that begins late, the queue of its
 * downloads.
 */
#include "base/error.h"
#include "base/vec.h"
#include "comm/communicator/internal.h"

/* Sizes are rounded up to this, so that nearly equal buckets share pieces. */
enum { ROUND = 65536 };

/* Returns a queue for mapping. It prefers a queue that does not wait for the device's kernels. */
static cl_command_queue queue_of(const clt_comm_member *m)
{
    return m->piped ? m->up : m->queue;
}

static clt_status add(clt_comm_member *m, size_t bytes)
{
    CLT_TRY(CLT_RESERVE(m->staging, m->staging_count, m->staging_room, 1));
    clt_staging s = {.bytes = (bytes + ROUND - 1) / ROUND * ROUND};
    cl_int error;
    s.mem = clCreateBuffer(m->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, s.bytes, NULL,
                           &error);
    if (error != CL_SUCCESS)
        return clt_fail(
            CLT_OUT_OF_MEMORY,
            "comm: %zu bytes of pinned memory for device %s cannot be had (OpenCL error "
            "%d); use smaller buckets",
            s.bytes, m->name, error);
    s.host = clEnqueueMapBuffer(queue_of(m), s.mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, s.bytes,
                                0, NULL, NULL, &error);
    if (error != CL_SUCCESS) {
        clReleaseMemObject(s.mem);
        return clt_fail(CLT_OUT_OF_MEMORY,
                        "comm: %zu bytes of pinned memory of device %s cannot be mapped (OpenCL "
                        "error %d); use smaller buckets",
                        s.bytes, m->name, error);
    }
    m->staging[m->staging_count++] = s;
    return CLT_OK;
}

clt_status clt_staging_take(clt_comm_member *m, size_t bytes, int *index, char **host)
{
    int best = -1;
    clt_status status = CLT_OK;
    pthread_mutex_lock(&m->staging_lock);
    for (int i = 0; i < m->staging_count; i++) {
        const clt_staging *s = &m->staging[i];
        if (!s->used && s->bytes >= bytes && (best < 0 || s->bytes < m->staging[best].bytes))
            best = i;
    }
    if (best < 0) {
        status = add(m, bytes);
        best = m->staging_count - 1;
    }
    if (status == CLT_OK) {
        m->staging[best].used = true;
        *index = best;
        *host = m->staging[best].host;
    }
    pthread_mutex_unlock(&m->staging_lock);
    return status;
}

void clt_staging_give(clt_comm_member *m, int index)
{
    pthread_mutex_lock(&m->staging_lock);
    m->staging[index].used = false;
    pthread_mutex_unlock(&m->staging_lock);
}

clt_status clt_staging_reserve(clt_comm_member *m, size_t bytes, int requests)
{
    int have = 0;
    clt_status status = CLT_OK;
    pthread_mutex_lock(&m->staging_lock);
    for (int i = 0; i < m->staging_count; i++)
        have += !m->staging[i].used && m->staging[i].bytes >= bytes;
    for (; have < requests && status == CLT_OK; have++)
        status = add(m, bytes);
    pthread_mutex_unlock(&m->staging_lock);
    return status;
}

void clt_staging_free(clt_comm_member *m)
{
    for (int i = 0; i < m->staging_count; i++) {
        clEnqueueUnmapMemObject(queue_of(m), m->staging[i].mem, m->staging[i].host, 0, NULL, NULL);
        clReleaseMemObject(m->staging[i].mem);
    }
    /* PoCL crashes if the caller releases the device while a command runs. */
    if (m->staging_count)
        clFinish(queue_of(m));
    clt_free(m->staging);
    m->staging = NULL;
    m->staging_count = m->staging_room = 0;
}
