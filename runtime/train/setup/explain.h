/* Prints the program of a training step before there is a trainer. */
#ifndef CLT_TRAIN_SETUP_EXPLAIN_H
#define CLT_TRAIN_SETUP_EXPLAIN_H

#include "train/store/store.h"
#include "train/program/program.h"
#include <cltrain/train.h>

/* Appends the program that device 0 would execute in a step of a whole batch, if `participants`
 * devices of all ranks train with `plan`. The devices of other ranks are assumed equal to this
 * process' first. */
clt_status clt_step_program_explain(const clt_plan *plan, const clt_store *store,
                                    const clt_trainer_options *options, int participants,
                                    clt_str *text);

#endif
