/* Frozen parameters and parameter groups. */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/graph.h"

/* Whether one of the patterns, which this parts, matches. */
static bool matches(char *patterns, const clt_value *value)
{
    bool found = false;
    for (char *next = patterns; next;) {
        char *const pattern = next, *const bar = strchr(pattern, '|');
        if (bar)
            *bar = '\0';
        found = found || (!strcmp(pattern, "1d") ? value->type.rank <= 1
                                                 : !fnmatch(pattern, value->name, 0));
        if (bar)
            *bar = '|';
        next = bar ? bar + 1 : NULL;
    }
    return found;
}

/* The parameters that match, ended by NULL; NOT_FOUND if none does. */
static clt_status find(const clt_graph *graph, const char *pattern, clt_value ***out, int *count)
{
    int n = 0;
    CLT_TRY(clt_graph_status(graph));
    char *patterns = clt_strdup(pattern ? pattern : "");
    clt_value **found = clt_calloc((size_t)graph->n_values + 1, sizeof *found);
    for (int i = 0; patterns && found && i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_PARAMETER && matches(patterns, graph->values[i]))
            found[n++] = graph->values[i];
    const bool memory = patterns && found;
    clt_free(patterns);
    if (!memory || !n) {
        clt_free(found);
        return memory
                   ? clt_fail(CLT_NOT_FOUND, "no parameter matches \"%s\"", pattern ? pattern : "")
                   : CLT_OUT_OF_MEMORY;
    }
    *out = found;
    if (count)
        *count = n;
    return CLT_OK;
}

clt_status clt_freeze(clt_graph *graph, const char *pattern, int *count)
{
    clt_value **found;
    CLT_TRY(find(graph, pattern, &found, count));
    for (int i = 0; found[i]; i++)
        found[i]->frozen = true;
    clt_free(found);
    return CLT_OK;
}

clt_status clt_param_group(clt_graph *graph, const char *pattern, double lr, double weight_decay,
                           int *count)
{
    clt_value **found;
    const bool common = weight_decay == CLT_COMMON_DECAY;
    if (!isfinite(lr) || lr < 0 || !isfinite(weight_decay) || (weight_decay < 0 && !common))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "parameter group \"%s\": lr %g and weight decay %g must be finite and at "
                        "least 0",
                        pattern ? pattern : "", lr, weight_decay);
    CLT_TRY(find(graph, pattern, &found, count));
    graph->groups++;
    for (int i = 0; found[i]; i++) {
        found[i]->group = graph->groups;
        found[i]->rate = lr;
        found[i]->decay = weight_decay;
    }
    clt_free(found);
    return CLT_OK;
}
