/* Makes ranks come to one choice: what decides is rank 0's on all ranks. */
#include "train/meshes/meshes.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "train/ranks/connect.h"
#include "train/ranks/world.h"

static int ranks_of(const clt_meshes *m)
{
    return m->world ? m->world->ranks : 1;
}

/* --- devices --------------------------------------------------------------------------------- */

/* What makes the plans of a device. Memory is left out: hosts of one kind differ a little in it. */
typedef struct likeness {
    uint64_t hash;
    char name[128];
} likeness;

static likeness likeness_of(const clt_caps *c)
{
    const int64_t numbers[] = {
        c->kind,        c->compute_units, c->vector_width,   c->vector_registers,
        c->local_bytes, c->cache_bytes,   c->max_work_group, c->align_bytes,
        c->host_memory, c->fp16,          c->fp64,           c->subgroups,
        c->clblast,     c->matrix.kind,   c->matrix.f16,     c->matrix.bf16};
    likeness l = {0};
    snprintf(l.name, sizeof l.name, "%s", c->name);
    l.hash = clt_hash(numbers, sizeof numbers, clt_hash_text(c->platform, 1));
    return l;
}

static clt_status compare_devices(const likeness *all, int ranks, int count)
{
    for (int r = 1; r < ranks; r++)
        for (int d = 0; d < count; d++) {
            const likeness *own = &all[r * count + d];
            if (own->hash != all[d].hash || strcmp(own->name, all[d].name) != 0)
                return clt_fail(CLT_UNSUPPORTED,
                                "device %d of rank %d (%s) is not like that of rank 0 (%s): a mesh "
                                "can be chosen for equal devices only, so name one (parallel)",
                                d, r, own->name, all[d].name);
        }
    return CLT_OK;
}

clt_status clt_meshes_check_devices(const clt_world *world, clt_device *const *devices, int count)
{
    likeness own[CLT_MOST_DEVICES];
    void *all;
    if (!world || world->ranks == 1)
        return CLT_OK;
    if (count > CLT_MOST_DEVICES)
        return clt_fail(CLT_UNSUPPORTED, "%d devices: a rank has at most %d", count,
                        CLT_MOST_DEVICES);
    for (int d = 0; d < count; d++)
        own[d] = likeness_of(&devices[d]->caps);
    CLT_TRY(clt_ranks_gather(world, own, (size_t)count * sizeof *own, &all));
    const clt_status status = compare_devices(all, world->ranks, count);
    clt_free(all);
    return status;
}

/* --- what is possible ------------------------------------------------------------------------ */

clt_status clt_meshes_share_status(clt_meshes *m)
{
    const size_t n = (size_t)m->count;
    int32_t *own = clt_calloc(n + 1, sizeof *own);
    void *all = NULL;
    clt_status status = clt_ranks_agree(m->world, own ? CLT_OK : CLT_OUT_OF_MEMORY, NULL);
    for (int i = 0; status == CLT_OK && i < m->count; i++)
        own[i] = (int32_t)m->facts[i].status;
    CLT_NEXT(status, clt_ranks_gather(m->world, own, (n + 1) * sizeof *own, &all));
    for (int r = 0; status == CLT_OK && r < ranks_of(m); r++)
        for (int i = 0; i < m->count; i++) {
            clt_mesh_facts *f = &m->facts[i];
            const int32_t other = ((const int32_t *)all)[(size_t)r * (n + 1) + (size_t)i];
            if (f->status != CLT_OK || other == CLT_OK)
                continue;
            f->status = (clt_status)other;
            f->reason = clt_strdup("a device of another rank lacks memory for it");
            status = f->reason ? CLT_OK : CLT_OUT_OF_MEMORY;
        }
    CLT_FREE(own, all);
    return clt_ranks_agree(m->world, status, NULL);
}

/* --- times and order ------------------------------------------------------------------------- */

/* What the choice of the next mesh, and the order, depend on. */
typedef struct told {
    clt_mesh_step step;
    int64_t measured;
} told;

static void take_steps(clt_meshes *m, const told *first)
{
    for (int i = 0; i < m->count; i++) {
        const told *of = &first[m->ranks[i].facts - m->facts];
        m->ranks[i].step = of->step;
        m->ranks[i].facts->measured = of->measured != 0;
    }
}

clt_status clt_meshes_share_steps(clt_meshes *m, clt_status status)
{
    const size_t n = (size_t)m->count + 1;
    told *own = clt_calloc(n, sizeof *own);
    void *all = NULL;
    if (status == CLT_OK && !own)
        status = CLT_OUT_OF_MEMORY;
    for (int i = 0; own && i < m->count; i++)
        own[m->ranks[i].facts - m->facts] = (told){m->ranks[i].step, m->ranks[i].facts->measured};
    status = clt_ranks_agree(m->world, status, NULL);
    CLT_NEXT(status, clt_ranks_gather(m->world, own, n * sizeof *own, &all));
    if (status == CLT_OK)
        take_steps(m, all);
    CLT_FREE(own, all);
    return status;
}

clt_status clt_meshes_share_order(clt_meshes *m)
{
    const size_t n = (size_t)m->count + 1;
    int32_t *own = clt_calloc(n, sizeof *own);
    clt_mesh_rank *ranks = clt_calloc(n, sizeof *ranks); /* by candidate */
    void *all = NULL;
    clt_status status = clt_ranks_agree(m->world, own && ranks ? CLT_OK : CLT_OUT_OF_MEMORY, NULL);
    for (int i = 0; status == CLT_OK && i < m->count; i++) {
        own[i] = (int32_t)(m->ranks[i].facts - m->facts);
        ranks[own[i]] = m->ranks[i];
    }
    CLT_NEXT(status, clt_ranks_gather(m->world, own, n * sizeof *own, &all));
    for (int i = 0; status == CLT_OK && i < m->count; i++)
        m->ranks[i] = ranks[((const int32_t *)all)[i]];
    CLT_FREE(own, ranks, all);
    return status;
}
