/*
 * Parameters of CLBlast's two kernels for products of f32. Their names and rules are CLBlast's. The
 * library takes what it is given unseen: where a rule is broken, its results are wrong.
 */
#ifndef CLT_BASE_BLAS_SETS_H
#define CLT_BASE_BLAS_SETS_H

#include "base/caps.h"

/* Under this name and a kernel's a tuning record has a device's sets; also the variants' name. */
#define CLT_BLAS_OP "clblast"

typedef enum clt_blas_kernel {
    CLT_BLAS_PACKED, /* over operands that were copied into tiles */
    CLT_BLAS_DIRECT, /* over operands as they lie */
    CLT_BLAS_KERNELS
} clt_blas_kernel;

enum { CLT_BLAS_PARAMETERS = 16, CLT_BLAS_TEXT = 128, CLT_BLAS_LARGEST_TILE = 128 };

/* Of one kernel; those behind its last parameter are 0. */
typedef struct clt_blas_set {
    int values[CLT_BLAS_PARAMETERS];
} clt_blas_set;

/* How CLBlast calls the kernel, and its parameters in the order of a set's values. */
const char *clt_blas_kernel_name(clt_blas_kernel kernel);
int clt_blas_parameters(clt_blas_kernel kernel, const char *const **names);

/* Whether the set keeps the kernel's rules and the device's limits, and its tiles divide
 * CLT_BLAS_LARGEST_TILE. */
bool clt_blas_set_fits(clt_blas_kernel kernel, const clt_blas_set *set, const clt_caps *caps);

/* Number `index` of the sets worth trying that fit the device, from 0 on, which is for where
 * nothing was measured; false: there are fewer. */
bool clt_blas_set_choice(clt_blas_kernel kernel, int index, const clt_caps *caps,
                         clt_blas_set *set);

/* As NAME=NUMBER,... and back; false: a parameter is missing, unknown or no number. */
void clt_blas_set_write(clt_blas_kernel kernel, const clt_blas_set *set, char text[CLT_BLAS_TEXT]);
bool clt_blas_set_read(clt_blas_kernel kernel, const char *text, clt_blas_set *set);

#endif
