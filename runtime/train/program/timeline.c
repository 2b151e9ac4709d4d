#include "train/program/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "plan/buckets.h"

/* A collective under way. */
typedef struct meeting {
    int group, first; /* `first` is the group's first participant */
    int number;       /* counts the group's collectives; messages of two stages, each way */
    int peer;         /* of messages: the place of the receiver; else -1 */
    int missing;      /* listed members that have not started it */
    double ready, end;
    clt_timeline_cost cost;
    clt_timeline_exchange exchange;
} meeting;

/* A collective that a device has started and not completed. */
typedef struct pending {
    clt_operand on;
    int item, slot, micro, meeting;
} pending;

/* A group as one device counts its collectives, or as all do the time of the last one. */
typedef struct counter {
    int group, first, peer;
    int count;
    double free;
} counter;

typedef struct runner {
    const clt_timeline_device *device;
    int at, loop;
    double now, compute, update;
    pending *open;
    int n_open, room;
    counter *counters;
    int n_counters, counters_room;
} runner;

typedef struct course {
    runner *runners;
    int count;
    meeting *meetings;
    int n_meetings, room;
    counter *lines; /* of groups */
    int n_lines, lines_room;
    clt_timeline_price price;
    void *user;
    clt_timeline *out;
    clt_timeline_bytes *bytes; /* by runner, or NULL */
} course;

/* --- the program as the interpreter runs it -------------------------------------------------- */

/* A loop without rounds is passed over. */
static void enter(runner *r)
{
    const clt_step_program *p = r->device->program;
    if (!r->loop && p->loop_end > p->loop_first && r->at == p->loop_first) {
        r->loop = 1;
        if (r->device->rounds < 2 + p->behind)
            r->at = p->loop_end;
    }
}

static void advance(runner *r)
{
    const clt_step_program *p = r->device->program;
    r->at++;
    if (r->loop && r->at == p->loop_end && r->loop < r->device->rounds - 1 - p->behind) {
        r->loop++;
        r->at = p->loop_first;
    }
    enter(r);
}

static int micro_of(const runner *r, const clt_instruction *i)
{
    return i->micro == CLT_MICRO_EACH   ? r->loop + i->ahead
           : i->micro == CLT_MICRO_LAST ? r->device->rounds - 1 + i->ahead
                                        : i->micro;
}

/* --- collectives ----------------------------------------------------------------------------- */

static int kind_of(const clt_step_program_input *in, const clt_instruction *i)
{
    const bool owned = i->peer >= 0;
    switch (i->on) {
    case CLT_ON_NODE:
        return in->plan->collectives[i->item].kind;
    case CLT_ON_GRADIENT:
        return in->sharded && !owned && !in->tree ? CLT_OP_REDUCE_SCATTER : CLT_OP_ALL_REDUCE;
    case CLT_ON_VALUES:
    case CLT_ON_WORDS:
        return CLT_OP_ALL_GATHER;
    default:
        return CLT_OP_ALL_REDUCE;
    }
}

static int64_t node_bytes(const runner *r, const clt_instruction *i, int members)
{
    const clt_outline_collective *c = &r->device->input->plan->collectives[i->item];
    const int64_t own = (c->per_sample ? c->count * r->device->samples : c->count) *
                        clt_dtype_size((clt_dtype)c->dtype);
    if (c->kind == CLT_OP_ALL_GATHER || c->kind == CLT_OP_REDUCE_SCATTER)
        return own * members;
    return c->kind == CLT_OP_SHIFT ? own * (members - 1) : own;
}

static int64_t bytes_of(const runner *r, const clt_instruction *i, int members)
{
    const clt_step_program_input *in = r->device->input;
    const int element = in->half ? 2 : 4, shards = in->sharded ? clt_input_parts(in) : 1;
    switch (i->on) {
    case CLT_ON_NODE:
        return node_bytes(r, i, members);
    case CLT_ON_GRADIENT:
    case CLT_ON_VALUES: {
        const bool whole = i->peer >= 0 || (in->tree && i->on == CLT_ON_GRADIENT);
        const int64_t bytes = whole
                                  ? in->layout->buckets[i->item].bytes
                                  : clt_shard_bytes(&in->layout->buckets[i->item], shards) * shards;
        return i->on == CLT_ON_VALUES ? bytes : bytes / 4 * element;
    }
    case CLT_ON_TIED:
        return in->layout->slots[i->item].bytes / 4 * element;
    default:
        return 0; /* a few numbers */
    }
}

/* Counts what a device exchanges. `begins`: the collective has no other member yet. */
static void count_bytes(clt_timeline_bytes *b, const clt_timeline_exchange *e, bool sends,
                        bool begins)
{
    switch (e->on) {
    case CLT_ON_NODE:
        if (e->kind == CLT_OP_SHIFT)
            b->shifts += begins ? e->bytes : 0;
        else if (e->kind != CLT_OP_SEND || sends)
            b->axes[e->axis] += e->bytes;
        break;
    case CLT_ON_GRADIENT:
        b->gradients += e->bytes;
        break;
    case CLT_ON_VALUES:
        b->parameters += e->bytes;
        break;
    case CLT_ON_TIED:
        b->tied += e->bytes;
        break;
    default:
        break;
    }
}

/* Whether a listed device is in the collective. */
static bool takes_part(const runner *r, int group, int first)
{
    const clt_step_program_input *in = r->device->input;
    return clt_group_place(in, group, in->self) >= 0 &&
           clt_group_member(in, group, in->self, 0) == first;
}

static counter *find(counter *list, int n, int group, int first, int peer)
{
    for (int k = 0; k < n; k++)
        if (list[k].group == group && list[k].first == first && list[k].peer == peer)
            return &list[k];
    return NULL;
}

static clt_status count_of(counter **list, int *n, int *room, int group, int first, int peer,
                           counter **found)
{
    *found = find(*list, *n, group, first, peer);
    if (*found)
        return CLT_OK;
    CLT_TRY(CLT_PUSH(*list, *n, *room, (counter){.group = group, .first = first, .peer = peer}));
    *found = &(*list)[*n - 1];
    return CLT_OK;
}

static clt_timeline_exchange describe(const runner *r, const clt_instruction *i)
{
    const clt_step_program_input *in = r->device->input;
    const int members = clt_group_size(in, i->group);
    clt_timeline_exchange e = {.on = i->on,
                               .kind = kind_of(in, i),
                               .group = i->group,
                               .members = members,
                               .participant = in->self,
                               .bytes = bytes_of(r, i, members),
                               .input = in};
    if (members > 1)
        e.stride = abs(clt_group_member(in, i->group, in->self, 1) -
                       clt_group_member(in, i->group, in->self, 0));
    if (i->on == CLT_ON_NODE)
        e.axis = (clt_axis)in->plan->collectives[i->item].axis;
    return e;
}

/* Returns the collective with this number of its group; -1: it has no member yet. */
static int look_up(const course *c, const meeting *wanted)
{
    for (int k = c->n_meetings - 1; k >= 0; k--) {
        const meeting *m = &c->meetings[k];
        if (m->group == wanted->group && m->first == wanted->first && m->peer == wanted->peer &&
            m->number == wanted->number)
            return k;
    }
    return -1;
}

/* Finds the collective that an instruction starts, or makes it for its first member. */
static clt_status meet(course *c, runner *r, const clt_instruction *i, int *found)
{
    const clt_step_program_input *in = r->device->input;
    const bool message = i->on == CLT_ON_NODE && i->group >= CLT_GROUP_EDGE;
    const bool sends = message && clt_outline_sends(in->plan, i->item);
    meeting m = {.group = i->group,
                 .first = clt_group_member(in, i->group, in->self, 0),
                 .peer = !message ? -1
                         : sends  ? i->peer
                                  : clt_group_place(in, i->group, in->self),
                 .end = NAN,
                 .exchange = describe(r, i)};
    counter *number;
    CLT_TRY(count_of(&r->counters, &r->n_counters, &r->counters_room, m.group, m.first, m.peer,
                     &number));
    m.number = number->count++;
    if (message)
        m.exchange.kind = CLT_OP_SEND;
    *found = look_up(c, &m);
    if (c->bytes)
        count_bytes(&c->bytes[r - c->runners], &m.exchange, sends, *found < 0);
    if (*found >= 0)
        return CLT_OK;
    for (int k = 0; k < c->count; k++)
        m.missing += takes_part(&c->runners[k], m.group, m.first);
    m.cost = c->price(c->user, &m.exchange);
    *found = c->n_meetings;
    return CLT_PUSH(c->meetings, c->n_meetings, c->room, m);
}

static clt_status start(course *c, runner *r, const clt_instruction *i)
{
    int found;
    counter *line;
    CLT_TRY(meet(c, r, i, &found));
    meeting *m = &c->meetings[found];
    m->ready = fmax(m->ready, r->now);
    if (--m->missing == 0) {
        CLT_TRY(
            count_of(&c->lines, &c->n_lines, &c->lines_room, m->group, m->first, m->peer, &line));
        m->end = fmax(m->ready, line->free) + m->cost.network;
        line->free = m->end;
    }
    return CLT_PUSH(r->open, r->n_open, r->room,
                    (pending){i->on, i->item, i->slot, micro_of(r, i), found});
}

/* Returns the entry of the collective that an instruction completes; -1: there is none. */
static int opened(const runner *r, const clt_instruction *i)
{
    const int micro = i->on == CLT_ON_NODE ? micro_of(r, i) : -1;
    for (int k = 0; k < r->n_open; k++) {
        const pending *p = &r->open[k];
        if (p->on == i->on && p->item == i->item && p->slot == i->slot &&
            (micro < 0 || p->micro == micro))
            return k;
    }
    return -1;
}

/* Returns false if the device must wait for others. */
static bool complete(course *c, runner *r, const clt_instruction *i)
{
    const int k = opened(r, i);
    if (k < 0)
        return true;
    const meeting *m = &c->meetings[r->open[k].meeting];
    if (m->missing)
        return false;
    r->now = fmax(r->now, m->end) + m->cost.local;
    if (r == c->runners)
        c->out->exchange += m->cost.local + m->cost.network;
    r->open[k] = r->open[--r->n_open];
    return true;
}

/* --- a device -------------------------------------------------------------------------------- */

static void spend(runner *r, double seconds, double *kind)
{
    r->now += seconds;
    *kind += seconds;
}

/* The part of the device's update that is one bucket's. */
static double part_of(const runner *r, int bucket)
{
    const clt_step_program_input *in = r->device->input;
    int64_t all = 0;
    for (int b = 0; b < in->layout->n_buckets; b++)
        all += clt_input_updates(in, b) ? in->layout->buckets[b].bytes : 0;
    return all ? (double)in->layout->buckets[bucket].bytes / (double)all : 0;
}

/* The bytes in f32 of the gradients of a bucket, or of all (-1). */
static double gradients_of(const runner *r, int bucket)
{
    const clt_buckets *layout = r->device->input->layout;
    double bytes = 0;
    for (int b = 0; b < layout->n_buckets; b++)
        if ((bucket < 0 || b == bucket) && !layout->buckets[b].state)
            bytes += (double)layout->buckets[b].bytes;
    return bytes;
}

/* The time to complete a virtual shard. As many nodes of the tree end with a leaf as its number has
 * ones behind its last zero (clt_shard_sums_add). */
static double complete_shard(const clt_timeline_device *d, int micro)
{
    double seconds = d->pairs && micro % 2 ? d->add : 0;
    if (d->pairs && micro % 2 == 0)
        return 0;
    for (int leaf = d->pairs ? micro / 2 : micro; leaf & 1; leaf >>= 1)
        seconds += d->merge;
    return seconds;
}

/* Where no reduction finds the norm. That over virtual shards is the one of a single device. */
static bool finds_norm(const clt_step_program_input *in)
{
    return in->participants == 1 || in->tree;
}

static bool rounds_first(const runner *r, const clt_instruction *i)
{
    return i->on == CLT_ON_GRADIENT && !r->device->input->half;
}

/* Executes instructions until the device ends or must wait. */
static clt_status run(course *c, runner *r, bool *moved)
{
    const clt_timeline_device *d = r->device;
    for (; r->at < d->program->n; advance(r), *moved = true) {
        const clt_instruction *i = &d->program->code[r->at];
        switch (i->kind) {
        case CLT_DO_RUN:
            spend(r, d->nodes[i->end] - d->nodes[i->first], &r->compute);
            break;
        case CLT_DO_START:
            if (rounds_first(r, i))
                spend(r, d->round * gradients_of(r, i->item), &r->update);
            CLT_TRY(start(c, r, i));
            break;
        case CLT_DO_COMPLETE:
            if (!complete(c, r, i))
                return CLT_OK;
            break;
        case CLT_DO_ADD:
        case CLT_DO_ADD_HALF:
            spend(r, d->add, &r->update);
            break;
        case CLT_DO_MERGE:
            spend(r, complete_shard(d, micro_of(r, i)), &r->update);
            break;
        case CLT_DO_ROUND:
            spend(r, d->round * gradients_of(r, -1), &r->update);
            break;
        case CLT_DO_UPDATE:
            spend(r, d->keep * gradients_of(r, i->item), &r->update);
            spend(r, d->update * (i->item < 0 ? 1 : part_of(r, i->item)), &r->update);
            break;
        case CLT_DO_WORDS:
            spend(r, d->status, &r->update);
            break;
        case CLT_DO_STATUS:
            spend(r, finds_norm(d->input) ? d->status : 0, &r->update);
            break;
        case CLT_DO_COMMIT:
            spend(r, d->fixed, &r->compute);
            break;
        default:
            break;
        }
    }
    return CLT_OK;
}

static clt_status run_all(course *c)
{
    bool moved = true, ended = false;
    while (moved && !ended) {
        moved = false;
        ended = true;
        for (int k = 0; k < c->count; k++) {
            CLT_TRY(run(c, &c->runners[k], &moved));
            ended = ended && c->runners[k].at >= c->runners[k].device->program->n;
        }
    }
    return ended ? CLT_OK
                 : clt_fail(CLT_INTERNAL, "a predicted step has devices that wait for ever");
}

static void sum_up(const course *c)
{
    const runner *last = c->runners;
    for (int k = 0; k < c->count; k++) {
        const runner *r = &c->runners[k];
        last = r->now > last->now ? r : last;
    }
    c->out->compute = last->compute;
    c->out->update = last->update;
    c->out->seconds = last->now;
    c->out->exposed = last->now - last->compute - last->update;
}

clt_status clt_timeline_run(const clt_timeline_device *devices, int count, clt_timeline_price price,
                            void *user, clt_timeline *timeline, clt_timeline_bytes *bytes)
{
    course c = {.count = count, .price = price, .user = user, .out = timeline, .bytes = bytes};
    *timeline = (clt_timeline){0};
    for (int k = 0; bytes && k < count; k++)
        bytes[k] = (clt_timeline_bytes){0};
    c.runners = clt_calloc((size_t)count, sizeof *c.runners);
    CLT_TRY_MEMORY(c.runners);
    for (int k = 0; k < count; k++) {
        c.runners[k].device = &devices[k];
        enter(&c.runners[k]);
    }
    const clt_status status = run_all(&c);
    if (status == CLT_OK)
        sum_up(&c);
    for (int k = 0; k < count; k++)
        CLT_FREE(c.runners[k].open, c.runners[k].counters);
    CLT_FREE(c.runners, c.meetings, c.lines);
    return status;
}
