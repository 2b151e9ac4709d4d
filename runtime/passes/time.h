/* Division of forward graphs over axis time: places have different positions of each sequence; see
 * time.c. Its functions are steps of clt_pass_partition_forward. */
#ifndef CLT_PASSES_TIME_H
#define CLT_PASSES_TIME_H

#include "passes/partition.h"

/* Chooses in how many blocks annotated values are dealt to the places. Errors: SHAPE (the positions
 * cannot be dealt). */
clt_status clt_time_deal(clt_partitioning *p);

/* Visits a node that must know which positions its place has. *done becomes false for other nodes,
 * which are divided as in training graphs. */
clt_status clt_time_visit(clt_partitioning *p, clt_node *node, const clt_node_dims *dims,
                          bool *done);

#endif
