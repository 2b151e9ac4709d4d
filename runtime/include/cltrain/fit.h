/*
 * The whole training run: epochs over a data set, evaluation, checkpoints, resume.
 *
 * Fields of the data set feed the graph's inputs of the same name. u8 fields that feed f32 inputs
 * are divided by 255; u8 fields that feed i32 inputs are labels.
 */
#ifndef CLTRAIN_FIT_H
#define CLTRAIN_FIT_H

#include <cltrain/checkpoint.h>
#include <cltrain/data.h>
#include <cltrain/train.h>

CLT_BEGIN_DECLS

/* What one step or one epoch gave. */
typedef struct clt_progress {
    int64_t step;    /* 1 is the first */
    int64_t epoch;   /* 1 is the first */
    int64_t samples; /* of the step; of the epoch so far in an epoch's report */
    int64_t total_steps;
    double loss; /* the step's; the epoch's mean */
    double norm; /* of the gradient */
    double lr;
    double loss_scale; /* see clt_step_result; of an epoch: of its last step */
    int64_t skipped;
    double seconds;      /* since the run began */
    double step_seconds; /* since the report before: with `samples`, the rate */
    double wait_seconds; /* that the devices waited for data so far */
    double test_loss;    /* epoch reports with a test set; else NaN */
    double test_metric;  /* the first metric over the test set; else NaN */
    /* Epoch reports with a test set: each loss, then each metric, in the graph's order
     * (clt_graph_loss_name, clt_graph_metric_name); NaN where no weight counted. Until the report
     * returns. Else NULL. */
    const double *test_means;
    int n_test_means;
    /* Of a step with another division of the batch than the step before, and of a run's first one
     * if its devices have weights: those, of the n_split devices of all ranks, the quantum, and the
     * size of the store's buckets. Else NULL. */
    const double *split;
    int n_split;
    int64_t quantum, bucket_bytes;
} clt_progress;

/* From step `step` on (1 is the first) batches are divided by `weights`, one for each device of all
 * ranks. */
typedef struct clt_split_change {
    int64_t step;
    const double *weights;
    int64_t quantum;
} clt_split_change;

typedef struct clt_fit_options {
    size_t struct_size; /* set by clt_fit_options_init */
    int64_t epochs;     /* 1 */
    int64_t steps;      /* 0: by epochs; else stop after this many in all */
    int64_t batch;      /* global batch; 0: the trainer's */
    int64_t seed;       /* of the order; -1: 0, or on resume the checkpoint's. Another than
                           the checkpoint's is refused */
    int shuffle;        /* 1 */
    int drop_last;      /* 0; 1: an epoch's last batch is left out if it has fewer samples than the
                           others, in training, not in evaluations */
    int channels;       /* normalisation of the f32 inputs that fields of images feed
                           (clt_dataset_set_image): channels of mean and std, 0: none */
    const double *mean, *std;
    int64_t ignore_index; /* label that does not count; INT64_MIN: none */

    const char *checkpoint_dir; /* NULL: none */
    int64_t checkpoint_every;   /* steps; 0: at the end and when stopped only; -1: each epoch */
    int64_t keep;               /* 3; 0: all */
    int resume;                 /* 1: from the newest checkpoint in checkpoint_dir, if there is
                                   one */
    const char *resume_from;    /* with resume: this step's folder instead; NULL: the newest */
    const char *model;          /* name to record in the checkpoint; may be NULL */

    /* Not NULL: n_splits (0 or more) changes of the division, by step, to repeat those of another
     * run instead of finding them by measuring. They need clt_trainer_options.rebalance too. */
    const clt_split_change *splits;
    int n_splits;

    /* Reports; may be NULL. A step is reported when the next one is enqueued. */
    void (*on_step)(void *user, const clt_progress *progress);
    void (*on_epoch)(void *user, const clt_progress *progress);
    /* Called before a checkpoint is written: what was reported so far belongs to it. May be NULL.
     */
    void (*on_checkpoint)(void *user);
    /* Asked after each step: not 0 stops the run, after a checkpoint. */
    int (*should_stop)(void *user);
    void *user;

    /* The caller's lock on checkpoint_dir, of rank 0. NULL: clt_fit takes the lock first of all and
     * keeps it until it returns. */
    const clt_folder_lock *lock;
} clt_fit_options;

CLT_API void clt_fit_options_init(clt_fit_options *options);

/*
 * Trains `trainer` on `train`, evaluating on `test` (may be NULL) after each epoch. The graph's
 * parameters are in `store` afterwards. Errors: STOPPED (should_stop, after saving), NONFINITE (the
 * guard stopped; parameters, steps and a checkpoint, where asked for, are those of the last good
 * step), those of data (the last step is saved before; not by ranks whose devices differ, where a
 * test sample cannot be read), devices and checkpoints, BUSY (another run saves in checkpoint_dir;
 * nothing was trained). A checkpoint on the way that cannot be written is logged as a warning and
 * training goes on; the last one's failure is the call's, and leaves the training state as it is:
 * clt_trainer_save can save it elsewhere.
 *
 * With several ranks, all call it with the same options and data: MISMATCH where arrays differ, of
 * which up to 64 MiB of each field are compared, or where parameters do, unless the run is resumed.
 * Rank 0 reads and writes the checkpoints, and the parameters of the one that a run is resumed from
 * become those of all. Where should_stop tells one rank to stop, all stop after the same step.
 * Reports are the same on all ranks.
 */
CLT_API clt_status clt_fit(clt_trainer *trainer, clt_dataset *train, clt_dataset *test,
                           const clt_fit_options *options);

/* Sums and weights of all losses and metrics over a data set, as clt_trainer_evaluate. Only the
 * options about data count. */
CLT_API clt_status clt_evaluate(clt_trainer *trainer, clt_dataset *dataset,
                                const clt_fit_options *options, double *sums, double *weights);

/* JSON that checkpoints of this trainer get as section "use" of their state.json, for those who use
 * the model later: what its inputs are, sizes, names of classes. It is copied; NULL: none. Errors:
 * OUT_OF_MEMORY. */
CLT_API clt_status clt_trainer_set_use(clt_trainer *trainer, const char *json);

/* Saves the trainer's state in a new folder below `dir`; `position` is where training goes on. Of
 * several ranks, only rank 0 writes. */
typedef struct clt_position {
    int64_t epoch, sample;
} clt_position;

CLT_API clt_status clt_trainer_save(clt_trainer *trainer, const char *dir, clt_position position,
                                    int64_t batch, int64_t seed, int64_t keep, const char *model);

/* Restores what clt_trainer_save wrote, from a run's folder (the newest) or a step's; with several
 * ranks, on one of them, before clt_trainer_broadcast. Training goes on also after the guard
 * stopped it. On failure nothing is changed but, after a device failed, parameters. MISMATCH: a
 * checkpoint of another model. */
CLT_API clt_status clt_trainer_restore(clt_trainer *trainer, const char *path,
                                       clt_position *position, int64_t *seed);

/* Loads parameters and states from a safetensors file (16-bit and f64 tensors are converted to f32,
 * and I64 to an I32 state, as PyTorch's num_batches_tracked, if it fits; MISMATCH if not, and where
 * the file lacks a tensor, has it in another shape or, for a state of another type than f32 and
 * i32, in another type, or has one that the store does not have and clt_file_names does not let
 * pass). Carried states stay as they are. */
CLT_API clt_status clt_store_load(clt_store *store, const char *path);

/* Does the same with the tensors of a file that is open, as those of clt_checkpoint_model. They
 * stay the caller's, and are not needed afterwards. */
CLT_API clt_status clt_store_load_tensors(clt_store *store, const clt_tensors *tensors);

/* Saves parameters and states as a safetensors file that PyTorch loads. */
CLT_API clt_status clt_store_save(clt_store *store, const char *path);

CLT_END_DECLS

#endif
