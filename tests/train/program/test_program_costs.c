/* What the check of all programs of thousands of devices costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/error.h"
#include "train/program/check.h"

enum { THOUSANDS = 4096 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

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
        l->sums[i % MANY_SUMS] = (clt_outline_collective){
            (i + 1) * each - 1, (i + 1) * each, CLT_OP_ALL_REDUCE, CLT_AXIS_DATA, -1, 64, false,
            (uint64_t)i + 1,    CLT_F32};
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
    clt_step_program_input *inputs = clt_calloc((size_t)devices, sizeof *inputs);
    clt_mesh mesh;
    assert_non_null(inputs);
    ok(clt_mesh_parse(NULL, devices, &mesh));
    make_large(&plans[0], collectives);
    make_large(&plans[1], collectives);
    plans[1].segments[plans[1].plan.n_segments - 1].end++;
    plans[1].plan.n_nodes++;
    for (int d = 0; d < devices; d++)
        inputs[d] = (clt_step_program_input){.plan = &plans[d % 2].plan,
                                             .participants = devices,
                                             .ranks = (devices + 7) / 8,
                                             .mesh = mesh,
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
