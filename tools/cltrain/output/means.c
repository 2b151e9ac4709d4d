#include "output/means.h"

#include <string.h>

int mean_count(const clt_graph *graph)
{
    return clt_graph_loss_count(graph) + clt_graph_metric_count(graph);
}

const char *mean_name(const clt_graph *graph, int index)
{
    const int losses = clt_graph_loss_count(graph);
    if (index >= losses)
        return clt_graph_metric_name(graph, index - losses);
    const char *name = clt_graph_loss_name(graph, index);
    return losses == 1 || !strcmp(name, "loss") ? NULL : name;
}
