#include "train/step/check.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/step/symbolic.h"

/* One device, and where it is in its program. */
typedef struct runner {
    clt_symbolic_device state;
    const clt_step_program *program;
    int at;   /* the next instruction */
    int loop; /* the turn of the program's loop, from 1 on */
} runner;

typedef struct check {
    clt_step_program_kind kind;
    runner *runners;
    int n;
} check;

/* --- the program as the interpreter runs it -------------------------------------------------- */

/* A program without a loop runs from 0 to the end; the loop's turns are 1 to rounds - 2. */
static void enter_loop(runner *r)
{
    if (r->at == r->program->loop_first && r->program->loop_end > r->program->loop_first &&
        r->loop == 0) {
        r->loop = 1;
        if (r->state.rounds < 3)
            r->at = r->program->loop_end;
    }
}

static void advance(runner *r)
{
    r->at++;
    if (r->loop && r->at == r->program->loop_end && r->loop < r->state.rounds - 2) {
        r->loop++;
        r->at = r->program->loop_first;
    }
    enter_loop(r);
}

static int number_of(const runner *r, int number)
{
    if (number == CLT_MICRO_EACH)
        return r->loop;
    return number == CLT_MICRO_LAST ? (r->state.rounds ? r->state.rounds - 1 : 0) : number;
}

static clt_instruction resolved(const runner *r)
{
    clt_instruction i = r->program->code[r->at];
    i.micro = number_of(r, i.micro);
    i.version = number_of(r, i.version);
    return i;
}

/* --- failures -------------------------------------------------------------------------------- */

static clt_status refuse(const check *c, int device, const char *why)
{
    const runner *r = &c->runners[device];
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
        clt_step_program_kind_name(c->kind), device, r->at, line[0] ? line + 4 : "end", why);
    clt_str_free(&text);
    return status;
}

/* --- collectives ----------------------------------------------------------------------------- */

/* The request of the same number on another device; NULL: it was not started yet. */
static const clt_symbolic_request *partner(const runner *other, int number)
{
    return number < other->state.n_requests ? &other->state.requests[number] : NULL;
}

static bool matches(const clt_symbolic_request *a, const clt_symbolic_request *b)
{
    return a->on == b->on && a->item == b->item && a->slot == b->slot && a->peer == b->peer &&
           a->group == b->group && a->shape == b->shape;
}

/* Collectives of a group match by the order in which each device starts them. */
static clt_status check_started(const check *c, int device)
{
    const clt_symbolic_device *s = &c->runners[device].state;
    const clt_symbolic_request *last = &s->requests[s->n_requests - 1];
    for (int d = 0; d < c->n; d++) {
        const clt_symbolic_request *other = partner(&c->runners[d], last->number);
        if (other && !matches(last, other))
            return refuse(c, device, "another device starts another collective at this place");
    }
    return CLT_OK;
}

/* Results are added up over ranks, and devices of one process are one rank's. */
static bool all_started(const check *c, const clt_symbolic_request *r)
{
    for (int d = 0; d < c->n; d++)
        if (!partner(&c->runners[d], r->number))
            return false;
    return true;
}

static uint64_t result_of(const check *c, const clt_symbolic_request *r)
{
    uint64_t term = 1;
    if (r->on == CLT_ON_VALUES || r->on == CLT_ON_SLOT)
        return partner(&c->runners[r->peer], r->number)->operand;
    for (int d = 0; d < c->n; d++)
        term = clt_term(term, partner(&c->runners[d], r->number)->operand, (uint64_t)d);
    return term;
}

/* --- running --------------------------------------------------------------------------------- */

/* Runs a device until it waits; *moved: it did something. */
static clt_status run_device(const check *c, int device, bool *moved)
{
    runner *r = &c->runners[device];
    while (r->at < r->program->n) {
        const clt_instruction i = resolved(r);
        const char *why = NULL;
        if (i.kind == CLT_DO_COMPLETE) {
            clt_symbolic_request *request = clt_symbolic_request_of(&r->state, &i);
            if (!request)
                return refuse(c, device, "the collective was not started");
            if (!all_started(c, request))
                return CLT_OK;
            clt_symbolic_complete(&r->state, request, result_of(c, request));
        } else {
            why = clt_symbolic_execute(&r->state, &i);
        }
        if (why)
            return refuse(c, device, why);
        if (i.kind == CLT_DO_START)
            CLT_TRY(check_started(c, device));
        advance(r);
        *moved = true;
    }
    return CLT_OK;
}

static clt_status check_end(const check *c)
{
    for (int d = 0; d < c->n; d++) {
        const runner *r = &c->runners[d];
        if (r->at < r->program->n)
            return refuse(c, d, "it waits for ever: not all devices start the collective");
    }
    for (int d = 0; d < c->n; d++) {
        const char *why = clt_symbolic_missing(&c->runners[d].state);
        if (why)
            return refuse(c, d, why);
        if (c->runners[d].state.n_requests != c->runners[0].state.n_requests)
            return refuse(c, d, "not all devices start as many collectives");
        const clt_symbolic_device *s = &c->runners[d].state, *first = &c->runners[0].state;
        for (int b = 0; c->kind != CLT_PROGRAM_REDUCE && b < s->in->n_buckets; b++)
            if (s->values[b].term != first->values[b].term &&
                (c->kind != CLT_PROGRAM_COPY || s->in->root >= 0))
                return refuse(c, d, "its replica is not that of device 0");
    }
    return CLT_OK;
}

static clt_status run_all(const check *c)
{
    bool moved = true;
    for (int d = 0; d < c->n; d++)
        enter_loop(&c->runners[d]);
    while (moved) {
        moved = false;
        for (int d = 0; d < c->n; d++)
            CLT_TRY(run_device(c, d, &moved));
    }
    return check_end(c);
}

clt_status clt_step_programs_check(clt_step_program_kind kind, const clt_check_device *devices,
                                   int count, uint64_t *final)
{
    check c = {.kind = kind, .n = count};
    c.runners = clt_calloc((size_t)count, sizeof *c.runners);
    clt_status status = c.runners ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int d = 0; status == CLT_OK && d < count; d++) {
        c.runners[d].program = devices[d].program;
        if (devices[d].rounds > CLT_SYMBOLIC_ROUNDS)
            status = clt_fail(CLT_INTERNAL, "a check has at most %d rounds, not %d",
                              CLT_SYMBOLIC_ROUNDS, devices[d].rounds);
        else
            status = clt_symbolic_create(devices[d].input, kind, devices[d].rounds,
                                         devices[d].micros, &c.runners[d].state);
    }
    if (status == CLT_OK)
        status = run_all(&c);
    uint64_t term = 0;
    for (int d = 0; c.runners && d < count; d++) {
        if (status == CLT_OK)
            term = clt_term(term, clt_symbolic_final(&c.runners[d].state), (uint64_t)d);
        clt_symbolic_free(&c.runners[d].state);
    }
    clt_free(c.runners);
    if (status == CLT_OK && final)
        *final = term;
    return status;
}
