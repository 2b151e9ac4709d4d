/* Exchanges between nodes: MPI, through a clt_comm_bridge. The ranks of a node share memory
 * (ranks/cluster.h). */
#include "base/error.h"
#include "comm/communicator/internal.h"

static bool accepts(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    (void)device;
    (void)part;
    if (comm->cluster)
        return true;
    return clt_declines(why, comm->node ? "all ranks are on one node, where they share memory"
                                        : "there is one process; start ranks with mpiexec");
}

static clt_status run(clt_comm *comm, clt_comm_request *r)
{
    const clt_ranks_job job = clt_comm_job_of(comm, r);
    clt_ranks_sum sum = {job.contributors, job.votes};
    CLT_TRY(clt_cluster_run(comm->cluster, &job, &comm->tasks, &r->sum_squares, &r->finite, &sum));
    r->contributors = sum.contributors;
    r->votes = sum.votes;
    return CLT_OK;
}

const clt_transport clt_transport_mpi = {
    .name = "mpi", .between = true, .accepts = accepts, .run = run};
