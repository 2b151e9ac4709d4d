/* Reads the curves of a --metrics file and writes the gnuplot script that draws them. */
#ifndef CLTRAIN_COMMAND_OUTPUT_CURVES_H
#define CLTRAIN_COMMAND_OUTPUT_CURVES_H

#include <stdio.h>

/* x is in epochs. The x of a step is the end of its part of the epoch. */
typedef struct point {
    double x, y;
    double weight; /* in means: the samples of a step */
    int partial; /* 1 for the last step of an epoch if it has fewer samples than the first step. Its
                    loss is noisy, so it is drawn as one point with the step before. */
} point;

typedef struct curve {
    point *points;
    int count, room;
} curve;

typedef struct curves {
    const char *path;
    curve loss, epoch_loss; /* epoch_loss: weighted by samples */
    curve test_loss, test_accuracy, val_loss, val_accuracy;
    /* The same with the averages of weights (--average). */
    curve average_test_loss, average_test_accuracy, average_val_loss, average_val_accuracy;
} curves;

/* Reads a file of --metrics. Returns an exit code, after a message that names the file and line.
 * Call curves_free even after a failure. */
int curves_read(const char *path, curves *out);
void curves_free(curves *c);

/* Returns whether any loss or accuracy is finite, so that there is something to draw. */
int curves_any(const curves *list, int count);

/* Writes the script that draws all files as one PNG picture, `output`. */
void curves_script(const curves *list, int count, const char *output, FILE *script);

#endif
