/* The curves in a file of --metrics, and the gnuplot script that draws them. */
#ifndef CLTRAIN_COMMAND_OUTPUT_CURVES_H
#define CLTRAIN_COMMAND_OUTPUT_CURVES_H

#include <stdio.h>

/* x is in epochs: a step's is the end of its part of the epoch. */
typedef struct point {
    double x, y;
    double weight; /* in means: a step's samples */
    int partial;   /* an epoch's last step, of fewer samples than its first one: its loss is that of
                      few samples, and is drawn as one with that of the step before */
} point;

typedef struct curve {
    point *points;
    int count, room;
} curve;

typedef struct curves {
    const char *path;
    curve loss, epoch_loss, test_loss, test_accuracy; /* epoch_loss: means over samples */
} curves;

/* Returns an exit code, after a message naming the file and line. curves_free in either case. */
int curves_read(const char *path, curves *out);
void curves_free(curves *c);

/* Whether there is anything to draw: a loss, or an accuracy, that is a number. */
int curves_any(const curves *list, int count);

/* Writes the script that draws all files into `output`. */
void curves_script(const curves *list, int count, const char *output, FILE *script);

#endif
