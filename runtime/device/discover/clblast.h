/*
 * Matrix products by CLBlast (https://github.com/CNugteren/CLBlast), a library tuned for many GPUs.
 * The shared library is loaded at the first use. CLBlast creates a kernel object for each product,
 * and a program at the first product of a kind on every device. The counts of clt_object do not
 * include them.
 *
 * CLBlast keeps one set of parameters for each device, kernel and precision in the whole process,
 * and cannot restore its original ones. Here every product names its sets, and they are set if they
 * differ from those set last. So results and speed do not depend on other users of the device.
 * Setting takes half a millisecond of the host, so all products of a plan should have the same
 * sets. Programs of other sets are kept, so going back compiles nothing. If a host program calls
 * CLBlast itself, it gets the f32 parameters of the last product here.
 */
#ifndef CLT_DEVICE_DISCOVER_CLBLAST_H
#define CLT_DEVICE_DISCOVER_CLBLAST_H

#include "base/blas_sets.h"
#include "device/core/device.h"

/* C = op(A) op(B), row-major; offsets and steps in elements. */
typedef struct clt_clblast_gemm {
    int64_t m, n, k, lda, ldb, pairs, a_step, b_step;
    bool trans_a, trans_b;
    bool packed; /* use CLBlast's kernel for packed operands, not its direct one */
    clt_blas_set sets[CLT_BLAS_KERNELS];
    cl_mem a, b, c;
    int64_t a_offset, b_offset, c_offset;
    cl_mem packing; /* memory for packed operands; NULL: CLBlast allocates it */
    int64_t packing_offset, packing_bytes; /* in bytes */
} clt_clblast_gemm;

/* Whether the shared library was found with all functions that are used. Thread-safe. */
bool clt_clblast_found(void);

/*
 * Enqueues a product on the device's compute queue. `event` may be NULL. If k is 0, the result is
 * zeros. Called by the thread that enqueues on the device. A thread that enqueues on the same
 * device through another clt_device waits for it. Errors: UNSUPPORTED (no library),
 * OUT_OF_DEVICE_MEMORY, OPENCL.
 */
clt_status clt_clblast_enqueue(clt_device *device, const clt_clblast_gemm *gemm, cl_event *event);

#endif
