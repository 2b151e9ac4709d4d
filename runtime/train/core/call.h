/* The call that the devices execute, and what is kept of those before. */
#ifndef CLT_TRAIN_CORE_CALL_H
#define CLT_TRAIN_CORE_CALL_H

#include "train/core/session.h"

typedef struct clt_call {
    clt_session *session;  /* NULL: the program needs no plan */
    clt_step_batch batch;  /* without what its pointers point to, once parts return */
    const clt_feed *given; /* gradients of outputs, brought to backward */
    int n_given;
    double *loss_weights; /* by loss, if weights_known: else devices compute them */
    bool weights_known;
    int entry;    /* of the ring of results */
    int parity;   /* which of the two sets of input buffers it uses */
    int64_t step; /* 0: the first */
    uint64_t seed;
    double lr;
} clt_call;

/* What is known of a step before its results are read. */
typedef struct clt_step_record {
    int64_t step; /* -1: none */
    int64_t samples;
    double lr;
} clt_step_record;

typedef struct clt_results {
    clt_step_record records[CLT_RESULT_RING];
    double *sums, *weights; /* scratch, by mean */
} clt_results;

#endif
