/* Division of forward graphs over axes whose places share each sample; see space.c. Its functions
 * are steps of clt_pass_partition_forward. */
#ifndef CLT_PASSES_SPACE_H
#define CLT_PASSES_SPACE_H

#include "passes/partition.h"

/* Cuts a value if it is annotated (clt_shard_value). */
clt_status clt_space_cut(clt_partitioning *p, const clt_value *old);

extern const clt_axis_rules clt_space_rules;

/* Losses, metrics and output gradients become this place's share. */
clt_status clt_space_ends(clt_partitioning *p);

#endif
