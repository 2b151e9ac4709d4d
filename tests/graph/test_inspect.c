/* Dimensions that a graph refuses, and what is told about its nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include <cltrain/graph.h>
#include <cltrain/ops.h>
#include <cltrain/unstable.h>

static void impossible_dimensions_are_refused(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, INT64_MIN, INT64_MIN + 1, INT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        clt_graph *graph;
        char said[96];
        assert_int_equal(clt_graph_create(&graph), CLT_OK);
        assert_null(clt_input(graph, "x", CLT_F32, 2, (int64_t[]){sizes[i], 3}));
        assert_int_equal(clt_graph_status(graph), CLT_SHAPE);
        snprintf(said, sizeof said, "dimension 0 of size %lld is not possible",
                 (long long)sizes[i]);
        assert_non_null(strstr(clt_error_message(), said));
        clt_graph_destroy(graph);
    }
}

/* Each node has a parameter of its own, and the last one has the first one's. The time must grow
 * with the number of nodes only: a search through all earlier nodes took minutes here. */
static void many_nodes_are_described_in_linear_time(void **state)
{
    (void)state;
    enum { NODES = 100000 };
    clt_graph *graph;
    assert_int_equal(clt_graph_create(&graph), CLT_OK);
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 3}), *first = NULL;
    for (int i = 0; i < NODES - 1; i++) {
        char name[32];
        snprintf(name, sizeof name, "p%d", i);
        clt_value *p =
            clt_parameter(graph, name, 1, (int64_t[]){3}, (clt_init){.kind = CLT_INIT_ZERO});
        first = i ? first : p;
        x = clt_add(x, p);
    }
    x = clt_add(x, first);
    assert_int_equal(clt_graph_status(graph), CLT_OK);
    assert_int_equal(clt_graph_node_count(graph), NODES);
    const clock_t begin = clock();
    for (int i = 0; i < NODES; i++) {
        clt_node_info node;
        assert_int_equal(clt_graph_node_describe(graph, i, &node), CLT_OK);
        assert_string_equal(node.op, "add");
        assert_int_equal(node.rank, 2);
        assert_int_equal(node.parameters, i < NODES - 1 ? 3 : 0);
        assert_int_equal(node.shared, i < NODES - 1 ? 0 : 3);
    }
    assert_true(clock() - begin < 2 * CLOCKS_PER_SEC);
    clt_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_dimensions_are_refused),
        cmocka_unit_test(many_nodes_are_described_in_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
