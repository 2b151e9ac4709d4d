/* Computes metrics from the sums. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "train/metrics/metrics.h"

CLT_STRUCT_INIT(clt_metrics_result)
CLT_STRUCT_INIT(clt_metrics_class, .precision = NAN, .recall = NAN, .f1 = NAN, .auc = NAN)

/* What a class was predicted, is, and both. */
typedef struct counts {
    double hits, predicted, labelled;
} counts;

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double f1_of(const counts *c)
{
    return ratio(2 * c->hits, c->predicted + c->labelled);
}

static counts counts_of(const clt_metrics *m, int64_t number)
{
    const int64_t classes = m->options.classes;
    counts c = {.hits = m->confusion[number * classes + number]};
    for (int64_t i = 0; i < classes; i++) {
        c.predicted += m->confusion[i * classes + number];
        c.labelled += m->confusion[number * classes + i];
    }
    return c;
}

static void average_classes(const clt_metrics *m, clt_metrics_result *r)
{
    counts all = {0};
    double macro[3] = {0}, weighted[3] = {0};
    int64_t seen = 0;
    for (int64_t i = 0; i < m->options.classes; i++) {
        if (m->seen[i] <= 0)
            continue;
        const counts c = counts_of(m, i);
        const double own[] = {ratio(c.hits, c.predicted), ratio(c.hits, c.labelled), f1_of(&c)};
        for (int k = 0; k < 3; k++) {
            macro[k] += own[k];
            weighted[k] += own[k] * c.labelled;
        }
        all.hits += c.hits;
        all.predicted += c.predicted;
        all.labelled += c.labelled;
        seen++;
    }
    r->precision_macro = macro[0] / (double)seen;
    r->recall_macro = macro[1] / (double)seen;
    r->f1_macro = macro[2] / (double)seen;
    r->precision_weighted = ratio(weighted[0], all.labelled);
    r->recall_weighted = ratio(weighted[1], all.labelled);
    r->f1_weighted = ratio(weighted[2], all.labelled);
    r->precision_micro = ratio(all.hits, all.predicted);
    r->recall_micro = ratio(all.hits, all.labelled);
    r->f1_micro = f1_of(&all);
    r->accuracy = all.hits / m->weight;
}

static clt_status average_auc(const clt_metrics *m, double *auc)
{
    const int64_t classes = m->options.classes;
    double sum = 0, own;
    if (classes == 2)
        return clt_metrics_auc(m, 1, auc);
    for (int64_t i = 0; i < classes; i++) {
        CLT_TRY(clt_metrics_auc(m, i, &own));
        sum += own;
        if (isnan(sum)) /* no need to sort the rest */
            break;
    }
    *auc = sum / (double)classes;
    return CLT_OK;
}

static double r2_of(const clt_metrics_output *o)
{
    return o->spread > 0 ? 1 - o->squares / o->spread : o->squares > 0 ? 0 : 1;
}

static void average_outputs(const clt_metrics *m, clt_metrics_result *r)
{
    const int64_t n = m->options.outputs;
    r->mae = r->mse = r->rmse = r->r2 = 0;
    for (int64_t i = 0; i < n; i++) {
        const clt_metrics_output *o = &m->outputs[i];
        const double square = o->squares / o->weight;
        r->mae += o->absolute / o->weight / (double)n;
        r->mse += square / (double)n;
        r->rmse += sqrt(square) / (double)n;
        r->r2 += (m->samples < 2 ? NAN : r2_of(o)) / (double)n;
    }
}

static clt_status check(const clt_metrics *m, const void *out)
{
    return m && out ? CLT_OK
                    : clt_fail(CLT_INVALID_ARGUMENT,
                               "metrics: the metrics and a place for the result must be given");
}

clt_status clt_metrics_read(const clt_metrics *m, clt_metrics_result *result)
{
    CLT_TRY(check(m, result));
    CLT_TRY(CLT_CHECK_STRUCT(result, clt_metrics_result));
    if (!m->samples || !(m->weight > 0))
        return clt_fail(CLT_STATE, "metrics: there are no samples that count");
    clt_metrics_result r = {.struct_size = sizeof r,
                            .samples = m->samples,
                            .weight = m->weight,
                            .accuracy = NAN,
                            .top_accuracy = NAN,
                            .precision_macro = NAN,
                            .recall_macro = NAN,
                            .f1_macro = NAN,
                            .precision_micro = NAN,
                            .recall_micro = NAN,
                            .f1_micro = NAN,
                            .precision_weighted = NAN,
                            .recall_weighted = NAN,
                            .f1_weighted = NAN,
                            .auc = NAN,
                            .mae = NAN,
                            .mse = NAN,
                            .rmse = NAN,
                            .r2 = NAN};
    if (m->options.classes)
        average_classes(m, &r);
    else
        average_outputs(m, &r);
    if (m->options.top)
        r.top_accuracy = m->top_hits / m->weight;
    if (m->options.auc)
        CLT_TRY(average_auc(m, &r.auc));
    *result = r;
    return CLT_OK;
}

clt_status clt_metrics_read_class(const clt_metrics *m, int64_t number, clt_metrics_class *out)
{
    CLT_TRY(check(m, out));
    CLT_TRY(CLT_CHECK_STRUCT(out, clt_metrics_class));
    if (number < 0 || number >= m->options.classes)
        return clt_fail(CLT_INVALID_ARGUMENT, "metrics: class %lld: there are %lld",
                        (long long)number, (long long)m->options.classes);
    const counts c = counts_of(m, number);
    double auc = NAN;
    if (m->options.auc)
        CLT_TRY(clt_metrics_auc(m, number, &auc));
    out->precision = ratio(c.hits, c.predicted);
    out->recall = ratio(c.hits, c.labelled);
    out->f1 = f1_of(&c);
    out->auc = auc;
    out->support = c.labelled;
    return CLT_OK;
}

clt_status clt_metrics_confusion(const clt_metrics *m, double *matrix, int64_t room)
{
    CLT_TRY(check(m, matrix));
    const int64_t needed = m->options.classes * m->options.classes;
    if (!needed || room < needed)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "metrics: the confusion matrix has %lld numbers; there is room for %lld",
                        (long long)needed, (long long)room);
    memcpy(matrix, m->confusion, (size_t)needed * sizeof *matrix);
    return CLT_OK;
}
