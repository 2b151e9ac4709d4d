/* Symbolic execution of collectives, from their start to their end. */
#include "base/vec.h"
#include "train/program/symbolic_internal.h"

/* Returns the buffer that a collective works on. */
static clt_symbol *operand_of(clt_symbolic_device *s, clt_operand on, int item, int slot)
{
    switch (on) {
    case CLT_ON_RESULTS:
        return &s->results;
    case CLT_ON_MEANS:
        return &s->means;
    case CLT_ON_GRADIENT:
        return &s->gradients[0][item];
    case CLT_ON_TIED:
        return &s->gradients[0][s->in->layout->slots[item].bucket];
    case CLT_ON_VALUES:
        return &s->values[item];
    case CLT_ON_SLOT:
        return &s->slots[slot * s->in->layout->n_buckets + item];
    default:
        return NULL;
    }
}

static const char *start_node(clt_symbolic_device *s, const clt_instruction *i)
{
    const clt_outline_collective *c = &s->in->plan->collectives[i->item];
    clt_symbolic_select(s, i->micro);
    if (s->now->arena != i->micro || s->now->next != c->node + 1)
        return "the nodes before the collective have not run";
    if (s->now->exchanged[i->item])
        return "the collective was started before";
    s->now->exchanged[i->item] = 1;
    return NULL;
}

static int place_of(const clt_symbolic_device *s, int group)
{
    return clt_group_place(s->in, group, s->in->self);
}

static int count_in(const clt_symbolic_device *s, int group)
{
    int count = 0;
    for (int r = 0; r < s->n_requests; r++)
        count += s->requests[r].group == group;
    return count;
}

int clt_symbolic_ties(const clt_step_program_input *in)
{
    const int own = clt_mesh_coordinate(&in->mesh, CLT_AXIS_PIPELINE, in->self);
    int count = 0;
    for (int i = 0; i < in->layout->n_slots; i++)
        count += clt_slot_tied(&in->layout->slots[i]) && in->layout->slots[i].stages >> own & 1;
    return count;
}

/* Checks that a device may send the buffer of a collective, or have it overwritten. Returns NULL or
 * the reason. */
static const char *start_buffer(const clt_symbolic_device *s, const clt_instruction *i,
                                const clt_symbol *buffer)
{
    const bool root = i->peer < 0 || i->peer == place_of(s, i->group);
    if (buffer->flight)
        return "the buffer is in another collective";
    /* Without a peer each device sends its shard, which is all that is valid. */
    if (i->on == CLT_ON_VALUES || i->on == CLT_ON_SLOT)
        return root && (buffer->version != i->version || (i->peer >= 0 && !buffer->valid))
                   ? "the values are not those to be sent"
                   : NULL;
    if (i->on == CLT_ON_GRADIENT && i->peer != clt_input_owner(s->in, i->item))
        return "the bucket is reduced to another device than its owner";
    if (i->on == CLT_ON_GRADIENT && s->ties != clt_symbolic_ties(s->in))
        return "the gradient of a tied parameter is not that of all its stages";
    if (i->on == CLT_ON_RESULTS ? !s->rounds
                                : !s->micro_batches && i->on == CLT_ON_GRADIENT && !s->in->tree)
        return NULL; /* this device sends no data */
    if (i->on == CLT_ON_RESULTS && !clt_symbolic_has_results(s))
        return "results of a micro-batch are not there";
    if (i->on == CLT_ON_GRADIENT &&
        !clt_symbolic_is_cleared(s, clt_symbolic_cleared_for(s, i->version)))
        return "gradients that no node writes are not cleared";
    return !buffer->valid || buffer->part || buffer->version != i->version
               ? "the buffer has not what all micro-batches add up to"
               : NULL;
}

/* Samples are divided, and replicas equal, along CLT_AXIS_SAMPLES. The plan knows the axes of its
 * collectives, and a copy goes along all axes. */
static bool in_right_group(const clt_symbolic_device *s, const clt_instruction *i)
{
    clt_axis axis = CLT_AXIS_SAMPLES;
    if (i->on == CLT_ON_WORDS || i->on == CLT_ON_CHECKSUMS)
        return i->group == CLT_GROUP_ALL;
    if (i->on == CLT_ON_RESULTS)
        return i->group == clt_group_results(s->in);
    if (i->on == CLT_ON_NODE)
        axis = (clt_axis)s->in->plan->collectives[i->item].axis;
    if (i->on == CLT_ON_TIED)
        return i->group == clt_group_tied(s->in, i->item);
    if (i->on == CLT_ON_NODE && i->group >= CLT_GROUP_EDGE)
        return axis == CLT_AXIS_PIPELINE;
    if (s->kind == CLT_PROGRAM_COPY && i->group != CLT_GROUP_ALL)
        axis = (clt_axis)(i->group - CLT_GROUP_AXIS);
    return i->group == clt_group_along(s->in, axis) ||
           (s->kind == CLT_PROGRAM_COPY && i->group == CLT_GROUP_ALL);
}

const char *clt_symbolic_start(clt_symbolic_device *s, const clt_instruction *i)
{
    clt_symbol *buffer = operand_of(s, i->on, i->item, i->slot);
    clt_symbolic_request request = {.on = i->on,
                                    .item = i->item,
                                    .slot = i->slot,
                                    .peer = i->peer,
                                    .group = i->group,
                                    .micro = i->micro,
                                    .open = true,
                                    .number = count_in(s, i->group)};
    const char *why = NULL;
    if (!in_right_group(s, i))
        return "the collective is in another group of devices than its data";
    if (i->on == CLT_ON_NODE) {
        const clt_outline_collective *c = &s->in->plan->collectives[i->item];
        why = start_node(s, i);
        request.shape = clt_term(COMPUTED, (uint64_t)(2 * c->count + c->per_sample), c->name);
        request.shape = clt_term(COMPUTED, request.shape, (uint64_t)c->dtype);
        request.way = clt_outline_sends(s->in->plan, i->item)      ? 1
                      : clt_outline_receives(s->in->plan, i->item) ? -1
                                                                   : 0;
        request.shape =
            clt_term(COMPUTED, request.shape, request.way ? (uint64_t)i->micro : (uint64_t)c->kind);
        request.operand = clt_symbolic_computed(s, s->now->next);
    } else if (i->on == CLT_ON_CHECKSUMS) {
        why = s->checksum ? NULL : "the checksums are not there";
        request.operand = s->checksum;
    } else if (i->on == CLT_ON_WORDS) {
        why = s->own_words ? NULL : "the norm of the gradients is not there";
        request.operand = s->own_words;
    } else {
        why = start_buffer(s, i, buffer);
        buffer->flight = true;
        request.operand = buffer->term;
        if (i->on == CLT_ON_RESULTS) {
            request.operand = 0;
            for (int m = 0; m < s->rounds; m++)
                request.operand = clt_term(RESULT, request.operand, s->round_results[m]);
        }
        if (i->on == CLT_ON_GRADIENT && !s->micro_batches && !s->in->tree)
            request.operand = 0;
    }
    if (why)
        return why;
    return CLT_PUSH(s->requests, s->n_requests, s->room_requests, request) == CLT_OK
               ? NULL
               : "host memory does not suffice";
}

clt_symbolic_request *clt_symbolic_request_of(clt_symbolic_device *s, const clt_instruction *i)
{
    for (int r = 0; r < s->n_requests; r++)
        if (s->requests[r].open && s->requests[r].on == i->on && s->requests[r].item == i->item &&
            s->requests[r].slot == i->slot &&
            (i->on != CLT_ON_NODE || s->requests[r].micro == i->micro))
            return &s->requests[r];
    return NULL;
}

void clt_symbolic_complete(clt_symbolic_device *s, clt_symbolic_request *r, uint64_t result)
{
    clt_symbol *buffer = operand_of(s, r->on, r->item, r->slot);
    r->open = false;
    s->unflushed = true;
    if (r->on == CLT_ON_NODE) {
        clt_symbolic_select(s, r->micro);
        s->now->exchanged[r->item] = 2;
        s->now->sums_of[r->item] = result;
        return;
    }
    if (r->on == CLT_ON_WORDS)
        s->words = result;
    if (!buffer)
        return;
    buffer->flight = false;
    switch (r->on) {
    case CLT_ON_RESULTS:
        s->totals = clt_symbolic_written(result, CLT_VERSION_REDUCED);
        break;
    case CLT_ON_GRADIENT:
        s->measured[r->item] = result;
        *buffer = (clt_symbol){.version = CLT_VERSION_REDUCED,
                               .valid = r->peer < 0 || r->peer == place_of(s, r->group)};
        if (buffer->valid)
            buffer->term = result;
        break;
    case CLT_ON_TIED:
        s->ties++;
        buffer->term = clt_term(ADDED, buffer->term, result);
        break;
    case CLT_ON_VALUES:
        *buffer = clt_symbolic_written(result, s->kind == CLT_PROGRAM_COPY ? CLT_VERSION_OLD
                                                                           : CLT_VERSION_NEW);
        break;
    case CLT_ON_SLOT:
        *buffer = clt_symbolic_written(result, CLT_VERSION_OLD);
        break;
    default:
        *buffer = clt_symbolic_written(result, CLT_VERSION_REDUCED);
    }
}
