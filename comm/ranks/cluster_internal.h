/* Declarations that the files of clt_cluster share. */
#ifndef CLT_COMM_CLUSTER_INTERNAL_H
#define CLT_COMM_CLUSTER_INTERNAL_H

#include <stdatomic.h>

#include "comm/ranks/cluster.h"
#include "comm/ranks/rounds.h"

/* The head says what so many tasks use, so most requests need no further message. What a task uses
 * is one number: its inputs + OUTPUT x its outputs. */
enum { HEAD_TASKS = 24, OUTPUT = 1 << 16 };

/* The purpose of a request between nodes. */
enum { RUN = 1, SHARE, BARRIER };

/* The first message of any request between nodes. It has the same length for all requests, so that
 * data of another request are never taken for this one's. */
typedef struct head {
    uint64_t signature;
    int32_t purpose;
    int32_t contributors, votes;
    int32_t tasks;  /* RUN: number of tasks; what they use follows, as far as it fits */
    int64_t bytes;  /* SHARE: bytes of the node's messages */
    int64_t leaves; /* RUN: of this node, if the sums are in the order of a tree; else 0 */
    int32_t uses[HEAD_TASKS];
} head;

/* Facts about a request that all ranks learn, besides its data. */
typedef struct outcome {
    clt_ranks_sum sum;
    double sum_squares;
    int64_t finite;
} outcome;

struct clt_cluster {
    clt_ranks *node;
    clt_link *link; /* on the first rank of a node */
    int nodes, rank;
    bool listens; /* this rank's waiting within the node listens to other nodes */
    clt_task_list list;
    /* On the first rank of a node: memory for all tasks' data, and for heads of all nodes. */
    clt_room scratch, heads;
    clt_rounds rounds; /* other ranks use its blocks only, for messages */
    /* The request under way. */
    clt_ranks_job job;
    const clt_task_list *tasks;
    int64_t *places; /* by task: offset of its data in scratch */
    int32_t *uses;   /* by task: what it uses on this node; and behind them, the node's leaves */
    int32_t *all;    /* the same for all nodes; part of the memory of `uses` */
    int32_t *owners; /* by measured task: the only node that has the result, or -1 */
    int8_t levels[CLT_RANKS_MOST]; /* by node, for sums in the order of a tree */
    int room;                      /* number of tasks for which the arrays have room */
    clt_comm_message *messages;    /* sends and receives of this node */
    int message_room;
    outcome said;
    int64_t shared;     /* bytes of a node's messages, laid out by clt_cluster_share */
    atomic_bool abroad; /* a call between nodes is under way, or failed */
};

/* Sets the deadlines of a request. A first rank that sees a rank missing reports it at the
 * deadline. First ranks of other nodes wait one grace period longer, and ranks that wait for their
 * own first rank (await_first) wait two. So nobody blames a rank that waits itself. */
void clt_cluster_begin(clt_cluster *cluster, const clt_ranks_job *job);
void clt_cluster_await_first(clt_cluster *cluster);

/* Runs the list by the ranks of the node; if there is no other rank, by this rank's threads. */
clt_status clt_cluster_run_node(clt_cluster *cluster, clt_task_list *list, double *sum_squares,
                                bool *finite, clt_ranks_sum *sum);

/* Exchanges the heads of all nodes, and checks that all nodes are at the same request. */
clt_status clt_cluster_meet(clt_cluster *cluster, head *own, const head **heads);

/* Does something that makes calls between nodes. */
clt_status clt_cluster_abroad(clt_cluster *cluster, clt_status (*fn)(clt_cluster *cluster));

#endif
