/* Measures what all meshes share: the update, and what a step takes beside plans and collectives.
 * Today's planner measures both on whole models. */
#include "train/meshes/meshes.h"

#include <math.h>

#include "base/alloc.h"
#include "exec/update/optimizer.h"
#include "train/meshes/measure.h"
#include "train/planner/planner_cost.h"
#include "train/ranks/world.h"
#include <cltrain/unstable.h>

enum { LIMIT_BLOCKS = 3 };

/* Most seconds for measuring whole steps. */
static const double SECONDS = 1;

/* The mesh whose devices train as one device alone does, on a part of the batch. */
static clt_mesh_facts *find_plain(const clt_meshes *m)
{
    for (int i = 0; i < m->count; i++) {
        clt_mesh_facts *f = &m->facts[i];
        const clt_candidate *c = &f->candidate;
        if (f->status == CLT_OK && c->size[CLT_AXIS_DATA] == clt_candidate_devices(c) && !c->zero &&
            !c->local && !c->half)
            return f;
    }
    return NULL;
}

/* Returns the time of a micro-batch that the planner measured for the plan's largest batch. */
static double whole_step(const clt_speed *s)
{
    return s->seconds[s->n_points - 1];
}

/* An update reads parameters, gradients and slots, and writes all but the gradients. */
static double passes_of(const clt_meshes *m)
{
    return 3 + 2 * clt_optimizer_of(&m->trainer)->n_slots;
}

/* Takes the update from the slowest device, by byte of what it updates. */
static clt_status take_updates(clt_meshes *m, const clt_cost *cost, const clt_mesh_facts *plain)
{
    const double bytes = (double)clt_mesh_updated(plain, 0);
    double update = 0, status = 0;
    m->slower = clt_calloc((size_t)cost->n_devices, sizeof *m->slower);
    CLT_TRY_MEMORY(m->slower);
    for (int d = 0; d < cost->n_devices; d++) {
        update = fmax(update, cost->speeds[d].update);
        status = fmax(status, cost->speeds[d].status_time);
    }
    for (int d = 0; d < cost->n_devices; d++)
        m->slower[d] = update > 0 ? cost->speeds[d].update / update : 1;
    m->base.update = update / bytes;
    m->base.status = status / bytes;
    m->base.move = m->base.update / passes_of(m);
    m->base.slower = m->setting.simulated ? NULL : m->slower;
    return CLT_OK;
}

/* Measurements have noise: devices that differ by less than this factor count as equally fast. */
static const double ALIKE = 1.25;

static double pace_of(const clt_speed *s)
{
    return whole_step(s) / s->samples[s->n_points - 1];
}

/* Compares the devices by the whole steps that the planner measured. */
static clt_status take_pace(clt_meshes *m, const clt_cost *cost)
{
    double least = 0, most = 0;
    m->base.pace = NULL;
    for (int d = 0; d < cost->n_devices; d++) {
        least = d ? fmin(least, pace_of(&cost->speeds[d])) : pace_of(&cost->speeds[d]);
        most = fmax(most, pace_of(&cost->speeds[d]));
    }
    bool alike = m->setting.simulated || least <= 0 || most < ALIKE * least;
#ifdef CLT_TESTING
    alike = alike || clt_mesh_testing_pieces;
#endif
    if (alike)
        return CLT_OK;
    m->pace = clt_calloc((size_t)cost->n_devices, sizeof *m->pace);
    CLT_TRY_MEMORY(m->pace);
    for (int d = 0; d < cost->n_devices; d++)
        m->pace[d] = pace_of(&cost->speeds[d]) / least;
    m->base.pace = m->pace;
    return CLT_OK;
}

/* The rest of a step is what the planner's whole steps take longer than their plans. */
static void take_rest(clt_meshes *m, const clt_cost *cost, const clt_mesh_facts *plain)
{
    double rest = 0;
    int used = 0;
    for (int i = 0; i < plain->n_places && i < cost->n_devices; i++) {
        rest += fmax(0, whole_step(&cost->speeds[i]) - plain->places[i].whole);
        used += cost->hosts ? cost->hosts[i].used : 0;
    }
    m->base.fixed = rest / (plain->n_places < cost->n_devices ? plain->n_places : cost->n_devices);
    if (m->setting.simulated)
        return;
    m->base.fixed += cost->together;
    if (cost->hosts && used >= cost->hosts[0].cores)
        m->base.load = cost->load / m->setting.ranks;
}

static clt_status measure_plain(clt_meshes *m, clt_mesh_facts *plain)
{
    clt_planner_options options;
    clt_planner *planner;
    clt_trainer_options trainer = m->trainer;
    clt_planner_options_init(&options);
    options.seconds = SECONDS;
    options.stop = m->options.stop;
    options.user = m->options.user;
    trainer.weights = NULL;
    trainer.zero = trainer.rebalance = 0;
    if (m->setting.shards) { /* a shard each, with the kernels of shards */
        trainer.virtual_shards = 1;
        trainer.batch = clt_mesh_samples(plain) * m->setting.count * m->setting.ranks;
    }
    if (m->setting.simulated) /* a device's share */
        trainer.batch = clt_mesh_samples(plain) * plain->candidate.accumulate;
    CLT_TRY(clt_mesh_measure_plans(&m->setting, m->world, plain));
    CLT_TRY(clt_planner_create(m->setting.graph, m->setting.devices, m->setting.count, &trainer,
                               &options, &planner));
    const clt_cost *cost = clt_planner_cost(planner);
    clt_status status = take_updates(m, cost, plain);
    CLT_NEXT(status, take_pace(m, cost));
    take_rest(m, cost, plain);
    clt_planner_destroy(planner);
    return status;
}

/* All ranks get rank 0's. */
static clt_status measure_limits(const clt_meshes *m, clt_limits *limits)
{
    void *all;
    CLT_TRY(clt_ranks_agree(
        m->world, clt_device_measure_limits(m->setting.devices[0], LIMIT_BLOCKS, limits), NULL));
    CLT_TRY(clt_ranks_gather(m->world, limits, sizeof *limits, &all));
    *limits = *(const clt_limits *)all;
    clt_free(all);
    return CLT_OK;
}

/* Devices of simulated machines do the same, whatever their number. */
static bool take_earlier(clt_meshes *m)
{
    const clt_meshes *earlier = m->options.earlier;
    if (!earlier || earlier->base_plan != m->base_plan)
        return false;
    m->base = earlier->base;
    m->base.sync_every = m->options.sync_every;
    return true;
}

clt_status clt_meshes_measure_base(clt_meshes *m)
{
    clt_limits limits;
    clt_mesh_facts *plain = find_plain(m);
    m->base_plan = plain ? plain->places[0].plan : NULL;
    if (take_earlier(m))
        return CLT_OK;
    CLT_TRY(measure_limits(m, &limits));
    m->base = (clt_mesh_base){.flops = limits.flops,
                              .bytes = limits.copy_bytes,
                              .stretch = 1,
                              .sync_every = m->options.sync_every};
    if (plain)
        return measure_plain(m, plain);
    m->base.move = 1 / limits.update_bytes;
    m->base.update = passes_of(m) / limits.update_bytes;
    return CLT_OK;
}
