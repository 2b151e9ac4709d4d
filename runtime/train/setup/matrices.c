#include "train/setup/matrices.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/patterns.h"
#include "ops/core/ops.h"

/* Nodes that multiply values by a parameter. */
static bool is_product(const clt_node *node)
{
    return node->op == &clt_op_linear || node->op == &clt_op_matmul || node->op == &clt_op_lstm ||
           node->op == &clt_op_gru;
}

static bool is_matrix(const clt_value *v)
{
    return v && v->kind == CLT_VALUE_PARAMETER && v->type.rank == 2;
}

static bool has_matrix(const clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (is_matrix(node->in[i]))
            return is_product(node);
    return false;
}

/* Sets `last` by value id: for values from which a loss or an output is reached without a product,
 * and for the matrices of these products. */
static void find_last(const clt_graph *graph, bool *last)
{
    for (int i = 0; i < graph->n_values; i++)
        last[i] = graph->values[i]->output;
    for (int i = 0; i < graph->n_losses; i++)
        last[graph->losses[i].sum->id] = true;
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const clt_node *node = graph->nodes[i];
        bool reaches = false;
        for (int o = 0; o < node->n_out; o++)
            reaches = reaches || last[node->out[o]->id];
        for (int k = 0; k < node->n_in && reaches; k++)
            if (node->in[k] && (is_matrix(node->in[k]) || !has_matrix(node)))
                last[node->in[k]->id] = true;
    }
}

/* Clears the mark of matrices that other nodes than products read, such as embeddings. */
static void drop_others(const clt_graph *graph, bool *chosen)
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i]->n_in; k++)
            if (is_matrix(graph->nodes[i]->in[k]) && !is_product(graph->nodes[i]))
                chosen[graph->nodes[i]->in[k]->id] = false;
}

/* Sets `chosen` by value id. */
static clt_status choose(const clt_graph *graph, const char *adamw, bool *chosen)
{
    bool matched = !adamw || !*adamw;
    bool *last = clt_calloc((size_t)graph->n_values + 1, sizeof *last);
    CLT_TRY_MEMORY(last);
    find_last(graph, last);
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        const bool matches =
            v->kind == CLT_VALUE_PARAMETER && clt_patterns_match(adamw, v->name, v->type.rank < 2);
        matched = matched || matches;
        chosen[i] = is_matrix(v) && !v->frozen && (adamw ? !matches : !last[i]);
    }
    if (!adamw)
        drop_others(graph, chosen);
    clt_free(last);
    return matched ? CLT_OK
                   : clt_fail(CLT_INVALID_ARGUMENT,
                              "muon_adamw '%s' matches no parameter: name parameters as in the "
                              "model's listing",
                              adamw);
}

/* Fails if the devices cannot compute equal bits, each from a whole matrix. */
static clt_status check(const clt_store *store, bool unlike, const bool *matrices)
{
    if (unlike)
        return clt_fail(CLT_UNSUPPORTED,
                        "optimizer muon needs devices of one kind, because others would round "
                        "whole matrices differently: name devices of one platform and model, or "
                        "take adamw");
    for (int i = 0; i < store->layout.n_slots; i++)
        if (matrices[i] && store->layout.slots[i].sharding.blocks)
            return clt_fail(CLT_UNSUPPORTED,
                            "optimizer muon needs whole matrices, and %s is split along axis tp of "
                            "the mesh: leave out tp, or take adamw",
                            store->layout.slots[i].name);
    return CLT_OK;
}

clt_status clt_matrices_find(const clt_graph *graph, const clt_store *store,
                             const clt_trainer_options *options, bool unlike, bool **out)
{
    *out = NULL;
    if (options->optimizer != CLT_MUON)
        return CLT_OK;
    bool *chosen = clt_calloc((size_t)graph->n_values + 1, sizeof *chosen);
    bool *matrices = clt_calloc((size_t)store->layout.n_slots + 1, sizeof *matrices);
    clt_status status =
        chosen && matrices ? choose(graph, options->muon_adamw, chosen) : CLT_OUT_OF_MEMORY;
    for (int i = 0; i < graph->n_values && status == CLT_OK; i++) {
        const clt_slot *slot =
            chosen[i] ? clt_buckets_find(&store->layout, graph->values[i]->name) : NULL;
        if (slot)
            matrices[slot - store->layout.slots] = !slot->state;
    }
    CLT_NEXT(status, check(store, unlike, matrices));
    clt_free(chosen);
    if (status == CLT_OK)
        *out = matrices;
    else
        clt_free(matrices);
    return status;
}
