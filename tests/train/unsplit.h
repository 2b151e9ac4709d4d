/* Meshes whose axes divide nothing. Stores refuse them, but groups and counting can be tested on
 * them. */
#ifndef TESTS_TRAIN_UNSPLIT_H
#define TESTS_TRAIN_UNSPLIT_H

#include "graph/graph.h"

/* Adds a value that nothing reads and that all axes split. Returns the graph. */
static inline clt_graph *let_axes_idle(clt_graph *graph)
{
    const float one = 1;
    clt_value *unread = clt_constant(graph, CLT_F32, 0, NULL, &one);
    for (int a = 0; unread && a < CLT_AXES; a++)
        unread->shardings[a] = (clt_sharding){0, 1};
    return graph;
}

#endif
