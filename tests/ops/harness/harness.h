/*
 * Tests one operator against a reference in double precision.
 *
 * A test gives a builder, a reference and a reference gradient. op_check runs the builder's graph
 * and its autodiff on the device and compares the results. In the plan every value has a buffer of
 * exact size, filled with signalling NaN. It runs at the full batch, a smaller one, one image and
 * none. The reference gradient is compared with central differences of the reference.
 *
 * Plans are made in several ways: for the device with batch-blocked images, for a GPU, with
 * portable variants, and with every other variant that accepts one of these, asked for by name
 * (variants of several operators at once). All of this is repeated in 16 bits, for which the
 * reference gets the rounded numbers. CLT_TEST_DEVICES selects the device.
 */
#ifndef TESTS_OPS_HARNESS_H
#define TESTS_OPS_HARNESS_H

#include "ops/harness/economy.h"
#include "ops/harness/expected.h"

/* Oclgrind takes values that a kernel writes to a buffer for uninitialised if the buffer was filled
 * before, unless the host wrote all of the buffer too (support/oclgrind_stores.c says why). */
void op_poison(op_bound *b);

void op_run(op_test *t, const op_case *c, op_bound *b, int64_t n, const op_expected *e);

void op_check_bound(op_test *t, const op_case *c, op_bound *b);

/* Set by a test if another test runs the operator's other variants on Oclgrind, where they take
 * long. */
extern bool op_only_chosen;

/* Checks one case completely. `differences`: also the reference gradient. In 16 bits, cases
 * alternate between the two types. */
void op_check(op_test *t, const op_case *c, bool differences);

/* Checks the case in 16 bits with kernels for the matrix units of all vendors, whose instruction is
 * emulated. Calls alternate between the two types. `variants`: OP=NAME,...; `nodes` of the plan
 * must have them. `tile`: number of the tuner's tile, from 1 on; 0: the kernels' own choice. */
void op_check_matrix(op_test *t, const op_case *c, const char *variants, int nodes, int tile);

/* Checks the case at its full batch with every `step`th tile that a tuner would try on the device,
 * or on a GPU. */
void op_check_tiles(op_test *t, const op_case *c, bool as_gpu, int first, int step);

/* Checks the case on the device, at its full batch and smaller ones, with a record of these
 * options, which may be nonsense. */
void op_check_options(op_test *t, const op_case *c, const char *options);

/* Logs the largest error of all cases so far. */
void op_report(const op_test *t);

#endif
