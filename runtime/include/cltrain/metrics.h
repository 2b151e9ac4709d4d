/*
 * Metrics of predictions: confusion matrix, precision, recall, F1, area under the ROC curve, top-k
 * accuracy; mean absolute and squared errors and R2.
 *
 * Metrics are collected batch by batch on the host. Definitions are those of scikit-learn 1.9 with
 * its defaults (sklearn.metrics):
 *
 * - The predicted class is the one with the largest score, the lowest of equal ones.
 * - precision, recall and F1 are 0 where their denominator is 0. Averages over classes are over
 *   those that occur as a label or as a prediction (precision_recall_fscore_support).
 * - top-k accuracy: a label counts if fewer than k classes have a larger score, or the same score
 *   and a larger number (top_k_accuracy_score).
 * - AUC: a pair with equal scores counts half. Two classes: scores of class 1 (roc_auc_score). More
 *   classes: the unweighted mean of each class against the rest (multi_class="ovr"). It is NaN for
 *   a class without samples, or with all of them, and so is the mean then.
 * - Regression with several outputs: the unweighted mean of the outputs' metrics. R2 of constant
 *   targets is 1 if all predictions are right, else 0 (r2_score). R2 of fewer than two samples is
 *   NaN.
 *
 *     clt_metrics_options_init(&o);
 *     o.classes = 10;
 *     clt_metrics_create(&o, &metrics);
 *     clt_metrics_add(metrics, &scores, &labels, NULL, count);      for each batch
 *     clt_metrics_gather(metrics, &world);                          with several ranks, once
 *     clt_metrics_read(metrics, &result);
 *
 * clt_evaluate_metrics of <cltrain/fit.h> adds all samples of a data set. One thread at a time uses
 * a clt_metrics.
 */
#ifndef CLTRAIN_METRICS_H
#define CLTRAIN_METRICS_H

#include <cltrain/array.h>
#include <cltrain/export.h>
#include <cltrain/status.h>
#include <cltrain/world.h>

CLT_BEGIN_DECLS

/* Sums of all samples so far, and their scores if AUC is wanted. */
typedef struct clt_metrics clt_metrics;

/* What is measured. Set up by clt_metrics_options_init. */
typedef struct clt_metrics_options {
    size_t struct_size; /* set by clt_metrics_options_init */
    int64_t classes;    /* 2 to 16384: of a classifier; 0 (default): regression */
    int64_t outputs;    /* regression: numbers that are predicted for a sample; 1 */
    int logits;         /* 0; 1: scores are logits. AUC is then that of their softmax, in double */
    int64_t ignore_index; /* labels of this value do not count; INT64_MIN (default): none */
    int64_t top;          /* k of top-k accuracy, 1 to `classes`; 0 (default): not wanted */
    int auc;              /* 0; 1: keep the scores for AUC: 8 bytes for each sample and class */
} clt_metrics_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_metrics_options_init(clt_metrics_options *options);

/* Creates metrics without samples. Errors: INVALID_ARGUMENT (names the option), OUT_OF_MEMORY. Free
 * *out with clt_metrics_destroy. */
CLT_API clt_status clt_metrics_create(const clt_metrics_options *options, clt_metrics **out);

/* Frees the metrics. Takes NULL. */
CLT_API void clt_metrics_destroy(clt_metrics *metrics);

/*
 * Adds `count` samples (0 is legal).
 *
 * - predictions: [count, classes] or [count, outputs] in f32 or f64. The samples may have any shape
 *   with so many elements.
 * - targets: of a classifier i32 or i64 [count]; of a regression as predictions.
 * - weights: f32 or f64 [count], finite and not negative. NULL: all are 1.
 *
 * Arrays may have strides, and may go when the call returns. Errors: INVALID_ARGUMENT (a shape or
 * type; a label out of range; a number that is not finite; each names the sample), OUT_OF_MEMORY.
 * Then nothing was added.
 */
CLT_API clt_status clt_metrics_add(clt_metrics *metrics, const clt_array *predictions,
                                   const clt_array *targets, const clt_array *weights,
                                   int64_t count);

/* Adds the samples of all other ranks, in the order of the ranks, so that every rank has the
 * metrics of all. Collective; call it once, after the last sample. Ranks without samples take part.
 * `world` NULL, or one rank: nothing happens. Errors: MISMATCH (ranks with other options),
 * OUT_OF_MEMORY, those of the world. */
CLT_API clt_status clt_metrics_gather(clt_metrics *metrics, const clt_world *world);

/* Metrics of all samples. Members that were not wanted, or are not defined, are NaN. */
typedef struct clt_metrics_result {
    size_t struct_size; /* set by clt_metrics_result_init */
    int64_t samples;    /* that count */
    double weight;      /* of these samples; their number if all weights are 1 */
    double accuracy, top_accuracy;
    double precision_macro, recall_macro, f1_macro;          /* unweighted means over classes */
    double precision_micro, recall_micro, f1_micro;          /* of all decisions together */
    double precision_weighted, recall_weighted, f1_weighted; /* means weighted by support */
    double auc;
    double mae, mse, rmse, r2;
} clt_metrics_result;

/* Sets struct_size. */
CLT_API void clt_metrics_result_init(clt_metrics_result *result);

/* Computes the metrics. With AUC it sorts the scores of every class. Errors: STATE (no samples),
 * OUT_OF_MEMORY. */
CLT_API clt_status clt_metrics_read(const clt_metrics *metrics, clt_metrics_result *result);

/* Metrics of one class against the rest. */
typedef struct clt_metrics_class {
    size_t struct_size; /* set by clt_metrics_class_init */
    double precision, recall, f1, auc;
    double support; /* weight of the samples with this label */
} clt_metrics_class;

/* Sets struct_size. */
CLT_API void clt_metrics_class_init(clt_metrics_class *out);

/* Computes the metrics of a class. Errors: INVALID_ARGUMENT (no such class, a regression),
 * OUT_OF_MEMORY. */
CLT_API clt_status clt_metrics_read_class(const clt_metrics *metrics, int64_t number,
                                          clt_metrics_class *out);

/* Copies the confusion matrix: matrix[label * classes + prediction] is the weight of these samples.
 * `room` is the number of doubles that fit. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_metrics_confusion(const clt_metrics *metrics, double *matrix, int64_t room);

CLT_END_DECLS

#endif
