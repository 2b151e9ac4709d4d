#include "train/meshes/facts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "train/meshes/mesh_shards.h"
#include "train/planner/frozen.h"
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

/* Balances the arithmetic of stages. */
static clt_status balance_stages(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    const int stages = f->shape.size[CLT_AXIS_PIPELINE];
    f->graph = s->graph;
    return stages == 1 ? CLT_OK : clt_mesh_plans_cut(s->plans, s->graph, stages, &f->graph);
}

/* Uses the given cuts. */
static clt_status cut_stages(const clt_mesh_setting *s, clt_mesh_facts *f, const int *begins)
{
    bool *kept = clt_calloc((size_t)s->graph->cuts + 2, sizeof *kept);
    CLT_TRY_MEMORY(kept);
    for (int k = 1; k < f->shape.size[CLT_AXIS_PIPELINE]; k++)
        kept[begins[k]] = true; /* cut number p lies before piece p */
    const clt_status status = clt_graph_copy(s->graph, &f->own_graph);
    if (status == CLT_OK)
        clt_graph_keep_cuts(f->own_graph, kept);
    f->graph = f->own_graph;
    clt_free(kept);
    return status;
}

/* Looks for stages that fit their devices. */
static clt_status fit_stages(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    CLT_TRY(clt_graph_copy(s->graph, &f->own_graph));
    f->graph = f->own_graph;
    f->world.rank = 0;
    return clt_stages_choose(f->own_graph, s->devices, s->count, f->mesh, &f->options, 0, NULL);
}

/* Returns the store of a rank: its devices are like those of this process. */
static clt_status store_of(const clt_mesh_setting *s, clt_mesh_facts *f, int rank,
                           const clt_store **store)
{
    clt_store_options options;
    clt_world world = f->world;
    clt_store_options_init(&options);
    options.parallel = f->mesh;
    options.zero = f->candidate.zero == 3 ? 3 : 0;
    f->world.rank = world.rank = rank;
    if (s->simulated)
        world.node_ranks = s->per_node;
    options.world = f->options.world ? &world : NULL;
    if (!f->stores[rank]) {
        CLT_TRY(clt_store_outline(f->graph, s->devices, s->count, &options, &f->stores[rank]));
        for (int r = 0; r < f->ranks; r++) /* `repeat` has told this rank's */
            f->stores[rank]->begins[r] = r * s->count;
    }
    *store = f->stores[rank];
    return CLT_OK;
}

/* Places with one stage of the pipeline, without those that are like them; or all places. Of
 * devices with unlike numbers of virtual shards the one with the most counts. */
static clt_status list_places(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    f->n_places =
        s->simulated ? f->shape.size[CLT_AXIS_PIPELINE] : clt_candidate_devices(&f->candidate);
    f->places = clt_calloc((size_t)f->n_places, sizeof *f->places);
    f->stores = clt_calloc((size_t)f->ranks + 1, sizeof *f->stores);
    CLT_TRY_MEMORY(f->places && f->stores);
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_place *p = &f->places[i];
        p->participant = !s->simulated ? i
                         : s->shards   ? clt_mesh_shards_fullest(s)
                                       : clt_mesh_neighbour(&f->shape, CLT_AXIS_PIPELINE, 0, i);
        p->device = p->participant % s->count;
    }
    return CLT_OK;
}

static uint64_t cuts_of(const clt_graph *graph)
{
    uint64_t hash = 0;
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->cut)
            hash = clt_hash(&i, sizeof i, hash);
    return hash;
}

/* Plans differ along dp only by whether there is an exchange, unless dp divides the model (zero 3).
 * With a limit of memory they depend on all that takes memory. */
static clt_status key_of(const clt_mesh_setting *s, const clt_mesh_facts *f,
                         const clt_mesh_place *p, const clt_store *store, clt_mesh_key *key)
{
    const bool zero = f->candidate.zero == 3, limit = f->options.memory != 0;
    memset(key, 0, sizeof *key);
    for (int a = 0; a < CLT_AXES; a++) {
        key->size[a] = f->shape.size[a];
        key->at[a] = clt_mesh_coordinate(&f->shape, (clt_axis)a, p->participant);
    }
    key->at[CLT_AXIS_DATA] = 0;
    if (key->size[CLT_AXIS_DATA] > 1 && !zero && !limit)
        key->size[CLT_AXIS_DATA] = 2;
    key->sequence = f->candidate.sequence;
    key->zero = zero || limit ? f->candidate.zero : 0;
    key->wire = limit ? (int32_t)f->options.wire : 0;
    key->accumulate = f->options.accumulate;
    key->shards = s->shards ? clt_mesh_shards_of(s, p->participant) : 0;
    key->caps = clt_hash(&store->replicas[p->device].device->caps,
                         sizeof store->replicas[p->device].device->caps, 0);
    key->layout = clt_buckets_hash(store->replicas[p->device].layout);
    key->cuts = cuts_of(f->graph);
    return clt_capacity_share(f->parts, &f->options, f->options.batch, &key->samples);
}

static clt_status count_memory(const clt_mesh_facts *f, const clt_store *store, clt_mesh_place *p)
{
    CLT_TRY(clt_memory_count(f->graph, store, &f->options, f->parts, p->device,
                             p->plan->options.max_batch, &p->memory));
    p->memory.inputs = p->plan->inputs;
    p->memory.arena = p->plan->arena;
    return CLT_OK;
}

static clt_status plan_place(const clt_mesh_setting *s, clt_mesh_facts *f, clt_mesh_place *p)
{
    const clt_store *store;
    clt_mesh_key key;
    CLT_TRY(store_of(s, f, p->participant / s->count, &store));
    CLT_TRY(key_of(s, f, p, store, &key));
    p->plan = clt_mesh_plans_find(s->plans, &key);
    if (!p->plan)
        CLT_TRY(clt_mesh_plans_make(s->plans, &key, f->graph, store, &f->options, f->parts,
                                    p->device, &s->tuning[p->device], s->simulated, &p->plan));
    if (p->plan->status != CLT_OK)
        return clt_fail(p->plan->status, "%s", p->plan->reason);
    CLT_TRY(count_memory(f, store, p));
    /* Ranks that are here look at their own devices. */
    if (s->simulated || p->participant / s->count == s->rank)
        CLT_TRY(clt_capacity_fits(f->graph, store, &f->options, f->parts, f->options.batch,
                                  p->device, &p->plan->need));
    const int64_t bytes = clt_memory_total(&p->memory);
    f->memory = bytes > f->memory ? bytes : f->memory;
    return CLT_OK;
}

static void free_stores(clt_mesh_facts *f)
{
    for (int r = 0; f->stores && r < f->ranks; r++)
        clt_store_destroy(f->stores[r]);
    clt_free(f->stores);
    f->stores = NULL;
}

static clt_status plan_places(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    CLT_TRY(list_places(s, f));
    for (int i = 0; i < f->n_places; i++) {
        const clt_mesh_place *p = &f->places[i];
        const clt_status status = plan_place(s, f, &f->places[i]);
        if (status == CLT_OUT_OF_DEVICE_MEMORY)
            f->full = clt_mesh_coordinate(&f->shape, CLT_AXIS_PIPELINE, p->participant);
        CLT_TRY(status);
    }
    return CLT_OK;
}

/* Programs read the layouts of plans, since stores end before the facts. */
static clt_status write_programs(const clt_mesh_setting *s, clt_mesh_facts *f)
{
    const int total = clt_candidate_devices(&f->candidate);
    const clt_store *store;
    f->after = clt_calloc((size_t)f->places[0].plan->layout.n_buckets + 1, sizeof *f->after);
    CLT_TRY_MEMORY(f->after);
    for (int i = 0; i < f->n_places; i++)
        clt_outline_places(&f->places[i].plan->outline, f->after);
    for (int i = 0; i < f->n_places; i++) {
        clt_mesh_place *p = &f->places[i];
        CLT_TRY(store_of(s, f, p->participant / s->count, &store));
        p->input = clt_step_program_describe(&p->plan->traits, store, p->device, &f->options,
                                             &f->shape, total, &p->plan->outline, f->after);
        p->input.layout = &p->plan->layout;
        p->rounds = s->shards ? clt_mesh_shards_rounds(s, p->participant) : f->candidate.accumulate;
        CLT_TRY(clt_step_program_generate(&p->input, CLT_PROGRAM_STEP,
                                          clt_load_of(p->rounds, p->rounds), &p->program));
        p->nodes = clt_calloc((size_t)p->plan->n_nodes + 1, sizeof *p->nodes);
        CLT_TRY_MEMORY(p->nodes);
        p->pieces = clt_calloc(2 * (size_t)f->n_pieces + 1, sizeof *p->pieces);
        CLT_TRY_MEMORY(p->pieces);
    }
    return CLT_OK;
}

static clt_status check(const clt_mesh_facts *f)
{
    const int parts = clt_mesh_places(&f->shape, CLT_AXIS_SAMPLES);
    CLT_TRY(
        clt_capacity_check_wire(&f->shape, clt_candidate_devices(&f->candidate), f->options.wire));
    if (f->candidate.zero == 1 && parts > CLT_MOST_SHARDS)
        return clt_fail(CLT_UNSUPPORTED,
                        "at most %d devices can have shards of the optimizer's "
                        "state, not %d",
                        CLT_MOST_SHARDS, parts);
    return clt_trainer_check_options(&f->options);
}

/* What a trainer refuses once it sees the devices of all ranks, which are those of this one. */
static clt_status check_kinds(const clt_mesh_setting *s, const clt_mesh_facts *f)
{
    const int total = clt_candidate_devices(&f->candidate);
    clt_participants all = {.mesh = f->shape, .total = total};
    if (s->simulated || s->count == 1 || f->shape.size[CLT_AXIS_TENSOR] == 1)
        return CLT_OK;
    all.identities = clt_calloc((size_t)total, CLT_SPLIT_IDENTITY);
    CLT_TRY_MEMORY(all.identities);
    for (int p = 0; p < total; p++)
        clt_split_identify(&s->devices[p % s->count], 1,
                           all.identities + (size_t)p * CLT_SPLIT_IDENTITY);
    const clt_status status = clt_split_check_kinds(&all, NULL);
    clt_free(all.identities);
    return status;
}

static clt_status find(const clt_mesh_setting *s, const int *begins, clt_mesh_facts *f)
{
    CLT_TRY(clt_mesh_parse(f->mesh, clt_candidate_devices(&f->candidate), &f->shape));
    f->shape.zero = f->candidate.zero == 3;
    f->parts = f->shape.size[CLT_AXIS_DATA];
    if (s->shards)
        CLT_TRY(clt_mesh_shards_check(s, f));
    CLT_TRY(check(f));
    if (s->shards) /* as a trainer sets it */
        f->options.accumulate = clt_mesh_shards_most(s);
    CLT_TRY(check_kinds(s, f));
    if (f->shape.size[CLT_AXIS_PIPELINE] > 1 && s->graph->cuts >= f->shape.size[CLT_AXIS_PIPELINE])
        f->n_pieces = s->graph->cuts + 1;
    CLT_TRY(begins ? cut_stages(s, f, begins) : balance_stages(s, f));
    clt_status status = plan_places(s, f);
    if (status == CLT_OUT_OF_DEVICE_MEMORY && !begins && f->shape.size[CLT_AXIS_PIPELINE] > 1) {
        free_stores(f);
        CLT_FREE(f->places);
        f->places = NULL;
        f->memory = 0;
        CLT_TRY(fit_stages(s, f));
        status = plan_places(s, f);
    }
    CLT_TRY(status);
    return write_programs(s, f);
}

clt_status clt_mesh_facts_find(const clt_mesh_setting *setting, const clt_candidate *candidate,
                               clt_mesh_facts *facts)
{
    return clt_mesh_facts_find_cut(setting, candidate, NULL, facts);
}

clt_status clt_mesh_facts_find_cut(const clt_mesh_setting *setting, const clt_candidate *candidate,
                                   const int *begins, clt_mesh_facts *facts)
{
    *facts = (clt_mesh_facts){.candidate = *candidate, .full = -1, .recut = begins != NULL};
    clt_candidate_mesh(candidate, facts->mesh);
    set_options(setting, facts);
    facts->status = find(setting, begins, facts);
    free_stores(facts);
    if (facts->status == CLT_OK)
        return CLT_OK;
    facts->reason = clt_strdup(clt_error_message());
    return facts->status == CLT_OUT_OF_MEMORY || !facts->reason ? CLT_OUT_OF_MEMORY : CLT_OK;
}

int64_t clt_mesh_samples(const clt_mesh_facts *f)
{
    return f->places[0].plan->options.max_batch;
}

void clt_mesh_facts_free(clt_mesh_facts *f)
{
    for (int i = 0; i < f->n_places && f->places; i++) {
        clt_mesh_place *p = &f->places[i];
        clt_step_program_free(&p->program);
        CLT_FREE(p->nodes, p->pieces);
    }
    free_stores(f);
    clt_graph_destroy(f->own_graph);
    CLT_FREE(f->places, f->after, f->reason, f->stages);
    *f = (clt_mesh_facts){0};
}
