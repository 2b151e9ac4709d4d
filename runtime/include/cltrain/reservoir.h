/*
 * Reservoirs: data sets that a running program fills while a trainer draws from them.
 *
 *     clt_dataset_create_reservoir("cells", 100000, NULL, &cells);
 *     clt_trainer_set_reservoir(trainer, cells, NULL);   the fields: x and y, the graph's inputs
 *     for (...) {                                        the program's own steps
 *         clt_dataset_push(cells, arrays, 2, NULL);      new samples
 *         clt_step_reservoir(trainer, 10, &loss);        ten steps of training
 *     }
 *
 * Or a thread trains with clt_fit on the reservoir, while other threads push.
 *
 * A reservoir holds up to `capacity` samples, and its policy decides which samples stay. Training
 * draws with replacement: sample p of the batch of step s is a function of (seed, s, p) and of what
 * the reservoir holds when the step begins. So pushes at the same steps give the same bits.
 *
 * Each rank has a reservoir of its own, whose samples no other rank sees. A rank has its part of
 * each batch (clt_split). While its reservoir has no samples, the rank takes part without samples,
 * and the batch is smaller by its part.
 */
#ifndef CLTRAIN_RESERVOIR_H
#define CLTRAIN_RESERVOIR_H

#include <cltrain/data.h>
#include <cltrain/device.h>
#include <cltrain/fit.h>

CLT_BEGIN_DECLS

/*
 * Which of the samples that were pushed stay in a full reservoir.
 *
 * - UNIFORM: a random subset of all. Each subset has the same probability (algorithm R of Vitter,
 *   "Random sampling with a reservoir", ACM TOMS 1985).
 * - NEWEST: the last ones.
 * - WEIGHTED: a random subset without replacement by weight (A-Res of Efraimidis and Spirakis,
 *   "Weighted random sampling with a reservoir", IPL 2006): as if samples were picked one after the
 *   other, each with a probability in proportion to its weight among those that are left. A sample
 *   of weight 0 never stays.
 */
typedef enum clt_reservoir_policy {
    CLT_RESERVOIR_UNIFORM = 0,
    CLT_RESERVOIR_NEWEST = 1,
    CLT_RESERVOIR_WEIGHTED = 2
} clt_reservoir_policy;

/* How a reservoir works. Set up by clt_reservoir_options_init, with the defaults that stand at the
 * members. */
typedef struct clt_reservoir_options {
    int64_t struct_size;
    clt_reservoir_policy policy; /* UNIFORM */
    uint64_t seed; /* 0; of which samples stay. With the pushes and their order it decides this */
    /* Places for samples that are being copied, or that a step still reads after they were
     * replaced. A push never waits for a place: without a free one, it drops the sample and counts
     * it. A batch of a step, and a few for each thread that pushes, is enough. 0: an eighth of the
     * capacity; at least 16; and at least 256, if they fit in 64 MiB. */
    int64_t spare;
    int64_t least; /* 1; training begins when there are so many samples, at most `capacity` */
    int save;      /* 0; 1: checkpoints have the samples, see clt_trainer_set_reservoir */
    /* INT64_MIN: none. A label that fields of classes may have beside 0 to classes - 1 */
    int64_t ignore_index;
    /* A device of the context of buffers that are pushed. It must outlive the reservoir, which
     * reads buffers through a queue of its own. NULL: the first device of the trainer that got the
     * reservoir last (clt_trainer_set_reservoir), as long as that trainer has it. */
    clt_device *device;
} clt_reservoir_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_reservoir_options_init(clt_reservoir_options *options);

/*
 * Creates a reservoir for `capacity` samples without fields. Add the fields with
 * clt_dataset_add_field, whose `data` is NULL. Memory for all samples is allocated at the first
 * push or use; clt_reservoir_stats.bytes tells how much. `options` may be NULL.
 *
 * clt_dataset_count is the number of samples that the reservoir holds, and may change at any time.
 * Loaders, evaluation, replicas (clt_local_fit), asynchronous training and augmentation take no
 * reservoirs (UNSUPPORTED).
 *
 * Errors: INVALID_ARGUMENT (a capacity below 1, an option out of range), OPENCL, OUT_OF_MEMORY.
 * Free *out with clt_dataset_free.
 */
CLT_API clt_status clt_dataset_create_reservoir(const char *name, int64_t capacity,
                                                const clt_reservoir_options *options,
                                                clt_dataset **out);

/*
 * Pushes samples. `fields` has an array for each field, in the order in which the fields were
 * added; the first dimension of each is the number of samples, and may be 0. Arrays of f64 and i64
 * are converted. `weights` has a number for each sample with the policy WEIGHTED, and is NULL
 * otherwise.
 *
 * - The samples are copied: the memory may change when the call returns.
 * - Buffers need a device, see options.device. Commands that write them must have completed.
 * - The call never waits for a step. If all places are busy, samples are dropped and counted.
 * - Samples count as pushed in the order of the array. Of threads that push at the same time, the
 *   order is not determined.
 *
 * Errors: INVALID_ARGUMENT (an array without a shape, another shape or type, unlike numbers of
 * samples, labels out of range, i64 that does not fit, weights that are negative or not finite, a
 * buffer of another context or too small), UNSUPPORTED (no reservoir), STATE (no fields),
 * OUT_OF_MEMORY, OPENCL. After a failure no sample was taken, unless arrays are buffers of more
 * than 4 MB: then the message says how many were. Any number of threads may push.
 */
CLT_API clt_status clt_dataset_push(clt_dataset *reservoir, const clt_array *fields, int n_fields,
                                    const double *weights);

/* What happened to the samples that were pushed. When no push is under way,
 * seen = kept + replaced + declined + dropped. */
typedef struct clt_reservoir_stats {
    int64_t struct_size; /* set by clt_reservoir_stats_init */
    int64_t capacity;
    int64_t bytes;    /* of memory for samples and tables */
    int64_t seen;     /* pushed */
    int64_t kept;     /* in the reservoir now */
    int64_t replaced; /* were in the reservoir */
    int64_t declined; /* never stayed, by the policy */
    int64_t dropped;  /* never stayed, because no place was free */
} clt_reservoir_stats;

/* Sets struct_size. */
CLT_API void clt_reservoir_stats_init(clt_reservoir_stats *stats);

/* Reads the counters. Any thread, at any time. Errors: UNSUPPORTED (no reservoir). */
CLT_API clt_status clt_dataset_reservoir_stats(clt_dataset *reservoir, clt_reservoir_stats *stats);

/*
 * Copies the samples at positions [first, first + count) of the batch of step `step` (0, 1, ...)
 * to arrays of the host, an array for each field, whose first dimension is `count`. For loops of
 * parts of steps. *drawn becomes `count`, or 0 if the reservoir has fewer samples than
 * options.least.
 *
 * The samples are those that clt_step_reservoir would draw with clt_trainer_options.seed `seed`.
 * Errors: INVALID_ARGUMENT (arrays), UNSUPPORTED, STATE, OUT_OF_MEMORY. Any thread.
 */
CLT_API clt_status clt_dataset_draw(clt_dataset *reservoir, uint64_t seed, int64_t step,
                                    int64_t first, int64_t count, const clt_array *fields,
                                    int n_fields, int64_t *drawn);

/*
 * Lets clt_step_reservoir draw from a reservoir, which must outlive the trainer or the next call;
 * NULL: from none. Fields feed the inputs of the same name, as with clt_fit. `options` may be NULL;
 * of it count batch, seed (-1: clt_trainer_options.seed), channels, mean, std and ignore_index.
 *
 * A reservoir without fields gets one for each input that the losses need, in the order in which
 * the graph's inputs were made.
 *
 * With clt_reservoir_options.save, checkpoints (clt_trainer_save, clt_trainer_save_state, clt_fit)
 * have the samples, counters and random state, and clt_trainer_restore and
 * clt_trainer_restore_state replace those of the reservoir:
 *
 * - Each rank writes DIR/reservoirs/rank-R/step-N and reads its own, so all ranks call
 *   these functions.
 * - On another number of ranks, or for a reservoir of another capacity, policy or other fields,
 *   restoring fails with MISMATCH. Without `save` it leaves the reservoir as it is.
 * - A checkpoint without samples leaves the reservoir as it is. If a rank cannot restore its
 *   samples, none restores.
 * - While a restore replaces the samples, pushes and draws wait.
 * - Threads may push during a save. Then the file has some samples that came later.
 *
 * All ranks call it. Errors: those of clt_fit about data; UNSUPPORTED: several ranks with axes
 * besides dp, with virtual shards or with rebalance.
 */
CLT_API clt_status clt_trainer_set_reservoir(clt_trainer *trainer, clt_dataset *reservoir,
                                             const clt_fit_options *options);

/*
 * Makes `steps` training steps, each on a new batch of samples. If no rank has samples (see
 * options.least), it makes no step: clt_trainer_steps does not change. If `loss` is not NULL, waits
 * for the last step and stores its loss, which is that before the update; NaN without a step. All
 * ranks call it together. Errors: STATE (no reservoir), those of clt_trainer_step.
 */
CLT_API clt_status clt_step_reservoir(clt_trainer *trainer, int64_t steps, double *loss);

CLT_END_DECLS

#endif
