/* The parts of a replica's gradients whose squares are added up for the norm, each by itself. */
#ifndef CLT_EXEC_UPDATE_STRETCHES_H
#define CLT_EXEC_UPDATE_STRETCHES_H

#include "exec/replica.h"

/* Constants of clkernels/train/portable/update.cl: floats of a work-item, most partial norms of a
 * bucket. Constants of clkernels/train/gpu/update.cl: work-items of a group, floats and least
 * rounds of each work-item, most partial norms. */
enum {
    CLT_UPDATE_CHUNK = 64,
    CLT_UPDATE_SHARES = 64,
    CLT_UPDATE_GPU_GROUP = 256,
    CLT_UPDATE_GPU_CHUNK = 4,
    CLT_UPDATE_GPU_ROUNDS = 4,
    CLT_UPDATE_GPU_SHARES = 512
};

/* Bytes of the sum and the finite flag of a share. */
enum { CLT_PARTIAL_BYTES = 16 };

/* Bytes [from, to) of a bucket. */
typedef struct clt_stretch {
    int bucket;
    bool parts; /* of split tensors */
    int64_t from, to;
} clt_stretch;

typedef struct clt_stretches {
    clt_stretch *all;
    int count, room;
    bool gpu;     /* the kernels of clkernels/train/gpu/update.cl add them up */
    int partials; /* number of shares of all stretches together */
} clt_stretches;

/* Lists the stretches of a replica's shard, or of all gradients if they are `whole`. Free `all`
 * with clt_free, also after a failure. */
clt_status clt_stretches_list(const clt_replica *replica, bool whole, clt_stretches *stretches);

/* Returns the number of partial sums, which are shares, of so many bytes of a bucket. */
int clt_stretches_shares(const clt_stretches *stretches, int64_t bytes);

#endif
