/* Exchanges between the ranks of one node through shared memory (ranks/node_ranks.h). */
#include "base/error.h"
#include "comm/communicator/internal.h"

static bool accepts(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    (void)device;
    (void)part;
    if (comm->cluster)
        return clt_declines(
            why, "the ranks are on several nodes; mpi takes the sums that those of a node share");
    return comm->node ? true : clt_declines(why, "there is one process; start ranks with mpiexec");
}

static clt_status run(clt_comm *comm, clt_comm_request *r)
{
    const clt_ranks_job job = clt_comm_job_of(comm, r);
    clt_ranks_sum sum = {job.contributors, job.votes};
    CLT_TRY(clt_ranks_run(comm->node, &job, &comm->tasks, &r->sum_squares, &r->finite, &sum));
    r->contributors = sum.contributors;
    r->votes = sum.votes;
    return CLT_OK;
}

const clt_transport clt_transport_shared_memory = {
    .name = "shared memory", .between = true, .accepts = accepts, .run = run};
