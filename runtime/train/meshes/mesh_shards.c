#include "train/meshes/mesh_shards.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/ranks/virtual_shards.h"
#include <cltrain/data.h>

static int devices_of(const clt_mesh_setting *s)
{
    return s->count * s->ranks;
}

/* Simulated devices are ranks, which follow each other on their nodes. */
static clt_status simulate(const clt_mesh_setting *s, int64_t *bounds)
{
    const int devices = devices_of(s);
    int *numbers = clt_calloc(2 * (size_t)devices + 1, sizeof *numbers);
    int *begins = numbers, *nodes = numbers + devices + 1;
    CLT_TRY_MEMORY(numbers);
    for (int d = 0; d < devices; d++) {
        begins[d + 1] = d + 1;
        nodes[d] = d / s->per_node;
    }
    const clt_status status =
        clt_virtual_shards_divide(s->options->virtual_shards, begins, nodes, devices, bounds);
    clt_free(numbers);
    return status;
}

/* All ranks have as many devices as this one. */
static clt_status divide(const clt_mesh_setting *s, const clt_world *world, int64_t **bounds)
{
    clt_participants all = {.world = world,
                            .rank = s->rank,
                            .ranks = s->ranks,
                            .own = s->count,
                            .first = s->rank * s->count,
                            .total = devices_of(s)};
    all.begins = clt_calloc((size_t)s->ranks + 1, sizeof *all.begins);
    clt_status status = clt_world_agree(&all, all.begins ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int r = 0; status == CLT_OK && r <= s->ranks; r++)
        all.begins[r] = r * s->count;
    CLT_NEXT(status, clt_virtual_shards_bounds(s->options->virtual_shards, &all, bounds));
    clt_free(all.begins);
    return status;
}

clt_status clt_mesh_shards_divide(const clt_mesh_setting *s, const clt_world *world, int64_t **out)
{
    *out = NULL;
    if (!s->options->virtual_shards)
        return CLT_OK;
    if (!s->simulated)
        return divide(s, world, out);
    int64_t *bounds = clt_calloc((size_t)devices_of(s) + 1, sizeof *bounds);
    CLT_TRY_MEMORY(bounds);
    const clt_status status = simulate(s, bounds);
    if (status == CLT_OK)
        *out = bounds;
    else
        clt_free(bounds);
    return status;
}

clt_status clt_mesh_shards_check(const clt_mesh_setting *s, const clt_mesh_facts *f)
{
    bool alike = true;
    for (int d = 1; d < s->count; d++) /* those of other ranks are like these */
        alike = alike && s->devices[d]->identity == s->devices[0]->identity;
    return clt_virtual_shards_check(s->graph, f->shape.size[CLT_AXIS_DATA] != devices_of(s), false,
                                    alike);
}

int64_t clt_mesh_shards_of(const clt_mesh_setting *s, int participant)
{
    return s->shards[participant + 1] - s->shards[participant];
}

int clt_mesh_shards_fullest(const clt_mesh_setting *s)
{
    int fullest = 0;
    for (int d = 1; d < devices_of(s); d++)
        if (clt_mesh_shards_of(s, d) > clt_mesh_shards_of(s, fullest))
            fullest = d;
    return fullest;
}

int clt_mesh_shards_most(const clt_mesh_setting *s)
{
    return (int)clt_mesh_shards_of(s, clt_mesh_shards_fullest(s));
}

int clt_mesh_shards_rounds(const clt_mesh_setting *s, int participant)
{
    const int64_t *own = &s->shards[participant];
    const int64_t batch = s->options->batch, all = s->options->virtual_shards;
    const bool empty =
        clt_virtual_shard_begin(batch, all, own[0]) == clt_virtual_shard_begin(batch, all, own[1]);
    return empty ? 0 : (int)(own[1] - own[0]);
}
