/* Declarations shared by programs.c, which selects and runs programs, and prepare_programs.c, which
 * makes them. */
#ifndef CLT_TRAIN_STEP_PROGRAMS_INTERNAL_H
#define CLT_TRAIN_STEP_PROGRAMS_INTERNAL_H

#include "train/core/trainer.h"
#include "train/step/programs.h"

/* Facts about a device of any rank. */
typedef struct clt_participant {
    clt_outline training, evaluation;
    bool deferred; /* its reductions start only after its own work */
} clt_participant;

/* The programs of one device for one plan. Indices: kind, whether the host knows the weights of the
 * losses, load. */
typedef struct clt_plan_programs {
    clt_step_program lists[CLT_PROGRAM_KIND_COUNT][2][CLT_LOAD_COUNT];
} clt_plan_programs;

struct clt_programs {
    int n_devices, n_all;
    clt_participant *all;                                  /* by participant */
    clt_plan_programs *training, *evaluation, *prediction; /* by device of this process */
    int *after; /* by bucket: number of the plan's collectives that start before its own */
    /* The run under way: */
    clt_step_program_kind kind;
    const clt_step_program *copy; /* of all devices */
    const char *what;
    bool awaited;
};

clt_step_program_input clt_programs_input(const clt_trainer *trainer, const clt_participant *of,
                                          const clt_outline *outline);

/* Writes the programs of evaluation or prediction. */
clt_status clt_programs_outside(const clt_trainer *trainer, int device, const clt_outline *outline,
                                bool shared, clt_plan_programs *programs);

#endif
