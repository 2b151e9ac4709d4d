/* What programs.c, which selects and runs programs, shares with prepare.c, which makes them. */
#ifndef CLT_TRAIN_STEP_PROGRAMS_INTERNAL_H
#define CLT_TRAIN_STEP_PROGRAMS_INTERNAL_H

#include "train/core/trainer.h"
#include "train/step/programs.h"

/* What is known of a device of any rank. */
typedef struct clt_participant {
    clt_outline training, evaluation;
    bool apart; /* its reductions start behind its own work */
} clt_participant;

/* The lists of one device for one plan: by kind, by whether the host knows the weights of the
 * losses, by load. */
typedef struct clt_plan_programs {
    clt_step_program lists[CLT_PROGRAM_KIND_COUNT][2][CLT_LOAD_COUNT];
} clt_plan_programs;

struct clt_programs {
    int n_devices, n_all;
    clt_participant *all;                                  /* by participant */
    clt_plan_programs *training, *evaluation, *prediction; /* by device of this process */
    int *after; /* by bucket: how many of the plan's collectives start before its own */
    /* Of the run under way. */
    clt_step_program_kind kind;
    const clt_step_program *copies; /* by device */
    const char *what;
    bool awaited;
};

clt_step_program_input clt_programs_input(const clt_trainer *trainer, const clt_participant *of,
                                          const clt_outline *outline);

/* Writes the lists of evaluation or prediction. */
clt_status clt_programs_outside(const clt_trainer *trainer, int device, const clt_outline *outline,
                                bool shared, clt_plan_programs *programs);

#endif
