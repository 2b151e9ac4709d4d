/* Creates communicators between MPI processes: sets up the memory and messages that they share. */
#include <limits.h>
#include <stdlib.h>

#include "comm/mpi/bridge.h"
#include "comm/mpi/connect.h"
#include "comm/mpi/node_memory.h"

/* Everything that a communicator between processes is made of. */
typedef struct clt_mpi {
    MPI_Comm ranks, node; /* freed after creation, since destroying may not wait */
    void *memory;
    size_t bytes;
    int *devices;           /* by rank */
    clt_mpi_bridge *bridge; /* NULL: one node */
    clt_comm_bridge functions;
} clt_mpi;

static void release(void *user, int aborted)
{
    clt_mpi *m = user;
    clt_mpi_memory_close(m->memory, m->bytes);
    clt_mpi_bridge_close(m->bridge, aborted);
    free(m->devices);
    free(m);
}

static clt_status find_ranks(clt_mpi *m, MPI_Comm ranks, int count, clt_comm_ranks *of)
{
    CLT_TRY(clt_mpi_duplicate(ranks, "clt_comm_create_mpi", &m->ranks));
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(m->ranks, &of->rank), "MPI_Comm_rank"));
    CLT_TRY(clt_mpi_check(MPI_Comm_size(m->ranks, &of->ranks), "MPI_Comm_size"));
    m->devices = calloc((size_t)of->ranks, sizeof *m->devices);
    if (!m->devices)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "comm: memory does not suffice");
    CLT_TRY(clt_mpi_check(MPI_Allgather(&count, 1, MPI_INT, m->devices, 1, MPI_INT, m->ranks),
                          "MPI_Allgather"));
    of->devices = m->devices;
    CLT_TRY(clt_mpi_split_node(m->ranks, &m->node));
    MPI_Comm_set_errhandler(m->node, MPI_ERRORS_RETURN);
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(m->node, &of->node_rank), "MPI_Comm_rank"));
    CLT_TRY(clt_mpi_check(MPI_Comm_size(m->node, &of->node_ranks), "MPI_Comm_size"));
    const int number = of->number < 0 ? of->rank : of->number;
    CLT_TRY(clt_mpi_bridge_open(m->ranks, m->node, number, &m->bridge, &m->functions));
    of->bridge = m->bridge ? &m->functions : NULL;
    return CLT_OK;
}

static clt_status create(clt_mpi *m, MPI_Comm ranks, int number, const clt_comm_device *devices,
                         int count, const clt_comm_options *options, clt_comm **comm)
{
    clt_comm_ranks of;
    clt_comm_ranks_init(&of);
    of.number = number;
    CLT_TRY(find_ranks(m, ranks, count, &of));
    m->bytes = (size_t)clt_comm_shared_bytes(of.node_ranks);
    if (m->bytes)
        CLT_TRY(clt_mpi_memory_open(m->node, m->bytes, &m->memory));
    of.shared = m->memory;
    of.shared_bytes = (int64_t)m->bytes;
    of.processes = 1;
    of.release = release;
    of.user = m;
    clt_status status = clt_comm_create_between(devices, count, options, &of, comm);
    /* All ranks create the communicator, or none. */
    int any = 0, who = status == CLT_OK ? INT_MAX : number < 0 ? of.rank : number;
    const clt_status agreed =
        clt_mpi_check(MPI_Allreduce(&who, &any, 1, MPI_INT, MPI_MIN, m->ranks), "MPI_Allreduce");
    if (agreed == CLT_OK) {
        MPI_Comm_free(&m->node);
        MPI_Comm_free(&m->ranks);
    }
    if (agreed == CLT_OK && any == INT_MAX)
        return CLT_OK;
    if (status != CLT_OK)
        return status;
    clt_comm_abort(*comm, CLT_ABORTED, "comm: another rank could not create the communicator");
    clt_comm_destroy(*comm); /* this frees `m` too */
    if (agreed != CLT_OK)
        return agreed;
    return clt_mpi_fail(CLT_ABORTED, "comm: rank %d could not create the communicator", any);
}

clt_status clt_mpi_connect(MPI_Comm ranks, int number, const clt_comm_device *devices, int count,
                           const clt_comm_options *options, clt_comm **comm)
{
    CLT_TRY(clt_mpi_running("clt_comm_create_mpi"));
    clt_mpi *m = calloc(1, sizeof *m);
    if (!m)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "comm: memory does not suffice");
    m->ranks = m->node = MPI_COMM_NULL;
    clt_comm *made = NULL;
    clt_status status = create(m, ranks, number, devices, count, options, &made);
    if (status == CLT_OK)
        *comm = made;
    else if (!made)
        release(m, 1);
    return status;
}

clt_status clt_comm_create_mpi(MPI_Comm ranks, const clt_comm_device *devices, int count,
                               const clt_comm_options *options, clt_comm **comm)
{
    return clt_mpi_connect(ranks, -1, devices, count, options, comm);
}
