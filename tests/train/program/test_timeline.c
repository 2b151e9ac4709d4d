/*
 * Predicted steps of devices and links with known times. The results are compared with the usual
 * formulas of pipelines and of overlapped reductions, computed here.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/error.h"
#include "train/program/timeline.h"

enum { MOST = 8, BUCKETS = 3, ALIGN = 256 };

/* Seconds that floating-point sums may differ by. */
static const double SAME = 1e-9;

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

/* A link whose collectives take latency + bytes / rate, on the devices' cores or beside them. */
typedef struct line {
    double latency, rate;
    bool local;
    int calls;
} line;

static clt_timeline_cost price(void *user, const clt_timeline_exchange *e)
{
    line *l = user;
    const double seconds = l->latency + (double)e->bytes / l->rate;
    l->calls++;
    return l->local ? (clt_timeline_cost){.local = seconds}
                    : (clt_timeline_cost){.network = seconds};
}

/* --- a device -------------------------------------------------------------------------------- */

/* A plan of at most six nodes, of which some are collectives. */
typedef struct machine {
    clt_outline plan;
    clt_segment segments[MOST];
    clt_outline_collective collectives[MOST];
    int ready[BUCKETS], after[BUCKETS];
    clt_bucket buckets[BUCKETS];
    clt_buckets layout;
    double nodes[MOST + 1];
    clt_step_program_input input;
    clt_step_program program;
    clt_timeline_device device;
} machine;

/* Adds a node of so many seconds. `begins`: a collective begins behind it. */
static void node(machine *m, double seconds, const clt_outline_collective *begins)
{
    clt_outline *p = &m->plan;
    const int at = p->n_nodes++;
    m->nodes[at + 1] = m->nodes[at] + seconds;
    m->segments[p->n_segments++] =
        (clt_segment){at, at + 1, begins ? p->n_collectives : -1, p->n_ready, p->n_ready};
    if (!begins)
        return;
    m->collectives[p->n_collectives] = *begins;
    m->collectives[p->n_collectives].node = at;
    m->collectives[p->n_collectives++].needed = begins->kind == CLT_OP_SEND ? MOST : at + 1;
}

/* The bucket is ready behind the last node. */
static void ready(machine *m, int64_t bytes)
{
    clt_outline *p = &m->plan;
    m->buckets[p->n_ready].bytes = bytes;
    m->ready[p->n_ready] = p->n_ready;
    m->after[p->n_ready] = p->n_collectives;
    p->n_ready++;
    m->segments[p->n_segments - 1].end_ready = p->n_ready;
}

static void finish(machine *m, const char *mesh, int devices, int self, int rounds)
{
    m->plan.segments = m->segments;
    m->plan.ready = m->ready;
    m->plan.collectives = m->collectives;
    m->layout = (clt_buckets){.n_buckets = m->plan.n_ready, .buckets = m->buckets};
    m->input = (clt_step_program_input){.plan = &m->plan,
                                        .participants = devices,
                                        .ranks = 1,
                                        .self = self,
                                        .layout = &m->layout,
                                        .after = m->after,
                                        .host_weights = true,
                                        .in_flight = m->plan.in_flight,
                                        .rounds = rounds};
    ok(clt_mesh_parse(mesh, devices, &m->input.mesh));
    ok(clt_step_program_generate(&m->input, CLT_PROGRAM_STEP,
                                 rounds > 1 ? CLT_LOAD_MANY : CLT_LOAD_ONE, &m->program));
    m->device = (clt_timeline_device){.input = &m->input,
                                      .program = &m->program,
                                      .rounds = rounds,
                                      .samples = 4,
                                      .nodes = m->nodes};
}

/* Runs the machines and frees their programs. */
static clt_timeline run(machine *machines, int count, line *l, clt_timeline_bytes *bytes)
{
    clt_timeline_device devices[MOST] = {{0}};
    clt_timeline timeline;
    for (int d = 0; d < count; d++)
        devices[d] = machines[d].device;
    ok(clt_timeline_run(devices, count, price, l, &timeline, bytes));
    for (int d = 0; d < count; d++)
        clt_step_program_free(&machines[d].program);
    return timeline;
}

static void same(double a, double b)
{
    if (fabs(a - b) > SAME)
        fail_msg("predicted %.9f s, the formula gives %.9f s", a, b);
}

/* --- one device, and dp ---------------------------------------------------------------------- */

/* Forward of 0.3 s, and backward of three parts behind which a bucket is ready. */
static void make_plain(machine *m, const double *parts, const char *mesh, int devices, int self,
                       int rounds)
{
    *m = (machine){.nodes = {0}};
    node(m, 0.3, NULL);
    m->plan.n_forward = 1;
    for (int b = 0; b < BUCKETS; b++) {
        node(m, parts[b], NULL);
        ready(m, (b + 1) * 1000 * (int64_t)ALIGN);
    }
    finish(m, mesh, devices, self, rounds);
}

static const double parts[] = {0.2, 0.1, 0.4};

static void one_device(void **state)
{
    machine m;
    line l = {1, 1, false, 0};
    (void)state;
    for (int rounds = 1; rounds <= 4; rounds += 3) {
        make_plain(&m, parts, "dp=1", 1, 0, rounds);
        m.device.fixed = 0.01;
        m.device.update = 0.02;
        m.device.status = 0.03;
        const clt_timeline t = run(&m, 1, &l, NULL);
        same(t.seconds, rounds * (0.3 + 0.2 + 0.1 + 0.4) + 0.01 + 0.02 + 0.03);
        same(t.compute, rounds * 1.0 + 0.01);
        assert_int_equal(l.calls, 0);
    }
}

/* A bucket's reduction begins when backward of the slower device has written it and the one before
 * is reduced. */
static void overlap(void **state)
{
    const double slow[] = {0.25, 0.2, 0.5};
    clt_timeline_bytes bytes[2];
    machine m[2];
    (void)state;
    for (int local = 0; local <= 1; local++) {
        line l = {0.05, 4e6, local, 0};
        double end = 0, written = 0.3, all = 0.3;
        for (int b = 0; b < BUCKETS; b++) {
            const double cost = 0.05 + (b + 1) * 1000 * ALIGN / 4e6;
            written += slow[b];
            end = fmax(end, written) + cost;
            all += slow[b] + cost;
        }
        make_plain(&m[0], parts, "dp=2", 2, 0, 1);
        make_plain(&m[1], slow, "dp=2", 2, 1, 1);
        m[0].device.update = m[1].device.update = 0.02;
        const clt_timeline t = run(m, 2, &l, bytes);
        same(t.seconds, (local ? all : end) + 0.02);
        assert_int_equal(l.calls, BUCKETS);
        for (int d = 0; d < 2; d++)
            assert_int_equal(bytes[d].gradients, 6000 * ALIGN);
    }
}

/* A device rounds each bucket before its reduction, so the reduction is late by that, and keeps the
 * residuals with the update. Gradients in 16 bits are rounded once, after the last micro-batch. */
static void rounding(void **state)
{
    const double round = 2.5e-7, keep = 3e-7, all = 6000. * ALIGN;
    (void)state;
    for (int half = 0; half <= 1; half++) {
        const int rounds = half ? 3 : 1;
        machine m[2];
        line l = {0.05, 4e6, false, 0};
        double now = 0.3, end = 0;
        for (int b = 0; b < BUCKETS && !half; b++) {
            const double bytes = (b + 1) * 1000. * ALIGN;
            now += parts[b] + round * bytes;
            end = fmax(end, now) + 0.05 + bytes / 4e6;
        }
        if (half) /* the reductions of half the bytes follow one another */
            end = rounds * 1.0 + round * all + 3 * 0.05 + all / 2 / 4e6;
        for (int d = 0; d < 2; d++) {
            make_plain(&m[d], parts, "dp=2", 2, d, rounds);
            m[d].input.half = half;
            m[d].device.round = round;
            m[d].device.keep = keep;
            m[d].device.update = 0.02;
            clt_step_program_free(&m[d].program);
            ok(clt_step_program_generate(&m[d].input, CLT_PROGRAM_STEP,
                                         half ? CLT_LOAD_MANY : CLT_LOAD_ONE, &m[d].program));
        }
        const clt_timeline t = run(m, 2, &l, NULL);
        same(t.seconds, end + keep * all + 0.02);
        same(t.update, (round + keep) * all + 0.02);
    }
}

/* A device's K shards are leaves of a tree, or pairs of them are. A tree of n leaves has n - 1
 * sums, whatever their order. The norm is that of whole gradients. */
static void merging(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 16; shards *= 2)
        for (int pairs = 0; pairs <= 1; pairs++) {
            const int leaves = pairs && shards > 1 ? shards / 2 : shards;
            const double sums = (leaves - 1) * 0.02 + (pairs ? shards / 2 * 0.003 : 0);
            machine m[2];
            line l = {0.05, 4e6, true, 0};
            clt_timeline_bytes bytes[2];
            for (int d = 0; d < 2; d++) {
                make_plain(&m[d], parts, "dp=2", 2, d, shards);
                m[d].input.tree = m[d].input.sharded = true;
                m[d].device.merge = 0.02;
                m[d].device.add = 0.003;
                m[d].device.pairs = pairs;
                m[d].device.status = 0.01;
                clt_step_program_free(&m[d].program);
                ok(clt_step_program_generate(&m[d].input, CLT_PROGRAM_STEP,
                                             clt_load_of(shards, shards), &m[d].program));
            }
            const clt_timeline t = run(m, 2, &l, bytes);
            same(t.compute, shards * 1.0);
            same(t.update, sums + 0.01);
            assert_int_equal(bytes[0].gradients, 6000 * ALIGN);
        }
}

/* One listed device stands for all that do the same. */
static void stands_for_all(void **state)
{
    machine m;
    line l = {0.05, 4e6, true, 0};
    (void)state;
    make_plain(&m, parts, "dp=4096", 4096, 17, 2);
    const clt_timeline t = run(&m, 1, &l, NULL);
    same(t.seconds, 2 * 1.0 + 3 * 0.05 + 6000 * ALIGN / 4e6);
}

/* --- tp and pp ------------------------------------------------------------------------------- */

/* Every collective of the graph is waited for. */
static void tensor(void **state)
{
    const clt_outline_collective sum = {
        0, 0, CLT_OP_ALL_REDUCE, CLT_AXIS_TENSOR, -1, 1000, true, 7, CLT_F32};
    clt_timeline_bytes bytes[2];
    machine m[2];
    line l = {0.05, 1e6, true, 0};
    (void)state;
    for (int d = 0; d < 2; d++) {
        m[d] = (machine){.nodes = {0}};
        node(&m[d], 0.3 + 0.1 * d, &sum);
        node(&m[d], 0.1, NULL);
        m[d].plan.n_forward = 2;
        node(&m[d], 0.2, &sum);
        node(&m[d], 0.4, NULL);
        finish(&m[d], "tp=2", 2, d, 1);
    }
    const double each = 0.05 + 4 * 1000 * 4 / 1e6;
    const clt_timeline t = run(m, 2, &l, bytes);
    /* The step status is exchanged too, and its bytes do not count. */
    same(t.seconds, 0.4 + 0.1 + 0.2 + 0.4 + 2 * each + 0.05);
    assert_int_equal(bytes[0].axes[CLT_AXIS_TENSOR], 2 * 4 * 1000 * 4);
    assert_int_equal(bytes[1].axes[CLT_AXIS_TENSOR], 2 * 4 * 1000 * 4);
}

/* Stage `s` of `p`: it receives, computes and sends, and the other way round in backward. */
static void make_stage(machine *m, int s, int p, double forward, double backward, int rounds,
                       bool gpipe)
{
    clt_outline_collective to = {.kind = CLT_OP_SEND,
                                 .axis = CLT_AXIS_PIPELINE,
                                 .count = 500,
                                 .per_sample = true,
                                 .dtype = CLT_F32};
    clt_outline_collective from = to;
    from.kind = CLT_OP_RECEIVE;
    *m = (machine){.nodes = {0}};
    from.peer = s - 1;
    to.peer = s + 1;
    if (s > 0)
        node(m, 0, &from);
    node(m, forward, s < p - 1 ? &to : NULL);
    m->plan.n_forward = m->plan.n_nodes;
    from.peer = s + 1;
    to.peer = s - 1;
    if (s < p - 1)
        node(m, 0, &from);
    node(m, backward, s > 0 ? &to : NULL);
    ready(m, 1000 * (int64_t)ALIGN);
    m->plan.in_flight = gpipe ? rounds : p - s;
    char mesh[16];
    snprintf(mesh, sizeof mesh, "pp=%d", p);
    finish(m, mesh, p, s, rounds);
}

/* Equal stages: m + p - 1 turns of forward and backward, in 1F1B and in GPipe. */
static void bubbles(void **state)
{
    machine m[MOST];
    (void)state;
    for (int p = 2; p <= 4; p++)
        for (int rounds = p; rounds <= 4 * p; rounds += p)
            for (int gpipe = 0; gpipe <= 1; gpipe++) {
                line l = {0, 1e30, false, 0};
                clt_timeline_bytes bytes[MOST];
                for (int s = 0; s < p; s++)
                    make_stage(&m[s], s, p, 0.1, 0.2, rounds, gpipe);
                const clt_timeline t = run(m, p, &l, bytes);
                same(t.seconds, (rounds + p - 1) * 0.3);
                same(t.exposed, (p - 1) * 0.3);
                for (int s = 0; s < p; s++) /* activations forward, gradients backward */
                    assert_int_equal(bytes[s].axes[CLT_AXIS_PIPELINE],
                                     rounds * 4 * 500 * 4 * ((s < p - 1) + (s > 0)));
            }
}

/* The slowest stage has no pause once it has work. GPipe: the others fill and drain it. */
static void uneven(void **state)
{
    const double times[] = {0.1, 0.4, 0.2}; /* of forward; backward takes twice as long */
    const int rounds = 6;
    machine m[3];
    line l = {0, 1e30, false, 0};
    (void)state;
    for (int s = 0; s < 3; s++)
        make_stage(&m[s], s, 3, times[s], 2 * times[s], rounds, true);
    const clt_timeline t = run(m, 3, &l, NULL);
    /* Forward: 0.1 until stage 1 begins, six turns of 0.4, 0.2 on the last stage. Backward mirrors
     * it with twice the times. */
    same(t.seconds, (0.1 + rounds * 0.4 + 0.2) + 2 * (0.2 + rounds * 0.4 + 0.1));
}

/* A stage that never sends leaves the other waiting: told, not predicted. */
static void never_ends(void **state)
{
    clt_timeline_device devices[2];
    clt_timeline t;
    machine m[2];
    line l = {0, 1, false, 0};
    (void)state;
    make_stage(&m[0], 0, 2, 0.1, 0.2, 2, false);
    make_stage(&m[1], 1, 2, 0.1, 0.2, 2, false);
    m[0].program.n = 3;
    devices[0] = m[0].device;
    devices[1] = m[1].device;
    assert_int_equal(clt_timeline_run(devices, 2, price, &l, &t, NULL), CLT_INTERNAL);
    for (int d = 0; d < 2; d++)
        clt_step_program_free(&m[d].program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device), cmocka_unit_test(overlap),  cmocka_unit_test(stands_for_all),
        cmocka_unit_test(tensor),     cmocka_unit_test(bubbles),  cmocka_unit_test(uneven),
        cmocka_unit_test(never_ends), cmocka_unit_test(rounding), cmocka_unit_test(merging)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
