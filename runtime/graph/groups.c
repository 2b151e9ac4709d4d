/* Properties of parameters, chosen by patterns: frozen, in a group, split. Split values. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/patterns.h"
#include "graph/graph.h"
#include "graph/mesh.h"

/* Finds the parameters that match, ended by NULL. NOT_FOUND if there are none. */
static clt_status find(const clt_graph *graph, const char *pattern, clt_value ***out, int *count)
{
    int n = 0;
    CLT_TRY(clt_graph_status(graph));
    clt_value **found = clt_calloc((size_t)graph->n_values + 1, sizeof *found);
    CLT_TRY_MEMORY(found);
    for (int i = 0; i < graph->n_values; i++) {
        clt_value *value = graph->values[i];
        if (value->kind == CLT_VALUE_PARAMETER &&
            clt_patterns_match(pattern, value->name, value->type.rank <= 1))
            found[n++] = value;
    }
    if (!n) {
        clt_free(found);
        return clt_fail(CLT_NOT_FOUND, "no parameter matches \"%s\"", pattern ? pattern : "");
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

/* Returns the group of the first matched parameter before number `end` with the same fields; 0 if
 * there is none. */
static int group_like(clt_value *const *found, int end, const clt_value *value)
{
    for (int i = 0; i < end; i++)
        if (found[i]->rate == value->rate && found[i]->decay == value->decay)
            return found[i]->group;
    return 0;
}

clt_status clt_param_group(clt_graph *graph, const char *pattern, double lr, double weight_decay,
                           int *count)
{
    clt_value **found;
    const bool own_lr = lr != CLT_COMMON_RATE, own_decay = weight_decay != CLT_COMMON_DECAY;
    if (!isfinite(lr) || !isfinite(weight_decay) || (own_lr && lr < 0) ||
        (own_decay && weight_decay < 0))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "parameter group \"%s\": lr %g and weight decay %g must be finite and at "
                        "least 0",
                        pattern ? pattern : "", lr, weight_decay);
    CLT_TRY(find(graph, pattern, &found, count));
    /* Parameters of different groups with different fields stay in different groups. */
    for (int i = 0; found[i]; i++) {
        clt_value *value = found[i];
        const bool grouped = value->group != 0;
        value->rate = own_lr ? lr : grouped ? value->rate : 1;
        value->decay = own_decay ? weight_decay : grouped ? value->decay : CLT_COMMON_DECAY;
        value->group = group_like(found, i, value);
        if (!value->group)
            value->group = ++graph->groups;
    }
    clt_free(found);
    return CLT_OK;
}

static clt_status check_split(const clt_value *value, int dim, int blocks)
{
    char text[CLT_TYPE_TEXT];
    if (dim >= 0 && dim < value->type.rank && value->type.dims[dim] % blocks == 0)
        return CLT_OK;
    return clt_fail(CLT_SHAPE,
                    "parameter %s is %s: it cannot be split along dimension %d in %d "
                    "blocks",
                    value->name, clt_type_text(&value->type, text), dim, blocks);
}

clt_status clt_shard(clt_graph *graph, const char *pattern, clt_axis axis, int dim, int blocks,
                     int *count)
{
    clt_value **found;
    if (axis != CLT_AXIS_TENSOR)
        return clt_fail(CLT_UNSUPPORTED, "parameters \"%s\" can be split over axis tp, not over %s",
                        pattern ? pattern : "",
                        axis >= 0 && axis < CLT_AXES ? clt_axis_name(axis) : "an unknown axis");
    if (blocks < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "parameters \"%s\" cannot be split in %d blocks",
                        pattern ? pattern : "", blocks);
    CLT_TRY(find(graph, pattern, &found, count));
    clt_status status = CLT_OK;
    for (int i = 0; found[i]; i++)
        CLT_NEXT(status, check_split(found[i], dim, blocks));
    for (int i = 0; status == CLT_OK && found[i]; i++)
        found[i]->shardings[axis] = (clt_sharding){dim, blocks};
    clt_free(found);
    return status;
}

clt_status clt_shard_value(clt_value *value, clt_axis axis, int dim)
{
    char text[CLT_TYPE_TEXT];
    if (!value)
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_shard_value: there is no value");
    const char *name = value->name ? value->name : value->producer ? value->producer->name : "it";
    if ((axis != CLT_AXIS_SPACE && axis != CLT_AXIS_TIME) || value->kind == CLT_VALUE_PARAMETER ||
        value->kind == CLT_VALUE_STATE)
        return clt_fail(CLT_UNSUPPORTED,
                        "value %s: inputs and values that nodes compute can be split, over axes "
                        "space and time",
                        name);
    if (dim < 0 || dim >= value->type.rank || value->type.dims[dim] < 1)
        return clt_fail(CLT_SHAPE, "value %s is %s: it cannot be split along dimension %d", name,
                        clt_type_text(&value->type, text), dim);
    value->shardings[axis] = (clt_sharding){dim, 1};
    return CLT_OK;
}
