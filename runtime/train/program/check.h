/* Checks the programs of all devices together before one of them runs. */
#ifndef CLT_TRAIN_PROGRAM_CHECK_H
#define CLT_TRAIN_PROGRAM_CHECK_H

#include "train/program/program.h"

/* A device of any rank, what it executes, and its share of the batch. */
typedef struct clt_check_device {
    const clt_step_program_input *input;
    const clt_step_program *program;
    int rounds, micros;
} clt_check_device;

/* What a check has found. */
typedef struct clt_check_effect {
    uint64_t hash; /* of all that the programs leave: equal hashes, equal effects */
    int groups;    /* of devices that do the same; one of each was executed */
} clt_check_effect;

/* A hash of all that a generator reads but the device's number, which counts by the buckets that it
 * owns alone. Of devices with the same layout and `after`, equal keys give equal programs of all
 * kinds but COPY. */
uint64_t clt_check_key(const clt_step_program_input *input);

/*
 * Executes the programs symbolically, waiting included. INTERNAL names the program, the device and
 * the instruction if one reads what was not written, if devices start collectives that do not match
 * or in different orders, if they wait for each other for ever, or if the end is not what the
 * program is for. At most CLT_SYMBOLIC_ROUNDS rounds.
 *
 * Devices with equal programs, outlines and parts in all collectives are executed once. So
 * thousands of devices cost little more than a few.
 *
 * *effect (may be NULL) becomes what was found.
 */
clt_status clt_step_programs_check(clt_step_program_kind kind, const clt_check_device *devices,
                                   int count, clt_check_effect *effect);

/* All devices of all ranks, by participant. */
typedef struct clt_check_world {
    int count;
    const clt_step_program_input *training, *evaluation;
    int max_micros; /* of a device's share of a batch */
} clt_check_world;

/* Generates and checks every program of training and evaluation: with equal shares of a batch, with
 * a device without samples, and with a device that has more micro-batches than the others. */
clt_status clt_step_programs_check_all(const clt_check_world *world);

#endif
