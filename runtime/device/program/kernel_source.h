/* The kernel sources embedded at build by clkernels/embed.cmake. */
#ifndef CLT_DEVICE_PROGRAM_KERNEL_SOURCE_H
#define CLT_DEVICE_PROGRAM_KERNEL_SOURCE_H

#include <stddef.h>

typedef struct clt_kernel_source {
    const char *name; /* path below clkernels/, as "matmul/cpu/gemm.cl" */
    const char *text;
} clt_kernel_source;

/* Ends with a row of NULLs. */
extern const clt_kernel_source clt_kernel_sources[];

/* Finds the file that `from` includes under that name: beside `from` first, then from the root, as
 * a compiler would with the root on its search path. NULL: there is none. */
const clt_kernel_source *clt_source_include(const char *from, const char *name, size_t length);

#endif
