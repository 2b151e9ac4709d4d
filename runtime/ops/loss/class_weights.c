/*
 * Cross entropy with weights of classes, as several nodes. With one-hot labels h, weights w and
 * smoothing s, the target of row i is (1 - s) w h + s / C w, and the sum is that of -target *
 * log_softmax(logits). PyTorch's mean divides it by the sum of w h. Rows of ignored labels have no
 * one in h.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/graph.h"
#include "ops/loss/class_weights.h"

#include <cltrain/ops.h>

/* Products with probabilities and sums over large batches then stay in the range of f32. */
static const double SMALLEST = 1e-18, LARGEST = 1e18;

static clt_status check(const clt_value *logits, const clt_value *labels,
                        const clt_cross_entropy_options *o)
{
    const clt_type *x = &logits->type, *y = &labels->type;
    if (x->rank != 2 || y->rank != 1 || y->dtype != CLT_I32 || x->dims[1] < 1)
        return clt_fail(CLT_SHAPE,
                        "cross_entropy: weights of classes need logits [P, C] and i32 labels [P]: "
                        "reshape others");
    double sum = 0;
    for (int64_t c = 0; c < x->dims[1]; c++) {
        const double w = o->class_weights[c];
        if (w != 0 && !(w >= SMALLEST && w <= LARGEST))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "cross_entropy: the weight of class %lld is %g: must be 0, or from %g "
                            "to %g, so that sums over a batch fit in f32; only ratios of weights "
                            "matter to the mean",
                            (long long)c, w, SMALLEST, LARGEST);
        sum += o->class_weights[c];
    }
    return sum > 0
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT, "cross_entropy: the weights of all classes are 0");
}

static clt_value *number(clt_graph *graph, double value)
{
    static const int64_t dims[] = {1, 1};
    const float data = (float)value;
    return clt_constant(graph, CLT_F32, 2, dims, &data);
}

/* Makes the constant [1, C] with the number of each class, or its weight. */
static clt_value *row(clt_graph *graph, int64_t classes, const double *weights)
{
    const int64_t dims[] = {1, classes};
    float *data = clt_calloc((size_t)classes, sizeof *data);
    if (!data)
        return NULL;
    for (int64_t c = 0; c < classes; c++)
        data[c] = weights ? (float)weights[c] : (float)c;
    clt_value *constant = clt_constant(graph, CLT_F32, 2, dims, data);
    clt_free(data);
    return constant;
}

/* Adds up [P, C] to [1]. Losses want a node that is no view, so nothing is reshaped. */
static clt_value *total(clt_value *x)
{
    static const int across[] = {1}, down[] = {0};
    return clt_reduce_sum(clt_reduce_sum(x, across, 1, 0), down, 1, 1);
}

/* Weights and their products stay in f32, so that the loss is exact: in 16 bits they would be
 * rounded, and f16 has no numbers above 65504. */
static clt_value *exact(clt_value *value)
{
    if (value)
        value->exact = true;
    return value;
}

clt_status clt_cross_entropy_weighted(clt_value *logits, clt_value *labels,
                                      const clt_cross_entropy_options *o, clt_value **sum,
                                      clt_value **weight)
{
    static const int across[] = {1};
    clt_graph *graph = logits->graph;
    clt_status status = check(logits, labels, o);
    if (status != CLT_OK) {
        clt_graph_failed(graph, status);
        return status;
    }
    const int64_t classes = logits->type.dims[1];
    const double s = o->label_smoothing;
    int64_t dims[2] = {labels->type.dims[0], 1};
    clt_value *y = clt_reshape(clt_cast(labels, CLT_F32), 2, dims);
    clt_value *weights = row(graph, classes, o->class_weights);
    clt_value *hot = clt_cast(clt_eq(y, row(graph, classes, NULL)), CLT_F32);
    clt_value *own = exact(clt_mul(hot, weights));
    clt_value *target = own, *counts = clt_ne(y, number(graph, o->ignore_index));
    if (s > 0)
        target = exact(clt_add(exact(clt_mul(own, number(graph, 1 - s))),
                               exact(clt_mul(clt_mul(weights, number(graph, s / (double)classes)),
                                             clt_cast(counts, CLT_F32)))));
    /* A label that is neither a class nor ignored has no one in its row. Its sum is NaN. */
    clt_value *stray =
        clt_logical_and(counts, clt_eq(clt_reduce_sum(hot, across, 1, 1), number(graph, 0)));
    target = exact(clt_where(stray, number(graph, NAN), target));
    *sum = total(
        exact(clt_mul(exact(clt_mul(target, number(graph, -1))), clt_log_softmax(logits, 1))));
    *weight = total(own);
    status = clt_graph_status(graph);
    if (status != CLT_OK)
        *sum = *weight = NULL;
    return status;
}
