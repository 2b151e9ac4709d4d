/* The sets of an operator's variants, and the hashes by which tuning records name them. */
#ifndef TESTS_TUNE_VARIANT_SETS_H
#define TESTS_TUNE_VARIANT_SETS_H

#include "base/hash.h"
#include "ops/core/ops.h"

static inline int variant_count(const clt_op *op)
{
    int count = 0;
    while (op->variants && op->variants[count].name)
        count++;
    return count;
}

/* Returns clt_variants_hash of a node that the variants of `set` accept: bit i is variant i. */
static inline uint64_t variant_set_hash(const clt_op *op, unsigned set)
{
    uint64_t hash = 0;
    for (int i = 0; i < variant_count(op); i++)
        if (set >> i & 1)
            hash = clt_hash_text(op->variants[i].name, hash);
    return hash | 1;
}

#endif
