/*
 * Trainers on meshes of several axes, on devices of one and of two vendors. Numbers are small
 * integers, so that steps are exact: parameters have the bits of one device.
 */
#include "train/split_steps.h"

#include "train/hybrid_networks.h"

static const char eight[] = "pocl@1,pocl@1,pocl@1,pocl@1,pocl@1,pocl@1,pocl@1,pocl@1";

/* A clip norm that no gradient has: the norm is computed, and changes no bit. */
enum { NO_CLIPPING = 1 << 20 };

/* Checks a step with SGD, in the least micro-batches, and more steps with momentum and a norm, in
 * more micro-batches. */
static void check_ways(build_fn build, const char *devices, const char *parallel, int accumulate)
{
    setting s = {.build = build, .devices = devices, .parallel = parallel};
    s.accumulate = accumulate;
    check(&s);
    s.optimizer = CLT_MOMENTUM;
    s.clip = NO_CLIPPING;
    s.accumulate = accumulate == 1 ? 2 : 4;
    s = longer(s);
    check(&s);
}

static void pipelines_of_parts(void **state)
{
    (void)state;
    check_ways(two_blocks, four, "pp=2,tp=2", 2);
    check_ways(two_blocks, four, "tp=2,pp=2", 2);
    check_ways(words, four, "pp=2,tp=2", 2);
    check_ways(images, four, "pp=2,tp=2", 2);
    check_ways(images, four, "pp=2,space=2", 2);
    check_ways(images, four, "space=2,pp=2", 2);
    check_ways(classes, four, "pp=2,space=2", 2);
    check_ways(saturated, four, "pp=2,tp=2", 2);
    check_ways(saturated, four, "pp=2,time=2", 2);
    check_ways(saturated, four, "time=2,pp=2", 2);
    check_ways(labels, four, "pp=2,tp=2", 2);
    check_ways(labels, four, "pp=2,time=2", 2);
}

static void parts_of_parts(void **state)
{
    (void)state;
    check_ways(two_blocks, four, "dp=2,tp=2", 1);
    check_ways(words, four, "tp=2,dp=2", 1);
    check_ways(images, four, "dp=2,space=2", 1);
    check_ways(images, four, "tp=2,space=2", 1);
    check_ways(classes, four, "space=2,tp=2", 1);
    check_ways(classes, four, "dp=2,space=2", 1);
    check_ways(saturated, four, "dp=2,time=2", 1);
    check_ways(saturated, four, "tp=2,time=2", 1);
    check_ways(saturated, four, "time=2,tp=2", 1);
    check_ways(labels, four, "dp=2,tp=2", 1);
    check_ways(labels, four, "tp=2,time=2", 1);
}

static void three_axes(void **state)
{
    (void)state;
    check_ways(two_blocks, eight, "dp=2,tp=2,pp=2", 2);
    check_ways(words, eight, "pp=2,dp=2,tp=2", 2);
    check_ways(images, eight, "dp=2,pp=2,space=2", 2);
    check_ways(images, eight, "tp=2,pp=2,space=2", 2);
    check_ways(saturated, eight, "dp=2,tp=2,time=2", 1);
    check_ways(saturated, eight, "pp=2,tp=2,time=2", 2);
}

static void zero_1(void **state)
{
    static const setting settings[] = {
        {.build = two_blocks, .devices = two},
        {.build = two_blocks, .devices = four, .parallel = "dp=2,pp=2", .accumulate = 2},
        {.build = two_blocks, .devices = four, .parallel = "pp=2,dp=2", .accumulate = 4},
        {.build = two_blocks, .devices = four, .parallel = "dp=2,tp=2"},
        {.build = two_blocks, .devices = eight, .parallel = "dp=2,tp=2,pp=2", .accumulate = 2},
        {.build = images, .devices = four, .parallel = "dp=2,space=2"},
        {.build = saturated, .devices = four, .parallel = "dp=2,time=2"}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        setting s = settings[i];
        s.zero = 1;
        s.optimizer = CLT_MOMENTUM;
        check(&s);
        s.clip = NO_CLIPPING;
        check(&s);
    }
}

static void clipped(void **state)
{
    static const setting settings[] = {
        {.build = two_blocks, .devices = four, .parallel = "pp=2,tp=2", .accumulate = 2},
        {.build = two_blocks, .devices = four, .parallel = "dp=2,pp=2", .accumulate = 2, .zero = 1},
        {.build = two_blocks, .devices = eight, .parallel = "dp=2,tp=2,pp=2", .accumulate = 2},
        {.build = images, .devices = four, .parallel = "pp=2,space=2", .accumulate = 2},
        {.build = images, .devices = four, .parallel = "tp=2,space=2"},
        {.build = images, .devices = four, .parallel = "dp=2,space=2", .accumulate = 2},
        {.build = saturated, .devices = four, .parallel = "pp=2,time=2", .accumulate = 2},
        {.build = saturated, .devices = four, .parallel = "tp=2,time=2"},
        {.build = saturated, .devices = four, .parallel = "dp=2,time=2", .accumulate = 2}};
    setting with_clip[sizeof settings / sizeof *settings];
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        with_clip[i] = settings[i];
        with_clip[i].clip = 1;
        with_clip[i].optimizer = CLT_MOMENTUM;
    }
    check_rounded(with_clip, sizeof settings / sizeof *settings, 1e-5, 0x1p-4);
}

/* Stages, rows, positions and samples on devices of two vendors: the bits of one device too. */
static void two_vendors(void **state)
{
    static const char both[] = "pocl@1,intel", turned[] = "intel,pocl@1",
                      all[] = "pocl@1,pocl@1,intel,intel", mixed[] = "pocl@1,intel,pocl@1,intel";
    (void)state;
    if (!strstr(clt_test_devices(""), "intel"))
        skip();
    check_ways(two_blocks, both, "pp=2", 2);
    check_ways(words, turned, "pp=2", 2);
    check_ways(images, both, "pp=2", 2);
    check_ways(saturated, turned, "pp=2", 2);
    check_ways(images, both, "space=2", 1);
    check_ways(images, turned, "space=2", 1);
    check_ways(classes, both, "space=2", 1);
    check_ways(saturated, both, "time=2", 1);
    check_ways(saturated, turned, "time=2", 1);
    check_ways(two_blocks, mixed, "dp=2,pp=2", 2);
    check_ways(two_blocks, mixed, "pp=2,dp=2", 2);
    check_ways(two_blocks, all, "pp=2,tp=2", 2); /* each stage has one vendor */
    check_ways(images, mixed, "pp=2,space=2", 2);
    check_ways(images, all, "space=2,tp=2", 1);
    check_ways(saturated, mixed, "pp=2,time=2", 2);
    check_ways(saturated, all, "time=2,tp=2", 1);
    for (int i = 0; i < 2; i++)
        check(&(setting){.build = two_blocks,
                         .devices = i ? all : mixed,
                         .parallel = "dp=2,pp=2",
                         .accumulate = 2,
                         .optimizer = CLT_MOMENTUM,
                         .zero = 1});
}

static void zero_3_beside_other_axes_is_refused(void **state)
{
    static const char *const meshes[] = {"dp=2,tp=2", "dp=2,pp=2", "dp=2,space=2", "dp=2,time=2",
                                         "pp=4"};
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        clt_store_options store;
        lab l = lab_on_kept(four);
        ok(clt_graph_create(&l.graph));
        two_blocks(l.graph);
        clt_store_options_init(&store);
        store.parallel = meshes[i];
        store.zero = 3;
        assert_int_equal(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store),
                         CLT_UNSUPPORTED);
        assert_string_equal(clt_error_message(),
                            "zero 3 needs a mesh that has no other axis than dp: leave "
                            "out the other axes, or zero");
        lab_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pipelines_of_parts),
                                       cmocka_unit_test(parts_of_parts),
                                       cmocka_unit_test(three_axes),
                                       cmocka_unit_test(zero_1),
                                       cmocka_unit_test(clipped),
                                       cmocka_unit_test(two_vendors),
                                       cmocka_unit_test(zero_3_beside_other_axes_is_refused)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
