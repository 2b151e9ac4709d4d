/* Executes programs on the device threads. */
#ifndef CLT_TRAIN_STEP_INTERPRET_H
#define CLT_TRAIN_STEP_INTERPRET_H

#include "train/core/trainer.h"
#include "train/program/program.h"

struct clt_diagnosis;

/* What the instructions of a program work on, on one device. Preparation fills it, so that the
 * interpreter reads no options. */
typedef struct clt_bound {
    int device; /* of this process */
    clt_replica *replica;
    clt_arena *arena;
    clt_session *session; /* NULL: the program needs no plan */

    /* The call. */
    const clt_step_batch *batch;
    const clt_feed *given; /* gradients of outputs */
    int n_given;
    clt_share share;
    int64_t first; /* the number of the batch's first sample */
    const double *loss_weights;
    int entry;    /* of the ring of results */
    int parity;   /* which of the two sets of input buffers */
    int64_t step; /* 0: the first */
    uint64_t seed;
    double lr;

    /* A trainer's. */
    clt_trainer *trainer;            /* for what the devices exchange, states and measuring */
    clt_trainer_device *own;         /* NULL: a predictor's program */
    int participants, self;          /* devices of all ranks; this device among them */
    const int *owners;               /* by bucket; NULL: there are none */
    struct clt_diagnosis *diagnosis; /* DIAGNOSE */
} clt_bound;

/* Executes a program on one device, on that device's thread. */
clt_status clt_step_program_run(clt_bound *bound, const clt_step_program *program);

/* step_exchange.c: starts or completes the collective of an instruction. `run`: of its
 * micro-batch. */
clt_status clt_exchange_start(clt_trainer *trainer, int device, const clt_instruction *instruction,
                              const clt_run *run);
clt_status clt_exchange_complete(clt_trainer *trainer, int device,
                                 const clt_instruction *instruction);

/* Makes room for the requests of all collectives that can be under way on a device; `nodes`: the
 * most collectives of a plan. */
clt_status clt_exchange_create(clt_trainer *trainer, int device, int nodes);

#endif
