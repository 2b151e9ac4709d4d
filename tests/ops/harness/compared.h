/* Records which variants of which operators were compared, for coverage.py. For harness.h. */
#ifndef TESTS_OPS_COMPARED_H
#define TESTS_OPS_COMPARED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/discover/clblast.h"
#include "ops/core/ops.h"
#include "plan/plan.h"

/* Records that the results of all the plan's nodes were compared. */
void op_record_compared(const clt_plan *plan);

/* GPUs' plans may use CLBlast's products, but not on Oclgrind, which does not know the library. */
bool op_has_clblast(void);

/* Writes to the file that CLT_OPS_RUN names: the device's features, every row of the operators'
 * tables of variants (- for an operator without variants), and whether it was compared. */
void op_write_compared(const clt_caps *caps);

#endif
