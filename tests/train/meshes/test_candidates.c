/* The meshes that are considered, and what groups of simulated machines cost. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/meshes/candidates.h"
#include "train/meshes/links.h"

static int list(const clt_candidate_limits *limits, clt_candidate **all)
{
    int count;
    if (clt_candidates_list(limits, all, &count) != CLT_OK)
        fail_msg("%s", clt_error_message());
    return count;
}

/* Returns how many candidates have this mesh, and zero and micro-batches if these are not -1. */
static int find(const clt_candidate *all, int count, const char *mesh, int zero, int accumulate)
{
    char text[CLT_CANDIDATE_TEXT];
    int found = 0;
    for (int i = 0; i < count; i++) {
        clt_candidate_mesh(&all[i], text);
        found += !strcmp(text, mesh) && (zero < 0 || all[i].zero == zero) &&
                 (accumulate < 0 || all[i].accumulate == accumulate);
    }
    return found;
}

/* --- candidates ------------------------------------------------------------------------------ */

static void two_devices(void **state)
{
    const clt_candidate_limits limits = {
        .devices = 2, .most = {2, 2, 2, 2, 2}, .batch = 64, .accumulate = 1, .sequences = true};
    clt_candidate *all;
    const int n = list(&limits, &all);
    (void)state;
    /* dp: zero 0, 1, 3; tp and tp:sequence; pp with 2, 4, 8 and 16 micro-batches; space and time
     * with zero 0 and 1. */
    assert_int_equal(n, 3 + 2 + 4 + 2 + 2);
    for (int zero = 0; zero <= 3; zero++)
        assert_int_equal(find(all, n, "dp=2", zero, 1), zero != 2);
    for (int m = 2; m <= 16; m *= 2)
        assert_int_equal(find(all, n, "pp=2", 0, m), 1);
    assert_int_equal(find(all, n, "tp=2:sequence", 0, 1), 1);
    assert_int_equal(find(all, n, "time=2", 1, 1), 1);
    clt_free(all);
}

/* Every product of axes is there once, and each mesh has all devices. */
static void products(void **state)
{
    const clt_candidate_limits limits = {
        .devices = 12, .most = {12, 4, 3, 1, 1}, .batch = 12, .accumulate = 4};
    int products = 0;
    clt_candidate *all;
    const int n = list(&limits, &all);
    (void)state;
    for (int dp = 1; dp <= 12; dp++)
        for (int tp = 1; tp <= 4; tp++)
            for (int pp = 1; pp <= 3; pp++)
                products += dp * tp * pp == 12 && dp * 4 <= 12;
    int plain = 0;
    for (int i = 0; i < n; i++) {
        assert_int_equal(clt_candidate_devices(&all[i]), 12);
        assert_int_equal(all[i].accumulate, 4); /* as asked for */
        plain += !all[i].zero && !all[i].sequence;
    }
    assert_int_equal(plain, products);
    assert_int_equal(find(all, n, "pp=3,tp=4", 0, 4), 1);
    assert_int_equal(find(all, n, "dp=12", -1, -1), 0); /* 48 parts of 12 samples */
    clt_free(all);
}

/* Axes that do not divide the model are left out, and places that do not. */
static void limited(void **state)
{
    const bool allowed[] = {false, true, false, false, true, false, false, false, false};
    clt_candidate_limits limits = {.devices = 8,
                                   .most = {8, 8, 1, 1, 1},
                                   .batch = 1024,
                                   .accumulate = 1,
                                   .shares = true,
                                   .halves = true};
    clt_candidate *all;
    (void)state;
    limits.allowed[CLT_AXIS_TENSOR] = allowed;
    const int n = list(&limits, &all);
    assert_int_equal(find(all, n, "dp=4,tp=2", -1, -1), 0);
    assert_true(find(all, n, "dp=2,tp=4", 0, 1) > 0);
    int local = 0, half = 0;
    for (int i = 0; i < n; i++) {
        local += all[i].local > 0;
        half += all[i].half;
        if (all[i].half || all[i].local) /* what is built */
            assert_int_equal(all[i].size[CLT_AXIS_TENSOR], 1);
        assert_int_equal(clt_candidate_devices(&all[i]) * (all[i].local ? all[i].local : 1), 8);
    }
    assert_int_equal(local, 6); /* 2, 4 and 8 replicas, each in f32 and in 16 bits */
    assert_int_equal(half, 5);  /* dp=8, zero 0 and 1, and the replicas */
    clt_free(all);
    limits.halves = false; /* gradients of a 16-bit precision */
    const int fewer = list(&limits, &all);
    assert_int_equal(fewer, n - half);
    for (int i = 0; i < fewer; i++)
        assert_false(all[i].half);
    clt_free(all);
}

/* --- links ----------------------------------------------------------------------------------- */

static void same(double a, double b)
{
    if (fabs(a - b) > 1e-9 * fabs(b))
        fail_msg("%.12g instead of %.12g", a, b);
}

static const clt_mesh_links machines = {
    .simulated = true, .per_node = 8, .link = {25e9, 5e-6}, .inter = {1e9, 30e-6}};

/* The better of a ring and of halving: 2 (W - 1) or 2 log2 W messages of 2 (W - 1) / W B bytes. */
static double best(double bytes, int ranks, double rate, double latency)
{
    const double moved = 2 * (ranks - 1.0) / ranks * bytes / rate;
    return moved + fmin(2 * (ranks - 1), 2 * log2(ranks)) * latency;
}

static void groups(void **state)
{
    const double bytes = 4e6;
    (void)state;
    /* Within a node. */
    same(clt_mesh_reduce(&machines, 8, 1, bytes), best(bytes, 8, 25e9, 5e-6));
    same(clt_mesh_reduce(&machines, 4, 2, bytes), best(bytes, 4, 25e9, 5e-6));
    /* One member a node: all eight groups of a node share its link. */
    same(clt_mesh_reduce(&machines, 16, 8, bytes), best(bytes, 16, 1e9 / 8, 30e-6));
    /* Eight members a node, on eight nodes. */
    same(clt_mesh_reduce(&machines, 64, 1, bytes),
         best(bytes, 8, 25e9, 5e-6) + best(bytes, 8, 1e9, 30e-6));
    /* Two members a node, four groups on it. */
    same(clt_mesh_reduce(&machines, 8, 4, bytes),
         best(bytes, 2, 25e9, 5e-6) + best(bytes, 4, 1e9 / 4, 30e-6));
}

/* Groups of three devices on nodes of eight: some cross from a node to the next, as 6, 7, 8. Their
 * price is at least that of every group as it lies there, with the groups that leave its node. */
static void misaligned(void **state)
{
    const int cases[][2] = {{3, 1}, {6, 1}, {12, 1}, {3, 2}, {3, 4}, {8, 3}, {5, 2}};
    const double bytes = 4e6;
    (void)state;
    same(clt_mesh_reduce(&machines, 3, 1, bytes),
         best(bytes, 2, 25e9, 5e-6) + best(bytes, 2, 1e9 / 2, 30e-6));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int members = cases[c][0], stride = cases[c][1], span = members * stride;
        const double price = clt_mesh_reduce(&machines, members, stride, bytes);
        for (int first = 0; first < 8 * span; first++) {
            int here = 1, most = 1, nodes = 1, crossing = 0;
            if (first % span >= stride) /* not a group's first member */
                continue;
            for (int k = 1; k < members; k++) {
                const bool same_node = (first + k * stride) / 8 == (first + (k - 1) * stride) / 8;
                here = same_node ? here + 1 : 1;
                most = here > most ? here : most;
                nodes += !same_node;
            }
            if (nodes == 1)
                continue;
            /* Groups with a member on the first node and one on another. */
            for (int d = first / 8 * 8; d < first / 8 * 8 + 8; d++) {
                const int start = d / span * span + d % span % stride;
                const int before = d - stride;
                crossing += (before < start || before / 8 != d / 8) &&
                            start / 8 != (start + (members - 1) * stride) / 8;
            }
            const double own = (most > 1 ? best(bytes, most, 25e9, 5e-6) : 0) +
                               best(bytes, nodes, 1e9 / crossing, 30e-6);
            assert_true(price >= own * (1 - 1e-9));
        }
    }
}

/* Half of the bytes of gradients, and of nothing else. */
static void halves(void **state)
{
    clt_mesh_links l = machines;
    clt_step_program_input in = {.participants = 8,
                                 .mesh = {.size = {8, 1, 1, 1, 1}, .stride = {1, 8, 8, 8, 8}}};
    clt_timeline_exchange e = {.on = CLT_ON_GRADIENT,
                               .kind = CLT_OP_ALL_REDUCE,
                               .group = CLT_GROUP_ALL,
                               .members = 8,
                               .stride = 1,
                               .bytes = 8000000,
                               .input = &in};
    (void)state;
    same(clt_mesh_price(&l, &e).network, best(8e6, 8, 25e9, 5e-6));
    l.half = true;
    same(clt_mesh_price(&l, &e).network, best(4e6, 8, 25e9, 5e-6));
    e.on = CLT_ON_VALUES;
    e.kind = CLT_OP_ALL_GATHER;
    same(clt_mesh_price(&l, &e).network, 0.5 * best(8e6, 8, 25e9, 5e-6));
}

/* Between the points of a measured curve, and beyond the last one. */
static void curve(void **state)
{
    const clt_exchange_curve c = {{1000, 2000, 4000}, {1, 3, 4}};
    (void)state;
    same(clt_curve_at(&c, 10), 1);
    same(clt_curve_at(&c, 1500), 2);
    same(clt_curve_at(&c, 3000), 3.5);
    same(clt_curve_at(&c, 8000), 6);
}

/* Two ranks of two devices: tp lies within a rank, dp across ranks, and both have curves. */
static void measured_groups(void **state)
{
    clt_step_program_input in = {.participants = 4};
    clt_timeline_exchange e = {
        .on = CLT_ON_NODE, .kind = CLT_OP_ALL_REDUCE, .bytes = 2000, .members = 2, .input = &in};
    clt_mesh_links l = {.per_rank = 2};
    (void)state;
    assert_int_equal(clt_mesh_parse("dp=2,tp=2", 4, &in.mesh), CLT_OK);
    l.all = (clt_exchange_curves){.devices = 4, .reduce = {{1000, 2000, 4000}, {1, 7, 9}}};
    l.inside = (clt_exchange_curves){.devices = 2, .reduce = {{1000, 2000, 4000}, {1, 2, 3}}};
    l.across = (clt_exchange_curves){.devices = 2, .reduce = {{1000, 2000, 4000}, {1, 4, 6}}};
    e.group = CLT_GROUP_AXIS + CLT_AXIS_TENSOR;
    same(clt_mesh_price(&l, &e).network, 2);
    e.group = CLT_GROUP_AXIS + CLT_AXIS_DATA;
    same(clt_mesh_price(&l, &e).network, 4);
    e.group = CLT_GROUP_ALL;
    e.members = 4;
    same(clt_mesh_price(&l, &e).network, 7);
    /* One rank has one curve. A ring of two moves 1/2 of the bytes, one of four 3/4. */
    l.inside.devices = l.across.devices = 0;
    e.group = CLT_GROUP_AXIS + CLT_AXIS_TENSOR;
    e.members = 2;
    same(clt_mesh_price(&l, &e).network, 1 + 6 * (1. / 2) / (3. / 4));
}

/* Gradients have the measured curves of the wire: half the bytes of those in f32, all of those in
 * 16 bits. Parameters have the others. */
static void measured_wire(void **state)
{
    clt_step_program_input in = {.participants = 2};
    clt_timeline_exchange e = {.on = CLT_ON_GRADIENT,
                               .kind = CLT_OP_ALL_REDUCE,
                               .group = CLT_GROUP_ALL,
                               .members = 2,
                               .bytes = 4000,
                               .input = &in};
    clt_mesh_links l = {.per_rank = 2, .half = true};
    (void)state;
    assert_int_equal(clt_mesh_parse("dp=2", 2, &in.mesh), CLT_OK);
    l.all = (clt_exchange_curves){.devices = 2,
                                  .reduce = {{1000, 2000, 4000}, {1, 2, 3}},
                                  .gather = {{1000, 2000, 4000}, {2, 4, 6}}};
    same(clt_mesh_price(&l, &e).network, 2);
    l.wire = (clt_exchange_curves){.devices = 2,
                                   .reduce = {{1000, 2000, 4000}, {5, 7, 9}},
                                   .scatter = {{1000, 2000, 4000}, {3, 4, 8}}};
    same(clt_mesh_price(&l, &e).network, 7);
    e.kind = CLT_OP_REDUCE_SCATTER;
    same(clt_mesh_price(&l, &e).network, 4);
    l.half = false;
    same(clt_mesh_price(&l, &e).network, 8);
    e.on = CLT_ON_VALUES;
    e.kind = CLT_OP_ALL_GATHER;
    same(clt_mesh_price(&l, &e).network, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices),  cmocka_unit_test(products),
        cmocka_unit_test(limited),      cmocka_unit_test(groups),
        cmocka_unit_test(halves),       cmocka_unit_test(curve),
        cmocka_unit_test(misaligned),   cmocka_unit_test(measured_groups),
        cmocka_unit_test(measured_wire)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
