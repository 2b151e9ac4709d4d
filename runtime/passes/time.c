/*
 * What clt_pass_partition_forward adds to the division of graphs (partition.c) on axis time. As on
 * axis space (space.c), annotated values are cut, and sums over positions are shares.
 *
 *   - In causal attention, late positions cost more than early ones. If a graph has it, and no
 *     recurrent layers, sequences are dealt in 2 x places runs, of which place p gets number p and
 *     number 2 x places - 1 - p:
 *
 *         16 positions over 2 places     place 0: 0 to 3, 12 to 15; place 1: 4 to 11
 *
 *   - Attention of a place's rows needs keys and values of all places, which are gathered. Each run
 *     of rows is an attention of its own, whose kernels skip the keys that it may not see.
 *   - Recurrent layers pass their states from place to place (time_states.c).
 */
#include "passes/time.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/mesh.h"
#include "ops/attention/attention.h"
#include "ops/core/ops.h"
#include "passes/space.h"
#include <cltrain/ops.h>

/* --- runs of positions ----------------------------------------------------------------------- */

static bool is_causal(const clt_node *node)
{
    return node->op == &clt_op_attention && ((const clt_attention_attr *)node->attr)->is_causal;
}

static clt_status deal(clt_partitioning *p)
{
    const clt_graph *graph = p->graph;
    bool causal = false;
    clt_time_count_states(p);
    for (int i = 0; i < p->n_nodes && !p->states.layers; i++)
        causal = causal || is_causal(graph->nodes[i]);
    for (int i = 0; causal && i < p->n_values; i++) {
        clt_value *v = graph->values[i];
        clt_sharding *by = &v->shardings[p->axis];
        char text[CLT_TYPE_TEXT];
        if (!by->blocks)
            continue;
        if (v->type.dims[by->dim] % (2 * p->at.places))
            return clt_fail(CLT_UNSUPPORTED,
                            "%s is %s: dimension %d cannot be split over %d places of %s, because "
                            "causal attention needs a multiple of %d",
                            clt_value_called(v), clt_type_text(&v->type, text), by->dim,
                            p->at.places, clt_axis_name(p->axis), 2 * p->at.places);
        by->blocks = 2;
    }
    return CLT_OK;
}

/* A run of positions that lie together, of the whole dimension and of this place's part. */
typedef struct piece {
    int64_t whole, part, count;
    int number; /* among blocks x places */
} piece;

static piece piece_of(const clt_partitioning *p, int64_t size, clt_sharding has, int block)
{
    const int places = p->at.places, place = clt_partition_dealt(p, block, p->at.place);
    const int64_t each = size / has.blocks, count = clt_part_size(each, places, place);
    return (piece){.whole = block * each + clt_part_begin(each, places, place),
                   .part = block * count,
                   .count = count,
                   .number = block * places + place};
}

/* --- attention ------------------------------------------------------------------------------- */

static clt_value *whole_operand(clt_partitioning *p, const clt_node *node, int index)
{
    return index < node->n_in && node->in[index]
               ? clt_partition_convert(p, node->in[index], (clt_sharding){0, 0})
               : NULL;
}

/* Cuts packed rows into q, and k and v of all positions. One collective gathers both. */
static void unpack(const clt_partitioning *p, const clt_node *node, clt_sharding has,
                   clt_value **in)
{
    const clt_attention_shape s = clt_attention_shape_of(node);
    const int64_t queries = s.heads * s.size, keys = s.kv_heads * s.size;
    clt_value *packed = in[0];
    clt_type type = node->in[0]->type;
    type.dims[2] = 2 * keys;
    in[0] = clt_window_cut(packed, 2, 0, queries);
    clt_value *both = clt_window_cut(packed, 2, queries, queries + 2 * keys);
    both = clt_partition_gather(p, node->in[0], both, &type, has);
    clt_partition_split(both, 2, 2, in + 1);
}

static clt_status visit_attention(clt_partitioning *p, clt_node *node, clt_sharding has)
{
    const clt_attention_attr *attr = node->attr;
    const int64_t rows = node->in[0]->type.dims[has.dim];
    clt_value *pieces[CLT_MOST_PLACES], *in[] = {p->local[node->in[0]->id], NULL, NULL, NULL};
    if (attr->form == CLT_ATTENTION_PACKED)
        unpack(p, node, has, in);
    for (int i = attr->form == CLT_ATTENTION_PACKED ? 3 : 1; i < 4; i++)
        in[i] = whole_operand(p, node, i);
    CLT_TRY(clt_graph_status(p->graph));
    clt_value *q[CLT_MOST_PLACES];
    clt_partition_split(in[0], has.blocks, has.dim, q);
    for (int b = 0; b < has.blocks; b++) {
        const piece own = piece_of(p, rows, has, b);
        in[0] = q[b];
        pieces[b] = clt_attention_rows(node, in, own.whole, own.whole + own.count);
    }
    CLT_TRY(clt_graph_status(p->graph));
    return clt_partition_place(p, node, clt_partition_join(pieces, has.blocks, has.dim), has);
}

/* A number of earlier positions that varies is for inference. */
static bool divides_attention(const clt_node *node, clt_sharding has)
{
    const clt_attention_attr *attr = node->attr;
    if (node->op != &clt_op_attention)
        return false;
    const int rows = attr->form == CLT_ATTENTION_HEADS ? 2 : 1;
    return has.dim == rows && clt_attention_shape_of(node).past < 0;
}

/* --- operators that count positions ---------------------------------------------------------- */

/* Random numbers count by whole positions, and rotary embeddings turn by them, so each run is a
 * node of its own. */
static bool counts_positions(const clt_node *node, clt_sharding has)
{
    if (node->op == &clt_op_rotary)
        return has.dim == node->in[0]->type.rank - 2 && (node->n_in < 2 || !node->in[1]);
    return node->op == &clt_op_dropout;
}

static clt_status visit_runs(clt_partitioning *p, clt_node *node, const clt_node_dims *dims,
                             clt_sharding has)
{
    clt_value *pieces[CLT_MOST_PLACES], *x = p->local[node->in[0]->id];
    void *attr = clt_alloc(node->op->attr_bytes);
    clt_status status = attr ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int b = 0; status == CLT_OK && b < has.blocks; b++) {
        const piece own = piece_of(p, node->in[0]->type.dims[has.dim], has, b);
        const clt_node_part part = {.axis = p->axis,
                                    .label = dims->in[0][has.dim],
                                    .blocks = 1,
                                    .at = {own.number, has.blocks * p->at.places}};
        memcpy(attr, node->attr, node->op->attr_bytes);
        status = node->op->localise(node, &part, attr);
        if (status != CLT_OK)
            break;
        clt_value *in[] = {clt_window_cut(x, has.dim, own.part, own.part + own.count), NULL};
        const clt_node *run = clt_graph_add(p->graph, node->op, in, node->n_in, attr);
        pieces[b] = run ? run->out[0] : NULL;
        status = clt_graph_status(p->graph);
    }
    clt_free(attr);
    CLT_TRY(status);
    return clt_partition_place(p, node, clt_partition_join(pieces, has.blocks, has.dim), has);
}

/* --- positions of all samples ---------------------------------------------------------------- */

/* Whether `flat` has one dimension for the first two, batch and positions, of `type`. */
static bool joins_batch(const clt_type *type, const clt_type *flat)
{
    bool same = type->rank == flat->rank + 1 && type->dims[0] == CLT_BATCH &&
                flat->dims[0] == -type->dims[1];
    for (int k = 2; same && k < type->rank; k++)
        same = type->dims[k] == flat->dims[k - 1];
    return same;
}

/* Reshapes [batch, positions, ...] to [positions x batch, ...] or back. Positions stay split. */
static clt_status visit_reshape(clt_partitioning *p, clt_node *node, clt_sharding has, bool *done)
{
    const clt_type *x = &node->in[0]->type, *y = &node->out[0]->type;
    clt_sharding split = has;
    clt_type part;
    if (has.dim == 1 && joins_batch(x, y))
        split.dim = 0;
    else if (has.dim == 0 && joins_batch(y, x))
        split.dim = 1;
    else {
        *done = false;
        return CLT_OK;
    }
    CLT_TRY(clt_sharding_type(node->name, y, split, p->at, &part));
    return clt_partition_place(p, node,
                               clt_reshape(p->local[node->in[0]->id], part.rank, part.dims), split);
}

static clt_status visit(clt_partitioning *p, clt_node *node, const clt_node_dims *dims, bool *done)
{
    const clt_sharding has =
        node->n_in && node->in[0] ? p->placed[node->in[0]->id].sharding : (clt_sharding){0, 0};
    *done = true;
    CLT_TRY(clt_time_share_states(p, node));
    if (clt_time_is_recurrent(node))
        return clt_time_visit_states(p, node, has, done);
    if (has.blocks && node->op == &clt_op_reshape)
        return visit_reshape(p, node, has, done);
    if (has.blocks && divides_attention(node, has))
        return visit_attention(p, node, has);
    if (has.blocks > 1 && counts_positions(node, has))
        return visit_runs(p, node, dims, has);
    *done = false;
    return CLT_OK;
}

/* A collective between two recurrent layers ends their wave. */
static void settle(clt_partitioning *p, const clt_node *node, int first)
{
    if (!clt_time_is_recurrent(node))
        clt_time_settle(p, first);
}

static clt_status end(clt_partitioning *p)
{
    CLT_TRY(clt_time_end_states(p));
    return clt_space_ends(p);
}

const clt_axis_rules clt_time_rules = {deal, visit, settle, end};
