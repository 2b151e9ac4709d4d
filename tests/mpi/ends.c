/*
 * One rank ends before the others expect it, run by mpiexec: `ends CASE LEVEL`. The last rank
 *
 *     fails       its first collective is refused, and it destroys its communicator
 *     aborts      aborts its communicator
 *     finalizes   while the others are in a collective; alone on its node, or with a deadline
 *     differs     starts another kind of collective
 *     is-late     comes after the others' deadline
 *
 * All ranks get the reason. None hangs, neither in clt_comm_destroy nor in MPI_Finalize. Exit code
 * 1 if a rank gets any other message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/fixture.h"
#include <cltrain/mpi.h>

enum { COUNT = 1000, DEADLINE_MS = 1500 };

static clt_comm_op first_op(cl_mem mem, int last, const char *what)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.mem = mem;
    op.count = COUNT;
    op.label = "a bucket";
    if (last && !strcmp(what, "fails"))
        op.count = 1 << 30;
    if (last && !strcmp(what, "differs")) {
        op.kind = CLT_COMM_SEND;
        op.peer = 0;
    }
    return op;
}

static clt_status take_part(clt_comm *comm, cl_mem mem, int last, const char *what)
{
    const clt_comm_op op = first_op(mem, last, what);
    clt_comm_request *request;
    if (last && !strcmp(what, "aborts"))
        clt_comm_abort(comm, CLT_STATE, "I have had enough");
    if (last && !strcmp(what, "finalizes"))
        return clt_comm_finalize(comm);
    if (last && !strcmp(what, "is-late"))
        usleep(2 * DEADLINE_MS * 1000);
    const clt_status status = clt_comm_start(comm, 0, -1, &op, 0, NULL, &request);
    return status == CLT_OK ? clt_comm_complete(request, 0, NULL, NULL) : status;
}

/* Checks the message of a rank. `nodes`: the ranks are on several nodes. */
static int told_rightly(const char *what, clt_status status, int last, int ranks, int nodes)
{
    char part[128];
    const char *message = clt_error_message();
    const char *format = !strcmp(what, "fails")     ? "rank %d: it destroyed its communicator"
                         : !strcmp(what, "aborts")  ? "rank %d: I have had enough"
                         : !strcmp(what, "is-late") ? "waited 1.5 s for rank %d: stopped"
                                                    : "something else; all ranks must start";
    if (status == CLT_OK)
        return 0;
    if (last && !strcmp(what, "fails"))
        return status == CLT_INVALID_ARGUMENT;
    if (last && !strcmp(what, "aborts"))
        return status == CLT_ABORTED;
    /* In a node's shared memory, a barrier and a collective wait for each other. */
    if (!strcmp(what, "finalizes") && !nodes)
        return strstr(message, "waited 1.5 s for rank") != NULL;
    /* A late rank gets the message of the rank that noticed. */
    if (last && !strcmp(what, "is-late"))
        return status == CLT_ABORTED && strstr(message, "waited 1.5 s for rank") != NULL;
    snprintf(part, sizeof part, format, ranks - 1);
    return strstr(message, part) != NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int nodes = argc > 3 && atoi(argv[3]);
    int rank, ranks, given;
    fixture f;
    clt_comm *comm;
    clt_comm_device device;
    clt_comm_options options;
    MPI_Init_thread(
        &argc, &argv,
        argc > 2 && !strcmp(argv[2], "multiple") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fixture_open(&f, 1, false, false);
    fixture_device(&f, 0, &device);
    cl_mem mem = fixture_buffer(&f, 0, COUNT * sizeof(float));
    clt_comm_options_init(&options);
    /* A deadline only for cases in which no other rank reports the end. */
    options.timeout_ms =
        !strcmp(what, "is-late") || (!strcmp(what, "finalizes") && !nodes) ? DEADLINE_MS : 0;
    if (clt_comm_create_mpi(MPI_COMM_WORLD, &device, 1, &options, &comm) != CLT_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    clt_status status = take_part(comm, mem, rank == ranks - 1, what);
    if (status == CLT_OK) /* no more data are needed */
        status = clt_comm_finalize(comm);
    const int right = told_rightly(what, status, rank == ranks - 1, ranks, nodes);
    if (!right)
        fprintf(stderr, "rank %d: %s: %s\n", rank, clt_status_name(status),
                status == CLT_OK ? "" : clt_error_message());
    clt_comm_destroy(comm);
    clReleaseMemObject(mem);
    fixture_close(&f);
    MPI_Finalize();
    return !right;
}
