/* OpenBLAS, for `bench gemm --compare`: loaded when it is asked for, so that no other command
 * starts its threads. */
#ifndef CLTRAIN_COMMAND_BENCH_OPENBLAS_H
#define CLTRAIN_COMMAND_BENCH_OPENBLAS_H

#include <stdint.h>

typedef struct openblas {
    void *handle;
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*set_threads)(int count);
    char name[96]; /* version and core type, as "OpenBLAS 0.3.21 for SkylakeX" */
} openblas;

/* Call it before devices are opened: it sets OPENBLAS_CORETYPE if the user has not, since releases
 * older than the processor take it for one without AVX. Returns 0, or an exit code after a message;
 * openblas_close in either case. */
int openblas_open(openblas *o);
void openblas_close(openblas *o);

/* C = A B, row by row, where A and B are stored transposed if asked for. */
void openblas_multiply(const openblas *o, const int64_t size[3], const char *trans, const float *a,
                       const float *b, float *c);

#endif
