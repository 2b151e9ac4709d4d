#include "train/program/outline.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/vec.h"

static bool has_unwritten(const clt_plan *plan)
{
    for (int s = 0; plan->gradients && s < plan->buckets.n_slots; s++)
        if (!plan->buckets.slots[s].state && !plan->gradients[s])
            return true;
    return false;
}

static bool has_output_gradients(const clt_plan *plan)
{
    for (int i = 0; i < plan->n_inputs; i++)
        if (plan->inputs[i]->output_gradient)
            return true;
    return false;
}

static bool has_input_gradients(const clt_plan *plan)
{
    for (int i = 0; i < plan->graph->n_values; i++)
        if (plan->graph->values[i]->output && plan->graph->values[i]->input_gradient)
            return true;
    return false;
}

static clt_status allocate(clt_outline *o)
{
    o->segments = clt_calloc((size_t)o->n_segments + 1, sizeof *o->segments);
    o->ready = clt_calloc((size_t)o->n_ready + 1, sizeof *o->ready);
    o->collectives = clt_calloc((size_t)o->n_collectives + 1, sizeof *o->collectives);
    if (o->segments && o->ready && o->collectives)
        return CLT_OK;
    clt_outline_free(o);
    return CLT_OUT_OF_MEMORY;
}

clt_status clt_outline_create(const clt_plan *plan, clt_outline *o)
{
    *o = (clt_outline){.n_nodes = plan->n_nodes,
                       .n_forward = plan->n_forward,
                       .n_segments = plan->n_segments,
                       .n_ready = plan->n_ready,
                       .n_collectives = plan->n_collectives,
                       .n_assigns = plan->graph->n_assigns,
                       .in_flight = plan->options.in_flight,
                       .output_gradients = has_output_gradients(plan),
                       .input_gradients = has_input_gradients(plan),
                       .unwritten = has_unwritten(plan)};
    CLT_TRY(allocate(o));
    memcpy(o->segments, plan->segments, (size_t)o->n_segments * sizeof *o->segments);
    memcpy(o->ready, plan->ready, (size_t)o->n_ready * sizeof *o->ready);
    for (int k = 0; k < o->n_collectives; k++) {
        const clt_plan_collective *c = &plan->collectives[k];
        const clt_node *node = plan->nodes[c->node].node;
        o->collectives[k] = (clt_outline_collective){.node = c->node,
                                                     .needed = c->needed,
                                                     .kind = (int)c->kind,
                                                     .axis = (int)c->axis,
                                                     .peer = c->peer,
                                                     .count = c->count,
                                                     .per_sample = c->per_sample,
                                                     .dtype = (int)c->dtype,
                                                     .name = clt_hash_text(node->name, 0)};
    }
    return CLT_OK;
}

void clt_outline_free(clt_outline *o)
{
    CLT_FREE(o->segments, o->ready, o->collectives);
    *o = (clt_outline){0};
}

bool clt_outline_sends(const clt_outline *o, int collective)
{
    return o->collectives[collective].kind == CLT_OP_SEND;
}

bool clt_outline_receives(const clt_outline *o, int collective)
{
    return o->collectives[collective].kind == CLT_OP_RECEIVE;
}

bool clt_outline_joins_data(const clt_outline *o)
{
    for (int k = 0; k < o->n_collectives; k++)
        if (o->collectives[k].axis == CLT_AXIS_DATA)
            return true;
    return false;
}

void clt_outline_places(const clt_outline *o, int *after)
{
    for (int i = 0, begun = 0; i < o->n_segments; i++) {
        const clt_segment *s = &o->segments[i];
        begun += s->begins >= 0;
        for (int r = s->first_ready; r < s->end_ready; r++)
            if (after[o->ready[r]] < begun)
                after[o->ready[r]] = begun;
    }
}

void clt_outline_mark_edges(const clt_outline *outline, int stage, int stages, bool *used)
{
    for (int k = 0; k < outline->n_collectives; k++) {
        const int peer = outline->collectives[k].peer;
        if (clt_outline_sends(outline, k))
            used[stage * stages + peer] = true;
        else if (clt_outline_receives(outline, k))
            used[peer * stages + stage] = true;
    }
}

/* --- as numbers ------------------------------------------------------------------------------ */

/* Sizes in numbers: of the head, which precedes the arrays, and of their items. */
enum { HEAD = 10, SEGMENT = 5, COLLECTIVE = 9 };

clt_status clt_outline_pack(const clt_outline *o, int64_t **numbers, int *count, int *room)
{
    const int more = HEAD + SEGMENT * o->n_segments + o->n_ready + COLLECTIVE * o->n_collectives;
    CLT_TRY(clt_vec_reserve((void **)numbers, *count, room, more, sizeof **numbers));
    int64_t *to = *numbers + *count;
    const int64_t head[HEAD] = {
        o->n_nodes,   o->n_forward, o->n_segments,       o->n_ready,   o->n_collectives,
        o->n_assigns, o->in_flight, o->output_gradients, o->unwritten, o->input_gradients};
    memcpy(to, head, sizeof head);
    to += HEAD;
    for (int i = 0; i < o->n_segments; i++, to += SEGMENT) {
        const clt_segment *s = &o->segments[i];
        const int64_t fields[SEGMENT] = {s->first, s->end, s->begins, s->first_ready, s->end_ready};
        memcpy(to, fields, sizeof fields);
    }
    for (int i = 0; i < o->n_ready; i++)
        *to++ = o->ready[i];
    for (int i = 0; i < o->n_collectives; i++, to += COLLECTIVE) {
        const clt_outline_collective *c = &o->collectives[i];
        const int64_t fields[COLLECTIVE] = {c->node,       c->needed,        c->kind,
                                            c->axis,       c->peer,          c->count,
                                            c->per_sample, (int64_t)c->name, c->dtype};
        memcpy(to, fields, sizeof fields);
    }
    *count += more;
    return CLT_OK;
}

clt_status clt_outline_unpack(const int64_t *numbers, int count, int *at, clt_outline *o)
{
    const int64_t *from = numbers + *at, *end = numbers + count;
    *o = (clt_outline){0};
    if (end - from < HEAD || from[2] < 0 || from[3] < 0 || from[4] < 0 ||
        end - from - HEAD < SEGMENT * from[2] + from[3] + COLLECTIVE * from[4])
        return clt_fail(CLT_FORMAT, "another rank's outline of a plan is cut short");
    *o = (clt_outline){.n_nodes = (int)from[0],
                       .n_forward = (int)from[1],
                       .n_segments = (int)from[2],
                       .n_ready = (int)from[3],
                       .n_collectives = (int)from[4],
                       .n_assigns = (int)from[5],
                       .in_flight = (int)from[6],
                       .output_gradients = from[7] != 0,
                       .unwritten = from[8] != 0,
                       .input_gradients = from[9] != 0};
    CLT_TRY(allocate(o));
    from += HEAD;
    for (int i = 0; i < o->n_segments; i++, from += SEGMENT)
        o->segments[i] =
            (clt_segment){(int)from[0], (int)from[1], (int)from[2], (int)from[3], (int)from[4]};
    for (int i = 0; i < o->n_ready; i++)
        o->ready[i] = (int)*from++;
    for (int i = 0; i < o->n_collectives; i++, from += COLLECTIVE)
        o->collectives[i] = (clt_outline_collective){(int)from[0], (int)from[1],      (int)from[2],
                                                     (int)from[3], (int)from[4],      from[5],
                                                     from[6] != 0, (uint64_t)from[7], (int)from[8]};
    *at = (int)(from - numbers);
    return CLT_OK;
}
