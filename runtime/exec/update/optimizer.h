/* The optimizers: one row for each value of clt_optimizer in <cltrain/train.h>. */
#ifndef CLT_EXEC_UPDATE_OPTIMIZER_H
#define CLT_EXEC_UPDATE_OPTIMIZER_H

#include "exec/replica.h"
#include <cltrain/train.h>

typedef struct clt_optimizer_row {
    const char *name;
    const char *kernel; /* in train/portable/update.cl and train/gpu/update.cl */
    int n_slots;        /* tensors kept for each parameter */
    const char *slots[CLT_MAX_OPTIMIZER_SLOTS]; /* PyTorch's names of these tensors */
} clt_optimizer_row;

/* Returns the optimizer's row, or NULL if there is no such optimizer. */
const clt_optimizer_row *clt_optimizer_find(clt_optimizer optimizer);

#endif
