/* Collects samples for metrics. */
#include "train/metrics/metrics.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/error.h"

enum { MOST_CLASSES = 16384 };

CLT_STRUCT_INIT(clt_metrics_options, .outputs = 1, .ignore_index = INT64_MIN)

static clt_status check(const clt_metrics_options *o)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_metrics_options));
    if (o->classes && (o->classes < 2 || o->classes > MOST_CLASSES))
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_metrics_options.classes %lld: 2 to %d, or 0",
                        (long long)o->classes, MOST_CLASSES);
    if (!o->classes && (o->outputs < 1 || o->outputs > INT32_MAX))
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_metrics_options.outputs %lld: must be 1 to %d",
                        (long long)o->outputs, INT32_MAX);
    if (o->top < 0 || o->top > o->classes)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_metrics_options.top %lld: at most the %lld classes, or 0",
                        (long long)o->top, (long long)o->classes);
    if (!o->classes && (o->auc || o->logits))
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_metrics_options.%s: a regression has no classes",
                        o->auc ? "auc" : "logits");
    return CLT_OK;
}

clt_status clt_metrics_create(const clt_metrics_options *options, clt_metrics **out)
{
    if (!options || !out)
        return clt_fail(CLT_INVALID_ARGUMENT, "metrics need options and a place for the result");
    CLT_TRY(check(options));
    clt_metrics *m = CLT_NEW(clt_metrics);
    CLT_TRY_MEMORY(m);
    const int64_t classes = options->classes;
    m->options = *options;
    m->columns = classes == 2 ? 1 : classes;
    if (classes) {
        m->confusion = clt_calloc((size_t)(classes * classes), sizeof *m->confusion);
        m->seen = clt_calloc((size_t)classes, sizeof *m->seen);
    } else {
        m->outputs = clt_calloc((size_t)options->outputs, sizeof *m->outputs);
    }
    if (classes ? !m->confusion || !m->seen : !m->outputs) {
        clt_metrics_destroy(m);
        return CLT_OUT_OF_MEMORY;
    }
    *out = m;
    return CLT_OK;
}

void clt_metrics_destroy(clt_metrics *m)
{
    if (m)
        CLT_FREE(m->confusion, m->seen, m->outputs, m->scores, m->weights, m->labels, m);
}

static clt_status grow(double **block, int64_t room)
{
    double *grown = clt_realloc(*block, (size_t)room * sizeof **block);
    CLT_TRY_MEMORY(grown);
    *block = grown;
    return CLT_OK;
}

clt_status clt_metrics_reserve(clt_metrics *m, int64_t count)
{
    const int64_t needed = m->kept + count;
    if (needed <= m->room)
        return CLT_OK;
    const int64_t room = needed > 2 * m->room ? needed : 2 * m->room;
    CLT_TRY(grow(&m->scores, room * m->columns));
    CLT_TRY(grow(&m->labels, room));
    CLT_TRY(grow(&m->weights, room));
    m->room = room;
    return CLT_OK;
}

/* --- reading of arrays ------------------------------------------------------------------------ */

/* Copies an array with `elements` elements a sample to dense memory of `type`, which is f64 or i64.
 * Without a shape of its own the array is dense, in f32 or i32. */
static clt_status read_array(const clt_array *array, const char *what, int64_t count,
                             int64_t elements, clt_dtype type, void *out)
{
    clt_array from = *array, to;
    int64_t has = 1;
    if (from.whole) {
        const clt_dtype own = type == CLT_F64 ? CLT_F32 : CLT_I32;
        const int64_t offset = from.offset, shape[] = {count, elements};
        const char *host = from.host;
        from = clt_array_dense(host ? host + offset : NULL, own, 2, shape);
        if (array->bytes && array->bytes - offset < from.bytes)
            return clt_fail(
                CLT_INVALID_ARGUMENT, "metrics: %s: %lld bytes, but %lld samples need %lld", what,
                (long long)(array->bytes - offset), (long long)count, (long long)from.bytes);
    }
    if (from.buffer || !from.host)
        return clt_fail(CLT_INVALID_ARGUMENT, "metrics: %s: must be in host memory", what);
    CLT_TRY(clt_array_check(&from, what));
    for (int d = 1; d < from.rank; d++)
        has *= from.shape[d];
    if (!from.rank || from.shape[0] != count || has != elements) {
        char text[CLT_SHAPE_TEXT];
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "metrics: %s: the shape is %s; expected are %lld samples of %lld numbers",
                        what, clt_shape_text(from.rank, from.shape, text), (long long)count,
                        (long long)elements);
    }
    to = clt_array_dense(out, type, from.rank, from.shape);
    const clt_status status = clt_array_copy(&from, &to);
    return status == CLT_OK ? CLT_OK : clt_fail_prefix(status, "metrics: %s: ", what);
}

/* The samples of one call. */
typedef struct samples {
    int64_t count;
    double *predictions, *targets, *weights;
    int64_t *labels;
} samples;

static void samples_free(samples *s)
{
    CLT_FREE(s->predictions, s->targets, s->weights, s->labels);
}

static clt_status read_weights(const clt_array *weights, samples *s)
{
    for (int64_t i = 0; i < s->count; i++)
        s->weights[i] = 1;
    if (!weights)
        return CLT_OK;
    CLT_TRY(read_array(weights, "weights", s->count, 1, CLT_F64, s->weights));
    for (int64_t i = 0; i < s->count; i++)
        if (!isfinite(s->weights[i]) || s->weights[i] < 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "metrics: the weight of sample %lld is %g: must be finite, and not "
                            "negative",
                            (long long)i, s->weights[i]);
    return CLT_OK;
}

static clt_status check_finite(const double *values, const char *what, int64_t count,
                               int64_t elements)
{
    for (int64_t i = 0; i < count * elements; i++)
        if (!isfinite(values[i]))
            return clt_fail(CLT_INVALID_ARGUMENT, "metrics: %s %lld of sample %lld is %g", what,
                            (long long)(i % elements), (long long)(i / elements), values[i]);
    return CLT_OK;
}

static clt_status read_samples(const clt_metrics *m, const clt_array *predictions,
                               const clt_array *targets, const clt_array *weights, samples *s)
{
    const clt_metrics_options *o = &m->options;
    const int64_t n = s->count, elements = o->classes ? o->classes : o->outputs;
    s->predictions = clt_calloc((size_t)(n * elements), sizeof *s->predictions);
    s->weights = clt_calloc((size_t)n, sizeof *s->weights);
    CLT_TRY_MEMORY(s->predictions && s->weights);
    CLT_TRY(read_array(predictions, "predictions", n, elements, CLT_F64, s->predictions));
    CLT_TRY(check_finite(s->predictions, o->classes ? "the score of class" : "prediction", n,
                         elements));
    CLT_TRY(read_weights(weights, s));
    if (!o->classes) {
        s->targets = clt_calloc((size_t)(n * elements), sizeof *s->targets);
        CLT_TRY_MEMORY(s->targets);
        CLT_TRY(read_array(targets, "targets", n, elements, CLT_F64, s->targets));
        return check_finite(s->targets, "target", n, elements);
    }
    s->labels = clt_calloc((size_t)n, sizeof *s->labels);
    CLT_TRY_MEMORY(s->labels);
    CLT_TRY(read_array(targets, "labels", n, 1, CLT_I64, s->labels));
    for (int64_t i = 0; i < n; i++)
        if (s->labels[i] != o->ignore_index && (s->labels[i] < 0 || s->labels[i] >= o->classes))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "metrics: the label of sample %lld is %lld: must be 0 to %lld",
                            (long long)i, (long long)s->labels[i], (long long)o->classes - 1);
    return CLT_OK;
}

/* --- sums ------------------------------------------------------------------------------------- */

static void softmax(double *scores, int64_t classes)
{
    double most = scores[0], sum = 0;
    for (int64_t c = 1; c < classes; c++)
        most = fmax(most, scores[c]);
    for (int64_t c = 0; c < classes; c++)
        sum += scores[c] = exp(scores[c] - most);
    for (int64_t c = 0; c < classes; c++)
        scores[c] /= sum;
}

static void add_label(clt_metrics *m, double *scores, int64_t label, double weight)
{
    const clt_metrics_options *o = &m->options;
    int64_t best = 0, before = 0;
    for (int64_t c = 0; c < o->classes; c++) {
        best = scores[c] > scores[best] ? c : best;
        before += scores[c] > scores[label] || (scores[c] == scores[label] && c > label);
    }
    m->confusion[label * o->classes + best] += weight;
    m->seen[label]++;
    m->seen[best]++;
    m->samples++;
    m->weight += weight;
    if (before < o->top)
        m->top_hits += weight;
    if (!o->auc)
        return;
    if (o->logits)
        softmax(scores, o->classes);
    memcpy(m->scores + m->kept * m->columns, o->classes == 2 ? scores + 1 : scores,
           (size_t)m->columns * sizeof *scores);
    m->labels[m->kept] = (double)label;
    m->weights[m->kept++] = weight;
}

void clt_metrics_merge(clt_metrics_output *to, const clt_metrics_output *from)
{
    const double weight = to->weight + from->weight, delta = from->mean - to->mean;
    to->absolute += from->absolute;
    to->squares += from->squares;
    if (weight > 0) {
        to->mean += delta * (from->weight / weight);
        to->spread += from->spread + delta * delta * (to->weight * from->weight / weight);
    }
    to->weight = weight;
}

static void add_numbers(clt_metrics *m, const double *predictions, const double *targets,
                        double weight)
{
    for (int64_t i = 0; i < m->options.outputs; i++) {
        const double error = predictions[i] - targets[i];
        const clt_metrics_output one = {.absolute = weight * fabs(error),
                                        .squares = weight * error * error,
                                        .weight = weight,
                                        .mean = targets[i]};
        clt_metrics_merge(&m->outputs[i], &one);
    }
    m->samples++;
    m->weight += weight;
}

clt_status clt_metrics_add(clt_metrics *m, const clt_array *predictions, const clt_array *targets,
                           const clt_array *weights, int64_t count)
{
    if (!m || count < 0 || (count && (!predictions || !targets)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "metrics: %lld samples: metrics, predictions and targets must be given",
                        (long long)count);
    if (!count)
        return CLT_OK;
    samples s = {.count = count};
    const clt_metrics_options *o = &m->options;
    clt_status status = read_samples(m, predictions, targets, weights, &s);
    if (status == CLT_OK && o->auc)
        status = clt_metrics_reserve(m, count);
    for (int64_t i = 0; status == CLT_OK && i < count; i++)
        if (!o->classes)
            add_numbers(m, s.predictions + i * o->outputs, s.targets + i * o->outputs,
                        s.weights[i]);
        else if (s.labels[i] != o->ignore_index)
            add_label(m, s.predictions + i * o->classes, s.labels[i], s.weights[i]);
    samples_free(&s);
    return status;
}
