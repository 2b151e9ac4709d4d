/* Names of the losses and metrics over test samples, as eval, train and --metrics show them. */
#ifndef CLTRAIN_COMMAND_OUTPUT_MEANS_H
#define CLTRAIN_COMMAND_OUTPUT_MEANS_H

#include <cltrain/graph.h>

/*
 * Returns the name of mean `index` (losses first, then metrics). Returns NULL for the only loss and
 * for a loss called "loss": the total is printed already.
 */
const char *mean_name(const clt_graph *graph, int index);

/* Returns the number of losses and metrics. */
int mean_count(const clt_graph *graph);

#endif
