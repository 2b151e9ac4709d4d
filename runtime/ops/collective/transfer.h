/* Values that pass from one place of an axis to another. Both nodes have the same name, by which
 * they belong together. Messages between two places keep their order. */
#ifndef CLT_OPS_COLLECTIVE_TRANSFER_H
#define CLT_OPS_COLLECTIVE_TRANSFER_H

#include "graph/graph.h"

typedef struct clt_transfer_attr {
    int axis; /* clt_axis */
    int peer; /* the place that gets or has the value */
    int half; /* the value travels in 16 bits if values of layers have 16 bits */
    int unused;
    clt_type type;
} clt_transfer_attr;

extern const clt_op clt_op_send, clt_op_receive;

/* Adds a node that sends x to another place. Nothing reads its result, a view of x. */
clt_value *clt_send(clt_value *x, clt_axis axis, int peer, bool half, const char *name);

/* Adds a node that receives a value of this type. */
clt_value *clt_receive(clt_graph *graph, const clt_type *type, clt_axis axis, int peer, bool half,
                       const char *name);

#endif
