/*
 * CLBlast (https://github.com/CNugteren/CLBlast), looked for when it is first asked for: products
 * of matrices by a library that was tuned for many GPUs. It makes a kernel object and, at the first
 * product of a kind, a program on every device, which the library's counts do not see.
 *
 * CLBlast keeps one set of parameters for a device, kernel and precision in the whole process, and
 * does not give back those that it came with. Here every product says which sets it is to run with,
 * and they are set where they differ from what was set last, so that results and speed do not
 * depend on who else uses the device. Setting takes half a millisecond of the host: products of a
 * plan should have the same sets. Programs of other sets stay, so that going back compiles nothing.
 * A program's own calls of CLBlast find f32 parameters as the last product here left them.
 */
#ifndef CLT_DEVICE_DISCOVER_CLBLAST_H
#define CLT_DEVICE_DISCOVER_CLBLAST_H

#include "base/blas_sets.h"
#include "device/core/device.h"

/* C = op(A) op(B), row-major; offsets and steps in elements. */
typedef struct clt_clblast_gemm {
    int64_t m, n, k, lda, ldb, pairs, a_step, b_step;
    bool trans_a, trans_b;
    bool packed; /* CLBlast's kernel over packed operands, not its direct one */
    clt_blas_set sets[CLT_BLAS_KERNELS];
    cl_mem a, b, c;
    int64_t a_offset, b_offset, c_offset;
    cl_mem packing; /* where operands are packed; NULL: CLBlast allocates what it needs */
    int64_t packing_offset, packing_bytes; /* in bytes */
} clt_clblast_gemm;

/* Whether the shared library is there and has what is used of it. Thread-safe. */
bool clt_clblast_found(void);

/*
 * Enqueues a product on the device's compute queue; `event` may be NULL. An empty sum gives zeros.
 * Called by the thread that enqueues on the device; one that enqueues on the same device by another
 * clt_device waits for it. Errors: UNSUPPORTED (no library), OUT_OF_DEVICE_MEMORY, OPENCL.
 */
clt_status clt_clblast_enqueue(clt_device *device, const clt_clblast_gemm *gemm, cl_event *event);

#endif
