/* The call that the devices execute, and a record of each recent step. */
#ifndef CLT_TRAIN_CORE_CALL_H
#define CLT_TRAIN_CORE_CALL_H

#include "train/core/session.h"

typedef struct clt_call {
    clt_session *session;             /* NULL if the program needs no plan */
    clt_step_batch batch;             /* its pointers dangle once a part of the step has returned */
    const clt_feed *output_gradients; /* of outputs, passed to backward by the caller */
    int n_output_gradients;
    double *loss_weights; /* by loss, if weights_known; else the devices compute them */
    bool weights_known;
    int entry;       /* index into the ring of results */
    int parity;      /* which of the two sets of input buffers is used */
    bool given;      /* the caller has set gradients of this step */
    int64_t step;    /* counts from 0 */
    int64_t updates; /* steps before this one since the optimizer's state began */
    uint64_t seed;
    double lr;
} clt_call;

/* Facts about a step that are known before its results are read. */
typedef struct clt_step_record {
    int64_t step; /* -1: none */
    int64_t samples;
    double lr;
    const clt_feed *feeds; /* valid until the results are read; NULL: until the step has begun */
    int n_feeds;
} clt_step_record;

typedef struct clt_results {
    clt_step_record records[CLT_RESULT_RING];
    double *sums, *weights; /* scratch, by mean */
} clt_results;

#endif
