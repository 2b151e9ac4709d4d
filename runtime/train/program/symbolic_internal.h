/* What the files of the symbolic execution share. */
#ifndef CLT_TRAIN_PROGRAM_SYMBOLIC_INTERNAL_H
#define CLT_TRAIN_PROGRAM_SYMBOLIC_INTERNAL_H

#include "train/program/symbolic.h"

/* Tags of terms. */
enum {
    INPUTS = 1,
    PARAMETER,
    SLOT,
    GRADIENT,
    RESULT,
    COMPUTED,
    UPSTREAM,
    GIVEN,
    MEAN,
    ADDED,
    ROUNDED,
    ZERO,
    STATUS,
    UPDATED,
    ASSIGNED,
    CHECKSUM,
    FINAL
};

/* A buffer that has been written whole. */
clt_symbol clt_symbolic_written(uint64_t term, int version);

/* The number of the last round. */
int clt_symbolic_last(const clt_symbolic_device *s);

/* Terms: of all parameters; of a micro-batch's inputs, which is the same on all devices, so that
 * devices that do the same have equal terms; of what the plan has computed before node `end`, which
 * depends on the collectives that these nodes need. */
uint64_t clt_symbolic_parameters(const clt_symbolic_device *s);
uint64_t clt_symbolic_inputs(int micro);
uint64_t clt_symbolic_computed(const clt_symbolic_device *s, int end);

/* Whether gradients that no node writes are zero in this set, for this micro-batch. */
bool clt_symbolic_is_cleared(const clt_symbolic_device *s, int set, int micro);

/* Whether all that forward makes of a micro-batch is there, and backward has not begun. */
bool clt_symbolic_has_outputs(const clt_symbolic_device *s, int micro);

/* Whether results of all rounds are there, those without samples included. */
bool clt_symbolic_has_results(const clt_symbolic_device *s);

/* Instructions by subject: forward and backward of a micro-batch; what ends a step; START. NULL, or
 * why it may not run here. */
const char *clt_symbolic_compute(clt_symbolic_device *s, const clt_instruction *i);
const char *clt_symbolic_commit(clt_symbolic_device *s, const clt_instruction *i);
const char *clt_symbolic_start(clt_symbolic_device *s, const clt_instruction *i);

#endif
