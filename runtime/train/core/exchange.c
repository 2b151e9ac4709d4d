#include "train/core/exchange.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/ranks/connect.h"

/* "bucket 3 (fc1.weight and 2 more)". */
static char *label_of(const clt_buckets *layout, int b)
{
    const clt_bucket *bucket = &layout->buckets[b];
    char text[256], more[32] = "";
    if (bucket->end - bucket->first > 1)
        snprintf(more, sizeof more, " and %d more", bucket->end - bucket->first - 1);
    snprintf(text, sizeof text, "bucket %d (%.180s%s)", b, layout->slots[bucket->first].name, more);
    return clt_strdup(text);
}

clt_status clt_exchange_create(const clt_buckets *layout, int n_devices, clt_exchange *e)
{
    const size_t n = (size_t)layout->n_buckets + 1;
    e->n_devices = n_devices;
    e->n_buckets = layout->n_buckets;
    e->devices = clt_calloc((size_t)n_devices, sizeof *e->devices);
    e->labels = clt_calloc(n, sizeof *e->labels);
    CLT_TRY_MEMORY(e->devices && e->labels);
    for (int b = 0; b < layout->n_buckets; b++)
        CLT_TRY_MEMORY(e->labels[b] = label_of(layout, b));
    for (int d = 0; d < n_devices; d++) {
        clt_collective_result *reduced = clt_calloc(n, sizeof *reduced);
        e->devices[d].reduced = reduced;
        CLT_TRY_MEMORY(reduced);
        for (size_t b = 0; b < n; b++)
            reduced[b].finite = true;
    }
    return CLT_OK;
}

clt_status clt_exchange_reserve(clt_exchange *e, int nodes, int in_flight)
{
    /* One request each for results, means, checksums, words and a tied gradient; two for each
     * bucket (gradient and broadcast); one for each collective node and micro-batch in flight. */
    const size_t flights = in_flight > 1 ? (size_t)in_flight : 1;
    const size_t n = 5 + 2 * (size_t)e->n_buckets + flights * (size_t)nodes;
    e->n_nodes = nodes;
    for (int d = 0; d < e->n_devices; d++)
        CLT_TRY_MEMORY(e->devices[d].requests = clt_calloc(n + 1, sizeof *e->devices[d].requests));
    return CLT_OK;
}

clt_status clt_exchange_reserve_words(clt_exchange *e, const clt_participants *all)
{
    for (int d = 0; all->total > 1 && d < e->n_devices; d++) {
        e->devices[d].words = clt_calloc((size_t)all->total, sizeof *e->devices[d].words);
        CLT_TRY_MEMORY(e->devices[d].words);
    }
    return CLT_OK;
}

clt_status clt_exchange_split(clt_exchange *e, const clt_participants *all)
{
    const clt_mesh *mesh = &all->mesh;
    for (int a = 0; a <= CLT_AXES; a++) /* group 0 has all devices */
        e->groups[a] = clt_mesh_places(mesh, (clt_axis)a) == 1 ? -1 : 0;
    if (!clt_participants_have_axes(all))
        return CLT_OK;
    int *colours = clt_calloc((size_t)all->total, sizeof *colours);
    clt_status status = clt_world_agree(all, colours ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int a = 0; a <= CLT_AXES && status == CLT_OK; a++) {
        const int places = clt_mesh_places(mesh, (clt_axis)a);
        if (places == 1 || places == all->total)
            continue;
        if (a == CLT_AXES && places == mesh->size[CLT_AXIS_DATA]) {
            e->groups[a] = e->groups[CLT_AXIS_DATA];
            continue;
        }
        clt_mesh_colours(mesh, (clt_axis)a, colours);
        status = e->collectives.split(e->collectives.self, colours, false, &e->groups[a]);
    }
    clt_free(colours);
    return status;
}

/* Makes the group of the stages whose bits are set. */
static clt_status join(clt_exchange *e, const clt_participants *all, uint64_t stages, int *colours,
                       int *group)
{
    for (int p = 0; p < all->total; p++) {
        const int stage = clt_mesh_coordinate(&all->mesh, CLT_AXIS_PIPELINE, p);
        colours[p] =
            stages >> stage & 1 ? clt_mesh_neighbour(&all->mesh, CLT_AXIS_PIPELINE, p, 0) : -1;
    }
    return e->collectives.split(e->collectives.self, colours, true, group);
}

/* Each pair of stages has a group, so that other stages need not start what the pair exchanges.
 * Each direction has one, because the two stages start sends and receives in different orders. */
clt_status clt_exchange_join_stages(clt_exchange *e, const clt_participants *all, const bool *used,
                                    const clt_buckets *layout)
{
    const int stages = all->mesh.size[CLT_AXIS_PIPELINE], edges = stages * stages;
    const int slots = layout ? layout->n_slots : 0;
    int *colours = clt_calloc((size_t)all->total, sizeof *colours);
    e->edges = clt_calloc((size_t)(edges + slots), sizeof *e->edges);
    clt_status status = clt_world_agree(all, colours && e->edges ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int edge = 0; edge < edges && status == CLT_OK; edge++) {
        e->edges[edge] = -1;
        if (used[edge])
            status = join(e, all, 1ull << (edge / stages) | 1ull << (edge % stages), colours,
                          &e->edges[edge]);
    }
    for (int i = 0; i < slots && status == CLT_OK; i++) {
        const clt_slot *slot = &layout->slots[i];
        e->edges[edges + i] = -1;
        if (clt_slot_tied(slot) && clt_slot_stages(slot) > 2)
            status = join(e, all, slot->stages, colours, &e->edges[edges + i]);
    }
    clt_free(colours);
    return status;
}

void clt_exchange_free(clt_exchange *e)
{
    clt_collectives_close(&e->collectives);
    for (int d = 0; e->devices && d < e->n_devices; d++) {
        CLT_FREE(e->devices[d].requests, e->devices[d].reduced, e->devices[d].words);
    }
    for (int b = 0; e->labels && b < e->n_buckets; b++)
        clt_free(e->labels[b]);
    CLT_FREE(e->devices, e->labels, e->edges);
    e->edges = NULL;
    e->devices = NULL;
    e->labels = NULL;
}
