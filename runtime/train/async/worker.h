/* The inside of a worker: work.c deals with batches, push_pull.c with parameters and gradients. */
#ifndef CLT_TRAIN_ASYNC_WORKER_H
#define CLT_TRAIN_ASYNC_WORKER_H

#include "train/async/payload.h"
#include "train/async/wires.h"
#include "train/core/trainer.h"
#include "train/fit/batch_source.h"

typedef struct clt_async_worker {
    clt_trainer *trainer;
    const clt_fit_options *fit;
    const clt_async_options *options;
    clt_async_layout layout;
    const clt_slot **slots; /* by parameter */
    clt_wires wires;
    clt_rows rows;
    clt_source *source;
    int64_t batch, per_epoch;
    int64_t sequence;  /* of the gradient, and of the pull before it */
    int64_t asks;      /* number of the last request for a batch */
    int64_t decided;   /* the version after the last push, which all later pulls contain */
    float *line;       /* parameters, then the gradient, of all holders */
    float *states;     /* as pulled */
    float *message;    /* a payload */
    size_t push_bytes; /* of the payload for holder 0 */
    clt_async_message pull_request, push_request; /* to be sent again if they are lost */
    bool asked, complete; /* a batch was asked for; the parameters that never change are there */
    clt_async_worked worked;
} clt_async_worker;

/* Asks all holders for the parameters of the next batch, whose rows are known. */
clt_status clt_worker_ask_parameters(clt_async_worker *worker, clt_travels what);

/* Takes the parameters that were asked for. *version is the oldest of the holders' versions. */
clt_status clt_worker_take_parameters(clt_async_worker *worker, clt_travels what, int64_t *version);

/* Pushes the gradient of a step on parameters of `version`, and takes the decision. `why` says what
 * is not finite. */
clt_status clt_worker_push(clt_async_worker *worker, const clt_async_message *deal,
                           const clt_step_result *result, int64_t version, const char *why);

#endif
