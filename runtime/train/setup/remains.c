#include "train/setup/remains.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"

const char *clt_remains_axes(const clt_mesh *mesh, bool with_samples, char text[64])
{
    size_t used = 0;
    *text = '\0';
    for (int a = 0; a < CLT_AXES; a++)
        if (mesh->size[a] > 1 && clt_axis_has_samples((clt_axis)a) == with_samples)
            used += (size_t)snprintf(text + used, 64 - used, "%s%s", used ? " and " : "",
                                     clt_axis_name((clt_axis)a));
    return text;
}

/* Numbers those that stay. Returns the first rank that would have no device; -1: none. */
static int count(const clt_participants *all, clt_remains *r)
{
    int empty = -1;
    for (int k = 0, next = 0; k < all->ranks; k++) {
        r->begins[k] = next;
        for (int p = all->begins[k]; p < all->begins[k + 1]; p++)
            next += r->stays[p];
        r->begins[k + 1] = next;
        empty = empty < 0 && r->begins[k] == next ? k : empty;
    }
    return empty;
}

/* Numbers those that stay. Returns the first rank that would have no device and may not; -1:
 * none. */
static int number(const clt_participants *all, clt_remains *r)
{
    const int empty = count(all, r);
    return r->may_idle ? -1 : empty;
}

static bool stays_at(const clt_participants *all, const clt_remains *r, int place)
{
    return r->stays[clt_mesh_neighbour(&all->mesh, r->axis, 0, place)];
}

static void leave_place(const clt_participants *all, clt_remains *r, int place, bool stays)
{
    for (int p = 0; p < all->total; p++)
        if (clt_mesh_coordinate(&all->mesh, r->axis, p) == place)
            r->stays[p] = stays;
}

/* The mesh with the places of the axis that are left. Axes that vary more slowly move closer. */
static void cut_mesh(const clt_participants *all, clt_remains *r)
{
    const int before = all->mesh.size[r->axis];
    int left = 0;
    for (int place = 0; place < before; place++)
        left += stays_at(all, r, place);
    r->mesh = all->mesh;
    r->mesh.size[r->axis] = left;
    for (int a = 0; a < CLT_AXES; a++)
        if (r->mesh.stride[a] > r->mesh.stride[r->axis])
            r->mesh.stride[a] = r->mesh.stride[a] / before * left;
}

/* Tries an axis. *empty: the first rank that would have no device. */
static bool try_axis(const clt_participants *all, const bool *lost, clt_axis axis, clt_remains *r,
                     int *empty)
{
    bool any = false;
    r->axis = axis;
    for (int p = 0; p < all->total; p++)
        r->stays[p] = true;
    for (int p = 0; p < all->total; p++)
        if (lost[p])
            leave_place(all, r, clt_mesh_coordinate(&all->mesh, axis, p), false);
    for (int p = 0; p < all->total; p++)
        any = any || r->stays[p];
    if (!any)
        return false;
    *empty = number(all, r);
    return *empty < 0;
}

/* Says which axes of the mesh keep training from going on. */
static clt_status none_left(const clt_participants *all, int empty)
{
    char with[64], without[64], rank[128] = "no other device is left";
    clt_remains_axes(&all->mesh, true, with);
    clt_remains_axes(&all->mesh, false, without);
    if (empty >= 0 && *without)
        snprintf(rank, sizeof rank, ", and rank %d of %d has no device at another place of %s",
                 empty, all->ranks, with);
    else if (empty >= 0)
        snprintf(rank, sizeof rank, "rank %d of %d has no other device", empty, all->ranks);
    if (!*without)
        return clt_fail(CLT_STATE, "training cannot go on without it: %s", rank);
    return clt_fail(CLT_STATE,
                    "training cannot go on without it, because the model is divided along %s of "
                    "the mesh%s",
                    without,
                    empty >= 0 ? rank
                    : *with    ? ", and no place of the other axes has all its devices"
                               : "");
}

/* Owners alone have the optimizer's state of their buckets, and no samples. */
static clt_status check_owners(const clt_participants *all, const clt_store *store,
                               const clt_remains *r)
{
    for (int p = 0; p < all->total; p++)
        if (!r->stays[p] && clt_store_owns(store, p))
            return clt_fail(CLT_STATE, "training cannot go on without it, because it alone had the "
                                       "optimizer's state of its buckets (offload)");
    for (int k = 0; k < all->ranks; k++) {
        int p = all->begins[k];
        while (p < all->begins[k + 1] && !r->stays[p])
            p++;
        if (clt_remains_left(r, k) && clt_store_owns(store, p))
            return clt_fail(CLT_STATE,
                            "training cannot go on without it, because rank %d of %d has no other "
                            "device that trains (offload)",
                            k, all->ranks);
    }
    return CLT_OK;
}

clt_status clt_remains_find(const clt_participants *all, const clt_store *store, const bool *lost,
                            bool may_idle, clt_remains *r)
{
    static const clt_axis axes[] = {CLT_AXIS_DATA, CLT_AXIS_SPACE, CLT_AXIS_TIME};
    int empty = -1;
    *r = (clt_remains){0};
    r->stays = clt_calloc((size_t)all->total, sizeof *r->stays);
    r->begins = clt_calloc((size_t)all->ranks + 1, sizeof *r->begins);
    CLT_TRY_MEMORY(r->stays && r->begins);
    for (int idle = 0; idle <= may_idle; idle++) {
        r->may_idle = idle;
        for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
            if (all->mesh.size[axes[i]] > 1 && try_axis(all, lost, axes[i], r, &empty)) {
                cut_mesh(all, r);
                return check_owners(all, store, r);
            }
    }
    return none_left(all, empty);
}

bool clt_remains_fewer(const clt_participants *all, clt_remains *r)
{
    for (int place = all->mesh.size[r->axis] - 1; r->mesh.size[r->axis] > 1 && place >= 0;
         place--) {
        if (!stays_at(all, r, place))
            continue;
        leave_place(all, r, place, false);
        if (number(all, r) < 0) {
            cut_mesh(all, r);
            return true;
        }
        leave_place(all, r, place, true);
        count(all, r);
    }
    return false;
}

int clt_remains_number(const clt_remains *r, int participant)
{
    int number = 0;
    for (int p = 0; p < participant; p++)
        number += r->stays[p];
    return number;
}

/* A store that was given no mesh, or a mesh of its own devices only, has no numbers of others. */
static void give_mesh(const clt_remains *r, const clt_participants *all, clt_store *store)
{
    if (store->total != all->total)
        return;
    store->mesh = r->mesh;
    store->first = r->begins[all->rank];
    store->total = r->begins[all->ranks];
    int ranks = 0;
    for (int k = 0; k < all->ranks; k++)
        if (clt_remains_left(r, k))
            store->begins[ranks++] = r->begins[k];
    store->begins[ranks] = store->total;
}

/* An owner's slots stay, and it owns the same buckets under its new number. */
static void number_owners(const clt_remains *r, const clt_participants *all, clt_store *store)
{
    for (int b = 0; b < store->layout.n_buckets; b++)
        if (store->layout.buckets[b].owner)
            store->layout.buckets[b].owner = clt_remains_number(r, store->layout.buckets[b].owner);
    for (int d = 0; d < store->n_devices; d++) {
        store->replicas[d].shard = clt_remains_number(r, all->first + d);
        store->replicas[d].shards = r->begins[all->ranks];
    }
}

void clt_remains_apply(const clt_remains *r, const clt_participants *all, clt_store *store)
{
    const int devices = store->n_devices;
    int left = 0;
    if (store->owners)
        number_owners(r, all, store);
    give_mesh(r, all, store);
    for (int d = 0; d < devices; d++)
        if (!r->stays[all->first + d]) {
            clt_replica_destroy(&store->replicas[d]);
            clt_arena_destroy(&store->arenas[d]);
        } else {
            store->replicas[left] = store->replicas[d];
            store->arenas[left++] = store->arenas[d];
        }
    store->n_devices = left;
}

void clt_remains_free(clt_remains *r)
{
    CLT_FREE(r->stays, r->begins);
}
