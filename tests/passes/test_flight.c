/* Micro-batches in flight: what backward reads of forward exists once for each of them, and the
 * rest of the arena once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "support/plans.h"
#include <cltrain/ops.h>

enum { MOST = 4 };

static clt_graph *network(void)
{
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    clt_value *sum, *weight;
    clt_graph *g;
    OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (const int64_t[]){CLT_BATCH, 64});
    for (int i = 0; i < 4; i++) {
        const char *const names[] = {"a", "b", "c", "d"};
        x = clt_linear(x, clt_parameter(g, names[i], 2, (const int64_t[]){64, 64}, zero), NULL);
        x = clt_add(clt_gelu(x), clt_tanh(x));
    }
    clt_mse(x, clt_input(g, "target", CLT_F32, 2, (const int64_t[]){CLT_BATCH, 64}), &sum, &weight);
    OK(clt_loss(g, "loss", sum, weight, 1));
    return g;
}

static clt_plan *plan_for(const clt_graph *g, const clt_buckets *buckets, int in_flight)
{
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, 32);
    clt_plan *plan;
    options.in_flight = in_flight;
    OK(clt_plan_create(g, buckets, &cpu, NULL, &options, &plan));
    return plan;
}

/* Whether a node of backward reads a value of forward. */
static bool crosses(const clt_plan *plan, const clt_node *reader, const clt_value *value)
{
    return value && value->producer && reader->backward && !value->producer->backward &&
           plan->places[value->id].kind == CLT_PLACE_ARENA;
}

static void values_that_backward_reads_are_in_the_slots(void **state)
{
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_graph *g = network();
    clt_buckets buckets;
    int64_t bytes[MOST + 1];
    (void)state;
    OK(clt_buckets_create(g, &sizes, &buckets));
    for (int flight = 0; flight <= MOST; flight++) {
        clt_plan *plan = plan_for(g, &buckets, flight);
        int crossing = 0;
        bytes[flight] = clt_plan_arena_bytes(plan);
        for (int i = 0; i < plan->n_nodes; i++)
            for (int j = 0; j < plan->nodes[i].node->n_in; j++) {
                const clt_node *node = plan->nodes[i].node;
                if (!crosses(plan, node, node->in[j]))
                    continue;
                crossing++;
                assert_true(!flight || plan->places[node->in[j]->id].index < plan->n_flight_slabs);
            }
        assert_true(crossing >= 4);
        assert_int_equal(plan->n_flight_slabs > 0, flight > 0);
        assert_int_equal(clt_plan_all_slabs(plan),
                         plan->n_slabs + (flight > 1 ? flight - 1 : 0) * plan->n_flight_slabs);
        for (int slab = 0; slab < plan->n_slabs; slab++)
            for (int slot = 1; slot < flight; slot++)
                assert_int_equal(clt_plan_slab(plan, slab, slot) == slab,
                                 slab >= plan->n_flight_slabs);
        clt_plan_destroy(plan);
    }
    /* Each further micro-batch takes the same, and less than a whole arena. */
    assert_true(bytes[1] >= bytes[0]);
    for (int flight = 2; flight <= MOST; flight++)
        assert_int_equal(bytes[flight] - bytes[flight - 1], bytes[2] - bytes[1]);
    assert_true(bytes[2] > bytes[1] && bytes[2] < 2 * bytes[1]);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_backward_reads_are_in_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
