/* The arguments of a launch's kernel, in the order of its parameters. */
#ifndef CLT_EXEC_LAUNCH_ARGUMENTS_H
#define CLT_EXEC_LAUNCH_ARGUMENTS_H

#include "exec/exec.h"

/* Takes the arguments one after the other. Both functions return an OpenCL error or CL_SUCCESS,
 * and none is called after an error. */
typedef struct clt_argument_taker {
    void *user;
    /* Takes the buffer of an operand, an output or a scratch block. *offset becomes the index of
     * its first element. */
    cl_int (*buffer)(void *user, const clt_arg *arg, cl_long *offset);
    /* Takes a number of `bytes` bytes. `arg` is the one that it is, or whose offset it is; NULL: it
     * is a vector of packed numbers. */
    cl_int (*number)(void *user, const clt_arg *arg, const void *value, size_t bytes);
} clt_argument_taker;

/* Gives all arguments of the launch in this run. `adds`: the value of CLT_RUN_ADDS. */
cl_int clt_arguments_give(const clt_launch *launch, const clt_run *run, bool adds,
                          const clt_argument_taker *to);

#endif
