/* Reference counts of OpenCL buffers. */
#ifndef CLT_TESTS_SUPPORT_REFERENCES_H
#define CLT_TESTS_SUPPORT_REFERENCES_H

#include <unistd.h>

#include <CL/cl.h>

/* Returns the reference count, or 0 if the driver does not report it. */
static inline cl_uint references(cl_mem buffer)
{
    cl_uint count = 0;
    return clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL) ? 0
                                                                                          : count;
}

/* Waits until the count is 1, and returns it. PoCL releases the references of a command a moment
 * after the queue has finished. 5 s is long enough on a busy machine. */
static inline cl_uint references_left(cl_mem buffer)
{
    for (int i = 0; i < 5000 && references(buffer) > 1; i++)
        usleep(1000);
    return references(buffer);
}

#endif
