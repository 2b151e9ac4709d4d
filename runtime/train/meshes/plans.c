#include "train/meshes/plans.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/table.h"
#include "base/vec.h"
#include "train/setup/stages.h"
#include "tune/measure_node.h"

typedef struct entry {
    clt_mesh_key key;
    clt_mesh_plan *plan;
} entry;

typedef struct cut {
    int stages;
    clt_graph *graph;
} cut;

struct clt_mesh_plans {
    int users;
    bool shared;
    entry *list;
    int count, room;
    clt_table index; /* of entries, by the hash of their keys */
    cut *cuts;
    int n_cuts, cuts_room;
};

clt_status clt_mesh_plans_create(bool shared, clt_mesh_plans **out)
{
    clt_mesh_plans *p = CLT_NEW(clt_mesh_plans);
    CLT_TRY_MEMORY(p);
    p->users = 1;
    p->shared = shared;
    *out = p;
    return CLT_OK;
}

clt_mesh_plans *clt_mesh_plans_share(clt_mesh_plans *p)
{
    p->users++;
    return p;
}

static void free_plan(clt_mesh_plan *p)
{
    clt_outline_free(&p->outline);
    clt_buckets_free(&p->layout);
    CLT_FREE(p->nodes, p->piece_of, p->pieces, p->reason, p);
}

void clt_mesh_plans_release(clt_mesh_plans *p)
{
    if (!p || --p->users)
        return;
    for (int i = 0; i < p->count; i++)
        free_plan(p->list[i].plan);
    for (int i = 0; i < p->n_cuts; i++)
        clt_graph_destroy(p->cuts[i].graph);
    clt_table_free(&p->index);
    CLT_FREE(p->list, p->cuts, p);
}

int clt_mesh_plans_count(const clt_mesh_plans *p)
{
    return p->count;
}

/* --- plans ----------------------------------------------------------------------------------- */

typedef struct lookup {
    const clt_mesh_plans *plans;
    const clt_mesh_key *key;
} lookup;

static bool matches(const void *user, int item)
{
    const lookup *l = user;
    return !memcmp(&l->plans->list[item].key, l->key, sizeof *l->key);
}

static uint64_t hash_of(const clt_mesh_key *key)
{
    return clt_hash(key, sizeof *key, 0);
}

clt_mesh_plan *clt_mesh_plans_find(const clt_mesh_plans *p, const clt_mesh_key *key)
{
    const lookup l = {p, key};
    const int found = p->shared ? clt_table_find(&p->index, hash_of(key), matches, &l) : -1;
    return found < 0 ? NULL : p->list[found].plan;
}

static clt_status keep(clt_mesh_plans *p, const clt_mesh_key *key, clt_mesh_plan *plan)
{
    clt_status status = p->shared ? clt_table_add(&p->index, hash_of(key), p->count) : CLT_OK;
    CLT_NEXT(status, CLT_PUSH(p->list, p->count, p->room, (entry){*key, plan}));
    return status;
}

static clt_status take_nodes(const clt_plan *plan, clt_mesh_plan *p)
{
    const int64_t n = plan->options.max_batch;
    p->nodes = clt_calloc((size_t)plan->n_nodes + 1, sizeof *p->nodes);
    CLT_TRY_MEMORY(p->nodes);
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].variant)
            p->nodes[i] = (clt_mesh_node){.flops = (double)clt_node_flops(plan->nodes[i].node, n),
                                          .bytes = (double)clt_node_bytes(plan->nodes[i].node, n),
                                          .launches = plan->nodes[i].program.n_launches};
    return CLT_OK;
}

/* Nodes add gradients whose places are totals (plan/totals.c). */
static int64_t added_by_updates(const clt_plan *plan)
{
    int64_t bytes = 0;
    for (int s = 0; s < plan->buckets.n_slots; s++) {
        const clt_value *gradient = plan->gradients[s];
        if (gradient && plan->places[gradient->id].kind == CLT_PLACE_GRADIENT)
            bytes += clt_type_elements(&gradient->type, 0) * clt_dtype_size(CLT_F32);
    }
    return bytes;
}

/* A node that passes have added without an origin counts to the piece of the node before it. */
clt_status clt_mesh_pieces_of(const clt_plan *plan, int **piece_of, int *n_pieces)
{
    int first = 0;
    *piece_of = NULL;
    *n_pieces = 0;
    while (first < plan->n_nodes && plan->nodes[first].node->piece < 0)
        first++;
    if (first == plan->n_nodes)
        return CLT_OK;
    *piece_of = clt_calloc((size_t)plan->n_nodes, sizeof **piece_of);
    CLT_TRY_MEMORY(*piece_of);
    for (int i = 0, piece = plan->nodes[first].node->piece; i < plan->n_nodes; i++) {
        const int own = plan->nodes[i].node->piece;
        piece = own < 0 ? piece : own;
        (*piece_of)[i] = piece;
        *n_pieces = piece >= *n_pieces ? piece + 1 : *n_pieces;
    }
    return CLT_OK;
}

static clt_status take_pieces(const clt_plan *plan, clt_mesh_plan *p)
{
    CLT_TRY(clt_mesh_pieces_of(plan, &p->piece_of, &p->n_pieces));
    if (!p->n_pieces)
        return CLT_OK;
    p->pieces = clt_calloc(2 * (size_t)p->n_pieces, sizeof *p->pieces);
    CLT_TRY_MEMORY(p->pieces);
    return CLT_OK;
}

/* Takes what is kept of the plans of training and evaluation. */
static clt_status take(const clt_plan *training, const clt_plan *evaluation, const clt_store *store,
                       const clt_trainer_options *options, const clt_mesh *mesh, clt_mesh_plan *p)
{
    clt_memory memory = {0};
    p->hash = training->hash;
    p->options = training->options;
    p->n_nodes = training->n_nodes;
    p->n_forward = training->n_forward;
    p->traits = clt_step_traits_of(training, options, mesh);
    clt_memory_count_plans(store, training, evaluation, clt_capacity_micro_batches(options),
                           &memory);
    p->added = added_by_updates(training);
    p->inputs = memory.inputs;
    p->arena = memory.arena;
    CLT_TRY(take_nodes(training, p));
    CLT_TRY(take_pieces(training, p));
    CLT_TRY(clt_buckets_copy(&training->buckets, &p->layout));
    return clt_outline_create(training, &p->outline);
}

static clt_status plan_device(const clt_graph *graph, const clt_store *store,
                              const clt_trainer_options *options, int parts, int device,
                              const clt_tuning_record *tuning, bool simulated, clt_mesh_plan *p)
{
    clt_plan *plans[2] = {NULL};
    clt_status status =
        clt_capacity_plan(graph, store, options, parts, device, CLT_PLAN_TRAIN, tuning, &plans[0]);
    CLT_NEXT(status, clt_capacity_plan(graph, store, options, parts, device, CLT_PLAN_EVALUATE,
                                       tuning, &plans[1]));
    CLT_NEXT(status, take(plans[0], plans[1], store, options, &store->mesh, p));
    if (status == CLT_OK && (simulated || tuning->count == 0))
        clt_capacity_need_of(store, options, plans[0], plans[1], &p->need);
    else /* a trainer's check looks at plans without measured kernels */
        CLT_NEXT(status, clt_capacity_need_find(graph, store, options, parts, device, &p->need));
    clt_plan_destroy(plans[0]);
    clt_plan_destroy(plans[1]);
    return status;
}

clt_status clt_mesh_plans_make(clt_mesh_plans *plans, const clt_mesh_key *key,
                               const clt_graph *graph, const clt_store *store,
                               const clt_trainer_options *options, int parts, int device,
                               const clt_tuning_record *tuning, bool simulated, clt_mesh_plan **out)
{
    clt_mesh_plan *p = CLT_NEW(clt_mesh_plan);
    CLT_TRY_MEMORY(p);
    p->status = plan_device(graph, store, options, parts, device, tuning, simulated, p);
    if (p->status != CLT_OK)
        p->reason = clt_strdup(clt_error_message());
    const bool lacks = p->status == CLT_OUT_OF_MEMORY || (p->status != CLT_OK && !p->reason);
    const clt_status status = lacks ? CLT_OUT_OF_MEMORY : keep(plans, key, p);
    if (status != CLT_OK) {
        free_plan(p);
        return status;
    }
    *out = p;
    return CLT_OK;
}

void clt_mesh_pieces_copy(const clt_mesh_plan *from_plan, const double *from,
                          const clt_mesh_plan *to_plan, double *to)
{
    const bool both = from && to && from_plan->n_pieces && to_plan->n_pieces;
    for (int i = 0; both && i < from_plan->n_nodes && i < to_plan->n_nodes; i++)
        for (int w = 0; w < 2; w++)
            to[2 * to_plan->piece_of[i] + w] = from[2 * from_plan->piece_of[i] + w];
}

bool clt_mesh_plans_measured(const clt_mesh_plans *p, clt_mesh_plan *plan)
{
    for (int i = 0; !plan->measured && i < p->count; i++) {
        const clt_mesh_plan *of = p->list[i].plan;
        if (!of->measured || of->hash != plan->hash ||
            of->options.max_batch != plan->options.max_batch)
            continue;
        plan->forward = of->forward;
        plan->whole = of->whole;
        clt_mesh_pieces_copy(of, of->pieces, plan, plan->pieces);
        plan->measured = true;
    }
    return plan->measured;
}

/* --- cuts ------------------------------------------------------------------------------------ */

clt_status clt_mesh_plans_cut(clt_mesh_plans *p, const clt_graph *graph, int stages,
                              const clt_graph **out)
{
    clt_graph *copy;
    for (int i = 0; i < p->n_cuts; i++)
        if (p->cuts[i].stages == stages) {
            *out = p->cuts[i].graph;
            return CLT_OK;
        }
    CLT_TRY(clt_graph_copy(graph, &copy));
    clt_status status = clt_stages_propose(copy, stages);
    CLT_NEXT(status, CLT_PUSH(p->cuts, p->n_cuts, p->cuts_room, (cut){stages, copy}));
    if (status != CLT_OK)
        clt_graph_destroy(copy);
    else
        *out = copy;
    return status;
}
