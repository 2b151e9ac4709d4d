/*
 * Measures, for each class of shapes in a plan, the variants and tiles that its operator offers,
 * and keeps the best in a record.
 */
#ifndef CLT_TUNE_TUNE_H
#define CLT_TUNE_TUNE_H

#include "device/core/device.h"
#include "plan/plan.h"

typedef struct clt_tune_report {
    int classes;  /* classes of the plan without a measurement that have a choice or a reference */
    int measured; /* classes measured within the budget */
    int unfinished; /* measured classes of which not all candidates were tried */
    int candidates; /* candidates tried */
    int rejected;   /* candidates that failed or gave a wrong result, all logged */
} clt_tune_report;

/* The time limit. `stop` (may be NULL) is asked before each candidate and may end the run early. */
typedef struct clt_tune_limits {
    double seconds;
    bool anew; /* measure shipped entries of the record too */
    int (*stop)(void *user);
    void *user;
} clt_tune_limits;

/*
 * Measures the plan that `options` make of `graph`, and adds the missing entries to `record`.
 * Classes that take longest come first. Ends after about `limits`. The next run with the same
 * record continues with classes whose candidates were not all tried.
 *
 * Candidates that fail to build, fail to run, or give a wrong result are not chosen. Candidates are
 * compared with the plan's own choice. That choice is first compared with the operator's last
 * variant, on part of the batch if the whole is much work. If the choice is wrong, candidates are
 * compared with the last variant instead. Convolutions with their pooling exist in batch-blocked
 * layout only, and are compared with a composition of portable kernels. A class with a single
 * candidate is only compared, after the other classes.
 *
 * Operators for which `options` name a variant are not measured. If CLBlast is a choice, up to a
 * quarter of the time first goes to the parameters of its kernels (tune/blas.h). Errors: those of
 * plans and devices.
 */
clt_status clt_tune_plan(const clt_graph *graph, clt_device *device,
                         const clt_plan_options *options, const clt_tune_limits *limits,
                         clt_tuning_record *record, clt_tune_report *report);

#ifdef CLT_TESTING
/* Tests name candidates by a text in their tile. Such candidates get a wrong result, seem a hundred
 * times as fast when first measured, do not build, or leave half of their outputs unwritten. The
 * last text contains the operators whose own choices are wrong. NULL: none. */
extern const char *clt_tuning_testing_spoils, *clt_tuning_testing_flatters,
    *clt_tuning_testing_breaks, *clt_tuning_testing_skips, *clt_tuning_testing_spoils_own;
#endif

#endif
