/*
 * The programs of a pipeline's stages. The checker accepts GPipe and 1F1B for any number of stages
 * and micro-batches, and finds that both have one effect. It refuses programs that read the values
 * of another micro-batch, and programs in which stages wait for each other for ever.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "train/program/check.h"

enum { STAGES = 5, COPIES = 2, MOST = STAGES * COPIES, SEGMENTS = 6, ENDS = 4, ROUNDS = 12 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

/* Ten nodes, five of them forward: 0 receives, 4 sends, 5 receives and 9 sends. The first stage
 * receives nothing in forward and sends nothing in backward, the last one the other way round. */
typedef struct stage {
    clt_segment segments[SEGMENTS];
    clt_outline_collective ends[ENDS];
    clt_outline plan;
} stage;

static int ready[] = {0};
static clt_bucket buckets[] = {{0}, {.state = true}};
static const clt_buckets layout = {.n_buckets = 2, .buckets = buckets};
static const int none_after[] = {0, 0};

/* The first and the third stage have a parameter in common; in one test, the second too. */
static clt_slot slots[] = {{.stages = 1 | 4}};
static const clt_buckets tied_layout = {
    .n_buckets = 2, .buckets = buckets, .n_slots = 1, .slots = slots};

typedef struct pipeline {
    stage stages[STAGES];
    clt_step_program_input inputs[MOST];
    clt_step_program programs[MOST];
    clt_check_device devices[MOST];
    int n;
} pipeline;

static void add_end(stage *s, int node, int needed, bool sends, int peer, int name)
{
    s->ends[s->plan.n_collectives++] =
        (clt_outline_collective){node,
                                 needed,
                                 sends ? CLT_OP_SEND : CLT_OP_RECEIVE,
                                 CLT_AXIS_PIPELINE,
                                 peer,
                                 8,
                                 true,
                                 (uint64_t)name,
                                 CLT_F32};
}

static void make_stage(stage *s, int at, int stages)
{
    static const int cuts[] = {1, 5, 6, 10};
    *s = (stage){.plan = {.n_nodes = 10, .n_forward = 5, .n_ready = 1, .n_assigns = 1}};
    s->plan.ready = ready;
    s->plan.segments = s->segments;
    s->plan.collectives = s->ends;
    if (at > 0)
        add_end(s, 0, 1, false, at - 1, at);
    if (at < stages - 1) {
        add_end(s, 4, 10, true, at + 1, at + 1);
        add_end(s, 5, 6, false, at + 1, 100 + at);
    }
    if (at > 0)
        add_end(s, 9, 10, true, at - 1, 99 + at);
    for (int i = 0, k = 0; i < 4; i++) {
        const int end = cuts[i];
        const bool meets = k < s->plan.n_collectives && s->ends[k].node == end - 1;
        s->segments[s->plan.n_segments++] =
            (clt_segment){i ? cuts[i - 1] : 0, end, meets ? k++ : -1, 0, end == 10};
    }
}

/* `gpipe`: all micro-batches are in flight; else as many as stages follow. */
static void make(pipeline *p, clt_step_program_kind kind, int stages, int copies, int rounds,
                 bool gpipe)
{
    char mesh[32];
    memset(p, 0, sizeof *p);
    p->n = stages * copies;
    snprintf(mesh, sizeof mesh, "dp=%d,pp=%d", copies, stages);
    for (int s = 0; s < stages; s++)
        make_stage(&p->stages[s], s, stages);
    for (int d = 0; d < p->n; d++) {
        clt_step_program_input *in = &p->inputs[d];
        *in = (clt_step_program_input){.participants = p->n,
                                       .ranks = copies,
                                       .self = d,
                                       .layout = &layout,
                                       .n_slots = 1,
                                       .after = none_after,
                                       .means = copies > 1,
                                       .host_weights = true,
                                       .shared = copies > 1,
                                       .averages = true,
                                       .poison = true,
                                       .rounds = rounds};
        ok(clt_mesh_parse(mesh, p->n, &in->mesh));
        const int at = clt_mesh_coordinate(&in->mesh, CLT_AXIS_PIPELINE, d);
        in->plan = &p->stages[at].plan;
        in->in_flight = gpipe ? rounds : stages - at;
        if (kind == CLT_PROGRAM_OUTSIDE) {
            p->stages[at].plan.n_nodes = 5;
            p->stages[at].plan.n_segments = 2;
            p->stages[at].plan.n_collectives = (at > 0) + (at < stages - 1);
            in->in_flight = 0;
        }
        ok(clt_step_program_generate(in, kind, clt_load_of(rounds, rounds), &p->programs[d]));
        p->devices[d] = (clt_check_device){in, &p->programs[d], rounds, rounds};
    }
}

static void release(pipeline *p)
{
    for (int d = 0; d < p->n; d++)
        clt_step_program_free(&p->programs[d]);
}

/* Generates the programs anew, with a tied parameter. */
static void tie(pipeline *p, int rounds)
{
    for (int d = 0; d < p->n; d++) {
        p->inputs[d].layout = &tied_layout;
        clt_step_program_free(&p->programs[d]);
        ok(clt_step_program_generate(&p->inputs[d], CLT_PROGRAM_STEP, clt_load_of(rounds, rounds),
                                     &p->programs[d]));
    }
}

static void schedules_have_one_effect(void **state)
{
    static pipeline p;
    (void)state;
    for (int stages = 2; stages <= STAGES; stages++)
        for (int copies = 1; copies <= COPIES; copies++)
            for (int rounds = stages; rounds <= ROUNDS; rounds++) {
                clt_check_effect effects[2];
                for (int gpipe = 0; gpipe < 2; gpipe++) {
                    make(&p, CLT_PROGRAM_STEP, stages, copies, rounds, gpipe != 0);
                    if (clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n,
                                                &effects[gpipe]) != CLT_OK)
                        fail_msg("%d stages, %d micro-batches: %s", stages, rounds,
                                 clt_error_message());
                    release(&p);
                }
                assert_true(effects[0].hash == effects[1].hash);
                assert_int_equal(effects[0].groups, stages);
            }
}

static void other_calls_are_accepted(void **state)
{
    static const clt_step_program_kind kinds[] = {CLT_PROGRAM_OUTSIDE, CLT_PROGRAM_WEIGHTS};
    static pipeline p;
    (void)state;
    for (int k = 0; k < 2; k++) {
        make(&p, kinds[k], 3, 2, 4, false);
        ok(clt_step_programs_check(kinds[k], p.devices, p.n, NULL));
        release(&p);
    }
}

/* --- mutations ------------------------------------------------------------------------------- */

/* Drops an instruction, swaps it with the next one, or doubles it. */
static clt_step_program mutate(const clt_step_program *p, int how, int at)
{
    clt_step_program q = *p;
    q.room = p->n + 1;
    q.code = clt_calloc((size_t)q.room, sizeof *q.code);
    assert_non_null(q.code);
    memcpy(q.code, p->code, (size_t)p->n * sizeof *q.code);
    if (how == 1) {
        q.code[at] = p->code[at + 1];
        q.code[at + 1] = p->code[at];
        return q;
    }
    const int by = how ? 1 : -1;
    memcpy(&q.code[at + (how ? 1 : 0)], &p->code[at + (how ? 0 : 1)],
           (size_t)(p->n - at - !how) * sizeof *q.code);
    q.n += by;
    q.loop_first += at < p->loop_first ? by : 0;
    q.loop_end += at < p->loop_end ? by : 0;
    return q;
}

static bool may_be_dropped(const clt_instruction *i)
{
    return i->kind == CLT_DO_POISON || i->kind == CLT_DO_UPSTREAM;
}

static void changed_programs_are_refused(void **state)
{
    static pipeline p;
    int tried = 0, refused = 0;
    (void)state;
    make(&p, CLT_PROGRAM_STEP, 3, 1, 6, false);
    tie(&p, 6);
    clt_check_effect right;
    ok(clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, &right));
    for (int d = 0; d < p.n; d++)
        for (int how = 0; how < 3; how++)
            for (int at = 0; at < p.programs[d].n - (how == 1); at++, tried++) {
                clt_step_program changed = mutate(&p.programs[d], how, at);
                clt_check_effect effect;
                p.devices[d].program = &changed;
                const clt_status status =
                    clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, &effect);
                if (status == CLT_OK && (effect.hash != right.hash ||
                                         (how == 0 && !may_be_dropped(&p.programs[d].code[at])))) {
                    const clt_step_program one = {.code = &p.programs[d].code[at], .n = 1};
                    clt_str text = {0};
                    clt_step_program_print(&one, &text);
                    fail_msg("mutation %d of instruction %d of device %d passes%s:\n%s", how, at, d,
                             effect.hash != right.hash ? ", with another effect" : "", text.text);
                }
                refused += status != CLT_OK;
                clt_step_program_free(&changed);
                p.devices[d].program = &p.programs[d];
            }
    print_message("%d changes, %d refused\n", tried, refused);
    assert_true(refused * 10 > tried * 6);
    release(&p);
}

/* Replaces the number of one micro-batch by another, in one instruction. */
static void values_of_another_micro_batch_are_refused(void **state)
{
    static pipeline p;
    (void)state;
    make(&p, CLT_PROGRAM_STEP, 2, 1, 4, true);
    for (int d = 0; d < p.n; d++)
        for (int at = 0; at < p.programs[d].n; at++) {
            clt_instruction *i = &p.programs[d].code[at];
            const bool moves =
                (i->kind == CLT_DO_START || i->kind == CLT_DO_COMPLETE) && i->on == CLT_ON_NODE;
            if (!moves && i->kind != CLT_DO_RUN)
                continue;
            const int micro = i->micro;
            for (i->micro = 0; i->micro < 4; i->micro++)
                if (i->micro != micro)
                    assert_int_equal(
                        clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, NULL),
                        CLT_INTERNAL);
            i->micro = micro;
        }
    ok(clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, NULL));
    release(&p);
}

/* A stage whose gradient is not added up with that of the other stage. */
static void lost_ties_are_refused(void **state)
{
    static pipeline p;
    (void)state;
    for (int all = 0; all < 2; all++) {
        slots[0].stages = all ? 1 | 2 | 4 : 1 | 4;
        make(&p, CLT_PROGRAM_STEP, 3, 1, 4, false);
        tie(&p, 4);
        ok(clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, NULL));
        for (int d = 0; d < p.n; d++) {
            clt_step_program *own = &p.programs[d];
            int kept = 0;
            for (int i = 0; i < own->n; i++)
                if (own->code[i].on != CLT_ON_TIED)
                    own->code[kept++] = own->code[i];
            assert_int_equal(own->n - kept, d == 1 && !all ? 0 : 2);
            own->n = kept;
        }
        assert_int_equal(clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, NULL),
                         CLT_INTERNAL);
        assert_non_null(strstr(clt_error_message(), "tied parameter"));
        release(&p);
    }
    slots[0].stages = 1 | 4;
}

/* If each stage waits until what it sends has been received, the stages of 1F1B wait for ever: one
 * sends its second micro-batch, and the other the gradient of the first. */
static void waits_for_ever_are_refused(void **state)
{
    static pipeline p;
    (void)state;
    make(&p, CLT_PROGRAM_STEP, 2, 1, 4, false);
    for (int d = 0; d < p.n; d++) {
        clt_step_program *own = &p.programs[d];
        for (int at = own->n - 1; at >= 0; at--) {
            const clt_instruction i = own->code[at];
            if (i.kind != CLT_DO_START || i.on != CLT_ON_NODE ||
                !clt_outline_sends(p.inputs[d].plan, i.item))
                continue;
            clt_step_program changed = mutate(own, 2, at);
            changed.code[at + 1].kind = CLT_DO_COMPLETE;
            changed.code[at + 1].version = CLT_VERSION_REDUCED;
            for (int k = at + 2; k < changed.n; k++) { /* not twice */
                clt_instruction *c = &changed.code[k];
                if (c->kind == CLT_DO_COMPLETE && c->on == CLT_ON_NODE && c->item == i.item &&
                    c->micro == i.micro && c->ahead == i.ahead) {
                    memmove(c, c + 1, (size_t)(changed.n - k - 1) * sizeof *c);
                    changed.n--;
                    break;
                }
            }
            clt_step_program_free(own);
            *own = changed;
        }
    }
    assert_int_equal(clt_step_programs_check(CLT_PROGRAM_STEP, p.devices, p.n, NULL), CLT_INTERNAL);
    assert_non_null(strstr(clt_error_message(), "waits for ever"));
    release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_have_one_effect),
        cmocka_unit_test(other_calls_are_accepted),
        cmocka_unit_test(changed_programs_are_refused),
        cmocka_unit_test(values_of_another_micro_batch_are_refused),
        cmocka_unit_test(lost_ties_are_refused),
        cmocka_unit_test(waits_for_ever_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
