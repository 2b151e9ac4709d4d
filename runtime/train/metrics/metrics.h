/* What metrics keep of the samples. */
#ifndef CLT_TRAIN_METRICS_METRICS_H
#define CLT_TRAIN_METRICS_METRICS_H

#include <cltrain/metrics.h>

/* Errors of one output of a regression. `mean` and `spread` follow Welford and Chan, so that R2
 * does not cancel. */
typedef struct clt_metrics_output {
    double absolute, squares; /* weighted sums of errors */
    double weight;
    double mean, spread; /* of the targets: weighted mean, sum of squares around it */
} clt_metrics_output;

struct clt_metrics {
    clt_metrics_options options;
    int64_t samples;
    double weight, top_hits;
    double *confusion; /* [label][prediction] */
    double *seen;      /* by class: samples with this label or prediction, whatever their weight */
    clt_metrics_output *outputs;
    /* For AUC, by sample: */
    int64_t kept, room;
    int64_t columns; /* scores of a sample: 1 for two classes */
    double *scores, *weights, *labels;
};

/* Makes room for `count` more samples whose scores are kept. */
clt_status clt_metrics_reserve(clt_metrics *metrics, int64_t count);

/* Adds the sums of other samples to those of an output. */
void clt_metrics_merge(clt_metrics_output *to, const clt_metrics_output *from);

/* Computes the area under the ROC curve of a class; NaN if it is not defined. Errors:
 * OUT_OF_MEMORY. */
clt_status clt_metrics_auc(const clt_metrics *metrics, int64_t number, double *auc);

#endif
