/* A trainer's world of MPI ranks: small words between steps; the bulk goes through communicators.
 */
#include <limits.h>
#include <stdlib.h>
#include <time.h>

#include "comm/mpi/bridge.h"

typedef struct world {
    MPI_Comm ranks;
} world;

/* MPI's own waiting keeps a core busy, which on CPUs is one that another rank computes on: look
 * less and less often, from 10 us to 2 ms. */
static clt_status wait_for(MPI_Request *request)
{
    long pause = 10000;
    for (;;) {
        int done = 0;
        CLT_MPI_TRY(clt_mpi_check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        if (done)
            return CLT_OK;
        const struct timespec time = {0, pause};
        nanosleep(&time, NULL);
        pause = pause < 1000000 ? 2 * pause : 2000000;
    }
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all)
{
    const world *w = user;
    MPI_Request request;
    if (bytes < 0 || bytes > INT_MAX)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT, "ranks cannot tell each other %lld bytes at once",
                            (long long)bytes);
    CLT_MPI_TRY(clt_mpi_check(
        MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, w->ranks, &request),
        "MPI_Iallgather"));
    return wait_for(&request);
}

static clt_status connect_ranks(void *user, const clt_comm_device *devices, int count,
                                const clt_comm_options *options, clt_comm **comm)
{
    const world *w = user;
    return clt_comm_create_mpi(w->ranks, devices, count, options, comm);
}

static void release(void *user)
{
    world *w = user;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized)
        MPI_Comm_free(&w->ranks);
    free(w);
}

static clt_status find_place(const world *w, clt_world *out)
{
    MPI_Comm node;
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_rank(w->ranks, &out->rank), "MPI_Comm_rank"));
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_size(w->ranks, &out->ranks), "MPI_Comm_size"));
    CLT_MPI_TRY(clt_mpi_split_node(w->ranks, &node));
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_rank(node, &out->node_rank), "MPI_Comm_rank"));
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_size(node, &out->node_ranks), "MPI_Comm_size"));
    return clt_mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
}

clt_status clt_world_open_mpi(MPI_Comm ranks, clt_world *out)
{
    CLT_MPI_TRY(clt_mpi_running("clt_world_open_mpi"));
    world *w = malloc(sizeof *w);
    if (!w)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "memory does not suffice");
    clt_world found;
    clt_world_init(&found);
    clt_status status = clt_mpi_duplicate(ranks, &w->ranks);
    if (status == CLT_OK)
        status = find_place(w, &found);
    if (status != CLT_OK) {
        free(w);
        return status;
    }
    found.gather = gather;
    found.connect = connect_ranks;
    found.release = release;
    found.user = w;
    *out = found;
    return CLT_OK;
}
