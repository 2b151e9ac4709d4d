/* Reductions between nodes, in rounds of bridge calls. In a round each node reduces one block of a
 * few hundred kilobytes (between two nodes a megabyte), in the order of the nodes. Results
 * therefore do not depend on the network. */
#ifndef CLT_COMM_ROUNDS_H
#define CLT_COMM_ROUNDS_H

#include "comm/core/tasks.h"
#include "comm/ranks/link.h"

/* Memory that only grows. */
typedef struct clt_room {
    char *memory;
    int64_t bytes;
} clt_room;

/* Makes room for at least `bytes` bytes. Growing discards the content. */
clt_status clt_room_make(clt_room *room, int64_t bytes);

/* State of a node's first rank, which talks to other nodes. */
typedef struct clt_rounds {
    clt_link *link;
    int node, nodes;
    clt_room blocks; /* one outgoing block per node, then one incoming block per node */
} clt_rounds;

/* How elements of one type are reduced. */
typedef struct clt_round_sum {
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int divisor;          /* divides each sum; 0: no division */
    const int8_t *levels; /* by node: its level in a tree (comm/core/tree.h); NULL: the nodes are
                             reduced in their order */
    clt_rounding round;   /* error feedback of the first element, on the node that computes it */
} clt_round_sum;

/* All-reduces `count` elements in place. */
clt_status clt_rounds_all_reduce(clt_rounds *rounds, const clt_round_sum *sum, char *data,
                                 int64_t count);

/* Reduces `count` elements for each node. data[n] holds this node's elements for node n. It is NULL
 * on all nodes if node n has no use for a result. The result replaces data[] of this node. */
clt_status clt_rounds_scatter(clt_rounds *rounds, const clt_round_sum *sum, char *const *data,
                              int64_t count);

/* Shares the partial sums of squares of a finished list. Those of task i become the sums of node
 * owners[i]. With -1 all nodes have the same sums already. */
clt_status clt_rounds_share_partials(clt_rounds *rounds, clt_task_list *list,
                                     const int32_t *owners);

#endif
