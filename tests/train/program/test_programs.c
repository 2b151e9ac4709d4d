/*
 * The programs of steps. The checker accepts what the generators write, for one device and for
 * several. If an instruction is dropped, swapped or doubled, the checker refuses the program, or
 * the result does not change.
 */
#include "train/program/cases.h"

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
               c->kind == CLT_PROGRAM_BACKWARD || c->kind == CLT_PROGRAM_BACKWARD_AGAIN;
    case CLT_DO_RUN: /* the last run: nothing needs it */
    case CLT_DO_ZERO:
    case CLT_DO_CLEAR:
        return micro_batches == 0;
    case CLT_DO_ADD: /* zeros follow, or the device sends nothing */
        return micro_batches == 0 && (c->in_flight || c->collectives);
    case CLT_DO_FETCH:
    case CLT_DO_KEEP:
        return micro_batches < rounds;
    case CLT_DO_ASSIGN: /* another device sends its states */
        return (c->sharding == UNLIKE || c->sharding == OWNED_UNLIKE) &&
               (BUCKETS - 1) % c->devices != device; /* without a mesh */
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

/* The devices' plans have another collective of the graph at one place. */
static void test_unlike_collectives(void **state)
{
    const program_case *c = &cases[0];
    (void)state;
    while (c->axis != CLT_AXIS_TENSOR)
        c++;
    for (int change = 0; change < 6; change++) {
        made m;
        make(c, &m);
        clt_outline_collective others[2] = {sums_of_parts[0], sums_of_parts[1]};
        clt_outline other = m.plan;
        other.collectives = others;
        others[change % 2].kind = change == 0 ? CLT_OP_REDUCE_SCATTER : others[change % 2].kind;
        others[change % 2].axis = change == 1 ? CLT_AXIS_DATA : others[change % 2].axis;
        others[change % 2].count += change == 2;
        others[change % 2].per_sample = change != 3;
        others[change % 2].name += change == 4;
        others[change % 2].dtype = change == 5 ? CLT_F16 : others[change % 2].dtype;
        m.inputs[1].plan = &other;
        clt_step_program_free(&m.programs[1]);
        ok(clt_step_program_generate(&m.inputs[1], c->kind,
                                     clt_load_of(m.devices[1].rounds, m.devices[1].micro_batches),
                                     &m.programs[1]));
        if (clt_step_programs_check(c->kind, m.devices, c->devices, NULL) != CLT_INTERNAL)
            fail_msg("change %d passes", change);
        release(c, &m);
    }
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
        cmocka_unit_test(test_groups),         cmocka_unit_test(test_unlike_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
