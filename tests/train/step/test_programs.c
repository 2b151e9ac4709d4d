/*
 * The programs of steps: the checker accepts what the generators write, for one and several
 * devices, and each instruction that is dropped, swapped or doubled is refused or changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "train/step/check.h"

enum { BUCKETS = 4, DEVICES = 3 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

/* --- a plan ---------------------------------------------------------------------------------- */

/* Ten nodes, six of them forward; buckets 0 to 2 become ready one after the other, bucket 3 has
 * states. Node 2 may be a collective, needed by node 4, and node 7 one, needed by node 9. */
static clt_segment cut[] = {
    {0, 6, -1, 0, 0}, {6, 8, -1, 0, 1}, {8, 9, -1, 1, 2}, {9, 10, -1, 2, 3}};
static clt_segment cut_more[] = {{0, 3, 0, 0, 0}, {3, 4, -1, 0, 0}, {4, 6, -1, 0, 0},
                                 {6, 8, 1, 0, 1}, {8, 9, -1, 1, 2}, {9, 10, -1, 2, 3}};
static int ready[] = {0, 1, 2};
static clt_outline_collective sums[] = {{2, 4, 8, 11}, {7, 9, 8, 12}};
static const bool states[BUCKETS] = {false, false, false, true};
static const int owners[BUCKETS] = {0, 1, 2, 0}, none_after[BUCKETS] = {0, 0, 0, 0},
                 some_after[BUCKETS] = {2, 2, 2, 0};

static clt_outline plan_of(bool collectives)
{
    return (clt_outline){.n_nodes = 10,
                         .n_forward = 6,
                         .n_segments = collectives ? 6 : 4,
                         .n_ready = 3,
                         .n_collectives = collectives ? 2 : 0,
                         .n_assigns = 1,
                         .unwritten = true,
                         .segments = collectives ? cut_more : cut,
                         .ready = ready,
                         .collectives = sums};
}

/* --- cases ----------------------------------------------------------------------------------- */

typedef struct program_case {
    const char *name;
    clt_step_program_kind kind;
    int devices, ranks, micros[DEVICES];
    bool collectives, owners, half, streams, measures;
} program_case;

static const program_case cases[] = {
    {"one device", CLT_PROGRAM_STEP, 1, 1, {1}, 0, 0, 0, 0, 0},
    {"accumulated", CLT_PROGRAM_STEP, 1, 1, {4}, 0, 0, 0, 0, 0},
    {"accumulated in 16 bits", CLT_PROGRAM_STEP, 2, 1, {3, 2}, 0, 0, 1, 0, 0},
    {"two devices", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, 0, 0, 0, 0},
    {"two ranks, one without samples", CLT_PROGRAM_STEP, 3, 2, {1, 0, 1}, 0, 0, 0, 0, 0},
    {"collectives of the graph", CLT_PROGRAM_STEP, 3, 1, {1, 1, 0}, 1, 0, 0, 0, 0},
    {"collectives, accumulated", CLT_PROGRAM_STEP, 2, 2, {4, 2}, 1, 0, 0, 0, 1},
    {"owners", CLT_PROGRAM_STEP, 3, 3, {1, 1, 1}, 0, 1, 0, 0, 0},
    {"owners, streamed", CLT_PROGRAM_STEP, 3, 1, {1, 2, 0}, 0, 1, 0, 1, 0},
    {"streamed", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, 0, 0, 1, 0},
    {"forward", CLT_PROGRAM_FORWARD, 2, 2, {1, 1}, 1, 0, 0, 0, 0},
    {"backward", CLT_PROGRAM_BACKWARD, 2, 1, {1, 0}, 0, 0, 0, 0, 0},
    {"reduce", CLT_PROGRAM_REDUCE, 2, 1, {1, 1}, 0, 0, 0, 0, 0},
    {"apply", CLT_PROGRAM_APPLY, 3, 1, {1, 1, 1}, 0, 1, 0, 0, 0},
    {"weights", CLT_PROGRAM_WEIGHTS, 2, 2, {3, 1}, 1, 0, 0, 0, 0},
    {"evaluation", CLT_PROGRAM_OUTSIDE, 3, 3, {4, 3, 0}, 0, 0, 0, 0, 0},
    {"checksums", CLT_PROGRAM_VERIFY, 3, 1, {1, 1, 1}, 0, 0, 0, 0, 0},
    {"copy", CLT_PROGRAM_COPY, 3, 1, {0, 0, 0}, 0, 1, 0, 0, 0},
};

enum { CASES = sizeof cases / sizeof *cases };

typedef struct made {
    clt_outline plan;
    clt_step_program_input inputs[DEVICES];
    clt_step_program programs[DEVICES];
    clt_check_device devices[DEVICES];
} made;

static void make(const program_case *c, made *m)
{
    int most = 0;
    *m = (made){.plan = plan_of(c->collectives)};
    if (c->kind == CLT_PROGRAM_OUTSIDE)
        m->plan.n_nodes = m->plan.n_forward;
    for (int d = 0; d < c->devices; d++)
        most = c->micros[d] > most ? c->micros[d] : most;
    for (int d = 0; d < c->devices; d++) {
        const int rounds = c->collectives ? most : c->micros[d];
        m->inputs[d] = (clt_step_program_input){.plan = &m->plan,
                                                .participants = c->devices,
                                                .ranks = c->ranks,
                                                .self = d,
                                                .n_buckets = BUCKETS,
                                                .n_slots = 2,
                                                .states = states,
                                                .owners = c->owners ? owners : NULL,
                                                .after = c->collectives ? some_after : none_after,
                                                .half = c->half,
                                                .streams = c->streams,
                                                .means = c->devices > 1 || c->micros[0] > 1,
                                                .host_weights = true,
                                                .measures = c->measures,
                                                .apart = c->measures,
                                                .shared = c->ranks > 1,
                                                .poison = true,
                                                .root = c->kind == CLT_PROGRAM_COPY ? 1 : 0};
        ok(clt_step_program_generate(&m->inputs[d], c->kind, clt_load_of(rounds, c->micros[d]),
                                     &m->programs[d]));
        m->devices[d] = (clt_check_device){&m->inputs[d], &m->programs[d], rounds, c->micros[d]};
    }
}

static void release(made *m)
{
    for (int d = 0; d < DEVICES; d++)
        clt_step_program_free(&m->programs[d]);
}

static void test_accepted(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        made m;
        make(&cases[i], &m);
        const clt_status status =
            clt_step_programs_check(cases[i].kind, m.devices, cases[i].devices, NULL);
        if (status != CLT_OK) {
            clt_str text = {0};
            clt_step_program_print(&m.programs[0], &text);
            fail_msg("%s: %s\n%s", cases[i].name, clt_error_message(), text.text);
        }
        release(&m);
    }
}

/* --- mutations ------------------------------------------------------------------------------- */

typedef enum mutation { DROP, SWAP, DOUBLE, MUTATIONS } mutation;

/* A copy of a program with one instruction dropped, put behind the next one, or there twice. The
 * loop keeps its bounds around the same instructions. */
static clt_step_program mutate(const clt_step_program *p, mutation how, int at)
{
    clt_step_program q = *p;
    q.room = p->n + 1;
    q.code = clt_calloc((size_t)q.room, sizeof *q.code);
    assert_non_null(q.code);
    memcpy(q.code, p->code, (size_t)p->n * sizeof *q.code);
    if (how == SWAP) {
        const clt_instruction first = q.code[at];
        q.code[at] = q.code[at + 1];
        q.code[at + 1] = first;
        return q;
    }
    const int by = how == DROP ? -1 : 1;
    memmove(&q.code[at + (how == DROP ? 0 : 1)], &p->code[at + (how == DROP ? 1 : 0)],
            (size_t)(p->n - at - (how == DROP)) * sizeof *q.code);
    q.n += by;
    q.loop_first += at < p->loop_first ? by : 0;
    q.loop_end += at < p->loop_end ? by : 0;
    return q;
}

/* An instruction that may be dropped: what terms do not show is one of these. A device without
 * samples gives a collective nothing, whatever its gradients hold. */
static bool may_be_dropped(const program_case *c, const clt_instruction *i, int device, int rounds)
{
    const int micros = c->micros[device];
    switch (i->kind) {
    case CLT_DO_POISON: /* only tests fill the arena */
        return true;
    case CLT_DO_UPSTREAM: /* every micro-batch, and the part before, sets the same numbers */
        return i->micro != 0 || c->kind == CLT_PROGRAM_FORWARD || c->kind == CLT_PROGRAM_BACKWARD;
    case CLT_DO_RUN: /* the last one: nothing that follows needs it */
    case CLT_DO_ZERO:
    case CLT_DO_CLEAR:
        return micros == 0;
    case CLT_DO_FETCH:
        return micros < rounds;
    case CLT_DO_ASSIGN: /* the owner ships its states */
        return c->owners && owners[BUCKETS - 1] != device;
    default:
        return false;
    }
}

/* The loop has turns from three rounds on. */
static bool never_runs(const made *m, int d, int at)
{
    return m->devices[d].rounds < 3 && at >= m->programs[d].loop_first &&
           at < m->programs[d].loop_end;
}

static void try_all(const program_case *c, int tried[MUTATIONS], int refused[MUTATIONS])
{
    made m;
    uint64_t right, other;
    make(c, &m);
    ok(clt_step_programs_check(c->kind, m.devices, c->devices, &right));
    for (int d = 0; d < c->devices; d++)
        for (int how = 0; how < MUTATIONS; how++)
            for (int at = 0; at < m.programs[d].n - (how == SWAP); at++) {
                clt_step_program changed = mutate(&m.programs[d], (mutation)how, at);
                m.devices[d].program = &changed;
                tried[how]++;
                if (clt_step_programs_check(c->kind, m.devices, c->devices, &other) != CLT_OK)
                    refused[how]++;
                else if (other != right ||
                         (!never_runs(&m, d, at) && how == DROP &&
                          !may_be_dropped(c, &m.programs[d].code[at], d, m.devices[d].rounds))) {
                    clt_str text = {0};
                    clt_step_program_print(&m.programs[d], &text);
                    fail_msg("%s: mutation %d of instruction %d of device %d passes%s:\n%s",
                             c->name, how, at, d, other != right ? ", with another effect" : "",
                             text.text);
                }
                clt_step_program_free(&changed);
                m.devices[d].program = &m.programs[d];
            }
    release(&m);
}

static void test_mutations(void **state)
{
    static const char *const names[] = {"dropped", "swapped with the next", "doubled"};
    int tried[MUTATIONS] = {0}, refused[MUTATIONS] = {0};
    (void)state;
    for (int i = 0; i < CASES; i++)
        try_all(&cases[i], tried, refused);
    for (int how = 0; how < MUTATIONS; how++)
        print_message("%d instructions %s: %d refused, %d of no effect\n", tried[how], names[how],
                      refused[how], tried[how] - refused[how]);
    assert_true(refused[DROP] * 10 > tried[DROP] * 8);
}

/* --- devices that do not fit together -------------------------------------------------------- */

static void test_unlike_devices(void **state)
{
    made m;
    (void)state;
    make(&cases[3], &m);
    clt_outline other = plan_of(false);
    static int reversed[] = {1, 0, 2};
    other.ready = reversed;
    m.inputs[1].plan = &other;
    clt_step_program_free(&m.programs[1]);
    ok(clt_step_program_generate(&m.inputs[1], CLT_PROGRAM_STEP, CLT_LOAD_ONE, &m.programs[1]));
    assert_int_equal(clt_step_programs_check(CLT_PROGRAM_STEP, m.devices, 2, NULL), CLT_INTERNAL);
    assert_non_null(strstr(clt_error_message(), "another device starts another collective"));
    release(&m);
}

static void test_waits_for_ever(void **state)
{
    made m;
    (void)state;
    make(&cases[3], &m);
    m.programs[1].n = 5; /* it never comes to its reductions */
    assert_int_equal(clt_step_programs_check(CLT_PROGRAM_STEP, m.devices, 2, NULL), CLT_INTERNAL);
    assert_non_null(strstr(clt_error_message(), "waits for ever"));
    release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_unlike_devices),
        cmocka_unit_test(test_waits_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
