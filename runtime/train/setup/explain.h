/* Prints the program of a training step before there is a trainer. */
#ifndef CLT_TRAIN_SETUP_EXPLAIN_H
#define CLT_TRAIN_SETUP_EXPLAIN_H

#include "train/store/store.h"
#include "train/program/program.h"
#include <cltrain/train.h>

/* What the program of a step depends on in the plan of training, beside its outline. */
typedef struct clt_step_traits {
    bool means, host_weights, deferred; /* as in clt_step_program_input */
} clt_step_traits;

/* Finds them for a mesh of all devices. */
clt_step_traits clt_step_traits_of(const clt_plan *plan, const clt_trainer_options *options,
                                   const clt_mesh *mesh);

/* Describes the training step of a device of the store to the generator of programs. `mesh` is of
 * the `total` devices of all ranks (clt_memory_mesh). `after` is as of clt_outline_places. The
 * arguments are borrowed. */
clt_step_program_input clt_step_program_describe(const clt_step_traits *traits,
                                                 const clt_store *store, int device,
                                                 const clt_trainer_options *options,
                                                 const clt_mesh *mesh, int total,
                                                 const clt_outline *outline, const int *after);

/* Appends the program that device 0 would execute in a step of a whole batch, if `participants`
 * devices of all ranks train with `plan`. The devices of other ranks are assumed equal to this
 * process' first. */
clt_status clt_step_program_explain(const clt_plan *plan, const clt_store *store,
                                    const clt_trainer_options *options, int participants,
                                    clt_str *text);

#endif
