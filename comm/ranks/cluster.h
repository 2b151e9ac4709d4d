/*
 * Collectives between the ranks of several nodes, on top of the collectives of each node
 * (node_ranks.h). The ranks of a node reduce their data for their first rank. Each first rank
 * reduces a part of the data of all nodes, in the order of the nodes, and all gather the parts,
 * unless each node wants only its own part. The ranks of a node then take the result. Bits of the
 * result depend on how the ranks are placed on nodes.
 */
#ifndef CLT_COMM_CLUSTER_H
#define CLT_COMM_CLUSTER_H

#include "comm/ranks/link.h"

typedef struct clt_cluster clt_cluster;

/*
 * Opens a rank's part. `node` is NULL if the node has one rank. `rank` is this rank's number among
 * all ranks. `leads`: this rank is the first of its node. `bridge`, `run` and `user` are those of
 * clt_link_open; only first ranks use them. Errors: OUT_OF_MEMORY.
 */
clt_status clt_cluster_open(clt_ranks *node, int rank, bool leads, const clt_comm_bridge *bridge,
                            clt_link_run run, void *user, clt_cluster **cluster);

/* Frees the rank's part. Takes NULL. First ranks call it on a thread that may call the bridge. */
void clt_cluster_close(clt_cluster *cluster);

/* Do the same as clt_ranks_run, clt_ranks_share and clt_ranks_barrier, over all nodes. */
clt_status clt_cluster_run(clt_cluster *cluster, const clt_ranks_job *job,
                           const clt_task_list *tasks, double *sum_squares, bool *finite,
                           clt_ranks_sum *sum);
clt_status clt_cluster_share(clt_cluster *cluster, const clt_ranks_job *job, const void *from,
                             size_t bytes,
                             clt_status (*take)(void *user, const void *from, size_t bytes),
                             void *user);
clt_status clt_cluster_barrier(clt_cluster *cluster, const clt_ranks_job *job);

/* For first ranks, on a thread that may use the bridge. clt_cluster_listen returns ABORTED, with a
 * message, if a rank of another node has ended a collective that this rank waits for.
 * clt_cluster_tell tells the other nodes of an abort or of an orderly end, once. */
clt_status clt_cluster_listen(clt_cluster *cluster);
void clt_cluster_tell(clt_cluster *cluster, const clt_ranks_notice *notice, bool aborted);

/* Whether a rank of another node ended a collective here, and its notice. Any thread may call
 * it. */
bool clt_cluster_heard(clt_cluster *cluster, clt_ranks_notice *notice);

/* Returns TIMEOUT with a message that names the missing ranks, or OK if none are missing. Any
 * thread may call it. */
clt_status clt_cluster_late(const clt_cluster *cluster, const clt_ranks_job *job);

/* Returns the bytes of a kind that this rank gave to the bridge for other nodes. Any thread may
 * call it. */
int64_t clt_cluster_sent(const clt_cluster *cluster, clt_comm_kind kind);

/* Returns the grace period. Ranks that wait for a waiting rank wait one or two such periods
 * longer. */
int clt_cluster_grace_ms(int timeout_ms);

#endif
