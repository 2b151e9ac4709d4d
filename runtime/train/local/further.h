/*
 * The tensors of replicas in the optimizer's file, beside those of replica 0's trainer:
 *
 *     replica.R.PARAMETER.SLOT            the inner state of replica R, from 1 on
 *     outer.PARAMETER.momentum_buffer     the outer optimizer's velocity
 *     PARAMETER.wire.replicaR             what replica R has rounded away of what it sent
 *     PARAMETER.wire.rankN, nodeN, sumN   what rank N has rounded away of sums
 *                                         (step/wire.h has the same names)
 *
 * One tensor at a time is in memory, and comes from the rank that has it.
 */
#ifndef CLT_TRAIN_LOCAL_FURTHER_H
#define CLT_TRAIN_LOCAL_FURTHER_H

#include "checkpoint/safetensors.h"
#include "train/local/local.h"

typedef enum clt_further_kind {
    CLT_FURTHER_INNER,    /* replica `owner`, slot `index` of the optimizer */
    CLT_FURTHER_VELOCITY, /* equal on all ranks */
    CLT_FURTHER_SENT,     /* replica `owner` */
    CLT_FURTHER_SUM       /* rank `owner`, rounding `index` */
} clt_further_kind;

typedef struct clt_further {
    clt_further_kind kind;
    int owner, index;
    const clt_slot *slot; /* of the parameter */
} clt_further;

typedef struct clt_further_list {
    clt_tensor *tensors; /* without data */
    clt_further *of;     /* by tensor */
    char (*names)[600];
    int count;
    int64_t largest; /* bytes */
} clt_further_list;

/* Which tensors a list has. */
typedef struct clt_further_wanted {
    int inner;                /* the inner states of replicas 1 to inner - 1 */
    bool velocity;            /* that of the outer optimizer */
    int sent;                 /* what replicas 0 to sent - 1 have rounded away */
    int ranks;                /* what ranks 0 to ranks - 1 have, */
    const int32_t *roundings; /* by rank, with a bit for each rounding */
} clt_further_wanted;

/* Lists tensors in the same order on all ranks. */
clt_status clt_further_list_make(const clt_local *local, const clt_further_wanted *wanted,
                                 clt_further_list *list);
void clt_further_list_free(clt_further_list *list);

/* Returns the rank that a tensor comes from. */
int clt_further_rank(const clt_local *local, const clt_further *further);

/* Returns the place of a parameter in the velocity. */
float *clt_further_velocity(const clt_local *local, const clt_slot *slot);

/* Reads a tensor of this rank. */
clt_status clt_further_get(const clt_local *local, const clt_further *further, void *data);

/* Sets a tensor if this rank has it. */
clt_status clt_further_set(const clt_local *local, const clt_further *further, const void *data);

#endif
