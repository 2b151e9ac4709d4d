/*
 * Remembers which plans gave the right numbers, so that an unchanged plan does not run again. For
 * harness.h.
 *
 * CLT_TEST_SETTLED names the file. The tests on Oclgrind and on the second platform set it, and
 * CLT_TEST_ALL=1 ignores it. A plan is settled if everything that decides its result is unchanged:
 * the device and its driver, the text of the kernels, the launches and places of values, the
 * operands, the expected numbers, and the code of exec, device and this harness. The build gathers
 * this code in the file `code` in the same folder. The operators' tests on PoCL run every plan.
 */
#ifndef TESTS_OPS_SETTLED_H
#define TESTS_OPS_SETTLED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "support/devices.h"

extern struct op_settled {
    uint64_t code, *old, *now; /* hash of the code; keys of earlier runs; keys of this run */
    int n_old, n_now, passed_over;
} op_settled;

const char *op_settled_path(void);

void op_settled_read(uint64_t device);

/* Writes the settled plans to a new file, which then replaces the old one. On Oclgrind this happens
 * only if tools/oclgrind.sh has found no report. */
void op_settled_write(void);

/* Whether the plan with this key gave the right numbers before. */
bool op_is_settled(uint64_t key);

/* Marks the plan with this key as right. */
void op_settle(uint64_t key);

#endif
