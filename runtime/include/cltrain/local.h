/*
 * Replicas that train by themselves and are averaged now and then: local SGD and DiLoCo.
 *
 * A replica is a whole trainer with a store and devices of its own. Between two synchronisations
 * replicas exchange nothing, not even losses, so a slow replica holds up no other. At a
 * synchronisation each replica r has moved its parameters from the anchor a, those after the last
 * synchronisation, to p_r, with n_r samples. Then
 *
 *     d = sum over r of (n_r / sum of all n) * (a - p_r)
 *     average:   a = a - d
 *     momentum:  v = momentum * v + d,   a = a - lr * v
 *     nesterov:  v = momentum * v + d,   a = a - lr * (d + momentum * v)
 *
 * and all replicas go on from a. These are the updates of PyTorch's SGD with d as the gradient.
 * Averaging every H steps is local SGD (Stich, "Local SGD converges fast and communicates little",
 * ICLR 2019); nesterov with lr 0.7 and momentum 0.9 over AdamW is DiLoCo (Douillard et al.,
 * "DiLoCo: Distributed low-communication training of language models", 2023). States of f32, such
 * as the statistics of batch norm, are averaged with the same weights; other states are taken from
 * replica 0. Each replica keeps its own optimizer's state (the inner state). The outer state, a and
 * v, is in host memory, once a rank.
 *
 * With equal, power-of-two numbers of replicas on all ranks, the bits of the sums do not depend on
 * which rank has a replica. Otherwise, if a replica has no samples, or with 16 bits on the wire,
 * they do.
 *
 * A rank may have several replicas, with a thread each. A replica lies within one rank. Replicas
 * are numbered in the order of the ranks. One thread at a time uses a clt_local and its trainers.
 */
#ifndef CLTRAIN_LOCAL_H
#define CLTRAIN_LOCAL_H

#include <cltrain/fit.h>

CLT_BEGIN_DECLS

typedef enum clt_outer_kind {
    CLT_OUTER_AVERAGE = 0,
    CLT_OUTER_MOMENTUM = 1,
    CLT_OUTER_NESTEROV = 2
} clt_outer_kind;

/* The outer optimizer. */
typedef struct clt_outer {
    clt_outer_kind kind;
    double lr, momentum; /* of momentum and nesterov */
} clt_outer;

/* Reads "average", "momentum" or "nesterov". The last two may be followed by ":lr=X,momentum=Y",
 * one of them or both, each once (0.7 and 0.9). Errors: INVALID_ARGUMENT. Thread-safe. */
CLT_API clt_status clt_outer_parse(const char *text, clt_outer *outer);

/* Returns "average", "momentum" or "nesterov"; NULL for another number. Thread-safe. */
CLT_API const char *clt_outer_name(clt_outer_kind kind);

/* Reads when replicas are synchronised: a number of steps ("8", which sets *seconds to 0) or of
 * seconds ("2s", which sets *steps to 0). Errors: INVALID_ARGUMENT for anything that is not above
 * 0, or above 10^9. Thread-safe. */
CLT_API clt_status clt_sync_every_parse(const char *text, int64_t *steps, double *seconds);

/* Takes the axis local off a mesh: "local=4,dp=2" has 4 replicas on the mesh "dp=2". *replicas is 0
 * if the mesh has no such axis, and -1 for "local=*": as many as the devices make. `rest` has room
 * for `room` bytes and gets what is left, "" if nothing is. `mesh` NULL: "". Errors:
 * INVALID_ARGUMENT (local is not the first axis, is given twice, or is not a number above 0),
 * UNSUPPORTED (beside tp, pp, space or time). Thread-safe. */
CLT_API clt_status clt_local_mesh(const char *mesh, int *replicas, char *rest, size_t room);

/* How replicas are synchronised. Set up by clt_local_options_init. */
typedef struct clt_local_options {
    size_t struct_size;  /* set by clt_local_options_init */
    int64_t every_steps; /* 1; 0: by time */
    double
        every_seconds; /* 0; by time: seconds between the end of a synchronisation and the next */
    clt_outer outer;   /* average */
    const clt_world
        *world;          /* of all replicas; NULL: this process alone. Must outlive the clt_local */
    double comm_timeout; /* seconds that a rank may be late for a reduction; 0: without limit */
    /* CLT_F32, CLT_BF16 or CLT_F16: the type in which differences of parameters travel between
     * replicas. With 16 bits, error feedback as of clt_trainer_options.wire: replica r sends
     * s = round(S n_r / n (a - p_r) + S e_r), and keeps e_r = what was rounded away, divided by S.
     * Ranks, nodes and owners of sums keep residuals as well. S is 1 for bf16 and 2^10 for f16, so
     * that small differences reach f16; differences from 64 on are NONFINITE. Residuals are in
     * checkpoints. A run goes on with the same type only (else MISMATCH); from F32 with residuals
     * of zeros. On other replicas or ranks, replica 0 sends the sum of all residuals.
     * States travel in f32. The bits depend on which rank has a replica. It takes 6 bytes a
     * parameter on the host for each replica of the rank, and 8 for each kind of sum that the rank
     * rounds. Devices of one replica exchange gradients in f32. */
    clt_dtype wire;
} clt_local_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_local_options_init(clt_local_options *options);

/* The replicas of all ranks. */
typedef struct clt_local clt_local;

/*
 * Makes the trainers of this rank replicas of each other and of those of other ranks, and gives all
 * of them the parameters and states of replica 0. Collective over the ranks.
 *
 * trainers   `count` trainers of this process, with stores of their own, of one graph and with the
 *            same options. Their options name no world. clt_trainer_options.batch is the largest
 *            batch of one replica. They stay the caller's and must outlive the clt_local.
 *
 * Errors: INVALID_ARGUMENT (options out of range; a trainer with a world, with weights of its
 * devices or with rebalance; a store that several trainers share), UNSUPPORTED (trainers with zero,
 * offload, virtual shards, gradients in 16 bits on the wire or a mesh of other axes than dp; graphs
 * whose states have rows of samples, clt_batch_rows_put), MISMATCH (ranks have other models or
 * options), those of clt_comm_create_between. Free *local with clt_local_destroy.
 */
CLT_API clt_status clt_local_create(clt_trainer *const *trainers, int count,
                                    const clt_local_options *options, clt_local **local);

/* Ends the use by several ranks, as clt_trainer_finish. */
CLT_API clt_status clt_local_finish(clt_local *local);

/* Frees it; the trainers go on by themselves. Takes NULL. In a callback of clt_local_fit it is
 * freed when that call ends, as clt_trainer_destroy says. */
CLT_API void clt_local_destroy(clt_local *local);

/* Returns the number of replicas of all ranks, and the number of this rank's first one. */
CLT_API int clt_local_replicas(const clt_local *local);
CLT_API int clt_local_first(const clt_local *local);

/*
 * Synchronises the replicas, for loops of your own. `samples` has the number of samples that each
 * trainer of this rank has trained on since the last synchronisation, at least 0 and finite. A
 * replica with 0 gets the new parameters and does not count. If all have 0, nothing is exchanged.
 * Waits for the devices. Collective over the ranks.
 *
 * Errors: INVALID_ARGUMENT, NONFINITE (16 bits on the wire; on all ranks), those of devices and of
 * reductions (ABORTED, TIMEOUT).
 */
CLT_API clt_status clt_local_sync(clt_local *local, const double *samples);

/* Returns the number of synchronisations, and the bytes of parameters and states that one of them
 * reduces: those that clt_comm_counts adds to the payload of all-reduces. One replica reduces 0
 * bytes. */
CLT_API int64_t clt_local_syncs(const clt_local *local);
CLT_API int64_t clt_local_sync_bytes(const clt_local *local);

/*
 * What clt_progress.sync tells of a synchronisation. Arrays have an element for each replica of all
 * ranks, and are valid until the report returns.
 */
typedef struct clt_sync_report {
    int64_t number; /* 1 is the first of the run */
    int64_t steps;  /* of the run since the last synchronisation */
    int replicas;
    const int64_t *samples; /* that each replica has trained on since then, */
    const int64_t *batches; /* in so many steps of its own */
    const double *losses;   /* the means over these samples; NaN without samples */
    int64_t bytes;          /* that were reduced */
    double period;          /* seconds of training before it, on this rank */
    double seconds;         /* of the synchronisation: the wait for other ranks, and the exchange */
} clt_sync_report;

/*
 * Trains as clt_fit. options->batch is the batch of all replicas; 0: the sum of the trainers'. By
 * steps this sum is rounded down to a multiple of all devices, if it is not below their number.
 *
 * - By steps, each batch is divided over the replicas, and over the devices of a replica, as over
 *   devices of dp. A replica that gets no sample of a batch makes no update in this step. Its part
 * of the batch may not exceed its trainer's batch.
 * - By time, a replica takes batches of its part of options->batch (rounded up) from those that are
 *   left of the epoch. Each sample is used once an epoch. What is left is dealt to the ranks at
 *   each synchronisation, by their measured speed. A replica begins a step only if it will end in
 *   time, but at least one. The steps of the run, for schedule and reports, are all batches divided
 *   by the number of replicas: steps of 8 samples for options->batch 5 and 4 replicas. An epoch
 *   ends with a synchronisation.
 * - on_step is called after each synchronisation, with the mean loss and the samples of all
 *   replicas since the last one; clt_progress.sync has more. on_epoch comes at the synchronisation
 *   after the end of an epoch (of several epochs: once), and its loss is over all samples since the
 *   last on_epoch.
 * - Evaluations are divided over the replicas.
 * - Checkpoints are written at the synchronisation at which they are due, or after it. So
 *   should_stop ends the run at a synchronisation. The model's file has the synchronised
 *   parameters. The optimizer's file also has the inner states of all replicas and v.
 * - A run of as many replicas resumes with all of them; by steps, bit for bit if the division over
 *   devices is the same. With another number of replicas it resumes with the outer state, and inner
 *   states begin anew; a warning is logged.
 * - A device that fails ends the run on all ranks.
 *
 * Errors: as clt_fit; UNSUPPORTED (splits; drop_last by time).
 */
CLT_API clt_status clt_local_fit(clt_local *local, clt_dataset *train, clt_dataset *test,
                                 const clt_fit_options *options);

CLT_END_DECLS

#endif
