#include "exec/update/newton_schulz.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include <cltrain/ops.h>

/* The coefficients of the paper, and the number that it adds to norms. */
static const double A = 3.4445, B = -4.7750, C = 2.0315, TINY = 1e-7;
enum { ITERATIONS = 5 };

static const char RESULT[] = "orthogonal";

typedef struct shape {
    int64_t rows, columns;
    clt_plan *plan;
    clt_exec *exec;
} shape;

struct clt_newton_schulz {
    clt_buckets no_buckets;
    clt_replica no_tensors; /* plans have no parameters */
    clt_arena arena;
    clt_view input;
    shape *shapes;
    int count, room;
};

/* --- the graph -------------------------------------------------------------------------------- */

/* A has the smaller of both sizes: X X', or X' X of a matrix with more rows than columns. */
static clt_value *iterate(clt_value *x, bool tall)
{
    clt_value *a = clt_matmul(x, x, tall, !tall);
    clt_value *b = clt_add(clt_scale(a, B), clt_scale(clt_matmul(a, a, 0, 0), C));
    clt_value *bx = tall ? clt_matmul(x, b, 0, 0) : clt_matmul(b, x, 0, 0);
    return clt_add(clt_scale(x, A), bx);
}

static clt_status build(clt_graph *graph, int64_t rows, int64_t columns)
{
    static const int both[] = {0, 1};
    const int64_t elements = rows * columns, line = CLT_TENSOR_ALIGN / (int64_t)sizeof(float);
    const int64_t padding = (line - elements % line) % line, zero = 0;
    clt_value *x = clt_input(graph, "matrix", CLT_F32, 2, (int64_t[]){rows, columns});
    clt_value *norm = clt_sqrt(clt_reduce_sum(clt_mul(x, x), both, 2, 1));
    x = clt_div(x, clt_add_scalar(norm, TINY));
    for (int i = 0; i < ITERATIONS; i++)
        x = iterate(x, rows > columns);
    if (padding)
        x = clt_pad(clt_reshape(x, 1, &elements), &zero, &padding, 0);
    clt_output(x, RESULT);
    return clt_graph_status(graph);
}

/* --- plans ------------------------------------------------------------------------------------ */

static clt_status make_plan(const clt_newton_schulz *n, const clt_caps *caps, bool canonical,
                            shape *s)
{
    clt_graph *graph = NULL;
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, 1);
    options.virtual_shards = canonical;
    clt_status status = clt_graph_create(&graph);
    CLT_NEXT(status, build(graph, s->rows, s->columns));
    CLT_NEXT(status, clt_plan_create(graph, &n->no_buckets, caps, NULL, &options, &s->plan));
    clt_graph_destroy(graph);
    return status;
}

static shape *find(const clt_newton_schulz *n, const clt_slot *slot)
{
    for (int i = 0; i < n->count; i++)
        if (n->shapes[i].rows == slot->type.dims[0] && n->shapes[i].columns == slot->type.dims[1])
            return &n->shapes[i];
    return NULL;
}

bool clt_newton_schulz_has(const clt_replica *r, const clt_slot *slot)
{
    int64_t from, to;
    return slot->bytes && !slot->state &&
           clt_shard_part(&r->layout->buckets[slot->bucket], r->shard, r->shards, slot->offset,
                          slot->offset + clt_slot_padded(slot), &from, &to);
}

/* Makes the plans of all shapes, and returns the most bytes of a matrix. */
static clt_status make_plans(clt_newton_schulz *n, const clt_replica *r, const bool *chosen,
                             bool canonical, int64_t *most)
{
    *most = 0;
    for (int i = 0; i < r->layout->n_slots; i++) {
        const clt_slot *slot = &r->layout->slots[i];
        if (!chosen[i] || !clt_newton_schulz_has(r, slot))
            continue;
        *most = clt_slot_padded(slot) > *most ? clt_slot_padded(slot) : *most;
        if (find(n, slot))
            continue;
        const shape s = {.rows = slot->type.dims[0], .columns = slot->type.dims[1]};
        CLT_TRY(CLT_PUSH(n->shapes, n->count, n->room, s));
        CLT_TRY(make_plan(n, &r->device->caps, canonical, &n->shapes[n->count - 1]));
    }
    return CLT_OK;
}

static void free_plans(clt_newton_schulz *n)
{
    for (int i = 0; i < n->count; i++) {
        clt_exec_destroy(n->shapes[i].exec);
        clt_plan_destroy(n->shapes[i].plan);
    }
    clt_free(n->shapes);
}

clt_status clt_newton_schulz_bytes(const clt_replica *replica, const bool *chosen, bool canonical,
                                   int64_t *bytes)
{
    clt_newton_schulz n = {0};
    clt_status status = make_plans(&n, replica, chosen, canonical, bytes);
    bool more = status == CLT_OK;
    for (int slab = 0; more; slab++) { /* all plans use one arena */
        int64_t most = 0;
        more = false;
        for (int i = 0; i < n.count; i++)
            if (slab < n.shapes[i].plan->n_slabs) {
                const int64_t own = n.shapes[i].plan->slabs[slab];
                most = own > most ? own : most;
                more = true;
            }
        *bytes += most;
    }
    free_plans(&n);
    return status;
}

clt_status clt_newton_schulz_create(const clt_replica *replica, const bool *chosen, bool canonical,
                                    clt_newton_schulz **out)
{
    clt_newton_schulz *n = CLT_NEW(clt_newton_schulz);
    int64_t most;
    CLT_TRY_MEMORY(n);
    clt_arena_init(&n->arena, replica->device);
    clt_status status = clt_replica_create(replica->device, &n->no_buckets, &n->no_tensors);
    CLT_NEXT(status, make_plans(n, replica, chosen, canonical, &most));
    if (status == CLT_OK && n->count)
        status = clt_device_buffer_create(replica->device, most, CL_MEM_READ_WRITE,
                                          "a matrix of muon", &n->input.buffer);
    for (int i = 0; i < n->count; i++)
        CLT_NEXT(status, clt_exec_create(replica->device, n->shapes[i].plan, &n->no_tensors,
                                         &n->arena, &n->shapes[i].exec));
    if (status != CLT_OK) {
        clt_newton_schulz_destroy(n);
        return status;
    }
    *out = n;
    return CLT_OK;
}

void clt_newton_schulz_destroy(clt_newton_schulz *n)
{
    if (!n)
        return;
    free_plans(n);
    clt_arena_destroy(&n->arena);
    clt_replica_destroy(&n->no_tensors);
    clt_release_buffer(n->input.buffer);
    clt_free(n);
}

cl_mem clt_newton_schulz_input(const clt_newton_schulz *n)
{
    return n->input.buffer;
}

clt_status clt_newton_schulz_run(clt_newton_schulz *n, const clt_slot *slot, clt_view *result)
{
    const shape *s = find(n, slot);
    const clt_run run = {.count = 1, .inputs = &n->input};
    if (!s)
        return clt_fail(CLT_INTERNAL, "no plan makes %s orthogonal", slot->name);
    CLT_TRY(clt_exec_enqueue(s->exec, &run, 0, s->plan->n_nodes, 0, NULL));
    return clt_exec_locate(s->exec, &run, clt_graph_find(s->plan->graph, RESULT), result);
}
