#include "train/meshes/facts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/setup/capacity.h"
#include "train/setup/explain.h"
#include <cltrain/planner.h>

/* --- ranks that are not here ----------------------------------------------------------------- */

/* Every rank would tell what this one does: they have equal devices and options. */
static clt_status repeat(void *user, const void *mine, int64_t bytes, void *all)
{
    const int ranks = *(const int *)user;
    for (int r = 0; r < ranks; r++)
        memcpy((char *)all + r * bytes, mine, (size_t)bytes);
    return CLT_OK;
}

static clt_status refuse(void *user, int color, const struct clt_comm_device *devices, int count,
                         const struct clt_comm_options *options, struct clt_comm **comm)
{
    (void)user, (void)color, (void)devices, (void)count, (void)options, (void)comm;
    return clt_fail(CLT_INTERNAL, "ranks that are only planned for exchange nothing");
}

/* Makes the options of a trainer on one rank of one such mesh. */
static void set_options(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    const int local = f->candidate.local ? f->candidate.local : 1;
    f->options = *s->options;
    f->options.batch /= local;
    f->options.accumulate = f->candidate.accumulate;
    f->options.zero = f->candidate.zero;
    if (f->candidate.half && !f->candidate.local) /* replicas exchange parameters instead */
        f->options.wire = CLT_BF16;
    f->options.weights = NULL;
    f->options.rebalance = 0;
    f->options.world = NULL;
    f->ranks = s->ranks / local;
    if (f->ranks <= 1)
        return;
    clt_world_init(&f->world);
    f->world.ranks = f->ranks;
    f->world.node_ranks = s->node_ranks;
    f->world.gather = repeat;
    f->world.connect = refuse;
    f->world.user = &f->ranks;
    f->options.world = &f->world;
}

/* --- the mesh's stores, plans and programs --------------------------------------------------- */

static clt_status choose_cuts(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    CLT_TRY(clt_graph_copy(s->graph, &f->graph));
    return f->candidate.size[CLT_AXIS_PIPELINE] == 1
               ? CLT_OK
               : clt_stages_choose(f->graph, s->devices, s->count, f->mesh, &f->options, 0, NULL);
}

/* Returns the store of a rank: its devices are like those of this process. */
static clt_status store_of(const clt_mesh_setting *s, clt_mesh_facts *f, int rank,
                           const clt_store **store)
{
    clt_store_options options;
    clt_store_options_init(&options);
    options.parallel = f->mesh;
    options.zero = f->candidate.zero == 3 ? 3 : 0;
    options.world = f->options.world;
    f->world.rank = rank;
    if (!f->stores[rank])
        CLT_TRY(clt_store_outline(f->graph, s->devices, s->count, &options, &f->stores[rank]));
    *store = f->stores[rank];
    return CLT_OK;
}

/* Places with one stage of the pipeline, without those that are like them; or all places. */
static clt_status list_places(const clt_mesh_setting *s, clt_mesh_facts *f, const clt_mesh *mesh)
{
    f->n_places =
        s->simulated ? mesh->size[CLT_AXIS_PIPELINE] : clt_candidate_devices(&f->candidate);
    f->places = clt_calloc((size_t)f->n_places, sizeof *f->places);
    f->stores = clt_calloc((size_t)f->ranks + 1, sizeof *f->stores);
    CLT_TRY_MEMORY(f->places && f->stores);
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_place *p = &f->places[i];
        p->participant = s->simulated ? clt_mesh_neighbour(mesh, CLT_AXIS_PIPELINE, 0, i) : i;
        p->device = p->participant % s->count;
        CLT_TRY(store_of(s, f, p->participant / s->count, &p->store));
    }
    return CLT_OK;
}

/* Whether two places of any ranks have the same plan: they differ along dp alone. */
static bool are_alike(const clt_mesh_facts *f, const clt_mesh *mesh, int a, int b)
{
    const clt_mesh_place *x = &f->places[a], *y = &f->places[b];
    const clt_caps *one = &x->store->replicas[x->device].device->caps;
    const clt_caps *other = &y->store->replicas[y->device].device->caps;
    return clt_mesh_neighbour(mesh, CLT_AXIS_DATA, x->participant, 0) ==
               clt_mesh_neighbour(mesh, CLT_AXIS_DATA, y->participant, 0) &&
           !memcmp(one, other, sizeof *one);
}

static clt_status plan_place(const clt_mesh_setting *s, clt_mesh_facts *f, const clt_mesh *mesh,
                             int i)
{
    clt_mesh_place *p = &f->places[i];
    while (!are_alike(f, mesh, p->same, i))
        p->same++;
    f->world.rank = p->participant / s->count;
    if (p->same == i) {
        CLT_TRY(clt_capacity_plan(f->graph, p->store, &f->options, f->parts, p->device,
                                  &s->tuning[p->device], &p->plan));
        CLT_TRY(
            clt_capacity_memory(f->graph, p->store, &f->options, f->parts, p->device, &p->memory));
        /* Ranks that are here look at their own devices. */
        if (s->simulated || p->participant / s->count == s->rank)
            CLT_TRY(clt_capacity_check_device(f->graph, p->store, &f->options, f->parts,
                                              f->options.batch, p->device));
    } else {
        p->memory = f->places[p->same].memory;
    }
    f->memory = clt_memory_total(&p->memory) > f->memory ? clt_memory_total(&p->memory) : f->memory;
    return clt_outline_create(clt_mesh_place_plan(f, i), &p->outline);
}

static clt_status write_programs(clt_mesh_facts *f, const clt_mesh *mesh)
{
    const int total = clt_candidate_devices(&f->candidate);
    const clt_load load = f->candidate.accumulate > 1 ? CLT_LOAD_MANY : CLT_LOAD_ONE;
    f->after = clt_calloc((size_t)f->places[0].store->layout.n_buckets + 1, sizeof *f->after);
    CLT_TRY_MEMORY(f->after);
    for (int i = 0; i < f->n_places; i++)
        clt_outline_places(&f->places[i].outline, f->after);
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_place *p = &f->places[i];
        const clt_plan *plan = clt_mesh_place_plan(f, i);
        p->input = clt_step_program_describe(plan, p->store, p->device, &f->options, mesh, total,
                                             &p->outline, f->after);
        CLT_TRY(clt_step_program_generate(&p->input, CLT_PROGRAM_STEP, load, &p->program));
        p->nodes = clt_calloc((size_t)plan->n_nodes + 1, sizeof *p->nodes);
        CLT_TRY_MEMORY(p->nodes);
    }
    return CLT_OK;
}

/* What clt_wire_choose refuses once there is a trainer. */
static clt_status check_wire(const clt_mesh_facts *f, const clt_mesh *mesh)
{
    const char *type = clt_dtype_name(f->options.wire);
    if (f->options.wire == CLT_F32)
        return CLT_OK;
    if (mesh->zero)
        return clt_fail(CLT_UNSUPPORTED,
                        "wire %s does not work with zero 3: its exchanges are part of the graph",
                        type);
    if (clt_mesh_places(mesh, CLT_AXIS_SAMPLES) != clt_candidate_devices(&f->candidate))
        return clt_fail(CLT_UNSUPPORTED,
                        "wire %s does not work with the axes tp and pp: its residuals are of whole "
                        "gradients",
                        type);
    return CLT_OK;
}

static clt_status check(const clt_mesh_facts *f, const clt_mesh *mesh)
{
    CLT_TRY(check_wire(f, mesh));
    if (f->candidate.zero == 1 && clt_mesh_places(mesh, CLT_AXIS_SAMPLES) > CLT_MOST_SHARDS)
        return clt_fail(CLT_UNSUPPORTED,
                        "at most %d devices can have shards of the optimizer's "
                        "state, not %d",
                        CLT_MOST_SHARDS, clt_mesh_places(mesh, CLT_AXIS_SAMPLES));
    return clt_trainer_check_options(&f->options);
}

static clt_status find(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    clt_mesh mesh;
    CLT_TRY(clt_mesh_parse(f->mesh, clt_candidate_devices(&f->candidate), &mesh));
    mesh.zero = f->candidate.zero == 3;
    f->parts = mesh.size[CLT_AXIS_DATA];
    CLT_TRY(check(f, &mesh));
    CLT_TRY(choose_cuts(s, f));
    CLT_TRY(list_places(s, f, &mesh));
    for (int i = 0; i < f->n_places; i++)
        CLT_TRY(plan_place(s, f, &mesh, i));
    return write_programs(f, &mesh);
}

clt_status clt_mesh_facts_find(const clt_mesh_setting *setting, const clt_candidate *candidate,
                               clt_mesh_facts *facts)
{
    *facts = (clt_mesh_facts){.candidate = *candidate};
    clt_candidate_mesh(candidate, facts->mesh);
    set_options(setting, facts);
    facts->status = find(setting, facts);
    if (facts->status == CLT_OK)
        return CLT_OK;
    facts->reason = clt_strdup(clt_error_message());
    return facts->status == CLT_OUT_OF_MEMORY || !facts->reason ? CLT_OUT_OF_MEMORY : CLT_OK;
}

int64_t clt_mesh_samples(const clt_mesh_facts *f)
{
    return clt_mesh_place_plan(f, 0)->options.max_batch;
}

void clt_mesh_facts_free(clt_mesh_facts *f)
{
    for (int i = 0; i < f->n_places && f->places; i++) {
        clt_mesh_place *p = &f->places[i];
        clt_plan_destroy(p->plan);
        clt_outline_free(&p->outline);
        clt_step_program_free(&p->program);
        clt_free(p->nodes);
    }
    for (int r = 0; f->stores && r < f->ranks; r++)
        clt_store_destroy(f->stores[r]);
    clt_graph_destroy(f->graph);
    CLT_FREE(f->stores, f->places, f->after, f->reason);
    *f = (clt_mesh_facts){0};
}
