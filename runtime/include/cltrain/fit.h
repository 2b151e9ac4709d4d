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
#include <cltrain/policy.h>
#include <cltrain/train.h>

CLT_BEGIN_DECLS

struct clt_sync_report; /* of <cltrain/local.h> */
struct clt_metrics;     /* of <cltrain/metrics.h> */

/* A report of a step or of an epoch. */
typedef struct clt_progress {
    int64_t step;    /* 1 is the first */
    int64_t epoch;   /* 1 is the first */
    int64_t samples; /* of the step; in an epoch's report, of the epoch so far */
    int64_t total_steps;
    double loss; /* the step's; the epoch's mean */
    double norm; /* of the gradient */
    double lr;
    double loss_scale; /* see clt_step_result; of an epoch: of its last step */
    int64_t skipped;
    double seconds;      /* since the run began */
    double step_seconds; /* since the report before; `samples` / step_seconds is the rate */
    double wait_seconds; /* that the devices waited for data so far */
    double test_loss;    /* epoch reports with a test set; else NaN */
    double test_metric;  /* the first metric over the test set; else NaN */
    /* The same over the validation set, in the reports of its evaluations. */
    double val_loss, val_metric;
    const double *val_means;
    int n_val_means;
    /* The same two sets with the averages of weights in the place of the parameters, if the trainer
     * has averages with a step in them; else NaN and NULL. */
    double average_test_loss, average_val_loss;
    const double *average_test_means, *average_val_means;
    int n_average_test_means, n_average_val_means;
    /* Epoch reports with a test set: each loss, then each metric, in the graph's order
     * (clt_graph_loss_name, clt_graph_metric_name); NaN if the weight is 0. Valid until the report
     * returns. Other reports: NULL. */
    const double *test_means;
    int n_test_means;
    /* The weights of the n_split places of dp (without a mesh: devices of all ranks), the quantum,
     * and the size of the store's buckets. Reports of steps that divide the batch otherwise than
     * the step before have them, and the first report if the devices have weights. Other reports:
     * NULL. */
    const double *split;
    int n_split;
    int64_t quantum, bucket_bytes;
    /* 1 in reports of clt_async_hold (<cltrain/async.h>). Then `staleness` is that of the step's
     * gradient in versions, `worker` the number of the worker that computed it, and `discarded` the
     * number of gradients that were discarded so far. */
    int asynchronous, worker;
    int64_t staleness, discarded;
    /* Reports of steps by clt_local_fit (<cltrain/local.h>): the synchronisation after them. Other
     * reports: NULL. */
    const struct clt_sync_report *sync;
} clt_progress;

/* A change of the division: from step `step` on (1 is the first) batches are divided by `weights`,
 * which has a number for each device of all ranks. */
typedef struct clt_split_change {
    int64_t step;
    const double *weights;
    int64_t quantum;
} clt_split_change;

/* How to run. Set up by clt_fit_options_init, with the defaults that stand at the members. */
typedef struct clt_fit_options {
    size_t struct_size; /* set by clt_fit_options_init */
    int64_t epochs;     /* 1; a resumed run counts the epochs before. Else they are added to the
                           steps that the trainer has made already */
    int64_t steps;      /* 0: as many as `epochs` has; else the number of steps in all */
    int64_t batch;      /* global batch; 0: the trainer's */
    /* 0: the trainer's schedule and `steps` count steps of this run. Else they count steps of so
     * many samples: at sample s of epoch e (from 0) the schedule is at step e * n + s /
     * schedule_batch, rounded down, where n is the number of such steps in an epoch. So both stay
     * in place when a run resumes with another batch. */
    int64_t schedule_batch;
    int64_t seed;  /* of the order; -1: 0, or on resume the checkpoint's. On resume any other
                      seed is refused */
    int shuffle;   /* 1 */
    int drop_last; /* 0; 1: training leaves out the last batch of an epoch if it is smaller than
                      the others */
    int channels;  /* entries of mean and std, which normalise the f32 inputs that fields of
                      images feed (clt_dataset_set_image); 0: none */
    const double *mean, *std;
    int64_t ignore_index; /* label that does not count; INT64_MIN: none */

    /* NULL; samples apart from training and test, on which choices rest: those of policies, and
     * yours. */
    clt_dataset *validation;
    int64_t validate_every; /* 0: evaluate `validation` at the end of each epoch; else after every
                               so many steps */
    /* See <cltrain/policy.h>; NULL. They are called in this order. */
    clt_policy *const *policies;
    int n_policies;

    const char *checkpoint_dir; /* NULL: none */
    int64_t checkpoint_every;   /* steps; 0: at the end and when stopped only; -1: each epoch */
    int64_t keep;               /* 3; 0: all. The best one (clt_policy_keep) is kept beside them */
    int resume;                 /* 1: go on from the newest checkpoint in checkpoint_dir, if there
                                   is one */
    const char *resume_from;    /* with resume: the folder of a step instead; NULL: the newest */
    const char *model;          /* name to record in the checkpoint; may be NULL */

    /* Changes of the division, by step, which repeat those of another run. NULL: the run finds them
     * by measuring. Both need clt_trainer_options.rebalance. */
    const clt_split_change *splits;
    int n_splits;

    /* 2; up to 8 steps may be queued while a step takes less than 250 us, so that devices need not
     * wait for the host. This is so on one device of one rank, for batches of at most 128 KiB in
     * host memory, without hooks; other runs queue 2 steps. With more than 2, later steps have been
     * enqueued when a step is reported, and their number differs from run to run: do not evaluate
     * in on_step then, and should_stop may end the run after another step. Each step has the same
     * bits.
     */
    int queued_steps;

    /* Receive reports; may be NULL. A step is reported when the next step is enqueued. Reports may
     * evaluate and predict; clt_fit, steps and restores fail with STATE. */
    void (*on_step)(void *user, const clt_progress *progress);
    void (*on_epoch)(void *user, const clt_progress *progress);
    /* An evaluation of `validation` that does not end an epoch. `loss` is that of the epoch so far.
     */
    void (*on_validation)(void *user, const clt_progress *progress);
    /* A policy stopped the run, kept its state as the best, or set the rate, after step `step`:
     * `what` says so in a line. Not called on idle ranks. */
    void (*on_policy)(void *user, int64_t step, const char *what);
    /* Called before a checkpoint is written, which contains all steps reported so far. May be NULL.
     */
    void (*on_checkpoint)(void *user);
    /*
     * Hooks of clt_fit, called with the trainer in each step; may be NULL. *progress has the step,
     * its epoch, samples and rate; loss and norm are NaN. A result other than 0 ends the run as
     * should_stop does, after this step.
     *
     * - on_step_begin: before the step is enqueued. The step before may still run on the devices.
     *   Here a program sets the base rate of this step (clt_trainer_set_lr), reads or writes
     *   parameters and optimizer slots (calls that wait for the devices), or evaluates.
     * - on_gradients: when the gradients of all devices and ranks are added up, before the update.
     *   Here a program reads gradients, and sets others (clt_trainer_set_gradient with device -1).
     *   Norm, clipping, guard and loss scale then count what was set. The step's loss is known
     *   (clt_trainer_result), its norm not yet. Without this hook a step is one call, with the same
     *   bits.
     *
     * All ranks call the hooks in the same steps, on the thread of clt_fit, except idle ranks. What
     * a hook changes must be equal on all ranks. A step that is redone after the loss of a device
     * calls them again. Calls that would replace the step under way fail with STATE: those that
     * make steps or parts of steps, clt_fit, clt_trainer_recover, _restore and _set_weights, and in
     * on_gradients also evaluation and prediction. UNSUPPORTED for clt_local_fit and asynchronous
     * training. */
    int (*on_step_begin)(void *user, clt_trainer *trainer, const clt_progress *progress);
    int (*on_gradients)(void *user, clt_trainer *trainer, const clt_progress *progress);
    /* Called after each step; a result other than 0 ends the run after a checkpoint. May be NULL.
     */
    int (*should_stop)(void *user);
    void *user;

    /* Rank 0: the caller's lock on checkpoint_dir. NULL: clt_fit takes the lock first and keeps it
     * until it returns. */
    const clt_folder_lock *lock;
} clt_fit_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_fit_options_init(clt_fit_options *options);

/*
 * Trains on `train`, and evaluates on `test` (may be NULL) after each epoch. The parameters are in
 * the trainer's store afterwards.
 *
 * If a policy ends the run, the result is OK.
 *
 * If `train` is a reservoir (<cltrain/reservoir.h>), its steps are one epoch, which ends with step
 * options->steps. The call waits for the first samples, and threads may push meanwhile.
 *
 * Errors:
 *
 * - STOPPED: should_stop ended the run, after a checkpoint.
 * - NONFINITE: the guard ended the run. Parameters, steps and the checkpoint are those of the last
 *   good step.
 * - BUSY: another run saves in checkpoint_dir. Nothing was trained.
 * - Those of data. The last step is saved before. Ranks whose devices differ do not save if a test
 *   sample cannot be read.
 * - Those of devices and checkpoints. If a checkpoint during the run cannot be written, a warning
 *   is logged and training goes on. If the last one cannot be written, the call fails, and
 *   clt_trainer_save can save the state elsewhere. A device that fails is dropped
 *   (clt_trainer_recover), also the last one of a rank. If training cannot go on without it, or
 * another rank has ended, the message names the last checkpoint.
 *
 * With several ranks, all call it with the same options and data. MISMATCH tells that arrays differ
 * (up to 64 MiB of each field are compared), or parameters, unless the run is resumed. Rank 0 reads
 * and writes the checkpoints, and all ranks take its parameters on resume. If should_stop ends one
 * rank, all stop after the same step. Reports are the same on all ranks.
 *
 * A rank that loses its last device becomes idle and stays in this call until the run ends. It gets
 * all reports and calls should_stop, about once a second. The first rank that has a device writes
 * the checkpoints. Afterwards STATE is the result of calls that need a device on an idle rank, of
 * calls that need all ranks on the others, and of clt_fit on all.
 */
CLT_API clt_status clt_fit(clt_trainer *trainer, clt_dataset *train, clt_dataset *test,
                           const clt_fit_options *options);

/* Evaluates a data set: sums and weights of all losses, then of all metrics, as for
 * clt_trainer_evaluate. Of the options only those about data count. */
CLT_API clt_status clt_evaluate(clt_trainer *trainer, clt_dataset *dataset,
                                const clt_fit_options *options, double *sums, double *weights);

/*
 * Evaluates likewise, and adds all samples of all ranks to `metrics` (<cltrain/metrics.h>), which
 * then has the metrics of the whole data set on every rank. Give new metrics for each evaluation.
 *
 * - output: an output of the graph (clt_output) in f32, with the scores or the prediction.
 * - field: the field, and input of the graph, with the labels (i32) or targets (f32). In text each
 *   token counts.
 *
 * Errors also: NOT_FOUND (output, field), SHAPE, UNSUPPORTED (a mesh with other axes than dp,
 * samples in device memory), those of clt_metrics_add and clt_metrics_gather.
 */
CLT_API clt_status clt_evaluate_metrics(clt_trainer *trainer, clt_dataset *dataset,
                                        const clt_fit_options *options, const char *output,
                                        const char *field, struct clt_metrics *metrics,
                                        double *sums, double *weights);

/* Sets the section "use" in state.json of this trainer's checkpoints: JSON that tells later users
 * of the model about its inputs, sizes and names of classes. The text is copied; NULL: none.
 * Errors: OUT_OF_MEMORY. */
CLT_API clt_status clt_trainer_set_use(clt_trainer *trainer, const char *json);

/*
 * Sections of checkpoints that belong to the host program, such as its time, the state of its
 * random numbers or a hash of its mesh. They are in each checkpoint that is written from now on,
 * also by clt_fit, and restoring replaces them by those of the checkpoint.
 *
 * clt_trainer_set_section sets one; `text` is UTF-8 and is copied, NULL removes the section. `name`
 * has 1 to 100 bytes. clt_trainer_section gives the text, which is valid until the section is set
 * or a checkpoint is restored. clt_trainer_section_name gives the names from index 0 on, NULL past
 * the last; it is valid as long as the text is. With several ranks, rank 0's are saved, and those
 * ranks get them that call clt_trainer_restore and read files. Errors: INVALID_ARGUMENT (the name;
 * not UTF-8), NOT_FOUND (suggests the nearest name), OUT_OF_MEMORY.
 */
CLT_API clt_status clt_trainer_set_section(clt_trainer *trainer, const char *name,
                                           const char *text);
CLT_API clt_status clt_trainer_section(const clt_trainer *trainer, const char *name,
                                       const char **text);
CLT_API const char *clt_trainer_section_name(const clt_trainer *trainer, int index);

/* Save and restore for programs whose samples have no epochs: as clt_trainer_save and
 * clt_trainer_restore, without a position. `keep` is the number of checkpoints to keep in `dir`, 0:
 * all. */
CLT_API clt_status clt_trainer_save_state(clt_trainer *trainer, const char *dir, int64_t keep);
CLT_API clt_status clt_trainer_restore_state(clt_trainer *trainer, const char *path);

/* A position in the data, as of clt_data_order: both from 0. */
typedef struct clt_position {
    int64_t epoch, sample;
} clt_position;

/*
 * Saves the trainer's state in a new folder below `dir`. Training goes on at `position`. Of several
 * ranks, only rank 0 writes. Tensors are whole, so the files do not depend on the mesh. One tensor
 * at a time is put together in host memory. All ranks call it if ranks have parts of parameters
 * (clt_shard), shards of the optimizer's state (clt_trainer_options.zero,
 * clt_store_options.offload), residuals (clt_trainer_options.wire) or samples to save
 * (clt_trainer_set_reservoir); they fail together. Errors: those of clt_checkpoint_save.
 */
CLT_API clt_status clt_trainer_save(clt_trainer *trainer, const char *dir, clt_position position,
                                    int64_t batch, int64_t seed, int64_t keep, const char *model);

/*
 * Restores a checkpoint from the folder of a step, or the newest one from the folder of a run. Any
 * mesh may have written it. With several ranks, call it on one of them, before
 * clt_trainer_broadcast. If parameters are split over ranks (clt_shard) or ranks have residuals
 * (clt_trainer_options.wire), all ranks call it instead, and rank 0 reads the files. Then all call
 * clt_trainer_broadcast with root 0. Training can go on afterwards even if the guard had ended it.
 * Errors: those of clt_checkpoint_open; MISMATCH for a checkpoint of another model. A failure
 * changes nothing, unless a device or a rank failed.
 */
CLT_API clt_status clt_trainer_restore(clt_trainer *trainer, const char *path,
                                       clt_position *position, int64_t *seed);

/* Loads parameters and states from a safetensors file. Tensors of 16 bits and f64 are converted to
 * f32, and I64 to an I32 state (PyTorch's num_batches_tracked). Carried states stay as they are.
 * Errors: those of clt_tensors_open; MISMATCH if the file lacks a tensor, has another shape or
 * type, a value that does not fit, or a tensor that the store lacks and clt_file_names does not
 * ignore. Every rank loads the tensors of its own devices. */
CLT_API clt_status clt_store_load(clt_store *store, const char *path);

/*
 * Loads from a safetensors file, or from the model of a checkpoint: the folder of a step, or the
 * newest step in the folder of a run. Tensors whose names match the patterns `skip` keep their
 * initial values, so a model can get a new head. Tensors of the file that match and that the model
 * lacks are left out. Patterns are as for clt_freeze; NULL: none.
 *
 * If `report` is not NULL, *report says in lines how many tensors were loaded, and names each that
 * was skipped, missing in the file, or left out. Free *report with free(). Errors: those of
 * clt_checkpoint_open; NOT_FOUND (`skip` matches nothing); as clt_store_load, where MISMATCH also
 * names a pattern that skips the tensor.
 * Every rank loads the tensors of its own devices.
 */
CLT_API clt_status clt_store_load_skipping(clt_store *store, const char *path, const char *skip,
                                           char **report);

/* Loads from an open file, such as clt_checkpoint_model gives. `tensors` stays the caller's and may
 * be closed afterwards. Errors: as clt_store_load. */
CLT_API clt_status clt_store_load_tensors(clt_store *store, const clt_tensors *tensors);

/* Saves parameters and states as a safetensors file that PyTorch loads. If parameters are split
 * over ranks (clt_shard), all ranks of the store's world call it, and rank 0 writes. Errors: those
 * of clt_tensors_save and of devices. */
CLT_API clt_status clt_store_save(clt_store *store, const char *path);

CLT_END_DECLS

#endif
