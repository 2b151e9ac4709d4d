/* Dropout of the parts of a tensor drops what dropout of the whole tensor drops. One graph computes
 * the parts of all places and joins them. */
#include "base/philox.h"
#include "graph/sharding.h"
#include "ops/core/dims.h"
#include "ops/harness/harness.h"

enum { MOST_PARTS = 6 };

typedef struct parts_case {
    double p;
    int dim, places, blocks;
} parts_case;

static clt_value *slice_of(clt_value *x, int dim, int64_t first, int64_t size)
{
    int64_t start[CLT_MAX_RANK] = {0}, stop[CLT_MAX_RANK];
    for (int k = 0; k < CLT_MAX_RANK; k++)
        stop[k] = CLT_TO_END;
    start[dim] = first;
    stop[dim] = first + size;
    return clt_slice(x, start, stop, NULL);
}

/* Dropout of a place's part of x. `whole` is dropout of x. */
static clt_value *dropped_part(const clt_node *whole, const parts_case *k, int place)
{
    clt_value *x = whole->in[0], *of_blocks[MOST_PARTS];
    const int64_t block = x->type.dims[k->dim] / k->blocks;
    const clt_node_part part = {
        CLT_AXIS_TENSOR, CLT_DIM_STAR + x->type.rank - 1 - k->dim, k->blocks, {place, k->places}};
    char attr[256];
    assert_true(whole->op->attr_bytes <= sizeof attr);
    memcpy(attr, whole->attr, whole->op->attr_bytes);
    OP_OK(whole->op->localise(whole, &part, attr));
    for (int b = 0; b < k->blocks; b++)
        of_blocks[b] = slice_of(x, k->dim, b * block + clt_part_begin(block, k->places, place),
                                clt_part_size(block, k->places, place));
    clt_value *own = clt_concat(of_blocks, k->blocks, k->dim);
    return clt_graph_add(own->graph, whole->op, &own, 1, attr)->out[0];
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const parts_case *k = c->attr;
    const clt_node *whole = clt_dropout(in[0], k->p)->producer;
    clt_value *parts[MOST_PARTS];
    for (int p = 0; p < k->places; p++) {
        clt_value *own = dropped_part(whole, k, p);
        const int64_t size = own->type.dims[k->dim] / k->blocks;
        for (int b = 0; b < k->blocks; b++)
            parts[b * k->places + p] = slice_of(own, k->dim, b * size, size);
    }
    out[0] = clt_concat(parts, k->places * k->blocks, k->dim);
}

static double factor(const op_case *c, int64_t element)
{
    const double p = ((const parts_case *)c->attr)->p;
    const int64_t batch = c->in[0].dims[0];
    const int64_t number = (batch < 0 ? OP_SAMPLE * op_count(c, 0, 1) : 0) + element;
    uint32_t bits[4];
    clt_random4(OP_SEED, CLT_STREAM_DROPOUT, 0, OP_STEP, (uint64_t)number / 4, bits);
    return clt_philox_unit(bits[number % 4]) >= (float)p ? 1 / (1 - p) : 0;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = x[0][i] * factor(c, i);
        if (bound)
            bound[0][i] = fabs(y[0][i]);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    (void)x;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        dx[0][i] = dy[0][i] * factor(c, i);
        bound[0][i] = fabs(dx[0][i]);
    }
}

static op_test test = {"dropout", 1, 0, build, forward, backward, 0};

/* Short and long runs, uneven parts, blocks, the last dimension and an inner one, and no batch. */
static void test_parts(void **state)
{
    static const struct shape {
        int rank;
        int64_t dims[4], batch;
        parts_case own;
    } shapes[] = {
        {2, {CLT_BATCH, 11}, 5, {0.3, 1, 2, 1}},
        {3, {CLT_BATCH, 2, 24}, 3, {0.4, 2, 2, 3}},
        {3, {CLT_BATCH, 3, 1027}, 3, {0.5, 1, 3, 1}},
        {2, {9, 8}, 1, {0.3, 0, 2, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = 1, .batch = s->batch, .attr = &s->own, .trains = true};
        c.in[0] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
        memcpy(c.in[0].dims, s->dims, sizeof s->dims);
        snprintf(text, OP_TEXT, "shape %d, dimension %d, %d places", (int)i, s->own.dim,
                 s->own.places);
        if (!clt_test_oclgrind() || i < 2)
            op_check(&test, &c, false);
    }
    op_report(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
