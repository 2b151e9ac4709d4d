/* Checks the programs of all devices together before one of them runs. */
#ifndef CLT_TRAIN_STEP_CHECK_H
#define CLT_TRAIN_STEP_CHECK_H

#include "train/step/program.h"

/* A device of any rank, what it executes, and its share of the batch. */
typedef struct clt_check_device {
    const clt_step_program_input *input;
    const clt_step_program *program;
    int rounds, micros;
} clt_check_device;

/*
 * Executes the programs symbolically, waiting included. INTERNAL names the program, the device and
 * the instruction if one reads what was not written, if devices start collectives that do not match
 * or in different orders, if they wait for each other for ever, or if the end is not what the
 * program is for. At most CLT_SYMBOLIC_ROUNDS rounds.
 *
 * *final (may be NULL) becomes a hash of all that the programs leave: equal hashes, equal effects.
 */
clt_status clt_step_programs_check(clt_step_program_kind kind, const clt_check_device *devices,
                                   int count, uint64_t *final);

#endif
