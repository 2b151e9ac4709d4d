/*
 * The programs of steps. The checker accepts what the generators write, for one device and for
 * several. If an instruction is dropped, swapped or doubled, the checker refuses the program, or
 * the result does not change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "train/program/check.h"

/* The third part's number of samples is also that of all further parts of a batch. */
enum { BUCKETS = 4, SHARES = 3, FEW = 4, THOUSANDS = 4096 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

/* --- a plan ---------------------------------------------------------------------------------- */

/* Ten nodes, six of them forward. Buckets 0 to 2 become ready one after the other, and bucket 3 has
 * states. Optional collectives are node 2, which node 4 needs, and node 7, which node 9 needs. */
static clt_segment cut[] = {
    {0, 6, -1, 0, 0}, {6, 8, -1, 0, 1}, {8, 9, -1, 1, 2}, {9, 10, -1, 2, 3}};
static clt_segment cut_more[] = {{0, 3, 0, 0, 0}, {3, 4, -1, 0, 0}, {4, 6, -1, 0, 0},
                                 {6, 8, 1, 0, 1}, {8, 9, -1, 1, 2}, {9, 10, -1, 2, 3}};
static int ready[] = {0, 1, 2};
static clt_outline_collective sums[] = {{2, 4, CLT_OP_ALL_REDUCE, CLT_AXIS_DATA, -1, 8, false, 11},
                                        {7, 9, CLT_OP_ALL_REDUCE, CLT_AXIS_DATA, -1, 8, false, 12}};
static clt_bucket buckets[BUCKETS] = {[BUCKETS - 1] = {.state = true}};
static const clt_buckets layout = {.n_buckets = BUCKETS, .buckets = buckets};
static const int none_after[BUCKETS] = {0, 0, 0, 0}, some_after[BUCKETS] = {2, 2, 2, 0};

static clt_outline plan_of(bool collectives, bool given)
{
    return (clt_outline){.n_nodes = 10,
                         .n_forward = 6,
                         .n_segments = collectives ? 6 : 4,
                         .n_ready = 3,
                         .n_collectives = collectives ? 2 : 0,
                         .n_assigns = 1,
                         .output_gradients = given,
                         .unwritten = true,
                         .segments = collectives ? cut_more : cut,
                         .ready = ready,
                         .collectives = sums};
}

/* --- cases ----------------------------------------------------------------------------------- */

/* Whether devices update shards: because they shall, or because they are of several kinds. */
typedef enum sharding { WHOLE, SHARDED, UNLIKE } sharding;

typedef struct program_case {
    const char *name;
    clt_step_program_kind kind;
    int devices, ranks, micro_batches[SHARES];
    bool collectives;
    sharding sharding;
    bool half, streams, measures, carries, scaled, given;
    const char *mesh; /* NULL: dp alone */
    int in_flight;
} program_case;

static const program_case cases[] = {
    {"one device", CLT_PROGRAM_STEP, 1, 1, {1}, 0, WHOLE, .mesh = NULL},
    {"accumulated", CLT_PROGRAM_STEP, 1, 1, {4}, 0, WHOLE, .mesh = NULL},
    {"accumulated in 16 bits", CLT_PROGRAM_STEP, 2, 1, {3, 2}, 0, WHOLE, .half = true},
    {"two devices", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, .mesh = NULL},
    {"two ranks, one without samples", CLT_PROGRAM_STEP, 3, 2, {1, 0, 1}, 0, WHOLE, .mesh = NULL},
    {"collectives of the graph", CLT_PROGRAM_STEP, 3, 1, {1, 1, 0}, 1, WHOLE, .mesh = NULL},
    {"collectives, accumulated", CLT_PROGRAM_STEP, 2, 2, {4, 2}, 1, WHOLE, .measures = true},
    {"unlike devices", CLT_PROGRAM_STEP, 3, 3, {1, 1, 1}, 0, UNLIKE, .mesh = NULL},
    {"unlike devices, streamed", CLT_PROGRAM_STEP, 3, 1, {1, 2, 0}, 0, UNLIKE, .streams = true},
    {"shards", CLT_PROGRAM_STEP, 3, 3, {1, 1, 0}, 0, SHARDED, .mesh = NULL},
    {"shards, streamed, 16 bits",
     CLT_PROGRAM_STEP,
     2,
     1,
     {3, 1},
     0,
     SHARDED,
     .half = true,
     .streams = true},
    {"scaled losses", CLT_PROGRAM_STEP, 2, 1, {2, 1}, 0, WHOLE, .half = true, .scaled = true},
    {"gradients of outputs", CLT_PROGRAM_STEP, 2, 1, {3, 1}, 0, WHOLE, .given = true},
    {"measured", CLT_PROGRAM_STEP, 2, 2, {1, 1}, 0, WHOLE, .measures = true},
    {"streamed", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, .streams = true},
    {"forward", CLT_PROGRAM_FORWARD, 2, 2, {1, 1}, 1, WHOLE, .mesh = NULL},
    {"backward", CLT_PROGRAM_BACKWARD, 2, 1, {1, 0}, 0, WHOLE, .mesh = NULL},
    {"backward, given gradients", CLT_PROGRAM_BACKWARD, 2, 1, {1, 1}, 0, WHOLE, .given = true},
    {"reduce", CLT_PROGRAM_REDUCE, 2, 1, {1, 1}, 0, WHOLE, .mesh = NULL},
    {"apply", CLT_PROGRAM_APPLY, 3, 1, {1, 1, 1}, 0, UNLIKE, .mesh = NULL},
    {"weights", CLT_PROGRAM_WEIGHTS, 2, 2, {3, 1}, 1, WHOLE, .mesh = NULL},
    {"evaluation", CLT_PROGRAM_OUTSIDE, 3, 3, {4, 3, 0}, 0, WHOLE, .mesh = NULL},
    {"predictor", CLT_PROGRAM_OUTSIDE, 1, 1, {1}, 0, WHOLE, .carries = true},
    {"predictor without samples", CLT_PROGRAM_OUTSIDE, 1, 1, {0}, 0, WHOLE, .carries = true},
    {"diagnosis", CLT_PROGRAM_DIAGNOSE, 2, 1, {4, 2}, 1, WHOLE, .mesh = NULL},
    {"diagnosis in 16 bits", CLT_PROGRAM_DIAGNOSE, 1, 1, {3}, 0, WHOLE, .half = true},
    {"checksums", CLT_PROGRAM_VERIFY, 3, 1, {1, 1, 1}, 0, WHOLE, .mesh = NULL},
    {"copy", CLT_PROGRAM_COPY, 3, 1, {0, 0, 0}, 0, WHOLE, .mesh = NULL},
    {"copy beside shards", CLT_PROGRAM_COPY, 3, 2, {0, 0, 0}, 0, SHARDED, .mesh = NULL},
    {"tp", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, .mesh = "tp=2"},
    {"tp over ranks",
     CLT_PROGRAM_STEP,
     2,
     2,
     {3, 3},
     0,
     WHOLE,
     .half = true,
     .scaled = true,
     .mesh = "tp=2"},
    {"dp and tp", CLT_PROGRAM_STEP, 4, 1, {1, 2}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"dp and tp over ranks", CLT_PROGRAM_STEP, 4, 4, {1, 1}, 1, WHOLE, .mesh = "dp=2,tp=2"},
    {"tp and dp, shards",
     CLT_PROGRAM_STEP,
     4,
     2,
     {1, 0},
     0,
     SHARDED,
     .half = true,
     .mesh = "tp=2,dp=2"},
    {"forward on a mesh", CLT_PROGRAM_FORWARD, 4, 4, {1, 0}, 1, WHOLE, .mesh = "dp=2,tp=2"},
    {"backward on a mesh", CLT_PROGRAM_BACKWARD, 4, 1, {1, 0}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"reduce on a mesh", CLT_PROGRAM_REDUCE, 4, 2, {1, 0}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"reduce along tp", CLT_PROGRAM_REDUCE, 2, 1, {1, 1}, 0, WHOLE, .mesh = "tp=2"},
    {"apply on a mesh", CLT_PROGRAM_APPLY, 4, 2, {1, 1}, 0, SHARDED, .mesh = "dp=2,tp=2"},
    {"apply along tp", CLT_PROGRAM_APPLY, 2, 2, {1, 1}, 0, WHOLE, .mesh = "tp=2"},
    {"weights on a mesh", CLT_PROGRAM_WEIGHTS, 4, 4, {3, 1}, 1, WHOLE, .mesh = "dp=2,tp=2"},
    {"evaluation on a mesh", CLT_PROGRAM_OUTSIDE, 4, 4, {4, 3}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"checksums on a mesh", CLT_PROGRAM_VERIFY, 4, 1, {1, 1}, 0, WHOLE, .mesh = "tp=2,dp=2"},
    {"copy on a mesh", CLT_PROGRAM_COPY, 4, 1, {0, 0}, 0, WHOLE, .mesh = "dp=2,tp=2"},
    {"one in flight", CLT_PROGRAM_STEP, 1, 1, {4}, 0, WHOLE, .in_flight = 1},
    {"two of five in flight", CLT_PROGRAM_STEP, 1, 1, {5}, 0, WHOLE, .in_flight = 2},
    {"two of three in flight", CLT_PROGRAM_STEP, 1, 1, {3}, 1, WHOLE, .in_flight = 2},
    {"all in flight", CLT_PROGRAM_STEP, 2, 1, {4, 2}, 0, WHOLE, .half = true, .in_flight = 4},
    {"in flight on two ranks",
     CLT_PROGRAM_STEP,
     2,
     2,
     {5, 0},
     1,
     WHOLE,
     .given = true,
     .in_flight = 2},
    {"in flight, shards",
     CLT_PROGRAM_STEP,
     2,
     1,
     {6, 1},
     0,
     SHARDED,
     .streams = true,
     .in_flight = 3},
    {"weights with flights", CLT_PROGRAM_WEIGHTS, 2, 1, {4, 4}, 1, WHOLE, .in_flight = 3},
    {"diagnosis with flights", CLT_PROGRAM_DIAGNOSE, 1, 1, {4}, 1, WHOLE, .in_flight = 2},
    {"thousands", CLT_PROGRAM_STEP, THOUSANDS, 512, {1, 0, 1}, 0, WHOLE, .mesh = NULL},
    {"thousands of several kinds",
     CLT_PROGRAM_STEP,
     THOUSANDS,
     512,
     {4, 2, 3},
     1,
     UNLIKE,
     .mesh = NULL},
};

enum { CASES = sizeof cases / sizeof *cases };

typedef struct made {
    clt_outline plan;
    clt_step_program_input *inputs;
    clt_step_program *programs;
    clt_check_device *devices;
} made;

static clt_mesh mesh_of(const program_case *c)
{
    clt_mesh mesh;
    ok(clt_mesh_parse(c->mesh, c->devices, &mesh));
    return mesh;
}

static int micro_batches_of(const program_case *c, int device)
{
    const clt_mesh mesh = mesh_of(c);
    const int part = clt_mesh_coordinate(&mesh, CLT_AXIS_DATA, device);
    return c->micro_batches[part < SHARES ? part : SHARES - 1];
}

static void *zeros(int count, size_t bytes)
{
    void *array = clt_calloc((size_t)count, bytes);
    assert_non_null(array);
    return array;
}

static void make(const program_case *c, made *m)
{
    const int parts = mesh_of(c).size[CLT_AXIS_DATA];
    int most = 0;
    *m = (made){.plan = plan_of(c->collectives, c->given),
                .inputs = zeros(c->devices, sizeof *m->inputs),
                .programs = zeros(c->devices, sizeof *m->programs),
                .devices = zeros(c->devices, sizeof *m->devices)};
    if (c->kind == CLT_PROGRAM_OUTSIDE)
        m->plan.n_nodes = m->plan.n_forward;
    for (int d = 0; d < c->devices; d++)
        most = micro_batches_of(c, d) > most ? micro_batches_of(c, d) : most;
    for (int d = 0; d < c->devices; d++) {
        const bool meets = (c->collectives || c->in_flight) && c->kind != CLT_PROGRAM_DIAGNOSE;
        const int micro_batches = micro_batches_of(c, d), rounds = meets ? most : micro_batches;
        m->inputs[d] = (clt_step_program_input){.plan = &m->plan,
                                                .participants = c->devices,
                                                .ranks = c->ranks,
                                                .mesh = mesh_of(c),
                                                .self = d,
                                                .layout = &layout,
                                                .n_slots = 2,
                                                .sharded = c->sharding != WHOLE,
                                                .unlike = c->sharding == UNLIKE,
                                                .after = c->collectives ? some_after : none_after,
                                                .half = c->half,
                                                .streams = c->streams,
                                                .means = parts > 1 || c->micro_batches[0] > 1,
                                                .host_weights = true,
                                                .measures = c->measures,
                                                .deferred = c->measures,
                                                .shared = c->ranks > 1 && parts > 1,
                                                .carries = c->carries,
                                                .scaled = c->scaled,
                                                .poison = true,
                                                .in_flight = c->in_flight,
                                                .rounds = rounds,
                                                .root = c->devices == FEW ? 2 : 1};
        ok(clt_step_program_generate(&m->inputs[d], c->kind, clt_load_of(rounds, micro_batches),
                                     &m->programs[d]));
        m->devices[d] = (clt_check_device){&m->inputs[d], &m->programs[d], rounds, micro_batches};
    }
}

static void release(const program_case *c, made *m)
{
    for (int d = 0; d < c->devices; d++)
        clt_step_program_free(&m->programs[d]);
    clt_free(m->inputs);
    clt_free(m->programs);
    clt_free(m->devices);
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
        release(&cases[i], &m);
    }
}

static uint64_t effect_of(const program_case *c)
{
    made m;
    clt_check_effect effect;
    make(c, &m);
    ok(clt_step_programs_check(c->kind, m.devices, c->devices, &effect));
    release(c, &m);
    return effect.hash;
}

/* A step has the same effect, however many micro-batches are in flight. */
static void test_flights(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++)
        for (int devices = 1; devices <= 2; devices++) {
            program_case c = {"in flight", CLT_PROGRAM_STEP, devices, 1, {5, 5}, 1,
                              WHOLE,       .half = half != 0};
            const uint64_t right = effect_of(&c);
            for (c.in_flight = 1; c.in_flight <= 5; c.in_flight++)
                assert_true(effect_of(&c) == right);
            c.in_flight = 0;
            c.micro_batches[0] = 4;
            assert_true(effect_of(&c) != right);
        }
}

/* --- mutations ------------------------------------------------------------------------------- */

typedef enum mutation { DROP, SWAP, DOUBLE, MUTATIONS } mutation;

/* Copies a program and drops an instruction, swaps it with the next one, or doubles it. The loop
 * keeps its bounds around the same instructions. */
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

/* Returns whether an instruction may be dropped. A change that terms do not show must be one of
 * these. A device without samples adds nothing to a collective, whatever its gradients hold. */
static bool may_be_dropped(const program_case *c, const clt_instruction *i, int device, int rounds)
{
    const int micro_batches = micro_batches_of(c, device);
    switch (i->kind) {
    case CLT_DO_POISON: /* only tests fill the memory */
        return true;
    case CLT_DO_UPSTREAM:
    case CLT_DO_UPSTREAM_SCALED: /* every micro-batch, and the previous part, sets the same numbers
                                  */
        return i->micro != 0 || c->in_flight > 1 || c->kind == CLT_PROGRAM_FORWARD ||
               c->kind == CLT_PROGRAM_BACKWARD;
    case CLT_DO_RUN: /* the last run: nothing needs it */
    case CLT_DO_ZERO:
    case CLT_DO_CLEAR:
        return micro_batches == 0;
    case CLT_DO_ADD: /* zeros follow */
        return micro_batches == 0 && c->in_flight;
    case CLT_DO_FETCH:
        return micro_batches < rounds;
    case CLT_DO_ASSIGN: /* another device sends its states */
        return c->sharding == UNLIKE && (BUCKETS - 1) % c->devices != device; /* without a mesh */
    default:
        return false;
    }
}

/* The loop is executed only if there are enough rounds. */
static bool never_runs(const made *m, int d, int at)
{
    return m->devices[d].rounds < 2 + m->programs[d].behind && at >= m->programs[d].loop_first &&
           at < m->programs[d].loop_end;
}

/* Tries all mutations of one device's program. */
static void try_device(const program_case *c, made *m, int d, uint64_t right, int tried[MUTATIONS],
                       int refused[MUTATIONS])
{
    for (int how = 0; how < MUTATIONS; how++)
        for (int at = 0; at < m->programs[d].n - (how == SWAP); at++) {
            clt_step_program changed = mutate(&m->programs[d], (mutation)how, at);
            clt_check_effect other = {0};
            m->devices[d].program = &changed;
            tried[how]++;
            if (clt_step_programs_check(c->kind, m->devices, c->devices, &other) != CLT_OK)
                refused[how]++;
            else if (other.hash != right ||
                     (!never_runs(m, d, at) && how == DROP &&
                      !may_be_dropped(c, &m->programs[d].code[at], d, m->devices[d].rounds))) {
                const clt_step_program one = {.code = &m->programs[d].code[at], .n = 1};
                clt_str text = {0};
                clt_step_program_print(&one, &text);
                fail_msg("%s: mutation %d of instruction %d of device %d passes%s:\n%s", c->name,
                         how, at, d, other.hash != right ? ", with another effect" : "", text.text);
            }
            clt_step_program_free(&changed);
            m->devices[d].program = &m->programs[d];
        }
}

/* Tries the first of thousands of devices, which may send states, and one in the middle. */
static void try_all(const program_case *c, int tried[MUTATIONS], int refused[MUTATIONS])
{
    made m;
    clt_check_effect right;
    make(c, &m);
    ok(clt_step_programs_check(c->kind, m.devices, c->devices, &right));
    for (int d = 0; d<c->devices; d += c->devices> FEW ? c->devices / 2 : 1)
        try_device(c, &m, d, right.hash, tried, refused);
    release(c, &m);
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

/* --- the same bug in the programs of all devices ---------------------------------------------- */

typedef enum bug {
    NO_COLLECTIVE,
    UNREDUCED,
    OTHER_PEER,
    OTHER_GROUP,
    OTHER_UPSTREAM,
    LATE,
    BUGS
} bug;

static bool exchanges(const clt_instruction *i)
{
    return i->kind == CLT_DO_START || i->kind == CLT_DO_COMPLETE;
}

/* Changes an instruction as a generator would that has a bug at instruction `at`. Returns whether
 * to keep the instruction. */
static bool plant(bug which, const clt_instruction *at, int devices, clt_instruction *i)
{
    const bool same = exchanges(i) && i->on == at->on && i->item == at->item && i->slot == at->slot;
    switch (which) {
    case NO_COLLECTIVE:
        return !same;
    case UNREDUCED: /* each device goes on with its own part */
        if (i->version == CLT_VERSION_REDUCED)
            i->version = CLT_MICRO_LAST;
        return !exchanges(i) || i->on != at->on;
    case OTHER_PEER:
        if (same)
            i->peer = (i->peer + 1) % devices;
        return true;
    case OTHER_GROUP: /* all devices, or those along dp */
        if (same)
            i->group = i->group == CLT_GROUP_ALL ? CLT_GROUP_AXIS : CLT_GROUP_ALL;
        return true;
    case OTHER_UPSTREAM:
        if (i->kind == at->kind)
            i->kind = at->kind == CLT_DO_UPSTREAM ? CLT_DO_UPSTREAM_SCALED : CLT_DO_UPSTREAM;
        return true;
    default:
        return i->kind != CLT_DO_MEASURED;
    }
}

static clt_step_program planted(const clt_step_program *p, bug which, const clt_instruction *at,
                                int devices)
{
    clt_step_program q = {.loop_first = p->loop_first, .loop_end = p->loop_end, .room = p->n};
    q.code = zeros(q.room, sizeof *q.code);
    for (int n = 0; n < p->n; n++) {
        clt_instruction i = p->code[n];
        if (plant(which, at, devices, &i)) {
            q.code[q.n++] = i;
        } else {
            q.loop_first -= n < p->loop_first;
            q.loop_end -= n < p->loop_end;
        }
        if (which == LATE && i.kind == CLT_DO_STATUS)
            q.code[q.n++] = *at;
    }
    return q;
}

static bool concerns(bug which, const clt_instruction *i)
{
    switch (which) {
    case OTHER_GROUP: /* groups of nodes are the plan's */
        return i->kind == CLT_DO_START && i->on != CLT_ON_NODE;
    case OTHER_PEER:
        return i->kind == CLT_DO_START && i->peer >= 0;
    case OTHER_UPSTREAM:
        return i->kind == CLT_DO_UPSTREAM || i->kind == CLT_DO_UPSTREAM_SCALED;
    case LATE: /* the time of the device's own work */
        return i->kind == CLT_DO_MEASURED;
    default:
        return i->kind == CLT_DO_START;
    }
}

/* Returns how many bugs were tried. */
static int try_bugs(const program_case *c)
{
    made m;
    clt_step_program changed[FEW];
    int tried = 0;
    make(c, &m);
    for (int k = 0; k < BUGS * m.programs[0].n; k++) {
        const bug which = (bug)(k % BUGS);
        const clt_instruction *at = &m.programs[0].code[k / BUGS];
        if (!concerns(which, at))
            continue;
        for (int d = 0; d < c->devices; d++) {
            changed[d] = planted(&m.programs[d], which, at, c->devices);
            m.devices[d].program = &changed[d];
        }
        if (clt_step_programs_check(c->kind, m.devices, c->devices, NULL) == CLT_OK) {
            clt_str text = {0};
            clt_step_program_print(&changed[0], &text);
            fail_msg("%s: bug %d at instruction %d passes:\n%s", c->name, (int)which, k / BUGS,
                     text.text);
        }
        for (int d = 0; d < c->devices; d++)
            clt_step_program_free(&changed[d]);
        tried++;
    }
    release(c, &m);
    return tried;
}

/* A bug of the generator makes all devices do the same wrong thing, so no two of them differ. */
static void test_bugs(void **state)
{
    int tried = 0;
    (void)state;
    for (int i = 0; i < CASES; i++)
        if (cases[i].devices <= FEW)
            tried += try_bugs(&cases[i]);
    print_message("%d bugs refused\n", tried);
    assert_true(tried > 100);
}

/* --- devices with incompatible programs ------------------------------------------------------- */

static void test_unlike_devices(void **state)
{
    made m;
    (void)state;
    make(&cases[3], &m);
    clt_outline other = plan_of(false, false);
    static int reversed[] = {1, 0, 2};
    other.ready = reversed;
    m.inputs[1].plan = &other;
    clt_step_program_free(&m.programs[1]);
    ok(clt_step_program_generate(&m.inputs[1], CLT_PROGRAM_STEP, CLT_LOAD_ONE, &m.programs[1]));
    assert_int_equal(clt_step_programs_check(CLT_PROGRAM_STEP, m.devices, 2, NULL), CLT_INTERNAL);
    assert_non_null(strstr(clt_error_message(), "another device starts another collective"));
    release(&cases[3], &m);
}

static void test_waits_for_ever(void **state)
{
    made m;
    (void)state;
    make(&cases[3], &m);
    m.programs[1].n = 5; /* it never reaches its reductions */
    assert_int_equal(clt_step_programs_check(CLT_PROGRAM_STEP, m.devices, 2, NULL), CLT_INTERNAL);
    assert_non_null(strstr(clt_error_message(), "waits for ever"));
    release(&cases[3], &m);
}

/* Equal devices are executed only once. The groups are: devices with other numbers of samples, the
 * one that sends states, and all others. */
static void test_groups(void **state)
{
    (void)state;
    for (int i = CASES - 2; i < CASES; i++) {
        made m;
        clt_check_effect effect;
        make(&cases[i], &m);
        ok(clt_step_programs_check(cases[i].kind, m.devices, cases[i].devices, &effect));
        assert_int_equal(effect.groups, cases[i].sharding ? 4 : 2);
        release(&cases[i], &m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),       cmocka_unit_test(test_flights),
        cmocka_unit_test(test_mutations),      cmocka_unit_test(test_bugs),
        cmocka_unit_test(test_unlike_devices), cmocka_unit_test(test_waits_for_ever),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
