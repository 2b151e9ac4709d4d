/* Division of forward graphs over axis time: places have different positions of each sequence; see
 * time.c. */
#ifndef CLT_PASSES_TIME_H
#define CLT_PASSES_TIME_H

#include "passes/partition.h"

extern const clt_axis_rules clt_time_rules;

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

#endif
