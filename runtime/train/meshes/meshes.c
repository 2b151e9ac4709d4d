#include "train/meshes/meshes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "exec/update/optimizer.h"
#include "train/meshes/measure.h"
#include "train/meshes/mesh_shards.h"
#include "train/ranks/world.h"
#include "train/setup/capacity.h"

/* A mesh that is estimated to take so many times the best one's time is not measured. */
static const double FAR = 1.6;

CLT_STRUCT_INIT(clt_mesh_options, .seconds = 20, .finals = 4, .per_node = 8, .sync_every = 8)

CLT_STRUCT_INIT(clt_mesh_entry, )

/* --- candidates ------------------------------------------------------------------------------ */

static bool divides(const clt_graph *g, clt_axis axis)
{
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i]->shardings[axis].blocks)
            return true;
    return false;
}

/* Finds which numbers of places divide the model along an axis, by the passes. */
static clt_status try_places(clt_meshes *m, clt_axis axis, int devices, bool *allowed)
{
    const int64_t each = m->trainer.batch / devices;
    for (int places = 1; places <= devices; places++) {
        clt_candidate c = {.size = {1, 1, 1, 1, 1}, .accumulate = 1};
        clt_mesh_setting s = m->setting;
        clt_trainer_options options = m->trainer;
        clt_mesh_facts f;
        if (devices % places || places == 1) {
            allowed[places] = places == 1;
            continue;
        }
        c.size[axis] = places;
        options.batch = each > 0 ? each : 1;
        s.ranks = places;
        s.options = &options;
        const clt_status status = clt_mesh_facts_find(&s, &c, &f);
        allowed[places] = f.status == CLT_OK || f.status == CLT_OUT_OF_DEVICE_MEMORY;
        if (status == CLT_OK && !allowed[places])
            clt_str_add(&m->excluded, "not possible: %s=%d: %s\n", clt_axis_name(axis), places,
                        f.reason);
        clt_mesh_facts_free(&f);
        CLT_TRY(status);
        if (!allowed[places] && places > 64) /* larger ones fail likewise */
            break;
    }
    return CLT_OK;
}

/* Excludes the choices that virtual shards have not. */
static void exclude_for_shards(clt_meshes *m, clt_candidate_limits *limits)
{
    limits->shares = limits->halves = false;
    clt_str_add(&m->excluded, "not possible: axes other than dp, local, and wire bf16: virtual "
                              "shards do not work with them\n");
    for (int a = 0; a < CLT_AXES; a++)
        limits->most[a] = a == CLT_AXIS_DATA ? limits->devices : 1;
}

/* With the devices at hand each mesh tells its own reason. With thousands, one for each axis does.
 */
static clt_status bound(clt_meshes *m, clt_candidate_limits *limits, bool *allowed[CLT_AXES])
{
    const clt_graph *g = m->setting.graph;
    const int n = limits->devices;
    if (m->setting.simulated && m->setting.shards) {
        exclude_for_shards(m, limits);
        return CLT_OK;
    }
    for (int a = 0; a < CLT_AXES; a++) {
        limits->most[a] = n;
        if (a == CLT_AXIS_PIPELINE) {
            limits->most[a] = g->cuts + 1 < n ? g->cuts + 1 : n;
        } else if (a != CLT_AXIS_DATA && !divides(g, (clt_axis)a)) {
            limits->most[a] = 1;
        } else if (a != CLT_AXIS_DATA && m->setting.simulated) {
            allowed[a] = clt_calloc((size_t)n + 1, sizeof *allowed[a]);
            CLT_TRY_MEMORY(allowed[a]);
            limits->allowed[a] = allowed[a];
            CLT_TRY(try_places(m, (clt_axis)a, n, allowed[a]));
        }
        if (limits->most[a] == 1 && n > 1)
            clt_str_add(&m->excluded, "not possible: %s: the model has nothing that it divides\n",
                        clt_axis_name((clt_axis)a));
    }
    return CLT_OK;
}

static clt_status list(clt_meshes *m, clt_candidate **candidates)
{
    clt_candidate_limits limits = {.devices = m->setting.count * m->setting.ranks,
                                   .batch = m->trainer.batch,
                                   .accumulate = m->trainer.accumulate,
                                   .sequences = divides(m->setting.graph, CLT_AXIS_TIME),
                                   .shares = m->setting.simulated,
                                   .halves = m->setting.simulated &&
                                             m->trainer.precision == CLT_F32 &&
                                             m->trainer.wire == CLT_F32};
    bool *allowed[CLT_AXES] = {NULL};
    clt_status status = bound(m, &limits, allowed);
    if (limits.batch / limits.accumulate < limits.devices)
        clt_str_add(&m->excluded,
                    "not possible: dp of more than %lld: its devices would have no samples\n",
                    (long long)(limits.batch / limits.accumulate));
    CLT_NEXT(status, clt_candidates_list(&limits, candidates, &m->count));
    for (int a = 0; a < CLT_AXES; a++)
        clt_free(allowed[a]);
    return status;
}

/* --- facts ----------------------------------------------------------------------------------- */

static clt_status find_facts(clt_meshes *m)
{
    clt_candidate *candidates = NULL;
    CLT_TRY(list(m, &candidates));
    /* With room for a mesh with other cuts for each; facts do not move. */
    m->facts = clt_calloc(2 * (size_t)m->count + 1, sizeof *m->facts);
    m->ranks = clt_calloc(2 * (size_t)m->count + 1, sizeof *m->ranks);
    clt_status status = m->facts && m->ranks ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < m->count; i++) {
        status = clt_meshes_stop_asked(m);
        CLT_NEXT(status, clt_mesh_facts_find(&m->setting, &candidates[i], &m->facts[i]));
        m->ranks[i].facts = &m->facts[i];
    }
    clt_free(candidates);
    status = clt_ranks_agree(m->world, status, NULL);
    CLT_NEXT(status, clt_meshes_share_status(m));
    return status;
}

/* --- times ----------------------------------------------------------------------------------- */

static int by_estimate(const void *a, const void *b)
{
    const clt_mesh_rank *x = a, *y = b;
    if ((x->facts->status == CLT_OK) != (y->facts->status == CLT_OK))
        return x->facts->status == CLT_OK ? -1 : 1;
    if (x->estimate != y->estimate)
        return x->estimate < y->estimate ? -1 : 1;
    return x->facts < y->facts ? -1 : 1;
}

static void sort_by_estimate(clt_meshes *m)
{
    qsort(m->ranks, (size_t)m->count, sizeof *m->ranks, by_estimate);
}

/* Estimates all plans. Measured ones tell how much longer the others take. */
static void estimate(clt_meshes *m)
{
    double measured = 0, estimated = 0;
    for (int i = 0; i < m->possible; i++) {
        clt_mesh_facts *f = m->ranks[i].facts;
        for (int k = 0; k < f->n_places; k++) {
            double forward, whole;
            clt_mesh_estimate(&m->base, f, k, &forward, &whole);
            if (f->measured) {
                measured += f->places[k].whole;
                estimated += whole;
            }
        }
    }
    m->base.stretch = estimated > 0 ? measured / estimated : 1;
    for (int i = 0; i < m->possible; i++) {
        clt_mesh_facts *f = m->ranks[i].facts;
        for (int k = 0; !f->measured && !f->composed && k < f->n_places; k++) {
            clt_mesh_place *p = &f->places[k];
            clt_mesh_estimate(&m->base, f, k, &p->forward, &p->whole);
            p->forward *= m->base.stretch;
            p->whole *= m->base.stretch;
        }
    }
}

/* All ranks go on with rank 0's predictions: theirs differ a little. */
static clt_status predict_all(clt_meshes *m)
{
    clt_status status = CLT_OK;
    estimate(m);
    for (int i = 0; i < m->possible; i++)
        CLT_NEXT(status,
                 clt_mesh_predict(&m->base, &m->links, m->ranks[i].facts, &m->ranks[i].step));
    status = clt_meshes_share_steps(m, status);
    for (int i = 0; i < m->count; i++)
        m->ranks[i].estimate = m->ranks[i].step.seconds;
    return status;
}

/* Whether there is time left; all ranks get rank 0's answer. */
static clt_status has_time(const clt_meshes *m, double began, bool *more)
{
    int64_t left = clt_clock() - began < m->options.seconds;
    CLT_TRY(clt_ranks_agree(m->world, clt_meshes_stop_asked(m), &left));
    *more = left != 0;
    return CLT_OK;
}

/* Finds the next mesh to measure: the fastest that is only estimated, unless it is far from the
 * best, also with other cuts; NULL: there is none. */
static clt_mesh_facts *next(clt_meshes *m)
{
    sort_by_estimate(m);
    for (int i = 0; i < m->possible; i++) {
        clt_mesh_facts *f = m->ranks[i].facts;
        const double even = f->n_pieces && !f->recut ? m->ranks[i].step.even : 1;
        if (!f->measured &&
            (m->options.all || even * m->ranks[i].estimate <= FAR * m->ranks[0].estimate))
            return f;
    }
    return NULL;
}

static bool take_times_of(clt_mesh_facts *f, const clt_mesh_facts *of)
{
    bool same = f->n_places == of->n_places && clt_mesh_samples(f) == clt_mesh_samples(of);
    for (int k = 0; same && k < f->n_places; k++)
        same = f->places[k].plan->hash == of->places[k].plan->hash &&
               f->places[k].device == of->places[k].device;
    for (int k = 0; same && k < f->n_places; k++) {
        f->places[k].forward = of->places[k].forward;
        f->places[k].whole = of->places[k].whole;
        clt_mesh_pieces_copy(of->places[k].plan, of->n_pieces ? of->places[k].pieces : NULL,
                             f->places[k].plan, f->n_pieces ? f->places[k].pieces : NULL);
    }
    return same;
}

/* With zero 1 devices have the same plans of micro-batches of the same size: one measurement serves
 * both. Simulated devices take the times of plans that any mesh has measured. */
static void share_times(clt_meshes *m)
{
    for (int i = 0; i < m->possible; i++) {
        clt_mesh_facts *f = m->ranks[i].facts;
        if (m->setting.simulated && !f->measured)
            clt_mesh_take_times(&m->setting, f);
        for (int k = 0; !m->setting.simulated && !f->measured && k < m->possible; k++)
            if (m->ranks[k].facts->measured)
                f->measured = take_times_of(f, m->ranks[k].facts);
    }
}

static clt_status measure_all(clt_meshes *m)
{
    share_times(m);
    CLT_TRY(predict_all(m)); /* which finds the base's stretch */
    CLT_TRY(clt_meshes_recut(m));
    CLT_TRY(predict_all(m));
    const double began = clt_clock();
    for (bool more = true; more;) {
        clt_mesh_facts *f = next(m);
        if (!f)
            break;
        CLT_TRY(clt_mesh_measure_plans(&m->setting, m->world, f));
        share_times(m);
        CLT_TRY(clt_meshes_recut(m));
        CLT_TRY(predict_all(m));
        CLT_TRY(has_time(m, began, &more));
    }
    clt_meshes_sort(m);
    return CLT_OK;
}

/* --- the object ------------------------------------------------------------------------------ */

static clt_status set_setting(clt_meshes *m, const clt_graph *graph, clt_device *const *devices,
                              int count, const clt_trainer_options *options)
{
    const bool simulated = m->options.devices > 0;
    const int ranks = options->world ? options->world->ranks : 1;
    const int32_t own = count;
    void *all;
    m->trainer = *options;
    m->trainer.in_flight = 0;
    m->world = simulated ? NULL : options->world;
    if (simulated && ranks > 1)
        return clt_fail(CLT_UNSUPPORTED, "machines can be simulated in a run of one process only");
    CLT_TRY(clt_ranks_gather(m->world, &own, sizeof own, &all));
    clt_status status = CLT_OK;
    for (int r = 0; m->world && r < ranks; r++)
        if (((const int32_t *)all)[r] != own)
            status = clt_fail(CLT_UNSUPPORTED,
                              "rank %d has %d devices and this rank %d: a mesh can be chosen for "
                              "equal numbers only, so name one (parallel)",
                              r, ((const int32_t *)all)[r], count);
    clt_free(all);
    CLT_NEXT(status, clt_meshes_check_devices(m->world, devices, count));
    CLT_TRY(status);
    if (simulated)
        m->trainer.batch = options->batch * m->options.devices / count;
    if (simulated && (m->trainer.batch < 1 || m->trainer.batch > INT32_MAX))
        return clt_fail(CLT_INVALID_ARGUMENT, "%d devices: their batch would be %lld samples",
                        m->options.devices, (long long)m->trainer.batch);
    m->setting = (clt_mesh_setting){.graph = graph,
                                    .devices = devices,
                                    .count = simulated ? 1 : count,
                                    .ranks = simulated ? m->options.devices : ranks,
                                    .rank = m->world ? m->world->rank : 0,
                                    .node_ranks = simulated  ? count
                                                  : m->world ? m->world->node_ranks
                                                             : 1,
                                    .simulated = simulated,
                                    .per_node = m->options.per_node,
                                    .options = &m->trainer};
    CLT_TRY(clt_mesh_shards_divide(&m->setting, m->world, &m->shards));
    m->setting.shards = m->shards;
    m->setting.tuning = clt_calloc((size_t)count, sizeof *m->setting.tuning);
    CLT_TRY_MEMORY(m->setting.tuning);
    if (m->options.earlier)
        m->setting.plans = clt_mesh_plans_share(m->options.earlier->setting.plans);
    else
        CLT_TRY(clt_mesh_plans_create(true, &m->setting.plans));
    for (int d = 0; d < m->setting.count; d++)
        clt_tuning_load(devices[d], &m->setting.tuning[d]);
    return CLT_OK;
}

static clt_status measure_links(clt_meshes *m)
{
    if (!m->setting.simulated)
        return clt_mesh_measure_links(&m->setting, m->world, &m->links);
    m->links =
        (clt_mesh_links){.simulated = true,
                         .per_node = m->options.per_node,
                         .link = {m->options.link.bytes_per_second, m->options.link.latency},
                         .inter = {m->options.inter.bytes_per_second, m->options.inter.latency}};
    return CLT_OK;
}

/* Why the first mesh is not possible, or dp if it is the only one that can have virtual shards. */
static const char *first_reason(const clt_meshes *m)
{
    const int devices = m->setting.count * m->setting.ranks;
    int first = 0;
    while (m->setting.shards && first < m->count - 1 &&
           m->facts[first].candidate.size[CLT_AXIS_DATA] != devices)
        first++;
    return m->count ? m->facts[first].reason : "";
}

static clt_status make(clt_meshes *m)
{
    CLT_TRY(find_facts(m));
    for (int i = 0; i < m->count; i++)
        m->possible += m->facts[i].status == CLT_OK;
    sort_by_estimate(m);
    if (!m->possible)
        return clt_fail(CLT_UNSUPPORTED, "no mesh of %d devices can train this model%s: %s",
                        m->setting.count * m->setting.ranks,
                        m->trainer.batch < m->setting.count * m->setting.ranks
                            ? " with fewer samples than devices"
                            : "",
                        first_reason(m));
    CLT_TRY(measure_links(m));
    CLT_TRY(clt_meshes_measure_base(m));
    CLT_TRY(measure_all(m));
    CLT_TRY(clt_meshes_run_finals(m));
    return clt_meshes_explain(m);
}

/* Only the batch, and what does not change plans, may differ. */
static clt_status check_earlier(const clt_mesh_options *o, const clt_graph *graph,
                                const clt_device *device, const clt_trainer_options *options)
{
    if (!o->earlier)
        return CLT_OK;
    const clt_mesh_setting *s = &o->earlier->setting;
    const clt_trainer_options *t = s->options;
    return s->simulated && o->devices && s->graph == graph && s->devices[0] == device &&
                   t->precision == options->precision &&
                   clt_optimizer_of(t) == clt_optimizer_of(options) &&
                   t->memory == options->memory && t->recompute == options->recompute &&
                   t->virtual_shards == options->virtual_shards
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT,
                          "the earlier search must be of simulated machines too, with the same "
                          "graph, device, precision, optimizer, memory and virtual shards");
}

static clt_status check(const clt_mesh_options *o, const clt_graph *graph,
                        clt_device *const *devices, int count, const clt_trainer_options *options)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_mesh_options));
    if (count < 1 || o->devices < 0 || o->per_node < 1 || o->sync_every < 1 || o->finals < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%d devices, %d simulated ones, %d a node, averages every %lld steps, %d "
                        "finals: these are counts",
                        count, o->devices, o->per_node, (long long)o->sync_every, o->finals);
    if (o->devices && !(o->link.bytes_per_second > 0 && o->inter.bytes_per_second > 0))
        return clt_fail(CLT_INVALID_ARGUMENT, "simulated devices need a link within a node, and "
                                              "one between nodes");
    CLT_TRY(check_earlier(o, graph, devices[0], options));
    return clt_trainer_check_options(options);
}

clt_status clt_meshes_create(const clt_graph *graph, clt_device *const *devices, int count,
                             const clt_trainer_options *options,
                             const clt_mesh_options *mesh_options, clt_meshes **out)
{
    CLT_TRY(clt_graph_status(graph));
    clt_meshes *m = CLT_NEW(clt_meshes);
    CLT_TRY_MEMORY(m);
    clt_mesh_options_init(&m->options);
    m->options = mesh_options ? *mesh_options : m->options;
    clt_status status = check(&m->options, graph, devices, count, options);
    CLT_NEXT(status, set_setting(m, graph, devices, count, options));
    CLT_NEXT(status, make(m));
    if (status != CLT_OK) {
        clt_meshes_destroy(m);
        return status;
    }
    m->options.earlier = NULL; /* belongs to the caller */
    *out = m;
    return CLT_OK;
}

void clt_meshes_destroy(clt_meshes *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->count; i++) {
        if (m->facts)
            clt_mesh_facts_free(&m->facts[i]);
        if (m->ranks)
            clt_free(m->ranks[i].reason);
    }
    for (int d = 0; m->setting.tuning && d < m->setting.count; d++)
        clt_tuning_free(&m->setting.tuning[d]);
    clt_mesh_plans_release(m->setting.plans);
    CLT_FREE(m->facts, m->ranks, m->slower, m->pace, m->shards, m->setting.tuning);
    clt_str_free(&m->excluded);
    clt_str_free(&m->text);
    clt_free(m);
}

int clt_meshes_count(const clt_meshes *m)
{
    return m->count;
}

clt_status clt_meshes_get(const clt_meshes *m, int index, clt_mesh_entry *out)
{
    CLT_TRY(CLT_CHECK_STRUCT(out, clt_mesh_entry));
    if (index < 0 || index >= m->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "there is no mesh %d of %d", index, m->count);
    const clt_mesh_rank *r = &m->ranks[index];
    const clt_candidate *c = &r->facts->candidate;
    const clt_timeline *t = &r->step.timeline;
    *out = (clt_mesh_entry){.struct_size = out->struct_size,
                            .parallel = r->facts->mesh,
                            .zero = c->zero,
                            .accumulate = c->accumulate,
                            .local = c->local,
                            .half_wire = c->half,
                            .possible = index < m->possible,
                            .measured = r->facts->measured,
                            .step = r->step.seconds,
                            .compute = t->compute,
                            .update = t->update,
                            .exposed = t->exposed + r->step.outer,
                            .real = r->real,
                            .memory = r->facts->memory,
                            .payload = r->step.sent,
                            .reason = r->reason,
                            .stages = r->facts->stages};
    return CLT_OK;
}
