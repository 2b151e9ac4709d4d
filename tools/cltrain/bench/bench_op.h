/* The cases of `cltrain bench op`. */
#ifndef CLTRAIN_COMMAND_BENCH_BENCH_OP_H
#define CLTRAIN_COMMAND_BENCH_BENCH_OP_H

#include "bench/bench.h"

enum { ROWS = 16384, COLUMNS = 1024 }; /* 64 MiB of f32 */

typedef struct case_row {
    const char *name;
    clt_value *(*build)(clt_graph *g); /* returns the result, or NULL if it declared a loss */
    int training;
    clt_optimizer optimizer; /* for a case that measures an update; build is then NULL */
} case_row;

extern const case_row bench_op_cases[];
extern const int bench_op_case_count;

#endif
