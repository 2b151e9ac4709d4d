/*
 * Decides which plans an operator's test compiles and runs. For harness.h.
 *
 * Compiling kernels takes 95 % of the time of these tests. A test therefore compiles a plan only if
 * the plan brings a new feature. A feature is a variant of an operator, or a kernel together with
 * one of its build options. All numbers from 2 on count as one value of an option, because they are
 * sizes of tiles, windows and strides. op_is_size lists the options whose numbers select branches.
 * So a test compiles and compares each kernel, storage type and branch at least once.
 *
 * A tuner would try several tiles for a plan. The test takes the tile that needs the fewest kernels
 * which are not compiled yet. Many plans thus run with kernels that other plans have compiled. On
 * Oclgrind it takes the tile with the fewest work-items.
 *
 * CLT_TEST_ALL=1 (tools/test --all) runs every plan with its own tile.
 */
#ifndef TESTS_OPS_ECONOMY_H
#define TESTS_OPS_ECONOMY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "plan/plan.h"

/* Numbers of plans that were left out, and that ran. */
extern int op_plan_counts[2];

/* Whether the plan has a kernel that no earlier plan of this case had. `number` identifies the
 * case. */
bool op_is_new_to_case(const clt_plan *plan, uint64_t number);

/* Cost and benefit of running a plan: kernels to compile, new features. */
typedef struct op_worth {
    int kernels, news;
} op_worth;

op_worth op_worth_of(const clt_plan *plan, bool add);

/* Estimates how long Oclgrind would interpret the plan: work-items, each weighted with its elements
 * of a product's tile. */
double op_work_of(const clt_plan *plan);

/* Whether to run a plan with this cost and benefit. Oclgrind interprets kernels and is slow where
 * others compile. On Oclgrind, a plan without new features runs only if all these hold: it is in
 * f32, it has a kernel that its case has not seen, it has few work-items, and it is the turn of its
 * way to make plans (`way`; case `number` selects one of the three). */
bool op_is_worth_it(op_worth worth, const clt_plan *plan, int way, bool half, uint64_t number);

#endif
