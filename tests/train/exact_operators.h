/*
 * The operators of exact networks, as terms of a tape: what they compute, not how the runtime
 * computes it. Choices (ReLU's sign, the place of a maximum, a saturated softmax) are made from the
 * numbers and then fixed, which gives the gradient. A network with another operator fails the test.
 */
#ifndef TESTS_TRAIN_EXACT_OPERATORS_H
#define TESTS_TRAIN_EXACT_OPERATORS_H

#include "graph/graph.h"
#include "train/exact_tape.h"

/* A graph whose values are cells of a tape. */
typedef struct exact_graph {
    const clt_graph *graph;
    int64_t batch;
    tape tape;
    int64_t *first; /* by value id: the first of its cells */
} exact_graph;

/* A node's operand or result. */
typedef struct exact_array {
    int64_t first, count, dims[CLT_MAX_RANK]; /* count 0: an absent operand */
    int rank;
} exact_array;

static inline exact_array array_of(const exact_graph *g, const clt_value *value)
{
    exact_array a = {0};
    if (!value)
        return a;
    a.first = g->first[value->id];
    a.rank = value->type.rank;
    a.count = 1;
    for (int i = 0; i < a.rank; i++) {
        a.dims[i] = clt_dim(value->type.dims[i], g->batch);
        a.count *= a.dims[i];
    }
    return a;
}

static inline exact_array operand(const exact_graph *g, const clt_node *node, int i)
{
    return array_of(g, i < node->n_in ? node->in[i] : NULL);
}

static inline exact_array result(const exact_graph *g, const clt_node *node)
{
    return array_of(g, node->out[0]);
}

/* Returns number i of a node's attribute. */
static inline double attribute(const clt_node *node, const char *name, int i)
{
    const clt_attribute *a = clt_attribute_find(node->op, name);
    if (!a)
        fail_msg("%s has no attribute %s", node->op->name, name);
    const int bytes = a->bytes / (a->count ? a->count : 1);
    const char *at = (const char *)node->attr + a->offset + (ptrdiff_t)i * bytes;
    if (a->kind == CLT_ATTRIBUTE_REAL)
        return bytes == sizeof(float) ? (double)*(const float *)at : *(const double *)at;
    if (a->kind == CLT_ATTRIBUTE_FLAG && bytes == sizeof(bool))
        return *(const bool *)at;
    return bytes == sizeof(int) ? (double)*(const int *)at : (double)*(const int64_t *)at;
}

/* Returns the size of the dimensions from `axis` on. */
static inline int64_t elements_from(const exact_array *a, int axis)
{
    int64_t count = 1;
    for (int i = axis; i < a->rank; i++)
        count *= a->dims[i];
    return count;
}

/* Returns the element of a broadcast operand for element i of the result. */
static inline int64_t broadcast(const exact_array *from, const exact_array *to, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int k = 1; k <= from->rank; k++) {
        const int64_t size = from->dims[from->rank - k];
        at += (size == 1 ? 0 : i % to->dims[to->rank - k]) * step;
        step *= size;
        i /= to->dims[to->rank - k];
    }
    return from->first + at;
}

/* --- elements --------------------------------------------------------------------------------- */

static inline void exact_plus(exact_graph *g, const clt_node *node)
{
    const exact_array y = result(g, node);
    for (int operand_index = 0; operand_index < 2; operand_index++) {
        const exact_array x = operand(g, node, operand_index);
        for (int64_t i = 0; i < y.count; i++)
            tape_add(&g->tape, y.first + i, 1, broadcast(&x, &y, i), NO_CELL);
    }
}

static inline void exact_scale(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), y = result(g, node);
    const double factor = attribute(node, "factor", 0), term = attribute(node, "term", 0);
    for (int64_t i = 0; i < y.count; i++) {
        tape_add(&g->tape, y.first + i, factor, x.first + i, NO_CELL);
        tape_add(&g->tape, y.first + i, term, NO_CELL, NO_CELL);
    }
}

static inline void exact_relu(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), y = result(g, node);
    for (int64_t i = 0; i < y.count; i++)
        if (tape_value(&g->tape, x.first + i) > 0)
            tape_add(&g->tape, y.first + i, 1, x.first + i, NO_CELL);
}

/* Copies, and shapes that keep the order of elements. */
static inline void exact_copy(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), y = result(g, node);
    for (int64_t i = 0; i < y.count; i++)
        tape_add(&g->tape, y.first + i, 1, x.first + i, NO_CELL);
}

static inline void exact_concat(exact_graph *g, const clt_node *node)
{
    const exact_array y = result(g, node);
    const int axis = (int)attribute(node, "axis", 0);
    const int64_t row = elements_from(&y, axis);
    int64_t at = 0;
    for (int k = 0; k < node->n_in; k++) {
        const exact_array x = operand(g, node, k);
        const int64_t part = elements_from(&x, axis);
        for (int64_t i = 0; i < x.count; i++)
            tape_add(&g->tape, y.first + i / part * row + at + i % part, 1, x.first + i, NO_CELL);
        at += part;
    }
}

static inline void exact_embedding(exact_graph *g, const clt_node *node)
{
    const exact_array index = operand(g, node, 0), table = operand(g, node, 1), y = result(g, node);
    const int64_t width = table.dims[1];
    for (int64_t i = 0; i < y.count; i++) {
        const int64_t row = (int64_t)tape_value(&g->tape, index.first + i / width);
        tape_add(&g->tape, y.first + i, 1, table.first + row * width + i % width, NO_CELL);
    }
}

/* --- products --------------------------------------------------------------------------------- */

static inline void exact_linear(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), w = operand(g, node, 1), bias = operand(g, node, 2);
    const exact_array y = result(g, node);
    const int64_t out = w.dims[0], in = w.dims[1];
    for (int64_t i = 0; i < y.count; i++) {
        for (int64_t k = 0; k < in; k++)
            tape_add(&g->tape, y.first + i, 1, x.first + i / out * in + k,
                     w.first + i % out * in + k);
        if (bias.count)
            tape_add(&g->tape, y.first + i, 1, bias.first + i % out, NO_CELL);
    }
}

static inline void exact_matmul(exact_graph *g, const clt_node *node)
{
    const exact_array a = operand(g, node, 0), b = operand(g, node, 1), y = result(g, node);
    assert_true(b.rank == 2 && attribute(node, "trans_a", 0) == 0 &&
                attribute(node, "trans_b", 0) == 0);
    const int64_t in = b.dims[0], out = b.dims[1];
    for (int64_t i = 0; i < y.count; i++)
        for (int64_t k = 0; k < in; k++)
            tape_add(&g->tape, y.first + i, 1, a.first + i / out * in + k,
                     b.first + k * out + i % out);
}

/* Visits all products of a convolution of x [B, C, H, W] by w [O, C, h, w]. Adds them to y
 * [B, O, H', W'], or in a transposed convolution the products of y and w to x. */
static inline void exact_convolve(exact_graph *g, const clt_node *node, const exact_array *x,
                                  const exact_array *w, const exact_array *y, bool transposed)
{
    const int64_t taps = elements_from(w, 2);
    assert_true(attribute(node, "groups", 0) == 1);
    for (int64_t i = 0; i < y->count; i++) {
        const int64_t at[] = {i / y->dims[3] % y->dims[2], i % y->dims[3]};
        const int64_t image = i / elements_from(y, 1);
        const int64_t filter = i / elements_from(y, 2) % y->dims[1];
        for (int64_t tap = 0; tap < w->dims[1] * taps; tap++) {
            const int64_t of[] = {tap % taps / w->dims[3], tap % w->dims[3]};
            int64_t place = image * x->dims[1] + tap / taps;
            bool inside = true;
            for (int k = 0; k < 2; k++) {
                const int64_t p = at[k] * (int64_t)attribute(node, "stride", k) +
                                  of[k] * (int64_t)attribute(node, "dilation", k) -
                                  (int64_t)attribute(node, "padding", k);
                inside = inside && p >= 0 && p < x->dims[2 + k];
                place = place * x->dims[2 + k] + p;
            }
            if (inside)
                tape_add(&g->tape, transposed ? x->first + place : y->first + i, 1,
                         transposed ? y->first + i : x->first + place,
                         w->first + filter * w->dims[1] * taps + tap);
        }
    }
}

static inline void exact_conv2d(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), w = operand(g, node, 1), bias = operand(g, node, 2);
    const exact_array y = result(g, node);
    exact_convolve(g, node, &x, &w, &y, false);
    for (int64_t i = 0; bias.count && i < y.count; i++)
        tape_add(&g->tape, y.first + i, 1, bias.first + i / elements_from(&y, 2) % y.dims[1],
                 NO_CELL);
}

static inline void exact_conv_transpose2d(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), w = operand(g, node, 1), y = result(g, node);
    exact_convolve(g, node, &y, &w, &x, true);
}

/* --- pooling ---------------------------------------------------------------------------------- */

/* The first of equal maxima gets the gradient, as in PyTorch. */
static inline void exact_max_pool2d(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), y = result(g, node);
    const int64_t height = (int64_t)attribute(node, "kernel", 0),
                  width = (int64_t)attribute(node, "kernel", 1);
    for (int k = 0; k < 2; k++)
        assert_true(attribute(node, "stride", k) == attribute(node, "kernel", k) &&
                    attribute(node, "padding", k) == 0 && attribute(node, "dilation", k) == 1 &&
                    y.dims[2 + k] * (int64_t)attribute(node, "kernel", k) == x.dims[2 + k]);
    for (int64_t i = 0; i < y.count; i++) {
        const int64_t plane = i / elements_from(&y, 2) * elements_from(&x, 2);
        const int64_t top = i / y.dims[3] % y.dims[2] * height, left = i % y.dims[3] * width;
        int64_t best = x.first + plane + top * x.dims[3] + left;
        for (int64_t k = 0; k < height * width; k++) {
            const int64_t other =
                x.first + plane + (top + k / width) * x.dims[3] + left + k % width;
            if (tape_value(&g->tape, other) > tape_value(&g->tape, best))
                best = other;
        }
        tape_add(&g->tape, y.first + i, 1, best, NO_CELL);
    }
}

static inline void exact_global_avg_pool2d(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), y = result(g, node);
    const int64_t plane = elements_from(&x, 2);
    for (int64_t i = 0; i < x.count; i++)
        tape_add(&g->tape, y.first + i / plane, 1.0 / (double)plane, x.first + i, NO_CELL);
}

/* --- saturated softmax ------------------------------------------------------------------------ */

/* Returns the index of the greatest of `count` numbers. The other exponentials must be 0 in f32:
 * then the softmax is 1 there and 0 elsewhere, the logarithm of the sum is the greatest number, and
 * the softmax passes no gradient on. */
static inline int64_t saturated_at(const clt_node *node, const double *scores, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = scores[i] > scores[best] ? i : best;
    for (int64_t i = 0; i < count; i++)
        if (i != best && scores[best] - scores[i] < 128)
            fail_msg("%s is not saturated: scores %g and %g", node->name, scores[best], scores[i]);
    return best;
}

enum { MOST_SCORES = 64 };

static inline void exact_softmax(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), y = result(g, node);
    const int64_t width = x.dims[x.rank - 1];
    double scores[MOST_SCORES];
    assert_true(width <= MOST_SCORES && attribute(node, "axis", 0) == x.rank - 1);
    for (int64_t row = 0; row < x.count; row += width) {
        for (int64_t i = 0; i < width; i++)
            scores[i] = tape_value(&g->tape, x.first + row + i);
        tape_add(&g->tape, y.first + row + saturated_at(node, scores, width), 1, NO_CELL, NO_CELL);
    }
}

static inline void exact_attention(exact_graph *g, const clt_node *node)
{
    const exact_array q = operand(g, node, 0), k = operand(g, node, 1), v = operand(g, node, 2);
    const exact_array y = result(g, node);
    const int64_t rows = q.dims[1], keys = k.dims[1], width = q.dims[2];
    const int64_t size = width / (int64_t)attribute(node, "heads", 0);
    double scores[MOST_SCORES];
    assert_true(q.rank == 3 && k.dims[2] == width && v.dims[2] == width && keys <= MOST_SCORES &&
                !operand(g, node, 3).count && attribute(node, "past", 0) == 0 &&
                attribute(node, "dropout", 0) == 0);
    /* One turn for each row and head. */
    for (int64_t i = 0; i < q.count; i += size) {
        const int64_t image = i / (rows * width), t = i / width % rows, column = i % width;
        const int64_t seen = attribute(node, "causal", 0) != 0 ? t + 1 : keys;
        for (int64_t s = 0; s < seen; s++) {
            scores[s] = 0;
            for (int64_t d = 0; d < size; d++)
                scores[s] +=
                    attribute(node, "scale", 0) * tape_value(&g->tape, q.first + i + d) *
                    tape_value(&g->tape, k.first + (image * keys + s) * width + column + d);
        }
        const int64_t s = saturated_at(node, scores, seen);
        for (int64_t d = 0; d < size; d++)
            tape_add(&g->tape, y.first + i + d, 1,
                     v.first + (image * keys + s) * width + column + d, NO_CELL);
    }
}

/* --- losses ----------------------------------------------------------------------------------- */

static inline void exact_mse(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), target = operand(g, node, 1), sum = result(g, node);
    const exact_array weight = array_of(g, node->out[1]);
    const int64_t differences = tape_cells(&g->tape, x.count);
    for (int64_t i = 0; i < x.count; i++) {
        tape_add(&g->tape, differences + i, 1, x.first + i, NO_CELL);
        tape_add(&g->tape, differences + i, -1, target.first + i, NO_CELL);
        tape_add(&g->tape, sum.first, 1, differences + i, differences + i);
        tape_add(&g->tape, weight.first, 1, NO_CELL, NO_CELL);
    }
}

/* A saturated row's loss is the greatest logit minus the label's. */
static inline void exact_cross_entropy(exact_graph *g, const clt_node *node)
{
    const exact_array x = operand(g, node, 0), label = operand(g, node, 1), sum = result(g, node);
    const exact_array weight = array_of(g, node->out[1]);
    const int64_t classes = x.dims[1];
    double scores[MOST_SCORES];
    assert_true(x.rank == 2 && classes <= MOST_SCORES &&
                attribute(node, "label_smoothing", 0) == 0);
    for (int64_t row = 0; row < label.count; row++) {
        const int64_t logits = x.first + row * classes;
        for (int64_t i = 0; i < classes; i++)
            scores[i] = tape_value(&g->tape, logits + i);
        const int64_t best = saturated_at(node, scores, classes);
        tape_add(&g->tape, sum.first, 1, logits + best, NO_CELL);
        tape_add(&g->tape, sum.first, -1, logits + (int64_t)tape_value(&g->tape, label.first + row),
                 NO_CELL);
        tape_add(&g->tape, weight.first, 1, NO_CELL, NO_CELL);
    }
}

/* --- all -------------------------------------------------------------------------------------- */

static inline void exact_node(exact_graph *g, const clt_node *node)
{
    static const struct {
        const char *name;
        void (*add)(exact_graph *g, const clt_node *node);
    } operators[] = {{"add", exact_plus},
                     {"attention", exact_attention},
                     {"concat", exact_concat},
                     {"conv2d", exact_conv2d},
                     {"conv2d_data_grad", exact_conv_transpose2d},
                     {"copy", exact_copy},
                     {"cross_entropy", exact_cross_entropy},
                     {"embedding", exact_embedding},
                     {"global_avg_pool2d", exact_global_avg_pool2d},
                     {"linear", exact_linear},
                     {"matmul", exact_matmul},
                     {"max_pool2d", exact_max_pool2d},
                     {"mse", exact_mse},
                     {"relu", exact_relu},
                     {"reshape", exact_copy},
                     {"scale", exact_scale},
                     {"softmax", exact_softmax}};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (!strcmp(operators[i].name, node->op->name)) {
            operators[i].add(g, node);
            return;
        }
    fail_msg("exact networks have no operator %s", node->op->name);
}

#endif
