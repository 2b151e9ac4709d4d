#include "ops/core/dims.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "graph/mesh.h"
#include <cltrain/ops.h>

static int label_of(char letter)
{
    return letter >= 'a' && letter <= 'z' ? letter - 'a' : -1;
}

/* The label of dimension k of a value whose schema says `dims`; -1 if it has none. */
static int label_at(const char *dims, int rank, int k)
{
    const int letters = (int)strlen(dims);
    const char *star = strchr(dims, '*');
    if (!star)
        return rank == letters ? label_of(dims[k]) : -1;
    const int before = (int)(star - dims), after = letters - before - 1;
    if (rank < before + after)
        return -1;
    if (k < before)
        return label_of(dims[k]);
    if (k >= rank - after)
        return label_of(dims[letters - (rank - k)]);
    return CLT_DIM_STAR + rank - after - 1 - k;
}

/* State of one pass over the operands, then the results. */
typedef struct sizes {
    int64_t size[CLT_DIM_LABELS]; /* the largest; 0: no dimension has the label */
    bool in_result[CLT_DIM_LABELS];
} sizes;

static void take(const clt_value *value, const char *text, bool result, signed char *labels,
                 sizes *all)
{
    const clt_type *type = &value->type;
    for (int k = 0; k < type->rank; k++) {
        const int label = label_at(text, type->rank, k);
        labels[k] = (signed char)label;
        if (label < 0)
            continue;
        if (all->size[label] == 0 || all->size[label] == 1)
            all->size[label] = type->dims[k];
        all->in_result[label] |= result && type->dims[k] == all->size[label];
    }
}

/* Removes the labels of dimensions of one element that are broadcast: no part owns that element. */
static void drop_repeated(const clt_value *value, const sizes *all, signed char *labels)
{
    for (int k = 0; value && k < value->type.rank; k++)
        if (labels[k] >= 0 && value->type.dims[k] == 1 && all->size[labels[k]] != 1)
            labels[k] = -1;
}

/* The schema's text for value `index` of a list. Repeated values share the text of the first. */
static const char *dims_text(const char *list, int index, clt_operand_schema *one)
{
    if (!clt_operand_at(list, index, one))
        clt_operand_at(list, 0, one);
    return one->dims;
}

void clt_dims_clear(clt_node_dims *dims)
{
    memset(dims->in, -1, sizeof dims->in);
    memset(dims->out, -1, sizeof dims->out);
}

static clt_dim_behaviour behaviour_of(const clt_op *op, char letter, bool in_result)
{
    if (op->whole && strchr(op->whole, letter))
        return CLT_DIM_WHOLE;
    if (op->halo && strchr(op->halo, letter))
        return CLT_DIM_HALO;
    if (op->scan && strchr(op->scan, letter))
        return CLT_DIM_SCAN;
    return in_result ? CLT_DIM_PARALLEL : CLT_DIM_SUMMED;
}

void clt_node_dims_of(const clt_node *node, clt_node_dims *dims)
{
    sizes all = {{0}, {0}};
    clt_operand_schema one;
    memset(dims->behaviour, 0, sizeof dims->behaviour);
    memset(dims->adds, 0, sizeof dims->adds);
    memset(dims->in_blocks, 1, sizeof dims->in_blocks);
    memset(dims->out_blocks, 1, sizeof dims->out_blocks);
    memset(dims->units, 0, sizeof dims->units);
    clt_dims_clear(dims);
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i])
            take(node->in[i], dims_text(node->op->operands, i, &one), false, dims->in[i], &all);
    for (int i = 0; i < node->n_out; i++)
        take(node->out[i], dims_text(node->op->results, i, &one), true, dims->out[i], &all);
    for (int i = 0; i < node->n_in; i++)
        drop_repeated(node->in[i], &all, dims->in[i]);
    for (int i = 0; i < node->n_out; i++)
        drop_repeated(node->out[i], &all, dims->out[i]);
    for (int l = 0; l < CLT_DIM_LABELS; l++)
        dims->behaviour[l] =
            behaviour_of(node->op, l < CLT_DIM_STAR ? (char)('a' + l) : '*', all.in_result[l]);
    if (node->op->dims)
        node->op->dims(node, dims);
}

bool clt_dims_divide(const clt_node_dims *dims, int label, int blocks, int places)
{
    return dims->units[label] % ((int64_t)blocks * places) == 0;
}

/* --- from the schema alone ------------------------------------------------------------------- */

clt_dim_behaviour clt_operator_dim(const clt_operator *op, char letter)
{
    bool in_result = false;
    clt_operand_schema one;
    if (op->by_node && strchr(op->by_node, letter))
        return CLT_DIM_WHOLE;
    for (int i = 0; clt_operand_at(op->results, i, &one); i++)
        in_result = in_result || strchr(one.dims, letter);
    return behaviour_of(op, letter, in_result);
}

const char *clt_dim_behaviour_name(clt_dim_behaviour behaviour)
{
    static const char *const names[] = {"parallel", "summed", "halo", "scan", "whole"};
    return (unsigned)behaviour < sizeof names / sizeof *names ? names[behaviour] : "?";
}

/* --- common functions of operators ----------------------------------------------------------- */

void clt_dims_by_place(const clt_node *node, clt_node_dims *dims)
{
    const int rank = node->in[0]->type.rank;
    clt_dims_clear(dims);
    for (int k = 0; k < rank; k++) {
        const int64_t size = node->in[0]->type.dims[k];
        bool same = true;
        for (int i = 0; i < node->n_in; i++) {
            dims->in[i][k] = (signed char)k;
            same = same && node->in[i]->type.dims[k] == size;
        }
        for (int i = 0; i < node->n_out; i++) {
            if (node->out[i]->type.rank != rank) /* no kernel writes it */
                continue;
            dims->out[i][k] = (signed char)k;
            same = same && node->out[i]->type.dims[k] == size;
        }
        dims->behaviour[k] = same ? CLT_DIM_PARALLEL : CLT_DIM_WHOLE;
    }
}

int clt_dims_equal_parts(int64_t axis, int64_t size, int64_t start)
{
    const bool equal = axis > 0 && size > 0 && axis % size == 0 && start % size == 0;
    return equal && axis / size <= UCHAR_MAX ? (int)(axis / size) : 0;
}

void clt_dims_axis(const clt_node *node, clt_node_dims *dims)
{
    const int axis = *(const int *)node->attr;
    dims->behaviour[CLT_DIM_STAR + node->in[0]->type.rank - 1 - axis] = CLT_DIM_WHOLE;
}

void clt_dims_not_summed(clt_node_dims *dims)
{
    for (int l = 0; l < CLT_DIM_LABELS; l++)
        if (dims->behaviour[l] == CLT_DIM_SUMMED)
            dims->behaviour[l] = CLT_DIM_WHOLE;
}

clt_status clt_part_of_result(const clt_node *node, const clt_node_part *part, clt_type *type)
{
    clt_node_dims dims;
    const clt_type *whole = &node->out[0]->type;
    char text[CLT_TYPE_TEXT];
    clt_node_dims_of(node, &dims);
    *type = *whole;
    if (!clt_dims_divide(&dims, part->label, part->blocks, part->at.places))
        return clt_fail(CLT_SHAPE, "node %s: %s cannot be divided over %d places of %s", node->name,
                        clt_type_text(whole, text), part->at.places, clt_axis_name(part->axis));
    for (int k = 0; k < whole->rank; k++)
        if (dims.out[0][k] == part->label) {
            const clt_sharding by = {k, part->blocks * dims.out_blocks[0][k]};
            return clt_sharding_type(node->name, whole, by, part->at, type);
        }
    return CLT_OK;
}

clt_status clt_localise_type(const clt_node *node, const clt_node_part *part, void *attr)
{
    clt_type type;
    CLT_TRY(clt_part_of_result(node, part, &type));
    for (const clt_attribute *a = node->op->attributes; a->name; a++)
        if (a->kind == CLT_ATTRIBUTE_TYPE)
            memcpy((char *)attr + a->offset, &type, sizeof type);
    return CLT_OK;
}

/* --- windows --------------------------------------------------------------------------------- */

clt_value *clt_window_cut(clt_value *x, int dim, int64_t from, int64_t to)
{
    int64_t start[CLT_MAX_RANK] = {0}, stop[CLT_MAX_RANK];
    if (!x || (from == 0 && to == x->type.dims[dim]))
        return x;
    for (int k = 0; k < CLT_MAX_RANK; k++)
        stop[k] = CLT_TO_END;
    start[dim] = from;
    stop[dim] = to;
    return clt_slice(x, start, stop, NULL);
}
