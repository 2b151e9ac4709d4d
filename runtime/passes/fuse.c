#include "base/alloc.h"
#include "passes/passes.h"

/* The readers of a value. `sum` adds the numbers of the nodes that read it, once for each operand.
 * If there is one reader, `sum` is its number. */
typedef struct readers {
    int count;
    int64_t sum;
} readers;

typedef struct fuse_pass {
    clt_graph *graph;
    readers *readers; /* by value id */
    bool *needed;     /* by value id: the value must exist for another reason */
} fuse_pass;

static void count_operands(fuse_pass *p, const clt_node *node, int by)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]) {
            p->readers[node->in[i]->id].count += by;
            p->readers[node->in[i]->id].sum += (int64_t)by * node->id;
        }
}

static void count_readers(fuse_pass *p)
{
    const clt_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++)
        count_operands(p, g->nodes[i], 1);
    for (int i = 0; i < g->n_values; i++)
        p->needed[i] = g->values[i]->output || g->values[i]->name || g->values[i]->kept;
    for (int i = 0; i < g->n_assigns; i++)
        p->needed[g->assigns[i].value->id] = true;
    for (int i = 0; i < g->n_losses + g->n_metrics; i++) {
        const clt_mean *mean = i < g->n_losses ? &g->losses[i] : &g->metrics[i - g->n_losses];
        p->needed[mean->sum->id] = p->needed[mean->weight->id] = true;
    }
}

/* Returns the only node that uses `value`. NULL if there is none, there are several, or the value
 * must exist for another reason. */
static clt_node *only_user(const fuse_pass *p, const clt_value *value)
{
    const readers *r = &p->readers[value->id];
    return r->count == 1 && !p->needed[value->id] ? p->graph->nodes[r->sum] : NULL;
}

static bool absorb(fuse_pass *p, clt_node *node, const clt_node *next)
{
    count_operands(p, node, -1);
    const bool absorbed = node->op->absorb(node, next);
    count_operands(p, node, 1);
    return absorbed;
}

static bool fuse_node(fuse_pass *p, clt_node *node)
{
    if (!node->op->absorb)
        return false;
    clt_node *next = only_user(p, node->out[0]);
    /* Do not fuse forward with backward nodes: the forward pass also runs alone. */
    if (!next || next->n_out != 1 || next->in[0] != node->out[0] ||
        next->backward != node->backward || !absorb(p, node, next))
        return false;
    /* The node now computes next's output and takes over that value. The old output dies with
     * `next`. */
    clt_value *old = node->out[0], *result = next->out[0];
    node->out[0] = result;
    result->producer = node;
    next->out[0] = old;
    old->producer = next;
    count_operands(p, next, -1);
    next->n_in = 0; /* `next` is dead: it must not count as a user */
    return true;
}

clt_status clt_pass_fuse(clt_graph *graph)
{
    fuse_pass p = {.graph = graph};
    p.readers = clt_calloc((size_t)graph->n_values + 1, sizeof *p.readers);
    p.needed = clt_calloc((size_t)graph->n_values + 1, sizeof *p.needed);
    const bool memory = p.readers && p.needed;
    if (memory)
        count_readers(&p);
    for (int i = 0; memory && i < graph->n_nodes; i++)
        while (fuse_node(&p, graph->nodes[i]))
            ;
    CLT_FREE(p.readers, p.needed);
    return memory ? clt_graph_status(graph) : CLT_OUT_OF_MEMORY;
}
