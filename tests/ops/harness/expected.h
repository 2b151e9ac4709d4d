/* The reference's results for a case, and hashes of them and of a plan. For harness.h. */
#ifndef TESTS_OPS_EXPECTED_H
#define TESTS_OPS_EXPECTED_H

#include "device/program/program.h"
#include "ops/harness/bound.h"

void op_expect(const op_test *t, const op_case *c, const op_bound *b, int64_t n, op_expected *e);

void op_forget(op_expected *e);

/* Expected results of earlier plans of a case, because the reference may take longer than the
 * device. */
enum { OP_MEMO = 8 };
typedef struct op_memo {
    struct {
        int64_t n;
        clt_dtype precision;
        unsigned rounded; /* bit set of the rounded inputs */
        op_expected e;
    } row[OP_MEMO];
    int count;
    uint64_t number; /* number of the case */
} op_memo;

/* Returns the expected results, which the memo owns. */
const op_expected *op_recall(const op_test *t, const op_case *c, const op_bound *b, int64_t n,
                             op_memo *memo);

void op_memo_free(op_memo *memo);

/* Hashes the commands that the plan enqueues and the texts of its kernels. */
uint64_t op_hash_plan(const clt_plan *plan);

uint64_t op_hash_expected(const op_test *t, const op_case *c, const op_bound *b,
                          const op_expected *e, int64_t n, uint64_t hash);

#endif
