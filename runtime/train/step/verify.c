/* All devices of all ranks compare checksums of their replicas before the first step and
 * every check_every steps. The check finds ranks whose stores were made differently and would train
 * different models. It also finds a device that computes wrongly, or a program that wrote into one
 * replica, while an earlier checkpoint is still good. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "train/step/verify.h"

clt_status clt_verification_create(const clt_store *store, const clt_participants *all,
                                   clt_verification **out)
{
    const clt_buckets *layout = store->replicas[0].layout;
    const size_t own = (size_t)all->own, n = (size_t)layout->n_slots;
    if (all->total == 1)
        return CLT_OK;
    clt_verification *v = *out = CLT_NEW(clt_verification);
    CLT_TRY_MEMORY(v);
    *v = (clt_verification){.store = store, .layout = layout, .all = all};
    v->checksums = clt_calloc(own, sizeof(clt_checksum *));
    v->sums = clt_calloc(own * (size_t)all->total * n + 1, sizeof *v->sums);
    CLT_TRY_MEMORY(v->checksums && v->sums);
    for (size_t d = 0; d < own; d++)
        CLT_TRY(clt_checksum_create(&store->replicas[d], &v->checksums[d]));
    return CLT_OK;
}

void clt_verification_destroy(clt_verification *v)
{
    if (!v)
        return;
    for (int d = 0; v->checksums && d < v->all->own; d++)
        clt_checksum_destroy(v->checksums[d]);
    CLT_FREE(v->checksums, v->sums, v);
}

void clt_verification_skip(clt_verification *v)
{
    if (v)
        v->verified = true;
}

static void name_participant(const clt_verification *v, int participant, char *text, size_t bytes)
{
    int rank = 0;
    while (participant >= v->all->begins[rank + 1])
        rank++;
    const int device = participant - v->all->begins[rank];
    const char *label = rank == v->all->rank ? v->store->replicas[device].device->label : NULL;
    if (v->all->ranks == 1)
        snprintf(text, bytes, "%s", label);
    else
        snprintf(text, bytes, "rank %d, device %d%s%s%s", rank, device, label ? " (" : "",
                 label ? label : "", label ? ")" : "");
}

/* Returns whether two participants have the same bits of a tensor: replicas have, and along other
 * axes the devices that have the whole tensor. */
static bool are_equal(const clt_verification *v, int slot, int a, int b)
{
    const clt_mesh *mesh = &v->all->mesh;
    for (int axis = 0; axis < CLT_AXES; axis++)
        if ((axis == CLT_AXIS_PIPELINE ||
             (axis == (int)clt_mesh_split_axis(mesh) && v->layout->slots[slot].sharding.blocks)) &&
            clt_mesh_coordinate(mesh, (clt_axis)axis, a) !=
                clt_mesh_coordinate(mesh, (clt_axis)axis, b))
            return false;
    return true;
}

/* Returns the participant whose checksum of a tensor differs from most of those that must have the
 * bits of participant `own`; -1: all are equal. */
static int odd_one(const clt_verification *v, const uint64_t *sums, int own, int slot)
{
    const int n = v->layout->n_slots;
    int first = -1, all = 0, as_first = 0, other = -1;
    for (int p = 0; p < v->all->total; p++) {
        if (!are_equal(v, slot, own, p))
            continue;
        first = first < 0 ? p : first;
        const bool same = sums[(int64_t)p * n + slot] == sums[(int64_t)first * n + slot];
        all++;
        as_first += same;
        if (!same && other < 0)
            other = p;
    }
    return other >= 0 && 2 * as_first < all ? first : other;
}

static uint64_t *sums_of(const clt_verification *v, int d)
{
    return v->sums + (int64_t)d * v->all->total * v->layout->n_slots;
}

clt_status clt_verify_sum(const clt_verification *v, int d)
{
    return clt_checksum_run(v->checksums[d],
                            sums_of(v, d) + (int64_t)(v->all->first + d) * v->layout->n_slots);
}

clt_status clt_verify_sum_gradients(const clt_verification *v, int device, clt_dtype precision,
                                    uint64_t *sum)
{
    const size_t n = (size_t)v->layout->n_slots;
    uint64_t *sums = clt_calloc(n + 1, sizeof *sums);
    CLT_TRY_MEMORY(sums);
    const clt_status status = clt_checksum_gradients(v->checksums[device], precision, sums);
    *sum = clt_hash(sums, n * sizeof *sums, 0);
    clt_free(sums);
    return status;
}

clt_collective clt_verify_gather(const clt_verification *v, int d)
{
    return (clt_collective){.kind = CLT_COLLECTIVE_ALL_GATHER,
                            .host = sums_of(v, d),
                            .count = 2 * (int64_t)v->layout->n_slots,
                            .dtype = CLT_I32,
                            .label = "checksums of the parameters"};
}

clt_status clt_verify_compare(const clt_verification *v, int d)
{
    for (int i = 0; i < v->layout->n_slots; i++) {
        const int odd = odd_one(v, sums_of(v, d), v->all->first + d, i);
        char name[300];
        if (odd < 0)
            continue;
        name_participant(v, odd, name, sizeof name);
        return clt_fail(
            CLT_MISMATCH, "%s has other bits on %s than on the other devices%s",
            v->layout->slots[i].name, name,
            v->verified
                ? ": something wrote into one replica, or a device computes wrongly. Go on from a "
                  "checkpoint before this step"
                : " before the first step: make all stores with the same seed, load the same "
                  "file, or call clt_trainer_broadcast");
    }
    return CLT_OK;
}
