/* Checks the programs of all devices together before one of them runs. */
#ifndef CLT_TRAIN_PROGRAM_CHECK_H
#define CLT_TRAIN_PROGRAM_CHECK_H

#include "train/program/program.h"

/* A device of any rank, the program that it executes, and its share of the batch. */
typedef struct clt_check_device {
    const clt_step_program_input *input;
    const clt_step_program *program;
    int rounds, micro_batches;
} clt_check_device;

/* The result of a check. */
typedef struct clt_check_effect {
    uint64_t hash; /* of everything that the programs leave; equal hashes mean equal effects */
    int groups;    /* groups of devices that do the same; one device of each group was executed */
} clt_check_effect;

/* Returns a hash of everything that a generator reads, except the device's number. The number
 * matters only through the buckets that the device owns. Devices with the same layout, `after` and
 * key get equal programs of all kinds but COPY. */
uint64_t clt_check_key(const clt_step_program_input *input);

/*
 * Executes the programs symbolically, including waits. At most CLT_SYMBOLIC_ROUNDS rounds.
 *
 * Fails with INTERNAL, naming the program, the device and the instruction, if
 *   - a device reads data that was not written,
 *   - devices start collectives that do not match, or in different orders,
 *   - devices wait for each other for ever, or
 *   - the program does not reach its purpose.
 *
 * Devices with equal programs, outlines and parts in all collectives are executed once, so
 * thousands of devices cost little more than a few.
 *
 * *effect becomes the result; `effect` may be NULL.
 */
clt_status clt_step_programs_check(clt_step_program_kind kind, const clt_check_device *devices,
                                   int count, clt_check_effect *effect);

/* The devices of all ranks, by participant. */
typedef struct clt_check_world {
    int count;
    const clt_step_program_input *training, *evaluation;
    int max_micro_batches; /* most micro-batches of a device's share of a batch */
} clt_check_world;

/* Generates and checks every program of training and evaluation: with equal shares of a batch, with
 * a device without samples, and with a device that has more micro-batches than the others. */
clt_status clt_step_programs_check_all(const clt_check_world *world);

#endif
