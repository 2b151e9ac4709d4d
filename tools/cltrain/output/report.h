/* Prints metrics of an evaluation: tables, JSON, and the picture of a confusion matrix. */
#ifndef CLTRAIN_COMMAND_OUTPUT_REPORT_H
#define CLTRAIN_COMMAND_OUTPUT_REPORT_H

#include <cltrain/metrics.h>
#include <jansson.h>

typedef struct report {
    const clt_metrics *metrics;
    int64_t classes; /* 0: regression */
    int64_t top;     /* 0: no top-k accuracy */
    int auc;         /* whether AUC was measured */
    double scale;    /* regression: errors are printed times this */
    /* Returns the name of a class, valid until the next call. */
    const char *(*name)(void *user, int64_t number);
    void *user;
} report;

/* Return an exit code, after a message. */
int report_metrics(const report *r);
int report_confusion(const report *r);
int report_picture(const report *r, const char *output);

/* Adds the metrics, and with `confusion` the matrix, to a record. Returns an exit code. */
int report_json(const report *r, int confusion, json_t *record);

#endif
