/*
 * CLBlast (https://github.com/CNugteren/CLBlast), looked for when it is first asked for: products
 * of matrices by a library that was tuned for many GPUs. It makes a kernel object and, at the first
 * product of a kind, a program on every device, which the library's counts do not see.
 */
#ifndef CLT_DEVICE_CLBLAST_H
#define CLT_DEVICE_CLBLAST_H

#include "device/device.h"

/* C = op(A) op(B), row-major; offsets and steps in elements. */
typedef struct clt_clblast_gemm {
    int64_t m, n, k, lda, ldb, pairs, a_step, b_step;
    bool trans_a, trans_b;
    bool packed; /* CLBlast's kernels over packed operands, not its direct ones */
    cl_mem a, b, c;
    int64_t a_offset, b_offset, c_offset;
    cl_mem packing; /* where operands are packed; NULL: CLBlast allocates what it needs */
    int64_t packing_offset, packing_bytes; /* in bytes */
} clt_clblast_gemm;

/* Whether the shared library is there and has what is used of it. Thread-safe. */
bool clt_clblast_found(void);

/*
 * Enqueues a product on the device's compute queue; `event` may be NULL. An empty sum gives zeros.
 * Called by the thread that enqueues on the device. Errors: UNSUPPORTED (no library),
 * OUT_OF_DEVICE_MEMORY, OPENCL.
 */
clt_status clt_clblast_enqueue(clt_device *device, const clt_clblast_gemm *gemm, cl_event *event);

#endif
