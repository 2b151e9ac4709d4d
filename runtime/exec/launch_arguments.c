#include "exec/launch_arguments.h"

typedef union number {
    cl_int as_int;
    cl_uint as_uint;
    cl_long as_long;
    cl_ulong as_ulong;
    cl_float as_float;
} number;

/* Returns the number's bytes. */
static size_t run_number(const clt_run *run, bool adds, int which, number *to)
{
    switch ((clt_runtime_arg)which) {
    case CLT_RUN_COUNT:
        to->as_int = (cl_int)run->count;
        return sizeof to->as_int;
    case CLT_RUN_STEP:
        to->as_uint = run->step;
        return sizeof to->as_uint;
    case CLT_RUN_SEED:
        to->as_ulong = run->seed;
        return sizeof to->as_ulong;
    case CLT_RUN_SAMPLE:
        to->as_long = run->sample;
        return sizeof to->as_long;
    case CLT_RUN_ADDS:
        to->as_int = adds;
        return sizeof to->as_int;
    }
    return 0;
}

static size_t number_of(const clt_arg *arg, const clt_run *run, bool adds, number *to)
{
    switch (arg->kind) {
    case CLT_ARG_INT:
        to->as_int = (cl_int)clt_extent_at(arg->extent, run->count);
        return sizeof to->as_int;
    case CLT_ARG_LONG:
        to->as_long = clt_extent_at(arg->extent, run->count);
        return sizeof to->as_long;
    case CLT_ARG_FLOAT:
        to->as_float = arg->value;
        return sizeof to->as_float;
    case CLT_ARG_RUN:
        return run_number(run, adds, arg->index, to);
    case CLT_ARG_IN:
    case CLT_ARG_OUT:
    case CLT_ARG_SCRATCH:
        break;
    }
    return 0;
}

cl_int clt_arguments_give(const clt_launch *launch, const clt_run *run, bool adds,
                          const clt_argument_taker *to)
{
    cl_long packed[CLT_PACKED_MOST] = {0};
    cl_int code = CL_SUCCESS;
    int n = 0;
    for (int i = 0; i < launch->n_args && code == CL_SUCCESS; i++) {
        const clt_arg *arg = &launch->args[i];
        number value = {.as_ulong = 0};
        size_t bytes = sizeof value.as_long;
        if (clt_arg_is_buffer(arg))
            code = to->buffer(to->user, arg, &value.as_long);
        else
            bytes = number_of(arg, run, adds, &value);
        if (launch->packed)
            packed[n++] = bytes == sizeof value.as_long ? value.as_long : value.as_int;
        else if (code == CL_SUCCESS)
            code = to->number(to->user, arg, &value, bytes);
    }
    for (int i = 0; i < n && code == CL_SUCCESS; i += CLT_PACKED_LANES)
        code = to->number(to->user, NULL, packed + i, sizeof(cl_long16));
    return code;
}
