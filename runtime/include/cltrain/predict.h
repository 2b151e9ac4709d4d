/*
 * Prediction without training: a graph's outputs, with the parameters of a store, and states that
 * are carried from one run to the next.
 *
 * A predictor has a plan of the graph for the store's devices, and no memory for gradients or
 * optimizers. Any number of predictors and trainers, of different graphs and batches, work on one
 * store: one may read a prompt in chunks and another go on token by token with the same key-value
 * cache.
 *
 * A predictor is used by one thread at a time, and while no other predictor or trainer of its store
 * is.
 */
#ifndef CLTRAIN_PREDICT_H
#define CLTRAIN_PREDICT_H

#include <cltrain/train.h>

CLT_BEGIN_DECLS

typedef struct clt_predictor clt_predictor;

typedef struct clt_predictor_options {
    size_t struct_size;             /* set by clt_predictor_options_init */
    int64_t batch;                  /* 1; most samples of a run, over all devices */
    const char *variants;           /* as clt_trainer_options has it; not kept */
    int separate, portable, poison; /* likewise */
} clt_predictor_options;

CLT_API void clt_predictor_options_init(clt_predictor_options *options);

/* Plans the graph's outputs on the store's devices; losses and metrics are left out. The graph is
 * copied. The store must have its parameters and states, and outlive the predictor. Errors:
 * INVALID_ARGUMENT (no output; names the option), MISMATCH (a parameter or state that the store
 * does not have, or has in another shape), UNSUPPORTED (carried states, or outputs that depend on
 * clt_all_reduce, on several devices), BUILD, OUT_OF_DEVICE_MEMORY. */
CLT_API clt_status clt_predictor_create(const clt_graph *graph, clt_store *store,
                                        const clt_predictor_options *options,
                                        clt_predictor **predictor);

/* Waits for the devices. Takes NULL. */
CLT_API void clt_predictor_destroy(clt_predictor *predictor);

/*
 * Computes the outputs of batch->count samples and lets carried states take their next values.
 * Feeds, fetches, offsets and the wait list are those of <cltrain/train.h>; inputs that no output
 * needs, as labels, need no feed. A graph without a batch dimension runs once, with a count of 1.
 * Returns when all is enqueued, at most two runs are queued; fetched memory of the host is filled
 * when clt_predictor_wait has returned. *event (may be NULL; one device only): as for
 * clt_trainer_step. Errors: INVALID_ARGUMENT (names the input, output or count), NOT_FOUND (an
 * output), OPENCL, DEVICE_LOST.
 */
CLT_API clt_status clt_predictor_run(clt_predictor *predictor, const clt_step_batch *batch,
                                     struct _cl_event **event);

/* Waits until the devices have done all that was enqueued. */
CLT_API clt_status clt_predictor_wait(clt_predictor *predictor);

/* Number of the graph's outputs, and what one is: its name, element type, rank and dimensions
 * (CLT_MAX_RANK of room; negative: times the batch). Outputs of the call may be NULL; the name
 * lives as long as the predictor. Errors: INVALID_ARGUMENT for an index that is none. */
CLT_API int clt_predictor_output_count(const clt_predictor *predictor);
CLT_API clt_status clt_predictor_output(const clt_predictor *predictor, int index,
                                        const char **name, clt_dtype *dtype, int *rank,
                                        int64_t *dims);

/* The same of the inputs that a run needs feeds for. */
CLT_API int clt_predictor_input_count(const clt_predictor *predictor);
CLT_API clt_status clt_predictor_input(const clt_predictor *predictor, int index, const char **name,
                                       clt_dtype *dtype, int *rank, int64_t *dims);

CLT_END_DECLS

#endif
