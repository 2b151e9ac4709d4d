/*
 * Partitioning a training graph along one axis of the mesh. Each place of the axis gets a graph of
 * its own, with parts of the split parameters and with collectives. A value has a placement:
 *
 *     whole     every place has all of it
 *     part      each place has the part that a clt_sharding describes
 *     partial   the sum over the places is the value
 *
 * Nodes are visited in order. A node is divided along a dimension in which one of its operands is
 * split already (partition_choose.c). Operands are converted to the placements that the division
 * needs (partition_convert.c), and a copy of the node with local shapes is added (partition.c). The
 * idea is that of GSPMD (Xu et al., 2021) and Megatron-LM (Shoeybi et al., 2019).
 */
#ifndef CLT_PASSES_PARTITION_H
#define CLT_PASSES_PARTITION_H

#include "graph/sharding.h"
#include "ops/core/dims.h"
#include "passes/passes.h"

/* The most places of an axis, and the most blocks of a dimension. */
enum { CLT_MOST_PLACES = 256 };

typedef struct clt_placement {
    bool partial;
    bool own;              /* what this place's rows alone give: their mean, or a recurrent layer's
                              last state; see space.c and time_states.c */
    clt_sharding sharding; /* blocks 0: not split */
} clt_placement;

/* States of recurrent layers that pass from place to place; see time_states.c. */
typedef struct clt_time_states {
    int layers, visited; /* recurrent nodes */
    int in_wave;         /* layers of the wave under way */
    int stage;           /* the stage of axis pp that has them */
    int handed;          /* collectives of this wave */
    int number;          /* collectives so far */
    int64_t width;       /* of the widest states */
    clt_value *before;   /* the state that the last collective brought */
    clt_value *zeros;    /* what a place without a layer gives */
} clt_time_states;

typedef struct clt_partitioning {
    clt_graph *graph;
    clt_axis axis;
    clt_coordinate at;
    const struct clt_axis_rules *rules; /* of a forward graph; NULL: a training graph */
    bool sequence;          /* partial values are divided along dimension 1 where that suffices */
    bool backward;          /* the node that is visited is one */
    int64_t batch;          /* for comparing costs */
    int n_values, n_nodes;  /* of the graph before */
    clt_placement *placed;  /* by value id: the placement of `local` */
    clt_value **local;      /* by value id: what stands for the value at this place */
    clt_value **whole;      /* by value id: the whole value, if a conversion made it; else NULL */
    clt_sharding *demanded; /* by value id: the sharding that a split parameter's gradient needs */
    clt_node **nodes;       /* by node id: the node's copy */
    clt_value *(*stash)[CLT_MAX_STASH]; /* by node id: see clt_op.divide */
    clt_partition_report *report;
    clt_time_states states; /* axis time */
} clt_partitioning;

/* What an axis adds to the division of forward graphs. `begin` and `settle`
 * may be NULL. */
typedef struct clt_axis_rules {
    clt_status (*begin)(clt_partitioning *p);
    /* Adds the local nodes of a node. *done becomes false for nodes that are divided along a
     * dimension of the schema, as in training graphs. */
    clt_status (*visit)(clt_partitioning *p, clt_node *node, const clt_node_dims *dims, bool *done);
    /* Nodes from number `first` on were added for `node`. */
    void (*settle)(clt_partitioning *p, const clt_node *node, int first);
    clt_status (*end)(clt_partitioning *p);
} clt_axis_rules;

/* How a node is divided. label -1: not at all; it works on whole values, or on partial ones. */
typedef struct clt_node_choice {
    int label, blocks; /* of the label's dimension */
    bool partial;      /* all operands and results are partial */
    bool gathers;      /* an operand is split, but no division suits the operator */
} clt_node_choice;

/* --- partition.c ----------------------------------------------------------------------------- */

/* Gives the new node the old one's name. */
void clt_partition_exchange_names(clt_node *old, clt_node *node);

/* Makes the result `out` of a local node stand for the old node's result 0, with the sharding.
 * Errors: INTERNAL (it has the type of another part). */
clt_status clt_partition_place(clt_partitioning *p, clt_node *node, clt_value *out,
                               clt_sharding sharding);

/* Returns the old value in a placement for an end of the graph: a value that a node of its own
 * computes. */
clt_value *clt_partition_end(clt_partitioning *p, const clt_value *old, clt_sharding wanted);

/* --- partition_choose.c ---------------------------------------------------------------------- */

/* Finds the demanded shardings. */
clt_status clt_partition_demand(clt_partitioning *p, clt_value *const *gradients);

clt_node_choice clt_partition_choose(const clt_partitioning *p, const clt_node *node,
                                     const clt_node_dims *dims);

/* Returns the sharding of a dimension of a value whose label is divided; blocks 0: no dimension has
 * the label. */
clt_sharding clt_partition_sharding(const clt_type *type, const signed char *labels,
                                    const unsigned char *blocks, const clt_node_choice *choice);

/* Whether an operand enters a sum over a divided dimension, and only once. */
bool clt_partition_is_once(const clt_node *node, int index);

/* --- partition_convert.c --------------------------------------------------------------------- */

/* Returns what this place adds so that the sum over the places is the old value: a partial value
 * itself, a part with zeros around it, or a whole value at place 0 and NULL elsewhere. Nothing is
 * exchanged. */
clt_value *clt_partition_addend(clt_partitioning *p, const clt_value *value);

/* With `sequence`: whether a partial value [B, T, ...] can be divided along T. */
bool clt_partition_over_time(const clt_partitioning *p, const clt_value *value);

/* Returns the old value in another placement, whole or part. The nodes that it needs are added. */
clt_value *clt_partition_convert(clt_partitioning *p, const clt_value *value, clt_sharding wanted);

/* Joins the parts x of all places. `whole` is the type of the result. The collective is named after
 * `of`. */
clt_value *clt_partition_gather(const clt_partitioning *p, const clt_value *of, clt_value *x,
                                const clt_type *whole, clt_sharding has);

/* Returns whose part lies in block `block` where the sharding says that place's part does. Along
 * axis time, odd blocks are dealt to the places in reverse order, so that each place gets early and
 * late positions of a sequence. */
static inline int clt_partition_dealt(const clt_partitioning *p, int block, int place)
{
    return p->axis == CLT_AXIS_TIME && block % 2 ? p->at.places - 1 - place : place;
}

/* Splits x into equal pieces along a dimension. Without x, they become NULL. */
void clt_partition_split(clt_value *x, int count, int dim, clt_value **pieces);

/* Joins pieces along a dimension. Changes `pieces`. */
clt_value *clt_partition_join(clt_value **pieces, int count, int dim);

#endif
