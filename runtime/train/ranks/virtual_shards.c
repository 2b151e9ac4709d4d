#include "train/ranks/virtual_shards.h"

#include "base/alloc.h"

/* Returns the fewest shards that so many devices need. */
static int64_t least_of(int devices)
{
    int64_t shards = 1;
    while (shards < devices)
        shards *= 2;
    return shards;
}

/* Divides a block over units [first, end), of which unit u has counts[u] devices, as evenly as its
 * halves allow. Writes the first shard of each unit, relative to the block. Returns false if the
 * block is too small. */
static bool divide(int64_t begin, int64_t shards, const int *counts, int first, int end,
                   int64_t *begins)
{
    int all = 0, left = 0, best = -1, distance = 0;
    for (int u = first; u < end; u++)
        all += counts[u];
    if (end == first + 1) {
        begins[first] = begin;
        return least_of(all) <= shards;
    }
    for (int cut = first + 1; cut < end; cut++) {
        left += counts[cut - 1];
        const int uneven = 2 * left > all ? 2 * left - all : all - 2 * left;
        const bool fits = least_of(left) <= shards / 2 && least_of(all - left) <= shards / 2;
        if (fits && (best < 0 || uneven < distance)) {
            best = cut;
            distance = uneven;
        }
    }
    return best >= 0 && divide(begin, shards / 2, counts, first, best, begins) &&
           divide(begin + shards / 2, shards / 2, counts, best, end, begins);
}

/* Returns the shards of a unit, whose block is followed by the next unit's or by `end`. */
static int64_t size_of(const int64_t *begins, int unit, int units, int64_t end)
{
    return (unit + 1 < units ? begins[unit + 1] : end) - begins[unit];
}

/* Divides the block of a node over its ranks and their devices. */
static bool divide_node(int64_t begin, int64_t shards, const int *begins, int first, int end,
                        int *counts, int64_t *blocks, int64_t *bounds)
{
    bool fits = true;
    for (int r = first; r < end; r++)
        counts[r - first] = begins[r + 1] - begins[r];
    fits = divide(begin, shards, counts, 0, end - first, blocks);
    for (int r = first; fits && r < end; r++) {
        const int64_t size = size_of(blocks, r - first, end - first, begin + shards);
        const int devices = begins[r + 1] - begins[r];
        int *ones = counts + (end - first); /* each device is a unit */
        for (int d = 0; d < devices; d++)
            ones[d] = 1;
        fits = divide(blocks[r - first], size, ones, 0, devices, bounds + begins[r]);
    }
    return fits;
}

static clt_status too_few(int64_t shards, int devices, int ranks, int nodes)
{
    if (shards < devices)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%lld virtual shards are fewer than the %d devices: each device needs one, "
                        "so give at least %lld",
                        (long long)shards, devices, (long long)least_of(devices));
    return clt_fail(
        CLT_INVALID_ARGUMENT,
        "%lld virtual shards cannot be divided in blocks over %d devices of %d ranks on "
        "%d nodes: try %lld",
        (long long)shards, devices, ranks, nodes, (long long)(2 * shards));
}

clt_status clt_virtual_shards_divide(int64_t shards, const int *begins, const int *nodes, int ranks,
                                     int64_t *bounds)
{
    const int devices = begins[ranks], count = nodes[ranks - 1] + 1;
    for (int r = 1; r < ranks; r++)
        if (nodes[r] != nodes[r - 1] && nodes[r] != nodes[r - 1] + 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "virtual shards need ranks whose numbers follow each other on a node, "
                            "and rank %d is on another node than rank %d: start them node by node",
                            r, r - 1);
    const size_t n = (size_t)(devices + ranks + count) + 1;
    int *counts = clt_calloc(2 * n, sizeof *counts);
    int64_t *blocks = clt_calloc(2 * n, sizeof *blocks);
    bool fits = counts && blocks;
    const bool room = fits;
    for (int r = 0; fits && r < ranks; r++)
        counts[nodes[r]] += begins[r + 1] - begins[r];
    fits = fits && shards >= devices && divide(0, shards, counts, 0, count, blocks);
    for (int node = 0, first = 0, end; fits && node < count; node++, first = end) {
        for (end = first; end < ranks && nodes[end] == node;)
            end++;
        fits = divide_node(blocks[node], size_of(blocks, node, count, shards), begins, first, end,
                           counts + n, blocks + n, bounds);
    }
    bounds[devices] = shards;
    CLT_FREE(counts, blocks);
    CLT_TRY_MEMORY(room);
    return fits ? CLT_OK : too_few(shards, devices, ranks, count);
}

clt_status clt_virtual_shards_nodes(const clt_node_place *places, int ranks, int *nodes)
{
    int node = -1, left = 0; /* ranks of the node that are still to come */
    for (int r = 0; r < ranks; r++) {
        const clt_node_place *p = &places[r];
        const int32_t begun = r ? places[r - 1].rank + 1 : 0;
        const bool follows = left && p->rank == begun && p->ranks == places[r - 1].ranks;
        if (left ? !follows : p->rank != 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "virtual shards need ranks whose numbers follow each other on a node, "
                            "and rank %d is number %d of %d on its node: start them node by node",
                            r, (int)p->rank, (int)p->ranks);
        node += !left;
        left = p->ranks - p->rank - 1;
        nodes[r] = node;
    }
    return CLT_OK;
}

static clt_status find_nodes(const clt_participants *all, int *nodes)
{
    if (all->ranks == 1)
        return CLT_OK;
    const clt_node_place own = {all->world->node_rank, all->world->node_ranks};
    void *places = NULL;
    CLT_TRY(clt_ranks_gather(all->world, &own, sizeof own, &places));
    const clt_status status = clt_virtual_shards_nodes(places, all->ranks, nodes);
    clt_free(places);
    return status;
}

clt_status clt_virtual_shards_bounds(int64_t shards, const clt_participants *all, int64_t **out)
{
    int *nodes = clt_calloc((size_t)all->ranks, sizeof *nodes);
    int64_t *bounds = clt_calloc((size_t)all->total + 1, sizeof *bounds);
    const int begins[] = {0, all->total};
    clt_status status = clt_world_agree(all, nodes && bounds ? CLT_OK : CLT_OUT_OF_MEMORY);
    CLT_NEXT(status, find_nodes(all, nodes));
    CLT_NEXT(status, clt_virtual_shards_divide(shards, all->begins ? all->begins : begins, nodes,
                                               all->ranks, bounds));
    clt_free(nodes);
    if (status != CLT_OK) {
        clt_free(bounds);
        return status;
    }
    *out = bounds;
    return CLT_OK;
}

clt_status clt_virtual_shards_check(const clt_graph *graph, bool axes, bool owners, bool alike)
{
    if (axes)
        return clt_fail(CLT_UNSUPPORTED,
                        "virtual shards need a mesh that has no other axis than dp");
    if (owners)
        return clt_fail(CLT_UNSUPPORTED, "virtual shards do not work with offload: leave it out");
    if (!alike)
        return clt_fail(CLT_UNSUPPORTED,
                        "virtual shards need devices of one kind, because kernels of other devices "
                        "round differently: name devices of one platform and model");
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->op->collective)
            return clt_fail(CLT_UNSUPPORTED,
                            "virtual shards do not work with node %s (%s), which exchanges values "
                            "between devices within a step: take a model without it, such as batch "
                            "norm that is not synchronised",
                            graph->nodes[i]->name, graph->nodes[i]->op->name);
    return CLT_OK;
}

clt_status clt_virtual_shards_plan(int64_t shards, const clt_store *store, const clt_world *world,
                                   int total, int64_t **out, int *first)
{
    const bool mesh = store->mesh.size[CLT_AXIS_DATA] > 0;
    const clt_world *w = mesh ? &store->world : world;
    const int ranks = w && w->ranks > 1 ? w->ranks : 1; /* a store of one rank may have no world */
    int *begins = clt_calloc((size_t)ranks + 1, sizeof *begins);
    int *nodes = clt_calloc((size_t)ranks + 1, sizeof *nodes);
    int64_t *bounds = clt_calloc((size_t)total + 1, sizeof *bounds);
    clt_status status = begins && nodes && bounds ? CLT_OK : CLT_OUT_OF_MEMORY;
    *out = NULL;
    *first = mesh ? store->first : w ? w->rank * store->n_devices : 0;
    for (int r = 0; r <= ranks && status == CLT_OK; r++) {
        begins[r] = mesh ? store->begins[r] : r * store->n_devices;
        nodes[r] = ranks > 1 ? r / w->node_ranks : 0;
    }
    const bool known = status == CLT_OK && begins[ranks] == total;
    if (known)
        status = clt_virtual_shards_divide(shards, begins, nodes, ranks, bounds);
    CLT_FREE(begins, nodes);
    if (known && status == CLT_OK)
        *out = bounds;
    else
        clt_free(bounds);
    return status;
}
