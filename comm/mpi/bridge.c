#include "comm/mpi/bridge.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>

struct clt_mpi_bridge {
    MPI_Comm leaders; /* MPI_COMM_NULL on other ranks */
};

/* MPI's own waiting keeps a core busy: look at once for some microseconds, then less often. */
static clt_status finish(MPI_Request *request, int (*cancelled)(void *arg), void *arg)
{
    enum { LOOKS = 2000 };
    for (int looks = 0;; looks++) {
        int done = 0;
        CLT_MPI_TRY(clt_mpi_check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        if (done)
            return CLT_OK;
        if (looks % 16 == 15) {
            const int status = cancelled(arg);
            if (status != CLT_OK)
                return (clt_status)status;
        }
        if (looks > LOOKS) {
            const struct timespec pause = {0, 20000};
            nanosleep(&pause, NULL);
        }
    }
}

static clt_status check_size(int64_t bytes)
{
    return bytes <= INT_MAX
               ? CLT_OK
               : clt_mpi_fail(CLT_UNSUPPORTED,
                              "comm: nodes exchange at most %d bytes at once, not %lld", INT_MAX,
                              (long long)bytes);
}

static clt_status gather(void *user, const void *mine, int64_t bytes, void *all,
                         int (*cancelled)(void *arg), void *arg)
{
    const clt_mpi_bridge *b = user;
    MPI_Request request;
    CLT_MPI_TRY(check_size(bytes));
    CLT_MPI_TRY(clt_mpi_check(
        MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, b->leaders, &request),
        "MPI_Iallgather"));
    return finish(&request, cancelled, arg);
}

static clt_status exchange(void *user, const void *blocks, int64_t bytes, void *received,
                           int (*cancelled)(void *arg), void *arg)
{
    const clt_mpi_bridge *b = user;
    MPI_Request request;
    CLT_MPI_TRY(check_size(bytes));
    CLT_MPI_TRY(clt_mpi_check(MPI_Ialltoall(blocks, (int)bytes, MPI_BYTE, received, (int)bytes,
                                            MPI_BYTE, b->leaders, &request),
                              "MPI_Ialltoall"));
    return finish(&request, cancelled, arg);
}

static clt_status broadcast(void *user, int root, void *data, int64_t bytes,
                            int (*cancelled)(void *arg), void *arg)
{
    const clt_mpi_bridge *b = user;
    enum { PIECE = 1 << 28 };
    for (int64_t at = 0; at < bytes; at += PIECE) {
        MPI_Request request;
        const int count = bytes - at < PIECE ? (int)(bytes - at) : PIECE;
        CLT_MPI_TRY(clt_mpi_check(
            MPI_Ibcast((char *)data + at, count, MPI_BYTE, root, b->leaders, &request),
            "MPI_Ibcast"));
        CLT_MPI_TRY(finish(&request, cancelled, arg));
    }
    return CLT_OK;
}

clt_status clt_mpi_split_node(MPI_Comm ranks, MPI_Comm *node)
{
    int rank = 0;
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank"));
#ifdef CLT_TESTING
    /* Tests make nodes of so many ranks on one machine. */
    const char *text = getenv("CLT_TESTING_NODE_RANKS");
    if (text && atoi(text) > 0)
        return clt_mpi_check(MPI_Comm_split(ranks, rank / atoi(text), rank, node),
                             "MPI_Comm_split");
#endif
    return clt_mpi_check(
        MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, node),
        "MPI_Comm_split_type");
}

/* The first rank of a node learns its place among the nodes, and tells the others. */
static clt_status find_nodes(clt_mpi_bridge *b, MPI_Comm ranks, MPI_Comm node, int *place)
{
    int rank = 0, node_rank = 0;
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_rank(ranks, &rank), "MPI_Comm_rank"));
    CLT_MPI_TRY(clt_mpi_check(MPI_Comm_rank(node, &node_rank), "MPI_Comm_rank"));
    CLT_MPI_TRY(clt_mpi_check(
        MPI_Comm_split(ranks, node_rank ? MPI_UNDEFINED : 0, rank, &b->leaders), "MPI_Comm_split"));
    if (b->leaders != MPI_COMM_NULL) {
        MPI_Comm_set_errhandler(b->leaders, MPI_ERRORS_RETURN);
        CLT_MPI_TRY(clt_mpi_check(MPI_Comm_rank(b->leaders, &place[0]), "MPI_Comm_rank"));
        CLT_MPI_TRY(clt_mpi_check(MPI_Comm_size(b->leaders, &place[1]), "MPI_Comm_size"));
    }
    return clt_mpi_check(MPI_Bcast(place, 2, MPI_INT, 0, node), "MPI_Bcast");
}

clt_status clt_mpi_bridge_open(MPI_Comm ranks, MPI_Comm node, clt_mpi_bridge **out,
                               clt_comm_bridge *functions)
{
    int place[2] = {0, 1}, level = MPI_THREAD_SINGLE;
    clt_mpi_bridge *b = malloc(sizeof *b);
    if (!b)
        return clt_mpi_fail(CLT_OUT_OF_MEMORY, "comm: memory does not suffice");
    b->leaders = MPI_COMM_NULL;
    clt_status status = find_nodes(b, ranks, node, place);
    if (status == CLT_OK)
        status = clt_mpi_check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (status != CLT_OK || place[1] == 1) {
        clt_mpi_bridge_close(b, status != CLT_OK);
        return status;
    }
    clt_comm_bridge_init(functions);
    functions->node = place[0];
    functions->nodes = place[1];
    functions->main_thread = level < MPI_THREAD_MULTIPLE;
    functions->gather = gather;
    functions->exchange = exchange;
    functions->broadcast = broadcast;
    functions->user = b;
    *out = b;
    return CLT_OK;
}

void clt_mpi_bridge_close(clt_mpi_bridge *b, int aborted)
{
    if (b && !aborted && b->leaders != MPI_COMM_NULL)
        MPI_Comm_free(&b->leaders);
    free(b);
}
