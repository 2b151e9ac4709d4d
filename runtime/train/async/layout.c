#include "train/async/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/vec.h"
#include "ops/core/ops.h"

/* Finds the input whose elements are the rows of a table that a step reads. NULL: it may read other
 * rows too. */
static const clt_value *find_indices(const clt_graph *g, const clt_value *table)
{
    const clt_value *indices = NULL;
    if (table->type.rank != 2)
        return NULL;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n]->n_in; i++) {
            const clt_node *node = g->nodes[n];
            if (node->in[i] != table)
                continue;
            const clt_value *found = node->op == &clt_op_embedding && i == 1 ? node->in[0] : NULL;
            if (!found || found->kind != CLT_VALUE_INPUT || found->type.dtype != CLT_I32 ||
                (indices && indices != found))
                return NULL;
            indices = found;
        }
    return table->output ? NULL : indices;
}

static clt_status add(const clt_graph *g, const clt_value *v, int64_t *line, uint64_t *hash,
                      clt_async_tensor *t)
{
    const clt_value *indices = v->kind == CLT_VALUE_PARAMETER ? find_indices(g, v) : NULL;
    *t = (clt_async_tensor){.name = clt_strdup(v->name),
                            .begin = *line,
                            .elements = clt_type_elements(&v->type, 0),
                            .dtype = v->type.dtype,
                            .trained = v->kind == CLT_VALUE_PARAMETER && !v->frozen};
    CLT_TRY_MEMORY(t->name);
    if (indices) {
        t->width = v->type.dims[1];
        t->indices = clt_strdup(indices->name);
        CLT_TRY_MEMORY(t->indices);
    }
    *line += t->elements;
    const double group[] = {v->rate, v->decay, v->group != 0, v->frozen, (double)v->type.dtype};
    *hash = clt_hash_text(v->name, *hash);
    *hash = clt_hash(v->type.dims, (size_t)v->type.rank * sizeof *v->type.dims, *hash);
    *hash = clt_hash(group, sizeof group, *hash);
    return CLT_OK;
}

static clt_status check_state(const clt_value *v)
{
    if (v->carried)
        return clt_fail(CLT_UNSUPPORTED,
                        "state %s is carried from batch to batch, but asynchronous workers get "
                        "batches in any order: train this model without --async",
                        v->name);
    if (clt_dtype_size(v->type.dtype) != 4)
        return clt_fail(CLT_UNSUPPORTED,
                        "state %s has elements of %d bytes: asynchronous training has states of "
                        "f32 and i32",
                        v->name, (int)clt_dtype_size(v->type.dtype));
    return CLT_OK;
}

/* Adds operators with their attributes, and the losses. */
static clt_status add_operators(const clt_graph *g, uint64_t *hash)
{
    clt_str text = {0};
    clt_graph_dump(g, &text);
    for (int i = 0; i < g->n_losses; i++)
        clt_str_add(&text, "loss %s %d %d %.17g\n", g->losses[i].name, g->losses[i].sum->id,
                    g->losses[i].weight ? g->losses[i].weight->id : -1, g->losses[i].coefficient);
    const bool failed = text.failed;
    *hash = clt_hash_text(clt_str_text(&text), *hash);
    clt_str_free(&text);
    return failed ? CLT_OUT_OF_MEMORY : CLT_OK;
}

clt_status clt_async_layout_make(const clt_graph *graph, int holders, clt_async_layout *out)
{
    clt_async_layout l = {.holders = holders};
    clt_status status = clt_graph_status(graph);
    l.parameters = clt_calloc((size_t)graph->n_values + 1, sizeof *l.parameters);
    l.states = clt_calloc((size_t)graph->n_values + 1, sizeof *l.states);
    if (status == CLT_OK && (!l.parameters || !l.states))
        status = CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        if (v->kind == CLT_VALUE_PARAMETER) {
            status = add(graph, v, &l.elements, &l.hash, &l.parameters[l.n_parameters++]);
        } else if (v->kind == CLT_VALUE_STATE) {
            CLT_NEXT(status, check_state(v));
            CLT_NEXT(status, add(graph, v, &l.state_elements, &l.hash, &l.states[l.n_states++]));
        }
    }
    if (status == CLT_OK && (holders < 1 || holders > l.elements))
        status = clt_fail(CLT_INVALID_ARGUMENT,
                          "%d holders cannot divide the %lld elements of the parameters: at least "
                          "1 holder, and an element for each",
                          holders, (long long)l.elements);
    l.hash = clt_hash(&holders, sizeof holders, l.hash);
    CLT_NEXT(status, add_operators(graph, &l.hash));
    if (status != CLT_OK) {
        clt_async_layout_free(&l);
        return status;
    }
    *out = l;
    return CLT_OK;
}

void clt_async_layout_free(clt_async_layout *l)
{
    for (int i = 0; l->parameters && i < l->n_parameters; i++)
        CLT_FREE(l->parameters[i].name, l->parameters[i].indices);
    for (int i = 0; l->states && i < l->n_states; i++)
        CLT_FREE(l->states[i].name, l->states[i].indices);
    CLT_FREE(l->parameters, l->states);
    *l = (clt_async_layout){0};
}

int64_t clt_async_cut(const clt_async_layout *l, int holder)
{
    const int64_t each = l->elements / l->holders, more = l->elements % l->holders;
    return holder * each + (holder < more ? holder : more);
}

clt_async_piece clt_async_piece_of(const clt_async_layout *l, int holder, int parameter)
{
    const clt_async_tensor *t = &l->parameters[parameter];
    int64_t from = clt_async_cut(l, holder) - t->begin,
            to = clt_async_cut(l, holder + 1) - t->begin;
    from = from < 0 ? 0 : from;
    to = to > t->elements ? t->elements : to;
    return from < to ? (clt_async_piece){from, to} : (clt_async_piece){0, 0};
}

static int compare_rows(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

clt_status clt_async_rows_make(const clt_async_tensor *table, const int32_t *indices, int64_t count,
                               clt_async_rows *r)
{
    const int64_t most = table->elements / table->width;
    r->count = 0;
    if (count > INT32_MAX)
        return clt_fail(CLT_UNSUPPORTED, "a batch has %lld rows of %s", (long long)count,
                        table->name);
    CLT_TRY(CLT_RESERVE(r->rows, 0, r->room, (int)count));
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] < 0 || indices[i] >= most)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "input %s has %d, but %s has only the rows 0 to %lld", table->indices,
                            (int)indices[i], table->name, (long long)most - 1);
        r->rows[i] = (uint32_t)indices[i];
    }
    if (count)
        qsort(r->rows, (size_t)count, sizeof *r->rows, compare_rows);
    for (int64_t i = 0; i < count; i++)
        if (!r->count || r->rows[r->count - 1] != r->rows[i])
            r->rows[r->count++] = r->rows[i];
    return CLT_OK;
}

/* The part of row `row` that lies in the piece. */
static clt_async_piece part_of(const clt_async_tensor *t, clt_async_piece piece, uint32_t row)
{
    int64_t from = (int64_t)row * t->width, to = from + t->width;
    from = from < piece.from ? piece.from : from;
    to = to > piece.to ? piece.to : to;
    return from < to ? (clt_async_piece){from, to} : (clt_async_piece){from, from};
}

int64_t clt_async_count(const clt_async_tensor *t, clt_async_piece piece,
                        const clt_async_rows *rows)
{
    int64_t count = 0;
    if (!rows || !t->width)
        return piece.to - piece.from;
    for (int i = 0; i < rows->count; i++) {
        const clt_async_piece part = part_of(t, piece, rows->rows[i]);
        count += part.to - part.from;
    }
    return count;
}

int64_t clt_async_pick(const clt_async_tensor *t, clt_async_piece piece, const clt_async_rows *rows,
                       const float *data, int64_t origin, float *message)
{
    int64_t at = 0;
    const int parts = rows && t->width ? rows->count : 1;
    for (int i = 0; i < parts; i++) {
        const clt_async_piece part = rows && t->width ? part_of(t, piece, rows->rows[i]) : piece;
        memcpy(message + at, data + (part.from - origin),
               (size_t)(part.to - part.from) * sizeof *message);
        at += part.to - part.from;
    }
    return at;
}

int64_t clt_async_place(const clt_async_tensor *t, clt_async_piece piece,
                        const clt_async_rows *rows, const float *message, float *data,
                        int64_t origin)
{
    int64_t at = 0;
    const int parts = rows && t->width ? rows->count : 1;
    for (int i = 0; i < parts; i++) {
        const clt_async_piece part = rows && t->width ? part_of(t, piece, rows->rows[i]) : piece;
        memcpy(data + (part.from - origin), message + at,
               (size_t)(part.to - part.from) * sizeof *message);
        at += part.to - part.from;
    }
    return at;
}
