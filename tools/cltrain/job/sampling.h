/* The next token from logits. */
#ifndef CLTRAIN_COMMAND_JOB_SAMPLING_H
#define CLTRAIN_COMMAND_JOB_SAMPLING_H

#include <stdint.h>

typedef struct draw {
    double temperature; /* 0: the most probable token, the lowest of equals */
    int64_t top_k;      /* of the most probable tokens only; 0: of all */
    double top_p;       /* of the fewest that have this probability together; 1: of all */
    uint64_t seed;
    int64_t count; /* of tokens */
    struct choice {
        double logit;
        int32_t token;
    } * choices; /* room for `count` */
} draw;

/* A token of logits[0 .. count), a pure function of them, the settings, `text` and `position`;
 * computed in double. Returns -1 where no logit is a number. */
int32_t draw_token(draw *d, const float *logits, int64_t text, int64_t position);

#endif
