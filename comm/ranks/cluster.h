/*
 * Collectives between the ranks of several nodes, on top of those of each node (node.h): the ranks
 * of a node add up their data for their first rank, the first ranks of all nodes reduce what they
 * have (each a part of it, in the order of the nodes, then all gather the parts), and the ranks of
 * a node take the result. Results' bits depend on how ranks lie on nodes.
 */
#ifndef CLT_COMM_CLUSTER_H
#define CLT_COMM_CLUSTER_H

#include "comm/ranks/node.h"

typedef struct clt_cluster clt_cluster;

/*
 * `node` is NULL where the node has one rank; `rank`: this one's number among all; `leads`: it is
 * its node's first. `bridge` is copied; only
 * first ranks use its functions, through `call`, which runs fn(arg) where they may be called (NULL:
 * on the calling thread) and gives its status. Errors: OUT_OF_MEMORY.
 */
typedef clt_status (*clt_cluster_fn)(void *arg);
clt_status clt_cluster_open(clt_ranks *node, int rank, bool leads, const clt_comm_bridge *bridge,
                            clt_status (*call)(void *user, clt_cluster_fn fn, void *arg),
                            void *user, clt_cluster **cluster);

/* Takes NULL. */
void clt_cluster_close(clt_cluster *cluster);

/* As clt_ranks_run, clt_ranks_share and clt_ranks_barrier, over all nodes. */
clt_status clt_cluster_run(clt_cluster *cluster, const clt_ranks_job *job,
                           const clt_task_list *tasks, double *sum_squares, bool *finite,
                           clt_ranks_sum *sum);
clt_status clt_cluster_share(clt_cluster *cluster, const clt_ranks_job *job, const void *from,
                             size_t bytes,
                             clt_status (*take)(void *user, const void *from, size_t bytes),
                             void *user);
clt_status clt_cluster_barrier(clt_cluster *cluster, const clt_ranks_job *job);

/* Of a first rank, from a thread that may use the bridge: ABORTED with a message where a rank of
 * another node has ended what this one waits for; and telling the other nodes of an abort or of an
 * orderly end, once. */
clt_status clt_cluster_listen(clt_cluster *cluster);
void clt_cluster_tell(clt_cluster *cluster, const clt_ranks_notice *notice, bool aborted);

/* Whether a rank of another node ended something here; its notice. Any thread. */
bool clt_cluster_heard(clt_cluster *cluster, clt_ranks_notice *notice);

/* TIMEOUT: names the ranks that are waited for; OK: none are. Any thread. */
clt_status clt_cluster_late(const clt_cluster *cluster, const clt_ranks_job *job);

/* Bytes that this rank gave to the bridge for other nodes, of a kind. Any thread. */
int64_t clt_cluster_sent(const clt_cluster *cluster, clt_comm_kind kind);

/* Those who wait for one who waits do so longer, by once or twice this. */
int clt_cluster_grace_ms(int timeout_ms);

#endif
