/* The policies of a run of clt_fit: when they are called, what they ask for, and their state. */
#ifndef CLT_TRAIN_FIT_POLICIES_H
#define CLT_TRAIN_FIT_POLICIES_H

#include <stdbool.h>

#include <cltrain/fit.h>

struct clt_fit_run;

struct clt_policy_run {
    struct clt_fit_run *fit;
    double base_lr; /* the trainer's when the run began */
    int64_t best;   /* the step of the best checkpoint; 0: none */
    bool keep;      /* a policy wants the state of this evaluation to be kept */
    bool stop;
    /* State before the last evaluation, and the step of that evaluation */
    char *before;
    int64_t best_before, at;
};

/* Checks the options of the run that are about policies and validation. */
clt_status clt_policies_check(const clt_fit_options *options);

/* Fails if no evaluation of the run will have a metric, which the policy `policy` watches. */
clt_status clt_policies_check_metric(const struct clt_policy_run *run, const char *policy,
                                     const char *metric);

/* Begins all policies, with the state of the checkpoint from which the run resumes. */
clt_status clt_policies_begin(struct clt_fit_run *fit);

/* Adds to a hash what all ranks must have alike. */
uint64_t clt_policies_hash(const clt_fit_options *options, uint64_t hash);

/* Tells rank 0's restored state to the other ranks. Collective. */
clt_status clt_policies_tell(struct clt_fit_run *fit);

/* Calls all policies after an evaluation. */
clt_status clt_policies_evaluated(struct clt_fit_run *fit, const clt_progress *progress);

/* Writes the state of all policies into the trainer, for the next checkpoint. */
clt_status clt_policies_store(struct clt_fit_run *fit);

/* Frees what the run has for policies. After a run that reached its end, a policy that keeps the
 * best checkpoint says if there is none. */
void clt_policies_end(struct clt_fit_run *fit, bool reached);

/* Warns if the policy is that of clt_policy_best and found no checkpoint to keep. */
void clt_policy_tell_best(const clt_policy *policy);

#endif
