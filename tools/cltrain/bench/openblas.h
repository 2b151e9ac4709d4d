/* OpenBLAS for `bench gemm --compare`. The library is loaded only then, since it starts threads. */
#ifndef CLTRAIN_COMMAND_BENCH_OPENBLAS_H
#define CLTRAIN_COMMAND_BENCH_OPENBLAS_H

#include <stdint.h>

typedef struct openblas {
    void *handle;
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int count);
    char name[96]; /* version and core type, such as "OpenBLAS 0.3.21 for SkylakeX" */
} openblas;

/* Loads OpenBLAS. Call this before devices are opened, since it sets OPENBLAS_CORETYPE unless the
 * user did: an OpenBLAS older than the processor would assume a processor without AVX. Returns 0,
 * or an exit code after a message. Call openblas_close in either case. */
int openblas_open(openblas *o);
void openblas_close(openblas *o);

/* Computes C = A B. All matrices are row-major. `trans` says whether A and B are stored
 * transposed. */
void openblas_multiply(const openblas *o, const int64_t size[3], const char *trans, const float *a,
                       const float *b, float *c);

#endif
