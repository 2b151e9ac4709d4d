/* Sets the prefix that files of other programs put before tensors' names, and the tensors to skip
 * in them. */
#include "base/alloc.h"
#include "base/error.h"
#include "graph/graph.h"

clt_status clt_file_names(clt_graph *graph, const char *prefix, const char *ignored)
{
    CLT_TRY(clt_graph_status(graph));
    char *texts[] = {prefix ? clt_strdup(prefix) : NULL, ignored ? clt_strdup(ignored) : NULL};
    if ((prefix && !texts[0]) || (ignored && !texts[1])) {
        CLT_FREE(texts[0], texts[1]);
        return CLT_OUT_OF_MEMORY;
    }
    CLT_FREE(graph->file_prefix, graph->file_ignored);
    graph->file_prefix = texts[0];
    graph->file_ignored = texts[1];
    return CLT_OK;
}
