/* Reductions between nodes, as rounds of calls of the bridge: each node reduces a block of a few
 * hundred kilobytes in the order of the nodes, so results do not depend on the network. */
#ifndef CLT_COMM_ROUNDS_H
#define CLT_COMM_ROUNDS_H

#include "comm/core/tasks.h"
#include "comm/ranks/link.h"

/* Memory that only grows. */
typedef struct clt_room {
    char *memory;
    int64_t bytes;
} clt_room;

/* Makes room for so many bytes. What was there is lost where it must grow. */
clt_status clt_room_make(clt_room *room, int64_t bytes);

/* Of the first rank of a node. */
typedef struct clt_rounds {
    clt_link *link;
    int node, nodes;
    clt_room blocks; /* of all nodes: what goes out, then what comes in */
} clt_rounds;

/* How elements of one type are reduced. */
typedef struct clt_round_sum {
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int divisor; /* of a mean */
} clt_round_sum;

/* All-reduces `count` elements in place. */
clt_status clt_rounds_all_reduce(clt_rounds *rounds, const clt_round_sum *sum, char *data,
                                 int64_t count);

/* Reduces `count` elements for each node. data[n]: this node's elements for node n, or NULL, on all
 * nodes alike, where node n wants nothing. The result replaces this node's own. */
clt_status clt_rounds_scatter(clt_rounds *rounds, const clt_round_sum *sum, char *const *data,
                              int64_t count);

/* The partial sums of squares of a list that was done: those of task i become what node owners[i]
 * has; -1: all nodes have the same. */
clt_status clt_rounds_share_partials(clt_rounds *rounds, clt_task_list *list,
                                     const int32_t *owners);

#endif
