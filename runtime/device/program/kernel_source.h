/* The kernel sources embedded at build by clkernels/embed.cmake. */
#ifndef CLT_DEVICE_PROGRAM_KERNEL_SOURCE_H
#define CLT_DEVICE_PROGRAM_KERNEL_SOURCE_H

typedef struct clt_kernel_source {
    const char *name; /* path below clkernels/, as "matmul/cpu/gemm.cl" */
    const char *text;
} clt_kernel_source;

/* Ends with a row of NULLs. */
extern const clt_kernel_source clt_kernel_sources[];

#endif
