/*
 * Makes matrices orthogonal: a matrix U S V' becomes about U V', with singular values between 0.7
 * and 1.2. Five iterations X = a X + (b A + c A A) X with A = X X', which begin with the matrix
 * divided by its Frobenius norm (Jordan et al., "Muon: An optimizer for hidden layers in neural
 * networks", 2024). There is a plan for each shape of matrices, so products have the kernels of
 * models.
 */
#ifndef CLT_EXEC_UPDATE_NEWTON_SCHULZ_H
#define CLT_EXEC_UPDATE_NEWTON_SCHULZ_H

#include "exec/exec.h"

typedef struct clt_newton_schulz clt_newton_schulz;

/* Whether the replica updates the slot: it has the tensor, and its shard has what the optimizer
 * keeps of it. */
bool clt_newton_schulz_has(const clt_replica *replica, const clt_slot *slot);

/* Makes plans and memory for the slots of the replica that are `chosen` and that the replica has.
 * With `canonical`, kernels do not depend on the number of compute units. */
clt_status clt_newton_schulz_create(const clt_replica *replica, const bool *chosen, bool canonical,
                                    clt_newton_schulz **newton);

/* Counts the bytes of the buffers that clt_newton_schulz_create makes. The replica need not have
 * memory. */
clt_status clt_newton_schulz_bytes(const clt_replica *replica, const bool *chosen, bool canonical,
                                   int64_t *bytes);

/* Returns the buffer of the matrix, at its begin. Floats behind the matrix are ignored. */
cl_mem clt_newton_schulz_input(const clt_newton_schulz *newton);

/* Enqueues the iterations on the buffer of the matrix, which has the slot's shape. *result is where
 * the orthogonal matrix will be, with zeros up to the slot's padded size, until the next call. */
clt_status clt_newton_schulz_run(clt_newton_schulz *newton, const clt_slot *slot, clt_view *result);

/* The device must be finished. Takes NULL. */
void clt_newton_schulz_destroy(clt_newton_schulz *newton);

#endif
