/* Losses and metrics over the test samples by name, as eval, train and --metrics show them. */
#ifndef CLTRAIN_COMMAND_OUTPUT_MEANS_H
#define CLTRAIN_COMMAND_OUTPUT_MEANS_H

#include <cltrain/graph.h>

/*
 * The name of mean `index` (losses, then metrics), or NULL if it is not to be shown by itself: the
 * only loss, and one called "loss", are the total that is shown before.
 */
const char *mean_name(const clt_graph *graph, int index);

/* Losses and metrics. */
int mean_count(const clt_graph *graph);

#endif
