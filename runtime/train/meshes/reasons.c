/* Says in words why a mesh is slower than the best one, or not possible. */
#include "train/meshes/meshes.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { TEXT = 160 };

/* Names the part of the step that is longer by the most. */
static void compare(const clt_mesh_rank *best, const clt_mesh_rank *own, char text[TEXT])
{
    const clt_timeline *a = &best->step.timeline, *b = &own->step.timeline;
    const struct {
        double more;
        const char *what;
    } parts[] = {{b->compute - a->compute, "its slowest device computes"},
                 {b->update - a->update, "its updates take"},
                 {b->exposed - a->exposed, own->facts->candidate.size[CLT_AXIS_PIPELINE] > 1
                                               ? "its stages wait for each other and exchange"
                                               : "its devices exchange"},
                 {own->step.outer - best->step.outer, "its replicas average"}};
    int most = 0;
    for (int k = 1; k < (int)(sizeof parts / sizeof *parts); k++)
        most = parts[k].more > parts[most].more ? k : most;
    if (own->real > 0 && own->real <= clt_mesh_seconds(best))
        snprintf(text, TEXT, "about as fast, and needs options");
    else if (own->real > 0 && own->step.seconds <= best->step.seconds)
        snprintf(text, TEXT, "its real steps take %.3f ms longer",
                 1e3 * (own->real - clt_mesh_seconds(best)));
    else if (parts[most].more > 0)
        snprintf(text, TEXT, "%s %.3f ms longer", parts[most].what, 1e3 * parts[most].more);
    else
        snprintf(text, TEXT, "about as fast");
}

clt_status clt_meshes_explain(clt_meshes *m)
{
    for (int i = 0; i < m->count; i++) {
        clt_mesh_rank *own = &m->ranks[i];
        char text[TEXT] = "";
        if (i && i < m->possible)
            compare(&m->ranks[0], own, text);
        own->reason = clt_strdup(i < m->possible ? text : own->facts->reason);
        CLT_TRY_MEMORY(own->reason);
    }
    return CLT_OK;
}

/* --- the table ------------------------------------------------------------------------------- */

/* Writes the mesh and what goes with it: "pp=2, 4 micro-batches". */
static void name(const clt_mesh_facts *f, int accumulate, char text[TEXT])
{
    const clt_candidate *c = &f->candidate;
    const char *mesh = f->mesh;
    const bool cut = f->stages != NULL;
    int n = c->local ? snprintf(text, TEXT, "local=%d%s%s", c->local,
                                c->size[CLT_AXIS_DATA] > 1 ? "," : "",
                                c->size[CLT_AXIS_DATA] > 1 ? mesh : "")
                     : snprintf(text, TEXT, "%s", mesh);
    if (c->zero)
        n += snprintf(text + n, (size_t)(TEXT - n), " zero %d", c->zero);
    if (c->accumulate != accumulate)
        n += snprintf(text + n, (size_t)(TEXT - n), " accumulate %d", c->accumulate);
    if (c->half)
        n += snprintf(text + n, (size_t)(TEXT - n), " wire bf16");
    if (cut)
        snprintf(text + n, (size_t)(TEXT - n), " stages");
}

static void add_row(clt_meshes *m, int i, int asked)
{
    const clt_mesh_rank *r = &m->ranks[i];
    char text[TEXT], real[32] = "-";
    name(r->facts, asked, text);
    if (r->real > 0)
        snprintf(real, sizeof real, "%.3f", 1e3 * r->real);
    clt_str_add(&m->text, "%4d  %-34s %10.3f %10s %9.3f %9.3f %9.3f %10.1f  ", i + 1, text,
                1e3 * r->step.seconds, real, 1e3 * r->step.timeline.compute,
                1e3 * r->step.timeline.update, 1e3 * (r->step.timeline.exposed + r->step.outer),
                (double)r->facts->memory / 1048576);
    if (r->facts->stages)
        clt_str_add(&m->text, "stages '%s'%s", r->facts->stages, *r->reason ? "; " : "");
    clt_str_add(&m->text, "%s%s\n", r->facts->measured ? "" : "estimated; ", r->reason);
}

/* Meshes that are not possible for the same reason share a line. */
static void add_impossible(clt_meshes *m, int asked)
{
    for (int i = m->possible; i < m->count; i++) {
        const char *reason = m->ranks[i].reason;
        int first = m->possible, more = 0;
        char text[TEXT];
        while (strcmp(m->ranks[first].reason, reason) != 0)
            first++;
        if (first < i)
            continue;
        for (int k = i + 1; k < m->count; k++)
            more += !strcmp(m->ranks[k].reason, reason);
        name(m->ranks[i].facts, asked, text);
        clt_str_add(&m->text, "not possible: %s", text);
        if (more)
            clt_str_add(&m->text, " and %d more", more);
        clt_str_add(&m->text, ": %s\n", reason);
    }
}

const char *clt_meshes_text(clt_meshes *m, int rows)
{
    clt_str_clear(&m->text);
    const int asked = m->setting.options->accumulate;
    clt_str_add(&m->text, "%d devices, batch %lld: %d meshes are possible; a step in ms\n",
                m->setting.count * m->setting.ranks, (long long)m->trainer.batch, m->possible);
    clt_str_add(&m->text, "%4s  %-34s %10s %10s %9s %9s %9s %10s\n", "", "mesh", "predicted",
                "real steps", "compute", "update", "exposed", "MiB");
    for (int i = 0; i < m->possible && i < rows; i++)
        add_row(m, i, asked);
    if (m->possible > rows)
        clt_str_add(&m->text, "      and %d slower meshes\n", m->possible - rows);
    add_impossible(m, asked);
    clt_str_add(&m->text, "%s", clt_str_text(&m->excluded));
    return m->text.failed ? NULL : clt_str_text(&m->text);
}
