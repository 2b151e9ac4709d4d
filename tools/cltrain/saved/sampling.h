/* Draws the next token from logits. */
#ifndef CLTRAIN_COMMAND_SAVED_SAMPLING_H
#define CLTRAIN_COMMAND_SAVED_SAMPLING_H

#include <stdint.h>

typedef struct draw {
    double temperature; /* 0: draw the most probable token, the lowest of equal ones */
    int64_t top_k;      /* draw only from so many most probable tokens; 0 for all */
    double top_p;       /* draw from the fewest tokens whose probabilities sum to this; 1 for all */
    uint64_t seed;
    int64_t count; /* number of tokens */
    struct choice {
        double logit;
        int32_t token;
    } * choices; /* room for `count` */
} draw;

/* Draws a token from logits[0 .. count), in double precision. The result depends only on the
 * logits, the settings, `text` and `position`. Returns -1 if no logit is a number. */
int32_t draw_token(draw *d, const float *logits, int64_t text, int64_t position);

#endif
