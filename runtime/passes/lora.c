/* clt_lora: adapters beside linear layers of a graph that a program has built. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/error.h"
#include "base/patterns.h"
#include "base/vec.h"
#include "graph/graph.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/lora.h>
#include <cltrain/ops.h>

CLT_STRUCT_INIT(clt_lora_options, .rank = 8)

/* A layer that gets adapters. */
typedef struct site {
    clt_node *node;
    bool transposed; /* the weight is [in, out] */
    int64_t in, out;
    char name[256]; /* of the layer: that of the weight without ".weight" */
    int first, end; /* numbers of the nodes that were added */
    clt_value *sum;
} site;

typedef struct sites {
    site *all;
    int count, room;
} sites;

static bool is_layer(const clt_node *node, bool *transposed)
{
    const clt_matmul_attr *matmul = node->attr;
    const bool product = node->op == &clt_op_matmul && !matmul->trans_a;
    if (!product && node->op != &clt_op_linear)
        return false;
    const clt_value *weight = node->in[1];
    *transposed = product && !matmul->trans_b;
    return weight->kind == CLT_VALUE_PARAMETER && weight->type.rank == 2;
}

static int uses_of(const clt_graph *graph, const clt_value *value)
{
    int uses = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i]->n_in; k++)
            uses += graph->nodes[i]->in[k] == value;
    return uses;
}

static void name_layer(const clt_value *weight, char *name, size_t room)
{
    const size_t length = strlen(weight->name), tail = strlen(".weight");
    const bool usual = length > tail && !strcmp(weight->name + length - tail, ".weight");
    snprintf(name, room, "%.*s", (int)(usual ? length - tail : length), weight->name);
}

static clt_status check_site(const clt_graph *graph, const site *s, const clt_lora_options *o)
{
    const clt_value *weight = s->node->in[1];
    for (int i = 0; i < graph->n_loras; i++)
        if (!strcmp(graph->loras[i].layer, s->name))
            return clt_fail(CLT_INVALID_ARGUMENT, "layer %s has adapters already", s->name);
    if (o->rank > s->in || o->rank > s->out)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "adapters of rank %d do not fit layer %s, which has %lld inputs and %lld "
                        "outputs",
                        o->rank, s->name, (long long)s->in, (long long)s->out);
    const int uses = uses_of(graph, weight);
    if (uses > 1)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s has %d uses, and adapters are for weights with one: exclude it by "
                        "|!%s",
                        weight->name, uses, s->name);
    return CLT_OK;
}

static clt_status find_sites(const clt_graph *graph, const clt_lora_options *o, sites *found)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        site s = {.node = graph->nodes[i]};
        if (!is_layer(s.node, &s.transposed))
            continue;
        const clt_value *weight = s.node->in[1];
        name_layer(weight, s.name, sizeof s.name);
        /* A pattern that excludes must not match either name. */
        if (!clt_patterns_match(o->pattern, s.name, false) &&
            !(strchr(o->pattern, '!') == NULL &&
              clt_patterns_match(o->pattern, weight->name, false)))
            continue;
        s.in = weight->type.dims[s.transposed ? 0 : 1];
        s.out = weight->type.dims[s.transposed ? 1 : 0];
        CLT_TRY(check_site(graph, &s, o));
        CLT_TRY(CLT_PUSH(found->all, found->count, found->room, s));
    }
    return found->count ? CLT_OK
                        : clt_fail(CLT_NOT_FOUND, "no linear layer matches \"%s\"", o->pattern);
}

static clt_value *adapter(clt_graph *graph, const site *s, const char *part, int64_t rows,
                          int64_t columns, clt_init init)
{
    char name[300];
    snprintf(name, sizeof name, "%s.%s.weight", s->name, part);
    return clt_parameter(graph, name, 2, (int64_t[]){rows, columns}, init);
}

/* Adds the nodes of a layer's adapters at the end of the graph. */
static clt_status adapt(clt_graph *graph, site *s, const clt_lora_options *o)
{
    /* kaiming_uniform_(A, a=sqrt(5)) draws from (-b, b) with b = 1 / sqrt(in). */
    const clt_init uniform = {CLT_INIT_UNIFORM, 1 / sqrt((double)s->in), 0};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    const double alpha = o->alpha > 0 ? o->alpha : o->rank;
    char label[300];
    s->first = graph->n_nodes;
    clt_value *a = adapter(graph, s, "lora_A", o->rank, s->in, uniform);
    clt_value *b = adapter(graph, s, "lora_B", s->out, o->rank, zero);
    clt_value *x = o->dropout > 0 ? clt_dropout(s->node->in[0], o->dropout) : s->node->in[0];
    snprintf(label, sizeof label, "%s.lora_A", s->name);
    clt_value *low = clt_label(clt_linear(x, a, NULL), label);
    if (alpha != o->rank) /* the small tensor is scaled, not the large one */
        low = clt_scale(low, alpha / o->rank);
    snprintf(label, sizeof label, "%s.lora_B", s->name);
    clt_value *y = s->node->out[0];
    s->sum = clt_add(y, clt_label(clt_linear(low, b, NULL), label));
    s->end = graph->n_nodes;
    CLT_TRY(clt_graph_status(graph));
    return CLT_OK;
}

/* Lets everything that read the layer's result read the sum. */
static clt_status redirect(clt_graph *graph, const site *s)
{
    clt_value *y = s->node->out[0], *sum = s->sum;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; i < s->first || i >= s->end ? k < graph->nodes[i]->n_in : 0; k++)
            if (graph->nodes[i]->in[k] == y)
                graph->nodes[i]->in[k] = sum;
    for (int i = 0; i < graph->n_assigns; i++)
        if (graph->assigns[i].value == y)
            graph->assigns[i].value = sum;
    for (int i = 0; i < graph->n_seeds; i++)
        if (graph->seeds[i].output == y)
            graph->seeds[i].output = sum;
    clt_mean *const means[] = {graph->losses, graph->metrics};
    const int counts[] = {graph->n_losses, graph->n_metrics};
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < counts[m]; i++) {
            means[m][i].sum = means[m][i].sum == y ? sum : means[m][i].sum;
            means[m][i].weight = means[m][i].weight == y ? sum : means[m][i].weight;
        }
    if (y->output)
        clt_graph_move_output(y, sum);
    sum->cut = y->cut; /* a stage of a pipeline ends behind the sum */
    y->cut = 0;
    return CLT_OK;
}

/* Puts the added nodes behind the layers that they belong to, so that the order of nodes stays
 * topological. */
static clt_status reorder(clt_graph *graph, const sites *found)
{
    clt_node **order = clt_calloc((size_t)graph->n_nodes + 1, sizeof(clt_node *));
    CLT_TRY_MEMORY(order);
    int n = 0, next = 0;
    for (int i = 0; i < found->all[0].first; i++) {
        order[n++] = graph->nodes[i];
        const site *s = next < found->count ? &found->all[next] : NULL;
        if (!s || graph->nodes[i] != s->node)
            continue;
        for (int k = s->first; k < s->end; k++)
            order[n++] = graph->nodes[k];
        next++;
    }
    memcpy(graph->nodes, order, (size_t)n * sizeof(clt_node *));
    clt_free(order);
    for (int i = 0; i < graph->n_values; i++)
        graph->values[i]->first_reader = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        graph->nodes[i]->id = i;
        for (int k = 0; k < graph->nodes[i]->n_in; k++)
            if (graph->nodes[i]->in[k] && !graph->nodes[i]->in[k]->first_reader)
                graph->nodes[i]->in[k]->first_reader = i + 1;
    }
    return CLT_OK;
}

static clt_status record(clt_graph *graph, const site *s, const clt_lora_options *o)
{
    clt_lora_site one = {.layer = clt_strdup(s->name),
                         .weight = clt_strdup(s->node->in[1]->name),
                         .rank = o->rank,
                         .alpha = o->alpha > 0 ? o->alpha : o->rank,
                         .dropout = o->dropout,
                         .transposed = s->transposed};
    const clt_status status = one.layer && one.weight
                                  ? CLT_PUSH(graph->loras, graph->n_loras, graph->room_loras, one)
                                  : CLT_OUT_OF_MEMORY;
    if (status != CLT_OK)
        CLT_FREE(one.layer, one.weight);
    return status;
}

static bool is_adapter(const clt_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_loras; i++) {
        const size_t length = strlen(graph->loras[i].layer);
        if (!strncmp(name, graph->loras[i].layer, length) &&
            (!strcmp(name + length, ".lora_A.weight") || !strcmp(name + length, ".lora_B.weight")))
            return true;
    }
    return false;
}

static clt_status check_options(const clt_lora_options *o)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_lora_options));
    if (!o->pattern || !*o->pattern)
        return clt_fail(CLT_INVALID_ARGUMENT, "adapters need a pattern of layers");
    if (o->rank < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "adapters of rank %d are not possible", o->rank);
    if (!isfinite(o->alpha) || o->alpha < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "alpha %g of adapters must be finite and above 0",
                        o->alpha);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return clt_fail(CLT_INVALID_ARGUMENT, "dropout %g of adapters must be 0 or more, below 1",
                        o->dropout);
    return CLT_OK;
}

clt_status clt_lora(clt_graph *graph, const clt_lora_options *options, int *count)
{
    sites found = {0};
    CLT_TRY(clt_graph_status(graph));
    CLT_TRY(check_options(options));
    clt_status status = find_sites(graph, options, &found);
    for (int i = 0; status == CLT_OK && i < found.count; i++)
        status = adapt(graph, &found.all[i], options);
    for (int i = 0; status == CLT_OK && i < found.count; i++) {
        status = redirect(graph, &found.all[i]);
        CLT_NEXT(status, record(graph, &found.all[i], options));
    }
    CLT_NEXT(status, reorder(graph, &found));
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++) {
        clt_value *value = graph->values[i];
        if (value->kind == CLT_VALUE_PARAMETER)
            value->frozen = !is_adapter(graph, value->name);
    }
    if (status == CLT_OK && count)
        *count = found.count;
    clt_free(found.all);
    return status;
}
