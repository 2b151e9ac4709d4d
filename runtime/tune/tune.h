/*
 * Measures, for each class of shapes in a plan, the variants and tiles that its operator offers,
 * and keeps the best in a record.
 */
#ifndef CLT_TUNE_TUNE_H
#define CLT_TUNE_TUNE_H

#include "device/core/device.h"
#include "plan/plan.h"

typedef struct clt_tune_report {
    int classes;    /* of shapes in the plan that had no measurement, and offer a choice or have a
                       reference */
    int measured;   /* of them, within the budget */
    int unfinished; /* of the measured ones: not all candidates were tried */
    int candidates; /* tried */
    int rejected;   /* that failed, or whose result is wrong: all logged */
} clt_tune_report;

/* How long, and who may end it early: `stop` (NULL: nobody) is asked before each candidate. */
typedef struct clt_tune_limits {
    double seconds;
    bool anew; /* what the record has as shipped is measured too */
    int (*stop)(void *user);
    void *user;
} clt_tune_limits;

/*
 * Adds to `record` what it does not have of the plan that `options` make of `graph`, within about
 * `limits`, those that take longest first. A class whose candidates were not all tried is gone on
 * with by the next run that has the record. Candidates whose result is wrong, and those that fail
 * to build or to run, are not chosen. What is right is what the plan's own choice gives, which is
 * itself compared with the operator's last variant first, on a part of the batch where that is much
 * work; where it is wrong, the last variant is what others are compared with. Convolutions with
 * their pooling, which exist in lanes only, are compared with a composition of portable kernels.
 * Where there is no choice, the only candidate is compared, behind the others. Operators that
 * `options` name a variant of are not measured. Where CLBlast is a choice, up to a quarter of the
 * time goes to the parameters of its kernels first (tune/blas.h). Errors: those of plans and
 * devices.
 */
clt_status clt_tune_plan(const clt_graph *graph, clt_device *device,
                         const clt_plan_options *options, const clt_tune_limits *limits,
                         clt_tuning_record *record, clt_tune_report *report);

#ifdef CLT_TESTING
/* Candidates whose tile has this text in it get a wrong result, or seem a hundred times as fast
 * when they are first measured, or do not build, or leave half of their outputs unwritten; and
 * the operators whose own choices are wrong, in a text. NULL: none. */
extern const char *clt_tuning_testing_spoils, *clt_tuning_testing_flatters,
    *clt_tuning_testing_breaks, *clt_tuning_testing_skips, *clt_tuning_testing_spoils_own;
#endif

#endif
