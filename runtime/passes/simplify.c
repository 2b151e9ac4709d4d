#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

static clt_status evaluate_node(clt_replacements *replacements, const clt_node *node)
{
    clt_graph *graph = replacements->graph;
    clt_value *value = node->op->evaluate(node), *output = node->out[0];
    if (!value)
        return clt_graph_status(graph);
    if (value == output)
        return CLT_OK;
    if (output->output) {
        /* An output has memory of its own: copy inputs and named values. */
        if (value->kind != CLT_VALUE_INTERMEDIATE || value->name)
            value = clt_copy(value);
        if (!value)
            return clt_graph_status(graph);
        clt_graph_move_output(output, value);
    }
    return clt_replacements_add(replacements, output, value);
}

clt_status clt_pass_evaluate(clt_graph *graph)
{
    clt_replacements replacements;
    CLT_TRY(clt_replacements_begin(graph, &replacements));
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < graph->n_nodes; i++) {
        clt_replacements_settle_node(&replacements, graph->nodes[i]);
        if (graph->nodes[i]->op->evaluate)
            status = evaluate_node(&replacements, graph->nodes[i]);
    }
    if (status == CLT_OK)
        clt_replacements_settle_graph(&replacements);
    clt_replacements_free(&replacements);
    return status;
}

/* Whether two nodes compute equal values: the same operator on the same operands. Operators that
 * draw random numbers differ in an attribute, their stream. Each message is sent, and each stage of
 * a pipeline computes its own values. */
static bool same_node(const clt_node *a, const clt_node *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out || a->op->effect ||
        a->stage != b->stage)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i])
            return false;
    return !a->op->attr_bytes || !memcmp(a->attr, b->attr, a->op->attr_bytes);
}

static bool named(const clt_node *node)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i]->name || node->out[i]->output || node->out[i]->kept)
            return true;
    return false;
}

/* Whether the node returns its operand unchanged. */
static bool without_effect(const clt_node *node)
{
    return node->op->view && !node->op->effect && node->in[0]->kind == CLT_VALUE_INTERMEDIATE &&
           clt_type_equal(&node->in[0]->type, &node->out[0]->type);
}

typedef struct simplify {
    clt_graph *graph;
    clt_replacements replacements;
    clt_table nodes; /* nodes visited so far, by what they compute */
    /* By value id: the sum or weight of a loss or metric. Each has memory of its own, even if two
     * are equal. */
    bool *result;
} simplify;

static void mark_results(simplify *s)
{
    const clt_graph *g = s->graph;
    for (int i = 0; i < g->n_losses + g->n_metrics; i++) {
        const clt_mean *mean = i < g->n_losses ? &g->losses[i] : &g->metrics[i - g->n_losses];
        s->result[mean->sum->id] = s->result[mean->weight->id] = true;
    }
}

static uint64_t hash_node(const clt_node *node)
{
    uint64_t hash = clt_hash(&node->op, sizeof node->op, (uint64_t)node->n_in);
    for (int i = 0; i < node->n_in; i++) {
        const int id = node->in[i] ? node->in[i]->id : -1;
        hash = clt_hash(&id, sizeof id, hash);
    }
    return node->op->attr_bytes ? clt_hash(node->attr, node->op->attr_bytes, hash) : hash;
}

typedef struct candidate {
    const simplify *pass;
    const clt_node *node;
} candidate;

static bool computes_the_same(const void *context, int item)
{
    const candidate *c = context;
    const clt_node *other = c->pass->graph->nodes[item];
    return same_node(other, c->node) &&
           !(c->pass->result[other->out[0]->id] && c->pass->result[c->node->out[0]->id]);
}

static clt_status replace(simplify *s, clt_node *node, clt_value *const *by, int count)
{
    for (int i = 0; i < count; i++) {
        if (s->result[node->out[i]->id])
            s->result[by[i]->id] = true;
        CLT_TRY(clt_replacements_add(&s->replacements, node->out[i], by[i]));
    }
    node->n_in = 0; /* the node is dead: it must not count as a user */
    return CLT_OK;
}

static clt_status visit(simplify *s, clt_node *node)
{
    clt_replacements_settle_node(&s->replacements, node);
    if (named(node))
        return clt_table_add(&s->nodes, hash_node(node), node->id);
    /* Read through a view of the same kind: only the outer shape matters. */
    if (node->op->view && node->in[0]->producer && node->in[0]->producer->op == node->op)
        node->in[0] = node->in[0]->producer->in[0];
    if (without_effect(node))
        return replace(s, node, node->in, 1);
    const candidate c = {s, node};
    const uint64_t hash = hash_node(node);
    const int equal = clt_table_find(&s->nodes, hash, computes_the_same, &c);
    if (equal >= 0)
        return replace(s, node, s->graph->nodes[equal]->out, node->n_out);
    return clt_table_add(&s->nodes, hash, node->id);
}

clt_status clt_pass_simplify(clt_graph *graph)
{
    simplify s = {.graph = graph};
    CLT_TRY(clt_replacements_begin(graph, &s.replacements));
    s.result = clt_calloc((size_t)graph->n_values + 1, sizeof *s.result);
    clt_status status = s.result ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK)
        mark_results(&s);
    for (int i = 0; status == CLT_OK && i < graph->n_nodes; i++)
        status = visit(&s, graph->nodes[i]);
    if (status == CLT_OK)
        clt_replacements_settle_graph(&s.replacements);
    clt_replacements_free(&s.replacements);
    clt_table_free(&s.nodes);
    clt_free(s.result);
    return status;
}
