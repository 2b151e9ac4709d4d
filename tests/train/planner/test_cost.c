/* The planner's cost model: division of batches, choice of devices, networks and noise. These tests
 * use made-up numbers only. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "train/planner/cost.h"
#include <cltrain/planner.h>

enum { DEVICES = 3 };

/* Devices that take `fixed` plus `each` for a sample, and one bucket of a megabyte. */
typedef struct world {
    clt_cost cost;
    clt_speed speeds[DEVICES];
    clt_bucket_cost buckets[2];
} world;

static world make_world(int n, const double *each, double fixed, double latency)
{
    world w = {.cost = {.batch = 240,
                        .accumulate = 1,
                        .n_devices = n,
                        .on_host = true,
                        .reduction = {latency, 0},
                        .n_buckets = 1},
               .buckets = {{1e6, 1}}};
    for (int d = 0; d < n; d++)
        w.speeds[d] = (clt_speed){.n_points = 2,
                                  .samples = {30, 120},
                                  .seconds = {fixed + 30 * each[d], fixed + 120 * each[d]},
                                  .solo_fraction = 1,
                                  .update = 1e-4};
    return w;
}

static const clt_cost *cost_of(world *w)
{
    w->cost.speeds = w->speeds;
    w->cost.buckets = w->buckets;
    return &w->cost;
}

static void near(double value, double want)
{
    if (!(fabs(value - want) <= 1e-9 + 1e-6 * fabs(want)))
        fail_msg("%.12g, not %.12g", value, want);
}

/* Shares are in proportion to speed, so all devices end together. A cost that does not depend on
 * samples counts too. */
static void test_divide(void **state)
{
    (void)state;
    const double each[] = {1e-3, 2e-3, 2e-3};
    const bool all[] = {true, true, true}, two[] = {true, false, true};
    double samples[DEVICES];
    world w = make_world(3, each, 0, 0);
    clt_cost_divide(cost_of(&w), all, 240, samples);
    near(samples[0], 120);
    near(samples[1], 60);
    near(samples[2], 60);
    clt_cost_divide(cost_of(&w), two, 240, samples);
    near(samples[0], 160);
    near(samples[1], 0);
    near(samples[2], 80);
    w = make_world(2, each, 0.03, 0);
    clt_cost_divide(cost_of(&w), all, 240, samples);
    near(0.03 + samples[0] * each[0], 0.03 + samples[1] * each[1]);
    near(samples[0] + samples[1], 240);
}

/* A device gets no samples if one sample takes longer than all samples on the other devices. */
static void test_divide_hopeless(void **state)
{
    (void)state;
    const double each[] = {1e-3, 1e-3};
    const bool all[] = {true, true};
    double samples[DEVICES];
    world w = make_world(2, each, 0, 0);
    w.speeds[1].seconds[0] = 9;
    w.speeds[1].seconds[1] = 10;
    clt_cost_divide(cost_of(&w), all, 240, samples);
    near(samples[0], 240);
    near(samples[1], 0);
}

static void test_step(void **state)
{
    (void)state;
    const double each[] = {1e-3, 2e-3};
    const double samples[] = {160, 80}, one[] = {240, 0};
    clt_step_cost step;
    world w = make_world(2, each, 0, 5e-3);
    w.cost.reduction.byte = 1e-9;
    clt_cost_step(cost_of(&w), samples, &step);
    near(step.compute, 0.16);
    near(step.update, 1e-4);
    near(step.reduction, 5e-3 + 2 * 1e6 * 1e-9);
    near(step.exposed, step.reduction);
    near(step.seconds, 0.16 + 1e-4 + 5e-3 + 2e-3);
    /* One device reduces nothing, and the other does not slow it down. */
    w.speeds[0].solo_fraction = 0.5;
    clt_cost_step(cost_of(&w), one, &step);
    near(step.seconds, 0.12 + 1e-4);
    /* Each micro-batch has the cost that does not depend on samples. */
    w = make_world(1, each, 0.01, 0);
    w.cost.accumulate = 4;
    clt_cost_step(cost_of(&w), one, &step);
    near(step.compute, 4 * 0.01 + 240 * 1e-3);
}

/* Devices other than the host's CPU reduce a bucket while backward continues. */
static void test_overlap(void **state)
{
    (void)state;
    const double each[] = {1e-3, 1e-3}, samples[] = {120, 120};
    clt_step_cost step;
    world w = make_world(2, each, 0, 0.01);
    w.cost.on_host = false;
    w.cost.n_buckets = 2;
    w.buckets[0] = (clt_bucket_cost){1e6, 0.5};
    w.buckets[1] = (clt_bucket_cost){1e6, 1};
    clt_cost_step(cost_of(&w), samples, &step);
    near(step.reduction, 0.02);
    near(step.exposed, 0.01);
    /* The first bucket takes so long that the second waits. */
    w.cost.reduction.latency = 0.08;
    clt_cost_step(cost_of(&w), samples, &step);
    near(step.exposed, 0.06 + 0.08 + 0.08 - 0.12);
}

/* A device with a tenth of the speed is left out if its reduction costs more than it saves. */
static void test_choose(void **state)
{
    (void)state;
    const double each[] = {1e-2, 1e-3, 1e-3}, equal[] = {1e-3, 1e-3, 1e-3};
    bool use[DEVICES];
    world w = make_world(3, each, 0, 5e-3);
    assert_int_equal(clt_cost_choose(cost_of(&w), 0.05, use), CLT_OK);
    assert_false(use[0]);
    assert_true(use[1] && use[2]);
    w = make_world(3, equal, 0, 5e-3);
    assert_int_equal(clt_cost_choose(cost_of(&w), 0.05, use), CLT_OK);
    assert_true(use[0] && use[1] && use[2]);
    /* One device is left if reductions cost more than a device saves. */
    w = make_world(3, equal, 0, 0.2);
    assert_int_equal(clt_cost_choose(cost_of(&w), 0.05, use), CLT_OK);
    assert_int_equal(use[0] + use[1] + use[2], 1);
}

/* A rank without samples still takes part in reductions, unless it is not in the job. Its other
 * devices do not take part. */
static void test_idle_rank(void **state)
{
    (void)state;
    const double each[] = {1e-3, 1e-3, 1e-3}, first[] = {240, 0, 0}, both[] = {120, 120, 0};
    const int rank_of[] = {0, 1, 1};
    bool use[DEVICES];
    clt_step_cost step;
    world w = make_world(3, each, 0, 0.05);
    w.cost.reduction.byte = 1e-9;
    w.cost.rank_of = rank_of;
    for (int idle = 0; idle <= 1; idle++) {
        w.cost.idle_ranks = idle;
        clt_cost_step(cost_of(&w), first, &step);
        near(step.reduction, idle ? 0.05 + 2 * 1e6 * 1e-9 : 0);
        near(step.seconds, 0.24 + 1e-4 + step.reduction);
        clt_cost_step(cost_of(&w), both, &step);
        near(step.reduction, 0.05 + 2 * 1e6 * 1e-9);
    }
    /* The reduction costs more than the other rank saves, but only if that rank could be left
     * out. */
    w = make_world(2, each, 0, 0.13);
    w.cost.rank_of = rank_of;
    assert_int_equal(clt_cost_choose(cost_of(&w), 0, use), CLT_OK);
    assert_true(use[0] && !use[1]);
    w.cost.idle_ranks = true;
    assert_int_equal(clt_cost_choose(cost_of(&w), 0, use), CLT_OK);
    assert_true(use[0] && use[1]);
}

/* Batches are assembled on cores that the devices leave free. */
static void test_loading(void **state)
{
    (void)state;
    const double each[] = {1e-3, 1e-3, 1e-3}, one[] = {240, 0, 0}, two[] = {120, 120, 0},
                 ranks[] = {60, 60, 120};
    const clt_host_cores hosts[] = {{2, 1}, {2, 1}, {1, 1}};
    const int rank_of[] = {0, 0, 1};
    clt_step_cost step;
    world w = make_world(3, each, 0, 0);
    w.cost.hosts = hosts;
    w.cost.load = 1e-4;
    clt_cost_step(cost_of(&w), one, &step);
    near(step.seconds, 0.24 + 1e-4);
    clt_cost_step(cost_of(&w), two, &step);
    near(step.seconds, 0.12 + 0.024 + 1e-4);
    w.cost.rank_of = rank_of;
    clt_cost_step(cost_of(&w), ranks, &step);
    near(step.seconds, 0.12 + 0.012 + 1e-4);
}

static void test_network(void **state)
{
    (void)state;
    const clt_network slow = {1e9, 1e-6}, late = {1e9, 1e-3};
    clt_network_algorithm algorithm;
    /* Two ranks send each other half of the data, twice. */
    near(clt_network_reduce(&slow, 2, 1e6, &algorithm), 2e-6 + 1e-3);
    assert_int_equal(algorithm, CLT_NETWORK_RING);
    near(clt_network_reduce(&late, 64, 1e6, &algorithm), 2 * 6 * 1e-3 + 2 * 63.0 / 64 * 1e-3);
    assert_int_equal(algorithm, CLT_NETWORK_HALVING);
    /* Not a power of two: ranks beyond 32 send all data and get all results. A ring avoids this. */
    near(clt_network_reduce(&late, 48, 1e6, &algorithm),
         2 * 6 * 1e-3 + 2 * 31.0 / 32 * 1e-3 + 2e-3);
    near(clt_network_reduce(&slow, 48, 1e9, &algorithm), 94e-6 + 2 * 47.0 / 48);
    assert_int_equal(algorithm, CLT_NETWORK_RING);
}

/* More ranks never make a step shorter, and the device's own part does not change. */
static void test_ranks(void **state)
{
    (void)state;
    const double each[] = {1e-3}, samples[] = {240};
    const clt_network network = {25e9, 5e-6};
    double before = 0;
    world w = make_world(1, each, 0, 1e-4);
    for (int ranks = 1; ranks <= 4096; ranks *= 2) {
        clt_step_cost step;
        clt_cost_between(cost_of(&w), samples, ranks, &network, &step);
        near(step.compute, 0.24);
        near(step.seconds, step.compute + step.exposed + step.update);
        assert_true(step.seconds >= before);
        assert_true(step.seconds < 0.26);
        assert_int_equal(step.algorithm == CLT_NETWORK_NONE, ranks == 1);
        before = step.seconds;
    }
}

/* A device that is slow in every round is different. One that is slow in some rounds is noise. */
static void test_equal(void **state)
{
    (void)state;
    const double noisy[] = {1, 2, 1.9, 1, 1, 1.1}, slow[] = {1, 2, 1.1, 2.3, 0.9, 1.7};
    const double three[] = {1, 1.1, 3, 1.2, 1, 2.5};
    bool equal[3];
    clt_cost_equal(noisy, 2, 3, 0.45, equal);
    assert_true(equal[0] && equal[1]);
    clt_cost_equal(slow, 2, 3, 0.45, equal);
    assert_true(equal[0]);
    assert_false(equal[1]);
    clt_cost_equal(three, 3, 2, 0.45, equal);
    assert_true(equal[0] && equal[1]);
    assert_false(equal[2]);
}

static void test_link(void **state)
{
    (void)state;
    static const char *const bad[] = {"",           "25GB/s",     "25GB/s,",
                                      "25,5us",     "GB/s,5us",   "0GB/s,1us",
                                      "1GB/s,-1us", "1GB/s,5us,", "nanGB/s,5us"};
    clt_link link;
    assert_int_equal(clt_link_parse("25GB/s,5us", &link), CLT_OK);
    near(link.bytes_per_second, 25e9);
    near(link.latency, 5e-6);
    assert_int_equal(clt_link_parse("100Gbit/s,1.5us", &link), CLT_OK);
    near(link.bytes_per_second, 12.5e9);
    near(link.latency, 1.5e-6);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(clt_link_parse(bad[i], &link), CLT_INVALID_ARGUMENT);
        assert_non_null(strstr(clt_error_message(), "RATE,LATENCY"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divide),  cmocka_unit_test(test_divide_hopeless),
        cmocka_unit_test(test_step),    cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_choose),  cmocka_unit_test(test_network),
        cmocka_unit_test(test_ranks),   cmocka_unit_test(test_equal),
        cmocka_unit_test(test_link),    cmocka_unit_test(test_idle_rank),
        cmocka_unit_test(test_loading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
