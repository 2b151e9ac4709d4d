/*
 * Parameters of CLBlast's two kernels for f32 matrix products. Names and rules are CLBlast's. The
 * rules are checked here, because CLBlast does not check parameters and computes wrong results if
 * one is broken.
 */
#ifndef CLT_BASE_BLAS_SETS_H
#define CLT_BASE_BLAS_SETS_H

#include "base/caps.h"

/* The operator's name in tuning records for sets of parameters, and the name of the variants. */
#define CLT_BLAS_OP "clblast"

typedef enum clt_blas_kernel {
    CLT_BLAS_PACKED, /* reads operands copied into tiles */
    CLT_BLAS_DIRECT, /* reads operands in place */
    CLT_BLAS_KERNELS
} clt_blas_kernel;

enum { CLT_BLAS_PARAMETERS = 16, CLT_BLAS_TEXT = 128, CLT_BLAS_LARGEST_TILE = 128 };

/* Values of one kernel's parameters. Unused ones at the end are 0. */
typedef struct clt_blas_set {
    int values[CLT_BLAS_PARAMETERS];
} clt_blas_set;

/* Returns the key of the kernel's entry in tuning records. */
static inline uint64_t clt_blas_key(clt_blas_kernel kernel)
{
    return (uint64_t)kernel + 1;
}

/* Return CLBlast's name of the kernel, and the number and names of its parameters in the order of a
 * set's values. */
const char *clt_blas_kernel_name(clt_blas_kernel kernel);
int clt_blas_parameters(clt_blas_kernel kernel, const char *const **names);

/* Whether the set obeys the kernel's rules and the device's limits, and its tiles divide
 * CLT_BLAS_LARGEST_TILE. */
bool clt_blas_set_fits(clt_blas_kernel kernel, const clt_blas_set *set, const clt_caps *caps);

/* Gets number `index` (from 0) of the sets worth trying that fit the device. Set 0 is used where
 * nothing was measured. False if there are fewer sets. */
bool clt_blas_set_choice(clt_blas_kernel kernel, int index, const clt_caps *caps,
                         clt_blas_set *set);

/* Write a set as NAME=NUMBER,... and read it back. Reading returns false if a parameter is missing,
 * unknown or not a number. */
void clt_blas_set_write(clt_blas_kernel kernel, const clt_blas_set *set, char text[CLT_BLAS_TEXT]);
bool clt_blas_set_read(clt_blas_kernel kernel, const char *text, clt_blas_set *set);

#endif
