/* Wrong candidates that tests plant. Builds without the tests' hooks plant none. */
#ifndef CLT_TUNE_TESTING_H
#define CLT_TUNE_TESTING_H

#include "tune/compare.h"
#include "tune/tune.h"

#ifndef CLT_TESTING
static const char *const clt_tuning_testing_spoils = NULL;
static const char *const clt_tuning_testing_flatters = NULL;
static const char *const clt_tuning_testing_breaks = NULL;
static const char *const clt_tuning_testing_skips = NULL;
static const char *const clt_tuning_testing_spoils_own = NULL;
#endif

/* Whether a test names this candidate. Tests name a text in the candidate's options. */
bool clt_testing_chose(const char *text, const clt_tuning_entry *entry);

/* Whether a test names this operator in its text. */
bool clt_testing_chose_op(const char *text, const char *op);

/* Makes one element of the last output wrong. */
void clt_testing_spoil(clt_outcome *own);

/* Leaves out half of the work-groups of the last launch, in the dimension with the most groups.
 * `count` is the number of samples of a run. */
void clt_testing_skip_half(clt_program *program, int64_t count);

#endif
