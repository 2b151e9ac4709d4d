/* Prints predicted classes and numbers, a sample a line, or writes them as CSV or JSON. */
#ifndef CLTRAIN_COMMAND_OUTPUT_PREDICTIONS_H
#define CLTRAIN_COMMAND_OUTPUT_PREDICTIONS_H

#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

typedef enum predictions_format {
    PREDICTIONS_TEXT,  /* on standard output */
    PREDICTIONS_JSON,  /* on standard output, or in FILE.json */
    PREDICTIONS_CSV,   /* in FILE.csv, as RFC 4180 */
    PREDICTIONS_ARRAYS /* another file: all outputs, see npz_out.h */
} predictions_format;

/* Returns the format that a file name asks for. `path` NULL: text, or JSON. */
predictions_format predictions_format_of(const char *path, int json);

typedef struct predictions {
    predictions_format format;
    const char *path;
    int64_t classes, top; /* classes 0: numbers are predicted */
    int64_t numbers;      /* of a sample, if there are no classes */
    int is_softmax;       /* scores are probabilities, not logits */
    int files, targets;   /* whether samples have files, and known labels or targets */
    double scale, shift;  /* numbers are written times `scale` plus `shift` */
    /* Returns the name of a class, valid until the next call. */
    const char *(*name)(void *user, int64_t number);
    void *user;

    /* Internal. */
    FILE *csv;
    char *beside; /* the file before it gets its name */
    json_t *records;
    double *probability;
    int64_t *order;
} predictions;

/* A sample. */
typedef struct predicted {
    const char *file;    /* NULL: it has a number only */
    int64_t number;      /* from 0 */
    const float *scores; /* of all classes, or the numbers */
    double target;       /* label, or the target of one number */
} predicted;

/* Begin, add a sample, and end. Set the members that are not internal before. Call the last one
 * even after a failure, whose code it returns; the file then stays as it was. */
int predictions_open(predictions *p);
int predictions_add(predictions *p, const predicted *sample);
int predictions_close(predictions *p, int code);

#endif
