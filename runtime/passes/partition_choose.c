/* Chooses along which dimension a node is divided. */
#include "base/alloc.h"
#include "base/error.h"
#include "passes/partition.h"

clt_sharding clt_partition_sharding(const clt_type *type, const signed char *labels,
                                    const unsigned char *blocks, const clt_node_choice *choice)
{
    for (int k = 0; choice->label >= 0 && k < type->rank; k++)
        if (labels[k] == choice->label)
            return (clt_sharding){k, choice->blocks * blocks[k]};
    return (clt_sharding){0, 0};
}

/* --- demands --------------------------------------------------------------------------------- */

/* Passes the demand on results to the operands that have the same dimensions. Only backward nodes
 * have demands: they end at gradients. */
static void demand_operands(clt_partitioning *p, const clt_node *node, const clt_node_dims *dims,
                            const clt_node_choice *choice)
{
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *v = node->in[i];
        if (!v || !v->producer || !v->producer->backward || p->demanded[v->id].blocks)
            continue;
        p->demanded[v->id] =
            clt_partition_sharding(&v->type, dims->in[i], dims->in_blocks[i], choice);
    }
}

/* The division that gives a result its demanded sharding. */
static clt_node_choice demanded(const clt_partitioning *p, const clt_node *node,
                                const clt_node_dims *dims)
{
    for (int o = 0; o < node->n_out; o++) {
        const clt_sharding wanted = p->demanded[node->out[o]->id];
        if (!wanted.blocks)
            continue;
        const int label = dims->out[o][wanted.dim], blocks = dims->out_blocks[o][wanted.dim];
        if (label >= 0 && dims->behaviour[label] == CLT_DIM_PARALLEL &&
            wanted.blocks % blocks == 0 &&
            clt_dims_divide(dims, label, wanted.blocks / blocks, p->at.places))
            return (clt_node_choice){.label = label, .blocks = wanted.blocks / blocks};
    }
    return (clt_node_choice){.label = -1};
}

clt_status clt_partition_demand(clt_partitioning *p, clt_value *const *gradients)
{
    const clt_graph *graph = p->graph;
    clt_node_dims *dims = CLT_NEW(clt_node_dims);
    CLT_TRY_MEMORY(dims);
    for (int i = 0, next = 0; gradients && i < p->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (!clt_value_trained(v))
            continue;
        const clt_value *gradient = gradients[next++];
        if (gradient)
            p->demanded[gradient->id] = v->shardings[p->axis];
    }
    for (int i = p->n_nodes - 1; i >= 0 && graph->nodes[i]->backward; i--) {
        const clt_node *node = graph->nodes[i];
        bool any = false;
        for (int o = 0; o < node->n_out; o++)
            any = any || p->demanded[node->out[o]->id].blocks;
        if (!any)
            continue;
        clt_node_dims_of(node, dims);
        const clt_node_choice choice = demanded(p, node, dims);
        demand_operands(p, node, dims, &choice);
    }
    clt_free(dims);
    return CLT_OK;
}

/* --- costs ----------------------------------------------------------------------------------- */

/* Parameters are gathered only where nothing else is possible: a gathered parameter takes the
 * memory that splitting saves. */
enum { PARAMETER_COST = 1 << 20 };

static double gather_cost(const clt_partitioning *p, const clt_value *value)
{
    const double bytes = (double)clt_type_elements(&value->type, p->batch);
    return p->local[value->id]->kind == CLT_VALUE_PARAMETER ? bytes * PARAMETER_COST : bytes;
}

/* The sharding that an operand has, or could have for less than a reduction of the whole value. */
static clt_sharding offered(const clt_partitioning *p, const clt_value *value)
{
    if (!value)
        return (clt_sharding){0, 0};
    return clt_partition_over_time(p, value) ? (clt_sharding){1, 1} : p->placed[value->id].sharding;
}

bool clt_partition_is_once(const clt_node *node, int index)
{
    clt_operand_schema schema;
    return clt_operand_at(node->op->operands, index, &schema) && schema.once;
}

/* What operands must be sent so that the node can be divided so, and what its partial results cost
 * later. An all-reduce sends each element twice. */
static double cost_of(const clt_partitioning *p, const clt_node *node, const clt_node_dims *dims,
                      const clt_node_choice *choice)
{
    const bool summed = choice->label >= 0 && dims->behaviour[choice->label] == CLT_DIM_SUMMED;
    double cost = 0;
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *v = node->in[i];
        const clt_sharding has = offered(p, v);
        if (!has.blocks || (summed && clt_partition_is_once(node, i)))
            continue;
        const clt_sharding wanted =
            clt_partition_sharding(&v->type, dims->in[i], dims->in_blocks[i], choice);
        const bool fits = wanted.dim == has.dim && wanted.blocks == has.blocks;
        cost += (p->placed[v->id].partial ? 2 - fits : !fits) * gather_cost(p, v);
    }
    for (int o = 0; summed && o < node->n_out; o++)
        cost += 2 * (double)clt_type_elements(&node->out[o]->type, p->batch);
    return cost;
}

/* Whether the node takes some blocks of a dimension, or puts blocks together. */
static bool moves_blocks(const clt_node *node, const clt_node_dims *dims, int label)
{
    bool moves = false;
    for (int i = 0; i < node->n_in && i < CLT_MAX_OPERANDS; i++)
        for (int k = 0; node->in[i] && k < node->in[i]->type.rank; k++)
            moves = moves || (dims->in[i][k] == label && dims->in_blocks[i][k] > 1);
    for (int o = 0; o < node->n_out; o++)
        for (int k = 0; k < node->out[o]->type.rank; k++)
            moves = moves || (dims->out[o][k] == label && dims->out_blocks[o][k] > 1);
    return moves;
}

/* Along time, places have their parts of early and of late blocks in opposite orders. */
static bool can_divide(const clt_partitioning *p, const clt_node *node, const clt_node_dims *dims,
                       int label)
{
    const clt_dim_behaviour is = dims->behaviour[label];
    if (p->axis == CLT_AXIS_TIME && moves_blocks(node, dims, label))
        return false;
    return is == CLT_DIM_PARALLEL || is == CLT_DIM_SUMMED ||
           (is == CLT_DIM_WHOLE && node->op->divide);
}

/* Whether the node gives partial results from partial operands. */
static bool stays_partial(const clt_partitioning *p, const clt_node *node)
{
    int partial = 0, others = 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            *(p->placed[node->in[i]->id].partial ? &partial : &others) += 1;
    return partial && !others &&
           (node->op->view || node->op->rounding == CLT_ROUNDS_MOVES || node->op->linear);
}

clt_node_choice clt_partition_choose(const clt_partitioning *p, const clt_node *node,
                                     const clt_node_dims *dims)
{
    clt_node_choice best = {.label = -1};
    double least = 0;
    bool split = false;
    if (stays_partial(p, node)) {
        best.partial = true;
        return best;
    }
    for (int i = 0; i < node->n_in; i++)
        split = split || offered(p, node->in[i]).blocks;
    if (!split)
        return demanded(p, node, dims);
    least = cost_of(p, node, dims, &best);
    for (int i = 0; i < node->n_in; i++)
        best.gathers = best.gathers || (node->in[i] && p->placed[node->in[i]->id].sharding.blocks);
    for (int i = 0; i < node->n_in; i++) {
        const clt_sharding has = offered(p, node->in[i]);
        if (!has.blocks || i >= CLT_MAX_OPERANDS)
            continue;
        const int label = dims->in[i][has.dim], blocks = dims->in_blocks[i][has.dim];
        if (label < 0 || has.blocks % blocks || !can_divide(p, node, dims, label) ||
            !clt_dims_divide(dims, label, has.blocks / blocks, p->at.places))
            continue;
        const clt_node_choice choice = {.label = label, .blocks = has.blocks / blocks};
        const double cost = cost_of(p, node, dims, &choice);
        if (cost < least || (best.label < 0 && cost <= least)) {
            least = cost;
            best = choice;
        }
    }
    return best;
}
