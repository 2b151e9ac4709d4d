/* Messages of asynchronous training: what is written is read again, and damage is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cltrain/ops/index.h>
#include <cltrain/ops.h>

#include "train/async/payload.h"
#include "train/async/protocol.h"

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* --- headers -------------------------------------------------------------------------------- */

static void fill(uint32_t *seed, clt_async_message *m)
{
    *m = (clt_async_message){.kind = (clt_async_kind)(1 + draw(seed) % (CLT_MSG_KINDS - 1)),
                             .number = (int32_t)(draw(seed) % 1000) - 500,
                             .who = ((uint64_t)draw(seed) << 40) | draw(seed),
                             .hash = (uint64_t)draw(seed) << 41,
                             .seed = draw(seed),
                             .sequence = draw(seed),
                             .lease = (int64_t)draw(seed) << 30,
                             .epoch = draw(seed),
                             .offset = draw(seed),
                             .count = draw(seed),
                             .version = draw(seed),
                             .staleness = draw(seed),
                             .loss = (double)draw(seed) / 3,
                             .squares = (double)draw(seed) / 7};
    const size_t length = draw(seed) % sizeof m->text;
    for (size_t i = 0; i < length; i++)
        m->text[i] = (char)(1 + draw(seed) % 255);
}

static void test_headers_are_read_as_written(void **state)
{
    uint32_t seed = 1;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        clt_async_message m, read;
        uint8_t bytes[CLT_MSG_MOST];
        fill(&seed, &m);
        const size_t size = clt_async_encode(&m, bytes);
        assert_in_range(size, CLT_MSG_FIXED, CLT_MSG_MOST);
        assert_int_equal(clt_async_decode(bytes, size, &read), CLT_OK);
        assert_memory_equal(&m.who, &read.who,
                            offsetof(clt_async_message, text) - offsetof(clt_async_message, who));
        assert_string_equal(m.text, read.text);
        assert_int_equal(m.kind, read.kind);
        assert_int_equal(m.number, read.number);
    }
}

/* Any change of size, and any random bytes, are refused or give a header that would be written so:
 * nothing is read beyond the end (sanitizers look). */
static void test_damaged_headers_are_refused(void **state)
{
    uint32_t seed = 2;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        clt_async_message m, read;
        uint8_t bytes[CLT_MSG_MOST], again[CLT_MSG_MOST];
        fill(&seed, &m);
        const size_t size = clt_async_encode(&m, bytes);
        const size_t cut = draw(&seed) % (size + 1);
        uint8_t *own = malloc(cut + 1);
        memcpy(own, bytes, cut);
        for (uint32_t k = draw(&seed) % 4; cut && k > 0; k--)
            own[draw(&seed) % cut] = (uint8_t)draw(&seed);
        const clt_status status = clt_async_decode(own, cut, &read);
        if (status == CLT_OK) {
            assert_int_equal(clt_async_encode(&read, again), cut);
            assert_memory_equal(own, again, cut);
        } else {
            assert_int_equal(status, CLT_FORMAT);
        }
        free(own);
    }
}

/* --- ranges --------------------------------------------------------------------------------- */

enum { WORDS = 11, WIDTH = 5, PLACES = 4 };

/* Tables that an embedding reads by an input, of which one is frozen, one that is read as a matrix
 * too, a frozen tensor and a large one. */
static clt_graph *make_graph(void)
{
    clt_graph *g = NULL;
    const clt_init zeros = {0};
    const int64_t words[] = {CLT_BATCH, PLACES}, table[] = {WORDS, WIDTH}, tied[] = {WORDS, 3};
    const int64_t large[] = {7, 13};
    assert_int_equal(clt_graph_create(&g), CLT_OK);
    clt_value *in = clt_input(g, "words", CLT_I32, 2, words);
    clt_value *a = clt_parameter(g, "table", 2, table, zeros);
    clt_value *b = clt_parameter(g, "tied", 2, tied, zeros);
    clt_parameter(g, "large", 2, large, zeros);
    clt_parameter(g, "frozen", 2, large, zeros);
    clt_value *f = clt_parameter(g, "frozen_table", 2, tied, zeros);
    assert_int_equal(clt_freeze(g, "frozen", NULL), CLT_OK);
    assert_int_equal(clt_freeze(g, "frozen_table", NULL), CLT_OK);
    clt_embedding(in, a, CLT_NO_PADDING);
    clt_embedding(in, f, CLT_NO_PADDING);
    clt_linear(clt_embedding(in, b, CLT_NO_PADDING), b, NULL);
    assert_int_equal(clt_graph_status(g), CLT_OK);
    return g;
}

/* Holders differ by one element, wherever tensors are cut, and pieces cover everything once. */
static void test_ranges_are_equal(void **state)
{
    clt_graph *g = make_graph();
    (void)state;
    for (int holders = 1; holders <= 9; holders++) {
        clt_async_layout l;
        assert_int_equal(clt_async_layout_make(g, holders, &l), CLT_OK);
        int64_t all = 0;
        for (int h = 0; h < holders; h++) {
            const int64_t own = clt_async_cut(&l, h + 1) - clt_async_cut(&l, h);
            int64_t pieces = 0;
            assert_true(own == l.elements / holders || own == l.elements / holders + 1);
            for (int p = 0; p < l.n_parameters; p++) {
                const clt_async_piece piece = clt_async_piece_of(&l, h, p);
                pieces += piece.to - piece.from;
            }
            assert_int_equal(pieces, own);
            all += own;
        }
        assert_int_equal(all, l.elements);
        clt_async_layout_free(&l);
    }
    clt_async_layout l;
    assert_int_equal(clt_async_layout_make(g, 0, &l), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_async_layout_make(g, 100000, &l), CLT_INVALID_ARGUMENT);
    clt_graph_destroy(g);
}

static void test_only_tables_of_embeddings_have_rows(void **state)
{
    clt_graph *g = make_graph();
    clt_async_layout l;
    (void)state;
    assert_int_equal(clt_async_layout_make(g, 2, &l), CLT_OK);
    assert_int_equal(l.parameters[0].width, WIDTH);
    assert_string_equal(l.parameters[0].indices, "words");
    assert_int_equal(l.parameters[1].width, 0); /* the product has a gradient in all rows */
    assert_int_equal(l.parameters[2].width, 0);
    assert_true(l.parameters[2].trained);
    assert_false(l.parameters[3].trained);
    assert_int_equal(l.parameters[3].width, 0);
    assert_false(l.parameters[4].trained);
    assert_int_equal(l.parameters[4].width, 3);
    clt_async_layout_free(&l);
    clt_graph_destroy(g);
}

/* Sends a line of parameters through messages of all holders, and compares element by element. */
static void send_all(const clt_async_layout *l, uint32_t seed, clt_travels what)
{
    clt_rows rows, read;
    int32_t words[6];
    float *line = calloc((size_t)l->elements, sizeof *line);
    float *got = calloc((size_t)l->elements, sizeof *got);
    float *message = calloc((size_t)l->elements, sizeof *message);
    assert_int_equal(clt_rows_init(l, &rows), CLT_OK);
    assert_int_equal(clt_rows_init(l, &read), CLT_OK);
    for (int i = 0; i < 6; i++)
        words[i] = (int32_t)(draw(&seed) % WORDS);
    assert_int_equal(clt_async_rows_make(&l->parameters[0], words, 6, &rows.of[0]), CLT_OK);
    assert_int_equal(clt_async_rows_make(&l->parameters[4], words, 6, &rows.of[4]), CLT_OK);
    for (int64_t i = 0; i < l->elements; i++) {
        line[i] = (float)(i + 1);
        got[i] = -1;
    }
    for (int h = 0; h < l->holders; h++) {
        uint8_t sent[512];
        size_t used = 0;
        const size_t bytes = clt_rows_bytes(l, &rows);
        clt_rows_write(l, &rows, sent);
        assert_int_equal(clt_rows_read(l, sent, bytes, &read, &used), CLT_OK);
        assert_int_equal(used, bytes);
        const int64_t at = clt_async_cut(l, h);
        clt_payload_pack(l, h, &rows, what, line + at, message);
        clt_payload_unpack(l, h, &read, what, message, false, got + at);
    }
    for (int p = 0; p < l->n_parameters; p++)
        for (int64_t i = 0; i < l->parameters[p].elements; i++) {
            const int64_t width = l->parameters[p].width;
            const bool frozen = p > 2;
            bool wanted = !width && (!frozen || what == CLT_TRAVELS_FIRST);
            for (int k = 0; width && (!frozen || what != CLT_TRAVELS_GRADIENT) && k < 6; k++)
                wanted = wanted || words[k] == i / width;
            const int64_t at = l->parameters[p].begin + i;
            const float right = wanted ? line[at] : -1;
            assert_memory_equal(&got[at], &right, sizeof right);
        }
    clt_rows_free(&rows);
    clt_rows_free(&read);
    free(line);
    free(got);
    free(message);
}

static void test_elements_arrive_where_they_belong(void **state)
{
    clt_graph *g = make_graph();
    (void)state;
    for (int holders = 1; holders <= 7; holders++) {
        clt_async_layout l;
        assert_int_equal(clt_async_layout_make(g, holders, &l), CLT_OK);
        for (uint32_t seed = 1; seed < 20; seed++)
            for (clt_travels what = CLT_TRAVELS_GRADIENT; what <= CLT_TRAVELS_FIRST; what++)
                send_all(&l, seed, what);
        clt_async_layout_free(&l);
    }
    clt_graph_destroy(g);
}

static void test_damaged_rows_are_refused(void **state)
{
    clt_graph *g = make_graph();
    clt_async_layout l;
    clt_rows rows;
    uint32_t seed = 3;
    (void)state;
    assert_int_equal(clt_async_layout_make(g, 2, &l), CLT_OK);
    assert_int_equal(clt_rows_init(&l, &rows), CLT_OK);
    for (int i = 0; i < 20000; i++) {
        const size_t bytes = draw(&seed) % 40;
        uint8_t *own = malloc(bytes + 1);
        size_t used = 0;
        for (size_t b = 0; b < bytes; b++)
            own[b] = draw(&seed) % 3 ? 0 : (uint8_t)(draw(&seed) % 12);
        const clt_status status = clt_rows_read(&l, own, bytes, &rows, &used);
        if (status == CLT_OK) {
            assert_in_range(used, 4, bytes);
            for (int r = 0; r < rows.of[0].count; r++)
                assert_true(rows.of[0].rows[r] < WORDS &&
                            (!r || rows.of[0].rows[r] > rows.of[0].rows[r - 1]));
        } else {
            assert_int_equal(status, CLT_FORMAT);
        }
        free(own);
    }
    const int32_t wrong[] = {0, WORDS};
    assert_int_equal(clt_async_rows_make(&l.parameters[0], wrong, 2, &rows.of[0]),
                     CLT_INVALID_ARGUMENT);
    clt_rows_free(&rows);
    clt_async_layout_free(&l);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_are_read_as_written),
        cmocka_unit_test(test_damaged_headers_are_refused),
        cmocka_unit_test(test_ranges_are_equal),
        cmocka_unit_test(test_only_tables_of_embeddings_have_rows),
        cmocka_unit_test(test_elements_arrive_where_they_belong),
        cmocka_unit_test(test_damaged_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
