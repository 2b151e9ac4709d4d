/* Orders meshes. Real steps decide between those that are predicted to be about equally fast. */
#include "train/meshes/meshes.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/meshes/finals.h"
#include "train/ranks/world.h"

/* A mesh that is predicted to take so many times the best one's time runs no real steps. */
static const double NEAR = 1.25;

/* Meshes whose real steps differ by less count as equally fast: steps of one mesh differ by a few
 * percent from run to run. */
static const double TIE = 1.03;

/* Turns of the real steps. */
enum { TURNS = 2 };

static int by_seconds(const void *a, const void *b)
{
    const clt_mesh_rank *x = a, *y = b;
    const double s = clt_mesh_seconds(x), t = clt_mesh_seconds(y);
    if ((x->facts->status == CLT_OK) != (y->facts->status == CLT_OK))
        return x->facts->status == CLT_OK ? -1 : 1;
    if ((x->real > 0) != (y->real > 0)) /* real steps decide */
        return x->real > 0 ? -1 : 1;
    if (s != t && x->facts->status == CLT_OK)
        return s < t ? -1 : 1;
    return x->facts < y->facts ? -1 : 1;
}

void clt_meshes_sort(clt_meshes *m)
{
    qsort(m->ranks, (size_t)m->count, sizeof *m->ranks, by_seconds);
}

clt_status clt_meshes_stop_asked(const clt_meshes *m)
{
    return m->options.stop && m->options.stop(m->options.user)
               ? clt_fail(CLT_STOPPED, "stopped while meshes were compared")
               : CLT_OK;
}

/* A mesh whose real steps fail cannot be chosen. All ranks have failed together. */
static clt_status exclude(clt_meshes *m, clt_mesh_rank *r, clt_status status)
{
    r->facts->status = status;
    r->facts->reason = clt_strdup(clt_error_message());
    r->real = 0;
    m->possible--;
    return r->facts->reason ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* Whether the mesh only divides samples, as devices do without a mesh. */
static bool is_plain(const clt_meshes *m, const clt_candidate *c)
{
    return c->size[CLT_AXIS_DATA] == clt_candidate_devices(c) && !c->zero && !c->local &&
           !c->half && c->accumulate == m->setting.options->accumulate;
}

/* Puts plain dp first if it is about as fast as the best: it needs no options, and its batches may
 * be divided by speed. */
static void prefer_plain(clt_meshes *m)
{
    for (int i = 1; i < m->possible; i++) {
        const clt_mesh_rank plain = m->ranks[i];
        if (!is_plain(m, &plain.facts->candidate) || plain.real <= 0 ||
            plain.real > TIE * m->ranks[0].real)
            continue;
        memmove(m->ranks + 1, m->ranks, (size_t)i * sizeof *m->ranks);
        m->ranks[0] = plain;
        return;
    }
}

/* Runs real steps of the fastest, by turns. The median of a turn is little disturbed, and the
 * better turn counts. */
clt_status clt_meshes_run_finals(clt_meshes *m)
{
    int n = 0, failed = 0;
    while (n < m->possible && n < m->options.finals &&
           m->ranks[n].step.seconds <= NEAR * m->ranks[0].step.seconds)
        n++;
    for (int turn = 0; n > 1 && !m->setting.simulated && turn < TURNS; turn++)
        for (int i = 0; i < n; i++) {
            clt_mesh_rank *r = &m->ranks[turn % 2 ? n - 1 - i : i];
            double seconds;
            if (r->facts->status != CLT_OK)
                continue;
            CLT_TRY(clt_ranks_agree(m->world, clt_meshes_stop_asked(m), NULL));
            const clt_status status = clt_mesh_run(&m->setting, m->world, r->facts, &seconds);
            if (status != CLT_OK && ++failed == n)
                return clt_fail_prefix(status,
                                       "real steps of all meshes failed; '%s': ", r->facts->mesh);
            if (status != CLT_OK)
                CLT_TRY(exclude(m, r, status));
            else
                r->real = turn && r->real < seconds ? r->real : seconds;
        }
    clt_meshes_sort(m);
    prefer_plain(m);
    return clt_meshes_share_order(m);
}
