/* How a device's share of a batch is divided into micro-batches. */
#ifndef CLT_TRAIN_CORE_DIVISION_H
#define CLT_TRAIN_CORE_DIVISION_H

#include <stdint.h>

/* A device's share of a batch. It runs as `micros` micro-batches, each of whole quanta if the plan
 * has room for that. Rounds without samples follow if the plan has collectives and other devices
 * have more micro-batches. */
typedef struct clt_share {
    int64_t begin, count;     /* samples of the batch */
    int64_t per_run, quantum; /* per_run: the most samples of a micro-batch */
    int micros, rounds;
} clt_share;

/* What a device gets of a batch in one run. */
typedef struct clt_part {
    int64_t begin, count; /* samples of the batch */
    int64_t device_begin; /* the first sample of the device in the batch */
    int micro;            /* which of the step's micro-batches */
} clt_part;

/* The first sample, within the share, of a micro-batch; of number `micros`: the share's end. */
int64_t clt_share_begin(const clt_share *share, int micro);

/* The samples of a micro-batch: none if its number is `micros` or more. */
clt_part clt_share_part(const clt_share *share, int micro);

#endif
