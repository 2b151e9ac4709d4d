/* Declarations that the files of symbolic execution share. */
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
    OUTPUT_GRADIENT,
    MEAN,
    ADDED,
    ROUNDED,
    MERGED,
    ZERO,
    STATUS,
    UPDATED,
    ASSIGNED,
    CHECKSUM,
    WORDS,
    FINAL
};

/* Returns a buffer that is completely written. */
clt_symbol clt_symbolic_written(uint64_t term, int version);

/* Makes the intermediates of a micro-batch those of the device. */
void clt_symbolic_select(clt_symbolic_device *s, int micro);

/* Return terms of all parameters, of a micro-batch's inputs, and of the plan's values before node
 * `end`. Inputs have equal terms on all devices, so devices that do the same have equal terms.
 * Values depend on the collectives that their nodes need. */
uint64_t clt_symbolic_parameters(const clt_symbolic_device *s);
uint64_t clt_symbolic_inputs(int micro);
uint64_t clt_symbolic_computed(const clt_symbolic_device *s, int end);

/* Returns true if gradients that no node writes are zero for this micro-batch. */
bool clt_symbolic_is_cleared(const clt_symbolic_device *s, int micro);

/* Returns the micro-batch for which gradients that no node writes must be zero before they are used
 * in this version. 16-bit gradients and those of virtual shards are those of one micro-batch. */
int clt_symbolic_cleared_for(const clt_symbolic_device *s, int version);

/* Returns true if all outputs of forward of a micro-batch exist and backward has not begun. */
bool clt_symbolic_has_outputs(const clt_symbolic_device *s, int micro);

/* Returns true if the results of all rounds exist, including rounds without samples. */
bool clt_symbolic_has_results(const clt_symbolic_device *s);

/* Returns true for a program that runs all micro-batches of a step. */
static inline bool clt_symbolic_is_step(clt_step_program_kind kind)
{
    return kind == CLT_PROGRAM_STEP || kind == CLT_PROGRAM_GRADIENTS;
}

/* Returns how many parameters the device has in common with another stage. */
int clt_symbolic_ties(const clt_step_program_input *in);

/* Execute instructions by subject: forward and backward of a micro-batch; the end of a step; START.
 * Return NULL, or why the instruction may not run here. */
const char *clt_symbolic_compute(clt_symbolic_device *s, const clt_instruction *i);
const char *clt_symbolic_commit(clt_symbolic_device *s, const clt_instruction *i);
const char *clt_symbolic_start(clt_symbolic_device *s, const clt_instruction *i);

#endif
