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

/* --- time_states.c --------------------------------------------------------------------------- */

/* Counts recurrent layers. */
void clt_time_count_states(clt_partitioning *p);

bool clt_time_is_recurrent(const clt_node *node);

/* Visits a recurrent node. has: how operand 0 is split. *done becomes false if it is not divided.
 * Errors: UNSUPPORTED (a layer that runs backwards, or sequences of several lengths). */
clt_status clt_time_visit_states(clt_partitioning *p, clt_node *node, clt_sharding has, bool *done);

/* Makes last states that the node reads those of the last place. */
clt_status clt_time_share_states(clt_partitioning *p, const clt_node *node);

/* Nodes from `first` on were added for a node between recurrent layers. */
void clt_time_settle(clt_partitioning *p, int first);

/* Ends the last wave, and shares the last states. */
clt_status clt_time_end_states(clt_partitioning *p);

/* --- time.c ---------------------------------------------------------------------------------- */

/* Makes the result `out` of a local node stand for the old node's result 0, with the sharding. */
clt_status clt_time_place(clt_partitioning *p, clt_node *node, clt_value *out,
                          clt_sharding sharding);

#endif
