/* Parts of split tensors: types, pieces, and clt_shard. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph/sharding.h"

/* The pieces of all places cover the whole tensor once, and each part without gaps. */
static void check_cover(clt_type whole, clt_sharding sharding, int places)
{
    const int64_t n = clt_type_elements(&whole, 0);
    char *seen = calloc((size_t)n, 1);
    for (int p = 0; p < places; p++) {
        const clt_coordinate at = {p, places};
        clt_type part;
        int64_t next = 0;
        assert_int_equal(clt_sharding_type("w", &whole, sharding, at, &part), CLT_OK);
        for (int64_t i = 0; i < clt_sharding_pieces(&whole, sharding); i++) {
            const clt_piece piece = clt_sharding_piece(&whole, sharding, at, i);
            assert_int_equal(piece.part, next);
            next += piece.count;
            for (int64_t e = 0; e < piece.count; e++)
                assert_int_equal(seen[piece.whole + e]++, 0);
        }
        assert_int_equal(next, clt_type_elements(&part, 0));
    }
    for (int64_t e = 0; e < n; e++)
        assert_int_equal(seen[e], 1);
    free(seen);
}

static void pieces_cover_the_tensor(void **state)
{
    (void)state;
    const clt_type type = {CLT_F32, 3, {6, 12, 5}};
    for (int places = 2; places <= 4; places++) {
        check_cover(type, (clt_sharding){0, 1}, places);
        check_cover(type, (clt_sharding){1, 1}, places);
        check_cover(type, (clt_sharding){1, 3}, places);
        check_cover(type, (clt_sharding){2, 1}, places);
    }
    const clt_type vocabulary = {CLT_F32, 2, {50257, 2}};
    check_cover(vocabulary, (clt_sharding){0, 1}, 2);
    const clt_piece second =
        clt_sharding_piece(&vocabulary, (clt_sharding){0, 1}, (clt_coordinate){1, 2}, 0);
    assert_int_equal(second.whole, 25129 * 2);
    assert_int_equal(second.count, 25128 * 2);
    /* Blocks of 4 columns: the second of 2 places has columns 2 3 6 7 10 11. */
    const clt_piece third =
        clt_sharding_piece(&type, (clt_sharding){1, 3}, (clt_coordinate){1, 2}, 2);
    assert_int_equal(third.whole, 10 * 5);
    assert_int_equal(third.part, 4 * 5);
}

static void refused(clt_type whole, clt_sharding sharding, int places, const char *text)
{
    clt_type part;
    assert_int_equal(clt_sharding_type("w", &whole, sharding, (clt_coordinate){0, places}, &part),
                     CLT_UNSUPPORTED);
    assert_string_equal(clt_error_message(), text);
}

static void impossible_parts_are_refused(void **state)
{
    (void)state;
    refused((clt_type){CLT_F32, 2, {3, 8}}, (clt_sharding){0, 1}, 4,
            "w is f32[3x8]: dimension 0, in 1 block, cannot be split over 4 devices");
    refused((clt_type){CLT_F32, 2, {-1, 8}}, (clt_sharding){0, 1}, 2,
            "w is f32[Bx8]: dimension 0, in 1 block, cannot be split over 2 devices");
    refused((clt_type){CLT_F32, 2, {3, 8}}, (clt_sharding){1, 3}, 2,
            "w is f32[3x8]: dimension 1, in 3 blocks, cannot be split over 2 devices");
}

static void parameters_are_split_by_pattern(void **state)
{
    (void)state;
    clt_graph *g;
    int count;
    assert_int_equal(clt_graph_create(&g), CLT_OK);
    const clt_value *a =
        clt_parameter(g, "a.weight", 2, (const int64_t[]){6, 4}, (clt_init){CLT_INIT_ZERO, 0, 0});
    clt_parameter(g, "b.weight", 1, (const int64_t[]){6}, (clt_init){CLT_INIT_ZERO, 0, 0});
    assert_int_equal(clt_shard(g, "*.weight", CLT_AXIS_TENSOR, 0, 3, &count), CLT_OK);
    assert_int_equal(count, 2);
    assert_int_equal(a->shardings[CLT_AXIS_TENSOR].blocks, 3);
    assert_int_equal(clt_shard(g, "c*", CLT_AXIS_TENSOR, 0, 1, NULL), CLT_NOT_FOUND);
    assert_string_equal(clt_error_message(), "no parameter matches \"c*\"");
    assert_int_equal(clt_shard(g, "*", CLT_AXIS_TENSOR, 1, 1, NULL), CLT_SHAPE);
    assert_string_equal(clt_error_message(), "parameter b.weight is f32[6]: it cannot be split "
                                             "along dimension 1 in 1 blocks");
    assert_int_equal(a->shardings[CLT_AXIS_TENSOR].dim, 0); /* unchanged by the failure */
    assert_int_equal(clt_shard(g, "a*", CLT_AXIS_DATA, 0, 1, NULL), CLT_UNSUPPORTED);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_cover_the_tensor),
                                       cmocka_unit_test(impossible_parts_are_refused),
                                       cmocka_unit_test(parameters_are_split_by_pattern)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
