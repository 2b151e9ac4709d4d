/*
 * Policies: what follows from the evaluations of a run of clt_fit. They keep the best checkpoint,
 * end a run that no longer improves, or lower the learning rate. You can add your own.
 *
 * A policy sees the metrics of each evaluation by name. "loss" is the mean loss of the epoch's
 * training steps. "val_loss" and "test_loss" are those of the validation and the test set;
 * "val_accuracy" is the graph's metric "accuracy" over the validation set, and so on.
 * "average_val_loss" and so on are those of averages of weights (clt_trainer_options.average).
 *
 * The state of a policy is in the checkpoints. A run that is killed and resumed makes the decisions
 * of a run without a break. With several ranks, policies run on each rank that has devices. They
 * see numbers with the same bits there, and must come to the same decisions.
 */
#ifndef CLTRAIN_POLICY_H
#define CLTRAIN_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>

CLT_BEGIN_DECLS

struct clt_trainer;

/* The metrics of an evaluation. Valid during the call that gets it. */
typedef struct clt_evaluation {
    int64_t step;  /* steps done */
    int64_t epoch; /* 1 is the first */
    int count;
    const char *const *names;
    const double *values; /* NaN: no sample had a weight, or the model computes no number */
} clt_evaluation;

/* Returns the value of a metric, and NaN if the evaluation lacks it. *found (may be NULL) tells the
 * two apart. */
CLT_API double clt_evaluation_value(const clt_evaluation *evaluation, const char *name, int *found);

/* The run of clt_fit, for a policy during its calls. */
typedef struct clt_policy_run clt_policy_run;

/* Returns the run's trainer. Policies may read it. */
CLT_API struct clt_trainer *clt_policy_trainer(const clt_policy_run *run);

/* Ends the run after this call, as if it had reached its last step. `why` is a clause such as
 * "val_loss has not improved for 3 evaluations". The text is copied. */
CLT_API void clt_policy_stop(clt_policy_run *run, const char *why);

/* Makes the state after this evaluation the run's best one: it is saved, the link `best` in the
 * folder of checkpoints points to it, and it is kept until another one is best. Without a folder
 * nothing happens. `why` as for clt_policy_stop, may be NULL. */
CLT_API void clt_policy_keep(clt_policy_run *run, const char *why);

/* Get and set the base learning rate of the steps to come. The trainer's schedule still applies.
 * The policy has the rate in its own state, and sets it again in `load`. `why` as before. Errors:
 * those of clt_trainer_set_lr. */
CLT_API double clt_policy_lr(const clt_policy_run *run);
CLT_API clt_status clt_policy_set_lr(clt_policy_run *run, double lr, const char *why);

/*
 * A policy. Set up by clt_policy_init; then set `name` and the functions, each of which may be
 * NULL. All functions are called on the thread that calls clt_fit.
 */
typedef struct clt_policy {
    size_t struct_size;
    const char *name; /* of its state in checkpoints; each policy of a run has another one */
    void *user;       /* passed to the functions */
    /* The run begins. `state` is what `save` gave for the checkpoint from which the run resumes;
     * NULL: there is none. A failure ends the run before its first step. A run of which the state
     * says that it should end may be stopped here again. */
    clt_status (*begin)(void *user, clt_policy_run *run, const char *state);
    /* After each evaluation. A failure ends the run. */
    clt_status (*evaluated)(void *user, clt_policy_run *run, const clt_evaluation *evaluation);
    /* Returns the state as text of one JSON value, from malloc; NULL: there is none, which ends the
     * run. It is called before each checkpoint. After a device was lost an evaluation may be
     * repeated; `begin` is then called with the state from before the first one. */
    char *(*save)(void *user);
    /* Frees `user`, for clt_policy_destroy. */
    void (*destroy)(void *user);
} clt_policy;

/* Sets struct_size; everything else is NULL. */
CLT_API void clt_policy_init(clt_policy *policy);

/* Which metric a policy watches. clt_fit fails with INVALID_ARGUMENT if no evaluation of the run
 * will have it, for example "val_loss" without a validation set. */
typedef struct clt_watched {
    const char *metric; /* copied */
    int larger;         /* 1: larger values are better */
    double
        least; /* an improvement is more than this; 0: any (patience only, as Keras' min_delta) */
} clt_watched;

/* Sets *larger for a metric with a known direction: 0 for names that end in "loss" or "error",
 * "mae", "mse" or "rmse", "perplexity"; 1 for "accuracy", "precision", "recall", "f1", "auc", "r2",
 * "iou", "dice" and "top1" to "top5". A prefix such as "val_" does not matter. Errors: NOT_FOUND.
 */
CLT_API clt_status clt_metric_direction(const char *metric, int *larger);

/* Makes a policy that keeps the best checkpoint: clt_policy_keep at each value that is better than
 * all before. Its name is "keep-best". Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. Free *out with
 * clt_policy_destroy, after the runs that use it. */
CLT_API clt_status clt_policy_best(const clt_watched *watch, clt_policy **out);

/* Makes a policy that ends the run when `evaluations` (at least 1) evaluations in a row did not
 * improve. Its name is "patience". */
CLT_API clt_status clt_policy_patience(const clt_watched *watch, int64_t evaluations,
                                       clt_policy **out);

/*
 * Reduction of the learning rate when a metric no longer improves: PyTorch's ReduceLROnPlateau of
 * torch 2. An evaluation is better if it is below best * (1 - threshold); with `larger`, above best
 * * (1 + threshold). After more than `patience` evaluations in a row that are not better, the base
 * rate becomes max(rate * factor, minimum), if that is lower by more than `epsilon`. In the
 * `cooldown` evaluations after that, none counts as bad. A run that resumes with another factor or
 * minimum goes on from the rate that was reached, with a warning. Set up by clt_plateau_init.
 */
typedef struct clt_plateau {
    size_t struct_size;
    double factor;    /* 0.1; above 0 and below 1 */
    int64_t patience; /* 10 */
    double minimum;   /* 0 */
    double threshold; /* 1e-4 */
    int64_t cooldown; /* 0 */
    double epsilon;   /* 1e-8 */
} clt_plateau;

/* Sets struct_size and the defaults. */
CLT_API void clt_plateau_init(clt_plateau *plateau);

/* Reads "plateau:FACTOR:PATIENCE[:MIN]". Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_plateau_parse(const char *text, clt_plateau *plateau);

/* Makes the policy. Its name is "plateau". `watch->least` does not count. */
CLT_API clt_status clt_policy_plateau(const clt_watched *watch, const clt_plateau *plateau,
                                      clt_policy **out);

/* Frees a policy of the functions above. Takes NULL. */
CLT_API void clt_policy_destroy(clt_policy *policy);

CLT_END_DECLS

#endif
