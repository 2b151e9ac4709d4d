#include "train/program/check.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "train/program/symbolic.h"

/* A group of devices that do the same. One of them is executed. */
typedef struct runner {
    clt_symbolic_device state;
    const clt_step_program *program;
    int at;       /* index of the next instruction */
    int loop;     /* iteration of the program's loop, from 1 on */
    int first;    /* the first device of the group */
    int members;  /* number of devices */
    uint64_t key; /* see key_of */
} runner;

typedef struct check {
    clt_step_program_kind kind;
    runner *runners;
    int n;
    int *group_of; /* by device */
} check;

/* --- devices that do the same ---------------------------------------------------------------- */

static uint64_t hash_plan(const clt_outline *o)
{
    const int numbers[] = {o->n_nodes,          o->n_forward,     o->n_segments,
                           o->n_ready,          o->n_collectives, o->n_assigns,
                           o->output_gradients, o->unwritten,     o->input_gradients};
    uint64_t hash = clt_hash(numbers, sizeof numbers, 0);
    hash = clt_hash(o->segments, (size_t)o->n_segments * sizeof *o->segments, hash);
    hash = clt_hash(o->ready, (size_t)o->n_ready * sizeof *o->ready, hash);
    for (int k = 0; k < o->n_collectives; k++) {
        const clt_outline_collective *c = &o->collectives[k];
        const int64_t fields[] = {c->node,  c->needed,     c->kind,          c->axis, c->peer,
                                  c->count, c->per_sample, (int64_t)c->name, c->dtype};
        hash = clt_hash(fields, sizeof fields, hash);
    }
    return hash;
}

uint64_t clt_check_key(const clt_step_program_input *in)
{
    const int numbers[] = {in->participants, in->ranks,        in->layout->n_buckets,
                           in->n_slots,      in->half,         in->streams,
                           in->means,        in->host_weights, in->scaled,
                           in->measures,     in->deferred,     in->shared,
                           in->poison,       in->carries,      in->in_flight,
                           in->rounds,       in->tree};
    const uint64_t hash = clt_hash(&in->mesh, sizeof in->mesh,
                                   clt_hash(numbers, sizeof numbers, hash_plan(in->plan)));
    uint64_t sends = 0; /* its states to the others */
    for (int b = 0; in->unlike && b < in->layout->n_buckets; b++)
        sends = clt_term(1, sends,
                         in->layout->buckets[b].state &&
                             clt_states_sender(in, b) ==
                                 clt_mesh_coordinate(&in->mesh, CLT_AXIS_SAMPLES, in->self));
    uint64_t owns = 0; /* buckets that it updates alone */
    for (int b = 0; b < in->layout->n_buckets; b++)
        owns = clt_term(1, owns, clt_input_owner(in, b) == in->self);
    return clt_term(clt_term(1, hash, clt_term(1, owns, (uint64_t)in->sharded)), in->unlike, sends);
}

static uint64_t hash_program(const clt_step_program *p)
{
    const int loop[] = {p->loop_first, p->loop_end, p->behind};
    return clt_hash(p->code, (size_t)p->n * sizeof *p->code, clt_hash(loop, sizeof loop, 0));
}

/* Two devices with equal keys can be exchanged, and only their numbers change. They execute the
 * same instructions on plans of the same outline, and have the same part in every collective with a
 * root. */
static uint64_t key_of(const clt_check_device *device, uint64_t program)
{
    const int numbers[] = {device->rounds, device->micro_batches};
    uint64_t hash =
        clt_hash(numbers, sizeof numbers, clt_term(5, program, clt_check_key(device->input)));
    for (int i = 0; i < device->program->n; i++) {
        const clt_instruction *code = &device->program->code[i];
        if (code->peer >= 0)
            hash = clt_term(2, hash,
                            code->peer ==
                                clt_group_place(device->input, code->group, device->input->self));
    }
    return hash;
}

/* Adds to each device's key those of the devices along each axis. */
static void add_neighbours(const clt_mesh *mesh, uint64_t *keys, uint64_t *sums, int count)
{
    for (int a = 0; a < CLT_AXES; a++) {
        const clt_axis axis = (clt_axis)a;
        if (mesh->size[a] == 1)
            continue;
        memset(sums, 0, (size_t)count * sizeof *sums);
        for (int d = 0; d < count; d++)
            sums[clt_mesh_neighbour(mesh, axis, d, 0)] += clt_term(6, keys[d], 0);
        for (int d = 0; d < count; d++)
            keys[d] = clt_term(7, keys[d], sums[clt_mesh_neighbour(mesh, axis, d, 0)]);
    }
}

static int find_group(const check *c, uint64_t key)
{
    for (int g = 0; g < c->n; g++)
        if (c->runners[g].key == key)
            return g;
    return -1;
}

/* Fills c->group_of and the runners, except their states. */
static void group_by(check *c, const clt_check_device *devices, const uint64_t *keys, int count)
{
    memset(c->runners, 0, (size_t)count * sizeof *c->runners);
    c->n = 0;
    for (int d = 0; d < count; d++) {
        int g = find_group(c, keys[d]);
        if (g < 0) {
            g = c->n++;
            c->runners[g] = (runner){.program = devices[d].program, .first = d, .key = keys[d]};
        }
        c->runners[g].members++;
        c->group_of[d] = g;
    }
}

/* On a mesh of several axes, devices do the same only if the devices along each axis do. Keys of
 * neighbours are added until no further devices differ. */
static clt_status group(check *c, const clt_check_device *devices, int count)
{
    const clt_step_program_input *in = devices[0].input;
    uint64_t program = 0, *keys = clt_calloc(2 * (size_t)count, sizeof *keys);
    CLT_TRY_MEMORY(keys);
    for (int d = 0; d < count; d++) {
        if (!d || devices[d].program != devices[d - 1].program)
            program = hash_program(devices[d].program);
        keys[d] = key_of(&devices[d], program);
    }
    group_by(c, devices, keys, count);
    for (int before = 0; clt_input_has_words(in) && before < c->n;) {
        before = c->n;
        add_neighbours(&in->mesh, keys, keys + count, count);
        group_by(c, devices, keys, count);
    }
    clt_free(keys);
    return CLT_OK;
}

/* --- the program as the interpreter runs it -------------------------------------------------- */

/* A program without a loop runs from 0 to the end. */
static void enter_loop(runner *r)
{
    if (r->at == r->program->loop_first && r->program->loop_end > r->program->loop_first &&
        r->loop == 0) {
        r->loop = 1;
        if (r->state.rounds < 2 + r->program->behind)
            r->at = r->program->loop_end;
    }
}

static void advance(runner *r)
{
    r->at++;
    if (r->loop && r->at == r->program->loop_end &&
        r->loop < r->state.rounds - 1 - r->program->behind) {
        r->loop++;
        r->at = r->program->loop_first;
    }
    enter_loop(r);
}

static int number_of(const runner *r, int number, int ahead)
{
    if (number == CLT_MICRO_EACH)
        return r->loop + ahead;
    return number == CLT_MICRO_LAST ? clt_symbolic_last(&r->state) + ahead : number;
}

static clt_instruction resolved(const runner *r)
{
    clt_instruction i = r->program->code[r->at];
    i.micro = number_of(r, i.micro, i.ahead);
    i.version = number_of(r, i.version, i.ahead);
    return i;
}

/* --- failures -------------------------------------------------------------------------------- */

static clt_status refuse(const check *c, int g, const char *why)
{
    const runner *r = &c->runners[g];
    clt_str text = {0};
    clt_step_program one = {.n = 1};
    if (r->at < r->program->n) {
        one.code = &r->program->code[r->at];
        clt_step_program_print(&one, &text);
    }
    char *line = text.text ? text.text : "";
    line[strcspn(line, "\n")] = 0;
    const clt_status status = clt_fail(
        CLT_INTERNAL, "program %s, device %d, instruction %d (%s): %s",
        clt_step_program_kind_name(c->kind), r->first, r->at, line[0] ? line + 4 : "end", why);
    clt_str_free(&text);
    return status;
}

/* --- collectives ----------------------------------------------------------------------------- */

/* Returns the request of the same number that a device has started in the group; NULL: not yet. */
static const clt_symbolic_request *partner(const clt_symbolic_device *device, int group, int number)
{
    for (int r = number; r < device->n_requests; r++)
        if (device->requests[r].group == group && device->requests[r].number == number)
            return &device->requests[r];
    return NULL;
}

/* Returns the runner of a member of a collective's group, as runner `r` sees it. */
static const runner *member_of(const check *c, const runner *r, int group, int place)
{
    return &c->runners[c->group_of[clt_group_member(r->state.in, group, r->first, place)]];
}

/* Return the number of runners to ask for a group, one of them, and for how many members it stands.
 * All devices are all runners. */
static int asked(const check *c, const runner *r, int group)
{
    return group == CLT_GROUP_ALL ? c->n : clt_group_size(r->state.in, group);
}

static const runner *ask(const check *c, const runner *r, int group, int k, int *members)
{
    const runner *other = group == CLT_GROUP_ALL ? &c->runners[k] : member_of(c, r, group, k);
    *members = group == CLT_GROUP_ALL ? other->members : 1;
    return other;
}

/* The places of a mesh may have other collectives of the graph in between, so those that belong
 * together have different numbers. Their names are in the shape. */
static bool matches(const clt_symbolic_request *a, const clt_symbolic_request *b)
{
    if (a->way)
        return b->on == CLT_ON_NODE && a->way == -b->way && a->shape == b->shape;
    const bool same = a->item == b->item || a->on == CLT_ON_NODE;
    return a->on == b->on && same && a->slot == b->slot && a->peer == b->peer &&
           a->shape == b->shape;
}

/* Collectives of a group match by the order in which each device starts them. */
static clt_status check_started(const check *c, int g)
{
    const runner *r = &c->runners[g];
    const clt_symbolic_request *last = &r->state.requests[r->state.n_requests - 1];
    if (last->peer >= clt_group_size(r->state.in, last->group))
        return refuse(c, g, "no device has the number of its peer");
    for (int k = 0, members; k < asked(c, r, last->group); k++) {
        const runner *member = ask(c, r, last->group, k, &members);
        const clt_symbolic_request *other = partner(&member->state, last->group, last->number);
        if (other && member != r && !matches(last, other))
            return refuse(c, g, "another device starts another collective at this place");
    }
    return CLT_OK;
}

/* Returns true if all devices of the group have started the collective. Results too are summed over
 * ranks, and the devices of a process belong to one rank. */
static bool all_started(const check *c, const runner *r, const clt_symbolic_request *request)
{
    for (int k = 0, members; k < asked(c, r, request->group); k++)
        if (!partner(&ask(c, r, request->group, k, &members)->state, request->group,
                     request->number))
            return false;
    return true;
}

/* The result does not depend on which devices are executed. */
static uint64_t result_of(const check *c, const runner *r, const clt_symbolic_request *request)
{
    const int group = request->group, number = request->number;
    uint64_t sum = 0;
    if (request->peer >= 0 &&
        (request->way < 0 || request->on == CLT_ON_VALUES || request->on == CLT_ON_SLOT))
        return partner(&member_of(c, r, group, request->peer)->state, group, number)->operand;
    for (int k = 0, members; k < asked(c, r, group); k++) {
        const runner *other = ask(c, r, group, k, &members);
        sum += (uint64_t)members * clt_term(3, partner(&other->state, group, number)->operand, 0);
    }
    return sum ? sum : 1;
}

/* --- running --------------------------------------------------------------------------------- */

/* Runs a group until it waits. *moved becomes true if an instruction was executed. */
static clt_status run_group(const check *c, int g, bool *moved)
{
    runner *r = &c->runners[g];
    while (r->at < r->program->n) {
        const clt_instruction i = resolved(r);
        const char *why = NULL;
        if (i.kind == CLT_DO_COMPLETE) {
            clt_symbolic_request *request = clt_symbolic_request_of(&r->state, &i);
            if (!request)
                return refuse(c, g, "the collective was not started");
            if (!all_started(c, r, request))
                return CLT_OK;
            clt_symbolic_complete(&r->state, request, result_of(c, r, request));
        } else {
            why = clt_symbolic_execute(&r->state, &i);
        }
        if (why)
            return refuse(c, g, why);
        if (i.kind == CLT_DO_START)
            CLT_TRY(check_started(c, g));
        advance(r);
        *moved = true;
    }
    return CLT_OK;
}

static int count_in(const clt_symbolic_device *s, int group)
{
    int count = 0;
    for (int i = 0; i < s->n_requests; i++)
        count += s->requests[i].group == group;
    return count;
}

static bool start_as_many(const check *c, const runner *r)
{
    for (int group = 0; group < clt_group_end(r->state.in); group++) {
        if (clt_group_place(r->state.in, group, r->first) < 0)
            continue;
        const int count = count_in(&r->state, group);
        for (int k = 0, members; k < asked(c, r, group); k++)
            if (count_in(&ask(c, r, group, k, &members)->state, group) != count)
                return false;
    }
    return true;
}

static bool has_replica_of(const runner *r, const runner *other)
{
    for (int b = 0; b < r->state.in->layout->n_buckets; b++)
        if (r->state.values[b].term != other->state.values[b].term)
            return false;
    return true;
}

static clt_status check_end(const check *c)
{
    for (int g = 0; g < c->n; g++) {
        const runner *r = &c->runners[g];
        if (r->at < r->program->n)
            return refuse(c, g, "it waits for ever: not all devices start the collective");
    }
    for (int g = 0; g < c->n; g++) {
        const char *why = clt_symbolic_missing(&c->runners[g].state);
        if (why)
            return refuse(c, g, why);
        if (!start_as_many(c, &c->runners[g]))
            return refuse(c, g, "not all devices start as many collectives");
        const int data = clt_group_along(c->runners[g].state.in, CLT_AXIS_SAMPLES);
        if (c->kind != CLT_PROGRAM_REDUCE && c->kind != CLT_PROGRAM_REDUCED &&
            !has_replica_of(&c->runners[g], member_of(c, &c->runners[g], data, 0)))
            return refuse(c, g, "its replica is not that of the first device with other samples");
    }
    return CLT_OK;
}

static clt_status run_all(const check *c)
{
    bool moved = true;
    for (int g = 0; g < c->n; g++)
        enter_loop(&c->runners[g]);
    while (moved) {
        moved = false;
        for (int g = 0; g < c->n; g++)
            CLT_TRY(run_group(c, g, &moved));
    }
    return check_end(c);
}

static clt_status begin(check *c, const clt_check_device *devices)
{
    for (int g = 0; g < c->n; g++) {
        const clt_check_device *device = &devices[c->runners[g].first];
        if (device->rounds > CLT_SYMBOLIC_ROUNDS)
            return clt_fail(CLT_INTERNAL, "a check has at most %d rounds, not %d",
                            CLT_SYMBOLIC_ROUNDS, device->rounds);
        CLT_TRY(clt_symbolic_create(device->input, c->kind, device->rounds, device->micro_batches,
                                    &c->runners[g].state));
    }
    return CLT_OK;
}

clt_status clt_step_programs_check(clt_step_program_kind kind, const clt_check_device *devices,
                                   int count, clt_check_effect *effect)
{
    check c = {.kind = kind};
    c.runners = clt_calloc((size_t)count, sizeof *c.runners);
    c.group_of = clt_calloc((size_t)count, sizeof *c.group_of);
    clt_status status = c.runners && c.group_of ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        status = group(&c, devices, count);
        CLT_NEXT(status, begin(&c, devices));
    }
    CLT_NEXT(status, run_all(&c));
    clt_check_effect found = {.groups = c.n};
    for (int g = 0; g < c.n; g++) {
        if (status == CLT_OK)
            found.hash += (uint64_t)c.runners[g].members *
                          clt_term(4, clt_symbolic_final(&c.runners[g].state), 0);
        clt_symbolic_free(&c.runners[g].state);
    }
    CLT_FREE(c.runners, c.group_of);
    if (status == CLT_OK && effect)
        *effect = found;
    return status;
}
