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
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "train/program/check.h"

/* The third device's number of samples is also that of all further devices. */
enum { BUCKETS = 4, SHARES = 3, THOUSANDS = 4096 };

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
static clt_outline_collective sums[] = {{2, 4, 8, 11}, {7, 9, 8, 12}};
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
} program_case;

static const program_case cases[] = {
    {"one device", CLT_PROGRAM_STEP, 1, 1, {1}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"accumulated", CLT_PROGRAM_STEP, 1, 1, {4}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"accumulated in 16 bits", CLT_PROGRAM_STEP, 2, 1, {3, 2}, 0, WHOLE, 1, 0, 0, 0, 0, 0},
    {"two devices", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"two ranks, one without samples",
     CLT_PROGRAM_STEP,
     3,
     2,
     {1, 0, 1},
     0,
     WHOLE,
     0,
     0,
     0,
     0,
     0,
     0},
    {"collectives of the graph", CLT_PROGRAM_STEP, 3, 1, {1, 1, 0}, 1, WHOLE, 0, 0, 0, 0, 0, 0},
    {"collectives, accumulated", CLT_PROGRAM_STEP, 2, 2, {4, 2}, 1, WHOLE, 0, 0, 1, 0, 0, 0},
    {"unlike devices", CLT_PROGRAM_STEP, 3, 3, {1, 1, 1}, 0, UNLIKE, 0, 0, 0, 0, 0, 0},
    {"unlike devices, streamed", CLT_PROGRAM_STEP, 3, 1, {1, 2, 0}, 0, UNLIKE, 0, 1, 0, 0, 0, 0},
    {"shards", CLT_PROGRAM_STEP, 3, 3, {1, 1, 0}, 0, SHARDED, 0, 0, 0, 0, 0, 0},
    {"shards, streamed, 16 bits", CLT_PROGRAM_STEP, 2, 1, {3, 1}, 0, SHARDED, 1, 1, 0, 0, 0, 0},
    {"scaled losses", CLT_PROGRAM_STEP, 2, 1, {2, 1}, 0, WHOLE, 1, 0, 0, 0, 1, 0},
    {"gradients of outputs", CLT_PROGRAM_STEP, 2, 1, {3, 1}, 0, WHOLE, 0, 0, 0, 0, 0, 1},
    {"measured", CLT_PROGRAM_STEP, 2, 2, {1, 1}, 0, WHOLE, 0, 0, 1, 0, 0, 0},
    {"streamed", CLT_PROGRAM_STEP, 2, 1, {1, 1}, 0, WHOLE, 0, 1, 0, 0, 0, 0},
    {"forward", CLT_PROGRAM_FORWARD, 2, 2, {1, 1}, 1, WHOLE, 0, 0, 0, 0, 0, 0},
    {"backward", CLT_PROGRAM_BACKWARD, 2, 1, {1, 0}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"backward, given gradients", CLT_PROGRAM_BACKWARD, 2, 1, {1, 1}, 0, WHOLE, 0, 0, 0, 0, 0, 1},
    {"reduce", CLT_PROGRAM_REDUCE, 2, 1, {1, 1}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"apply", CLT_PROGRAM_APPLY, 3, 1, {1, 1, 1}, 0, UNLIKE, 0, 0, 0, 0, 0, 0},
    {"weights", CLT_PROGRAM_WEIGHTS, 2, 2, {3, 1}, 1, WHOLE, 0, 0, 0, 0, 0, 0},
    {"evaluation", CLT_PROGRAM_OUTSIDE, 3, 3, {4, 3, 0}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"predictor", CLT_PROGRAM_OUTSIDE, 1, 1, {1}, 0, WHOLE, 0, 0, 0, 1, 0, 0},
    {"predictor without samples", CLT_PROGRAM_OUTSIDE, 1, 1, {0}, 0, WHOLE, 0, 0, 0, 1, 0, 0},
    {"diagnosis", CLT_PROGRAM_DIAGNOSE, 2, 1, {4, 2}, 1, WHOLE, 0, 0, 0, 0, 0, 0},
    {"diagnosis in 16 bits", CLT_PROGRAM_DIAGNOSE, 1, 1, {3}, 0, WHOLE, 1, 0, 0, 0, 0, 0},
    {"checksums", CLT_PROGRAM_VERIFY, 3, 1, {1, 1, 1}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"copy", CLT_PROGRAM_COPY, 3, 1, {0, 0, 0}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"copy beside shards", CLT_PROGRAM_COPY, 3, 2, {0, 0, 0}, 0, SHARDED, 0, 0, 0, 0, 0, 0},
    {"thousands", CLT_PROGRAM_STEP, THOUSANDS, 512, {1, 0, 1}, 0, WHOLE, 0, 0, 0, 0, 0, 0},
    {"thousands of several kinds",
     CLT_PROGRAM_STEP,
     THOUSANDS,
     512,
     {4, 2, 3},
     1,
     UNLIKE,
     0,
     0,
     0,
     0,
     0,
     0},
};

enum { CASES = sizeof cases / sizeof *cases };

typedef struct made {
    clt_outline plan;
    clt_step_program_input *inputs;
    clt_step_program *programs;
    clt_check_device *devices;
} made;

static int micro_batches_of(const program_case *c, int device)
{
    return c->micro_batches[device < SHARES ? device : SHARES - 1];
}

static void *zeros(int count, size_t bytes)
{
    void *array = clt_calloc((size_t)count, bytes);
    assert_non_null(array);
    return array;
}

static void make(const program_case *c, made *m)
{
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
        const bool meets = c->collectives && c->kind != CLT_PROGRAM_DIAGNOSE;
        const int micro_batches = micro_batches_of(c, d), rounds = meets ? most : micro_batches;
        m->inputs[d] = (clt_step_program_input){.plan = &m->plan,
                                                .participants = c->devices,
                                                .ranks = c->ranks,
                                                .self = d,
                                                .layout = &layout,
                                                .n_slots = 2,
                                                .sharded = c->sharding != WHOLE,
                                                .unlike = c->sharding == UNLIKE,
                                                .after = c->collectives ? some_after : none_after,
                                                .half = c->half,
                                                .streams = c->streams,
                                                .means = c->devices > 1 || c->micro_batches[0] > 1,
                                                .host_weights = true,
                                                .measures = c->measures,
                                                .deferred = c->measures,
                                                .shared = c->ranks > 1,
                                                .carries = c->carries,
                                                .scaled = c->scaled,
                                                .poison = true,
                                                .root = 1};
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
        return i->micro != 0 || c->kind == CLT_PROGRAM_FORWARD || c->kind == CLT_PROGRAM_BACKWARD;
    case CLT_DO_RUN: /* the last run: nothing needs it */
    case CLT_DO_ZERO:
    case CLT_DO_CLEAR:
        return micro_batches == 0;
    case CLT_DO_FETCH:
        return micro_batches < rounds;
    case CLT_DO_ASSIGN: /* another device sends its states */
        return c->sharding == UNLIKE && (BUCKETS - 1) % c->devices != device;
    default:
        return false;
    }
}

/* The loop is executed only if there are at least three rounds. */
static bool never_runs(const made *m, int d, int at)
{
    return m->devices[d].rounds < 3 && at >= m->programs[d].loop_first &&
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
    for (int d = 0; d<c->devices; d += c->devices> SHARES ? c->devices / 2 : 1)
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

typedef enum bug { NO_COLLECTIVE, UNREDUCED, OTHER_PEER, OTHER_UPSTREAM, LATE, BUGS } bug;

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
    clt_step_program changed[SHARES];
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
        if (cases[i].devices <= SHARES)
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

/* --- thousands of devices -------------------------------------------------------------------- */

/* A plan as large as ResNet-18's: as many segments as buckets, and a collective of the graph behind
 * every fourth segment of forward. */
enum { MANY_BUCKETS = 64, MANY_NODES = 4 * MANY_BUCKETS, MANY_SUMS = 8 };

typedef struct large {
    clt_segment segments[MANY_NODES];
    int ready[MANY_BUCKETS], after[MANY_BUCKETS];
    clt_bucket buckets[MANY_BUCKETS]; /* of parameters */
    clt_buckets layout;
    clt_outline_collective sums[MANY_SUMS];
    clt_outline plan;
} large;

static void make_large(large *l, bool collectives)
{
    *l = (large){.layout = {.n_buckets = MANY_BUCKETS, .buckets = l->buckets},
                 .plan = {.n_nodes = MANY_NODES,
                          .n_forward = MANY_NODES / 2,
                          .n_ready = MANY_BUCKETS,
                          .n_collectives = collectives ? MANY_SUMS : 0,
                          .n_assigns = 0,
                          .segments = l->segments,
                          .ready = l->ready,
                          .collectives = l->sums}};
    int n = 0;
    const int forward = collectives ? MANY_SUMS : 1, each = MANY_NODES / 2 / forward;
    for (int i = 0; i < forward; i++, n++) {
        l->segments[n] = (clt_segment){i * each, (i + 1) * each, collectives ? i : -1, 0, 0};
        l->sums[i % MANY_SUMS] =
            (clt_outline_collective){(i + 1) * each - 1, (i + 1) * each, 64, (uint64_t)i + 1};
    }
    for (int b = 0; b < MANY_BUCKETS; b++, n++) {
        l->segments[n] =
            (clt_segment){MANY_NODES / 2 + 2 * b, MANY_NODES / 2 + 2 * b + 2, -1, b, b + 1};
        l->ready[b] = b;
        l->after[b] = l->plan.n_collectives;
    }
    l->plan.n_segments = n;
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Half of the devices are of another kind with another plan, and reduce after their work. */
static double check_large(int devices, bool sharded, bool collectives, int max_micro_batches)
{
    static large plans[2];
    clt_step_program_input *inputs = zeros(devices, sizeof *inputs);
    make_large(&plans[0], collectives);
    make_large(&plans[1], collectives);
    plans[1].segments[plans[1].plan.n_segments - 1].end++;
    plans[1].plan.n_nodes++;
    for (int d = 0; d < devices; d++)
        inputs[d] = (clt_step_program_input){.plan = &plans[d % 2].plan,
                                             .participants = devices,
                                             .ranks = (devices + 7) / 8,
                                             .self = d,
                                             .layout = &plans[0].layout,
                                             .n_slots = 2,
                                             .sharded = sharded,
                                             .unlike = sharded,
                                             .after = plans[0].after,
                                             .deferred = !collectives && d % 2,
                                             .shared = devices > 8};
    const clt_check_world world = {devices, inputs, inputs, max_micro_batches};
    const double began = cpu_seconds();
    ok(clt_step_programs_check_all(&world));
    const double took = cpu_seconds() - began;
    clt_free(inputs);
    return took;
}

static void test_cost(void **state)
{
    (void)state;
    for (int devices = 8; devices <= THOUSANDS; devices *= 8)
        print_message("%d devices: %.3f s alike, %.3f s with shards, %.3f s with collectives and "
                      "accumulation (CPU time)\n",
                      devices, check_large(devices, false, false, 1),
                      check_large(devices, true, false, 1), check_large(devices, false, true, 4));
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
        cmocka_unit_test(test_accepted),       cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_bugs),           cmocka_unit_test(test_unlike_devices),
        cmocka_unit_test(test_waits_for_ever), cmocka_unit_test(test_groups),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
