/* Set-up and tear-down of test programs that need OpenCL and a folder for files. */
#ifndef TESTS_TRAIN_LAB_SCRATCH_H
#define TESTS_TRAIN_LAB_SCRATCH_H

#include "train/lab.h"

#include "checkpoint/scratch.h"

static inline int open_runtime_and_scratch(void **state)
{
    return scratch_make(state) || open_runtime(state);
}

static inline int close_runtime_and_scratch(void **state)
{
    return close_runtime(state) || scratch_remove(state);
}

#endif
