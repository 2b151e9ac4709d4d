/* Makes a plan with the tiles that a tuner would try. For harness.h. */
#ifndef TESTS_OPS_RETILE_H
#define TESTS_OPS_RETILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plan/plan.h"

#define OP_OK(expression)                                                                          \
    do {                                                                                           \
        if ((expression) != CLT_OK)                                                                \
            fail_msg("%s: %s", #expression, clt_error_message());                                  \
    } while (0)

/* Makes the plan anew with number `index` of each node's tiles, or with `says` as every node's
 * options, whatever they are. Returns false if there is no such tile. */
bool op_retile(const clt_graph *graph, const clt_buckets *buckets, const clt_plan_options *options,
               int index, const char *says, clt_plan **plan);

#endif
