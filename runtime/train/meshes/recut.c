/*
 * Cuts of pipelines by measured times. Plans of a pipeline with the cuts that balance the
 * arithmetic were measured, piece by piece. From these times follows what each stage would take
 * with any other cuts. Dynamic programming finds those whose largest stage takes the least.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "passes/passes.h"
#include "train/meshes/meshes.h"
#include "train/ranks/world.h"

typedef struct recut {
    clt_meshes *meshes;
    const clt_mesh_facts *parent;
    int pieces, stages;
    double *forward, *work; /* [stages][pieces]: seconds of forward, and with backward */
    int *ends;              /* [stages][pieces], see clt_stage_costs */
    int *begins, *before;   /* by stage: its first piece; `before`: with the parent's cuts */
} recut;

static clt_status allocate(recut *r)
{
    const size_t n = (size_t)(r->stages * r->pieces), stages = (size_t)r->stages;
    r->forward = clt_calloc(n, sizeof *r->forward);
    r->work = clt_calloc(n, sizeof *r->work);
    r->ends = clt_calloc(n, sizeof *r->ends);
    r->begins = clt_calloc(stages, sizeof *r->begins);
    r->before = clt_calloc(stages, sizeof *r->before);
    CLT_TRY_MEMORY(r->forward && r->work && r->ends && r->begins && r->before);
    for (size_t i = 0; i < n; i++)
        r->ends[i] = r->pieces;
    return CLT_OK;
}

static void release(recut *r)
{
    CLT_FREE(r->forward, r->work, r->ends, r->begins, r->before);
}

static int stage_of(const clt_mesh_facts *f, int place)
{
    return clt_mesh_coordinate(&f->shape, CLT_AXIS_PIPELINE, f->places[place].participant);
}

/* --- times ----------------------------------------------------------------------------------- */

/* Seconds of a place, in proportion to those of the fastest device. */
static double pace_of(const recut *r, int place)
{
    const double *pace = r->meshes->base.pace;
    return pace ? pace[r->parent->places[place].participant] : 1;
}

static double sum_of(const double *pieces, int count, int which)
{
    double sum = 0;
    for (int p = 0; p < count; p++)
        sum += pieces[2 * p + which];
    return sum;
}

/* Takes the times of pieces from the places that ran them, as on the fastest device. Of several
 * places of a stage the slowest counts. *known: all places have times. */
static void take_pieces(const recut *r, double *forward, double *whole, bool *known)
{
    const clt_mesh_facts *f = r->parent;
    *known = true;
    for (int k = 0; k < f->n_places; k++) {
        const clt_mesh_place *p = &f->places[k];
        const double measured = sum_of(p->pieces, r->pieces, 1);
        const double scale = measured > 0 ? p->whole / measured / pace_of(r, k) : 0;
        const double front = sum_of(p->pieces, r->pieces, 0);
        const double ahead = front > 0 ? p->forward / front / pace_of(r, k) : 0;
        *known = *known && measured > 0;
        for (int i = 0; i < r->pieces; i++) {
            double *of = &forward[stage_of(f, k) * r->pieces + i];
            *of = p->pieces[2 * i] * ahead > *of ? p->pieces[2 * i] * ahead : *of;
            of = &whole[stage_of(f, k) * r->pieces + i];
            *of = p->pieces[2 * i + 1] * scale > *of ? p->pieces[2 * i + 1] * scale : *of;
        }
    }
}

/* What each piece would take on each stage. The nodes of a piece may lie on several stages. */
static clt_status find_work(recut *r, bool *known)
{
    const clt_mesh_facts *f = r->parent;
    const size_t n = (size_t)(r->stages * r->pieces);
    double *forward = clt_calloc(n, sizeof *forward), *whole = clt_calloc(n, sizeof *whole);
    const bool memory = forward && whole;
    if (memory)
        take_pieces(r, forward, whole, known);
    for (int s = 0; memory && s < r->stages; s++) {
        double pace = 0;
        for (int k = 0; k < f->n_places; k++)
            if (stage_of(f, k) == s)
                pace = pace_of(r, k) > pace ? pace_of(r, k) : pace;
        for (int i = 0; i < r->stages * r->pieces; i++) {
            r->forward[s * r->pieces + i % r->pieces] += pace * forward[i];
            r->work[s * r->pieces + i % r->pieces] += pace * whole[i];
        }
    }
    CLT_FREE(forward, whole);
    return memory ? CLT_OK : CLT_OUT_OF_MEMORY;
}

static int end_of(const recut *r, const int *begins, int stage)
{
    return stage + 1 < r->stages ? begins[stage + 1] : r->pieces;
}

static double time_of(const recut *r, const double *times, int stage)
{
    double sum = 0;
    for (int p = r->begins[stage]; p < end_of(r, r->begins, stage); p++)
        sum += times[stage * r->pieces + p];
    return sum;
}

/* The parent's cuts. */
static void find_before(const recut *r)
{
    const clt_graph *g = r->parent->graph;
    int stage = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int o = 0; o < g->nodes[i]->n_out; o++)
            if (g->nodes[i]->out[o]->cut && stage + 1 < r->stages)
                r->before[++stage] = g->nodes[i]->piece + 1;
}

/* --- names ----------------------------------------------------------------------------------- */

/* Whether two copies of a graph have the same cuts. */
static bool same_cuts(const clt_graph *a, const clt_graph *b)
{
    for (int i = 0; i < a->n_nodes; i++) {
        bool one = false, other = false;
        for (int o = 0; o < a->nodes[i]->n_out; o++) {
            one = one || a->nodes[i]->out[o]->cut;
            other = other || b->nodes[i]->out[o]->cut;
        }
        if (one != other)
            return false;
    }
    return true;
}

/* Writes the names with which clt_cut_before makes the cuts, if there are such names. */
static clt_status name_cuts(const clt_graph *whole, const clt_graph *cut, char **names)
{
    clt_graph *copy;
    clt_str text = {0};
    bool begins = false;
    for (int i = 0; i < cut->n_nodes; i++) {
        if (begins)
            clt_str_add(&text, "%s%s", text.text ? "|" : "", cut->nodes[i]->name);
        begins = false;
        for (int o = 0; o < cut->nodes[i]->n_out; o++)
            begins = begins || cut->nodes[i]->out[o]->cut;
    }
    clt_status status = text.failed ? CLT_OUT_OF_MEMORY : clt_graph_copy(whole, &copy);
    if (status == CLT_OK) {
        const bool same =
            clt_cut_before(copy, clt_str_text(&text)) == CLT_OK && same_cuts(copy, cut);
        *names = same ? clt_strdup(clt_str_text(&text)) : NULL;
        status = same && !*names ? CLT_OUT_OF_MEMORY : CLT_OK;
        clt_graph_destroy(copy);
    }
    clt_str_free(&text);
    return status;
}

/* --- the choice ------------------------------------------------------------------------------ */

/* Remembers that the stage has too many pieces. It also has if it begins earlier. */
static void remember(const recut *r, int stage)
{
    const int end = end_of(r, r->begins, stage) - 1;
    for (int begin = 0; begin <= r->begins[stage]; begin++) {
        int *own = &r->ends[stage * r->pieces + begin];
        *own = end < *own ? end : *own;
    }
}

/* Remembers the stages that do not fit a device of any rank. *fits: there are none, and all ranks
 * can have the mesh. */
static clt_status compare(const recut *r, const clt_mesh_facts *f, bool *fits, bool *possible)
{
    const clt_world *world = r->meshes->world;
    const int32_t own[2] = {(int32_t)f->status, f->full};
    void *all;
    CLT_TRY(clt_ranks_gather(world, own, sizeof own, &all));
    *fits = *possible = true;
    for (int k = 0; k < (world ? world->ranks : 1); k++) {
        const int32_t *of = (const int32_t *)all + 2 * k;
        const bool full = of[0] == CLT_OUT_OF_DEVICE_MEMORY && of[1] >= 0;
        if (full)
            remember(r, of[1]);
        *fits = *fits && of[0] == CLT_OK;
        *possible = *possible && (of[0] == CLT_OK || full);
    }
    clt_free(all);
    return CLT_OK;
}

/* Copies rank 0's choice. */
static clt_status share_begins(const recut *r, bool *found)
{
    const size_t bytes = (size_t)r->stages * sizeof *r->begins;
    int64_t any = *found;
    void *all;
    CLT_TRY(clt_ranks_agree(r->meshes->world, CLT_OK, &any));
    *found = any != 0;
    CLT_TRY(clt_ranks_gather(r->meshes->world, r->begins, bytes, &all));
    memcpy(r->begins, all, bytes);
    clt_free(all);
    return CLT_OK;
}

/* Finds the best cuts that fit, and their facts. *found: there are any that are not the parent's.
 */
static clt_status search(const recut *r, clt_mesh_facts *f, bool *found)
{
    const clt_mesh_setting *s = &r->meshes->setting;
    const clt_stage_costs costs = {r->pieces, r->stages, r->work, r->ends};
    bool fits = false, possible = true;
    while (!fits) {
        clt_status status = clt_stages_balance(&costs, r->begins, found);
        CLT_TRY(clt_ranks_agree(r->meshes->world, status, NULL));
        CLT_TRY(share_begins(r, found));
        *found = *found && memcmp(r->begins, r->before, (size_t)r->stages * sizeof *r->begins) != 0;
        if (!*found)
            return CLT_OK;
        status = clt_mesh_facts_find_cut(s, &r->parent->candidate, r->begins, f);
        CLT_TRY(clt_ranks_agree(r->meshes->world, status, NULL));
        CLT_TRY(compare(r, f, &fits, &possible));
        *found = possible;
        if (!possible)
            return CLT_OK;
        if (!fits)
            clt_mesh_facts_free(f);
    }
    return CLT_OK;
}

/* Predicts steps with both cuts. */
static clt_status is_faster(const recut *r, clt_mesh_facts *f, bool *faster)
{
    clt_meshes *m = r->meshes;
    clt_mesh_step before = {0}, step = {0};
    f->composed = true;
    for (int k = 0; k < f->n_places; k++) {
        f->places[k].forward = time_of(r, r->forward, stage_of(f, k));
        f->places[k].whole = time_of(r, r->work, stage_of(f, k));
    }
    clt_status status = clt_mesh_predict(&m->base, &m->links, r->parent, &before);
    CLT_NEXT(status, clt_mesh_predict(&m->base, &m->links, f, &step));
    CLT_NEXT(status, name_cuts(m->setting.graph, f->graph, &f->stages));
    int64_t yes = status == CLT_OK && f->stages && step.seconds < before.seconds;
    status = clt_ranks_agree(m->world, status, &yes);
    *faster = status == CLT_OK && yes;
    return status;
}

/* Adds the possible mesh whose facts lie behind all others. */
static void add(clt_meshes *m)
{
    m->ranks[m->count] = m->ranks[m->possible];
    m->ranks[m->possible++] = (clt_mesh_rank){.facts = &m->facts[m->count]};
    m->count++;
}

static clt_status try(recut *r)
{
    clt_mesh_facts *f = &r->meshes->facts[r->meshes->count];
    bool found = false, faster = false;
    clt_status status = allocate(r);
    if (status == CLT_OK)
        find_before(r);
    CLT_NEXT(status, find_work(r, &found));
    int64_t known = found; /* an earlier search may have no times of pieces */
    status = clt_ranks_agree(r->meshes->world, status, &known);
    if (status == CLT_OK && known)
        status = search(r, f, &found);
    if (status == CLT_OK && known && found)
        status = is_faster(r, f, &faster);
    if (faster)
        add(r->meshes);
    else
        clt_mesh_facts_free(f);
    release(r);
    return status;
}

clt_status clt_meshes_recut(clt_meshes *m)
{
    const int count = m->count;
    for (int i = 0; i < count; i++) { /* by candidate: in the same order on all ranks */
        clt_mesh_facts *f = &m->facts[i];
        if (f->status != CLT_OK || !f->measured || !f->n_pieces || f->recut)
            continue;
        f->recut = true;
        recut r = {.meshes = m,
                   .parent = f,
                   .pieces = f->n_pieces,
                   .stages = f->shape.size[CLT_AXIS_PIPELINE]};
        CLT_TRY(try(&r));
    }
    return CLT_OK;
}
