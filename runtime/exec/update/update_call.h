/* Sets the arguments of a kernel of clt_update. */
#ifndef CLT_EXEC_UPDATE_UPDATE_CALL_H
#define CLT_EXEC_UPDATE_UPDATE_CALL_H

#include "exec/update/update.h"

/* Sets arguments one after the other and enqueues the kernel. `code` keeps the first failure. */
typedef struct call {
    clt_update *update;
    cl_kernel kernel;
    cl_uint at;
    cl_int code;
} call;

static inline void arg(call *c, size_t bytes, const void *value)
{
    if (c->code == CL_SUCCESS)
        c->code = clSetKernelArg(c->kernel, c->at++, bytes, value);
}

static inline void arg_buffer(call *c, cl_mem buffer)
{
    arg(c, sizeof buffer, &buffer);
}

static inline void arg_int(call *c, int64_t value)
{
    const cl_int v = (cl_int)value;
    arg(c, sizeof v, &v);
}

static inline void arg_long(call *c, int64_t value)
{
    const cl_long v = value;
    arg(c, sizeof v, &v);
}

static inline void arg_float(call *c, double value)
{
    const cl_float v = (cl_float)value;
    arg(c, sizeof v, &v);
}

#endif
