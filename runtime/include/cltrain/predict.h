/*
 * Prediction without training: the outputs of a graph, with the parameters of a store, and with
 * states that are carried from one run to the next.
 *
 * A predictor has a plan of the graph for the store's devices, and no memory for gradients or
 * optimizers. Any number of predictors and trainers, of different graphs and batches, work on one
 * store. For example, one predictor reads a prompt in chunks, and another goes on token by token
 * with the same key-value cache.
 *
 * On a mesh with other axes than dp, or with zero 3 (clt_store_options.parallel, .zero), the
 * devices of all ranks compute each sample together. All ranks then create and run a predictor
 * together, as often, with the same graph and batch, and devices of one part of the batch get the
 * same samples. Otherwise each rank predicts for itself.
 *
 * One thread at a time uses the predictors and trainers of a store.
 */
#ifndef CLTRAIN_PREDICT_H
#define CLTRAIN_PREDICT_H

#include <cltrain/train.h>

CLT_BEGIN_DECLS

/* A predictor. */
typedef struct clt_predictor clt_predictor;

/* How to predict. Set up by clt_predictor_options_init. */
typedef struct clt_predictor_options {
    size_t struct_size;             /* set by clt_predictor_options_init */
    int64_t batch;                  /* 1; most samples of a run, over all devices */
    const char *variants;           /* as in clt_trainer_options; not kept */
    int separate, portable, poison; /* as in clt_trainer_options */
    double comm_timeout;            /* as in clt_trainer_options */
    clt_merging merge_launches;     /* as in clt_trainer_options; CLT_MERGE_OFF */
} clt_predictor_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_predictor_options_init(clt_predictor_options *options);

/* Plans the outputs of the graph on the store's devices, without losses and metrics. The graph is
 * copied. The store must have the graph's parameters and states, and must outlive the predictor.
 * Errors: INVALID_ARGUMENT (no output; or names the option), MISMATCH (a parameter or state that
 * the store lacks or has in another shape; ranks that differ), UNSUPPORTED (carried states on
 * devices that divide the samples; different devices along tp; heads, rows or positions that the
 * mesh cannot divide; outputs that depend on clt_all_reduce over ranks of a mesh of dp alone),
 * BUILD, OUT_OF_DEVICE_MEMORY. Free *predictor with clt_predictor_destroy. */
CLT_API clt_status clt_predictor_create(const clt_graph *graph, clt_store *store,
                                        const clt_predictor_options *options,
                                        clt_predictor **predictor);

/* Waits for the devices and frees the predictor. Takes NULL. */
CLT_API void clt_predictor_destroy(clt_predictor *predictor);

/*
 * Enqueues a run: computes the outputs of batch->count samples, and gives carried states their next
 * values. At most two runs are queued.
 *
 * - Feeds, fetches, offsets and the wait list are those of <cltrain/train.h>. Host memory is filled
 *   when clt_predictor_wait has returned.
 * - Inputs that no output needs, such as labels, need no feed.
 * - A graph without a batch dimension runs once, with a count of 1.
 * - In a pipeline over several ranks, a fetch is filled on the ranks of the stage that computes the
 *   output.
 * - *event (may be NULL; one device only) is as for clt_trainer_step.
 *
 * Errors: INVALID_ARGUMENT (names the input, output or count), NOT_FOUND (an output), OPENCL,
 * DEVICE_LOST.
 */
CLT_API clt_status clt_predictor_run(clt_predictor *predictor, const clt_step_batch *batch,
                                     struct _cl_event **event);

/* Waits until the devices have done everything that was enqueued. */
CLT_API clt_status clt_predictor_wait(clt_predictor *predictor);

/* Count and describe the outputs of the graph: name, element type, rank and dimensions (room for
 * CLT_MAX_RANK; negative: times the batch). Results may be NULL. The name is valid as long as the
 * predictor. Errors: INVALID_ARGUMENT (the index). */
CLT_API int clt_predictor_output_count(const clt_predictor *predictor);
CLT_API clt_status clt_predictor_output(const clt_predictor *predictor, int index,
                                        const char **name, clt_dtype *dtype, int *rank,
                                        int64_t *dims);

/* Count and describe the inputs that a run needs feeds for, likewise. */
CLT_API int clt_predictor_input_count(const clt_predictor *predictor);
CLT_API clt_status clt_predictor_input(const clt_predictor *predictor, int index, const char **name,
                                       clt_dtype *dtype, int *rank, int64_t *dims);

CLT_END_DECLS

#endif
