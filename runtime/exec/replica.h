/*
 * One device's copy of a store: parameters and states, and for training gradients and optimizer
 * slots. All have the same bucket layout, with a buffer object for each bucket. Of split tensors
 * the device has the part of its place.
 */
#ifndef CLT_EXEC_REPLICA_H
#define CLT_EXEC_REPLICA_H

#include "device/core/device.h"
#include "plan/buckets.h"

enum { CLT_MAX_OPTIMIZER_SLOTS = 3 };

typedef struct clt_replica {
    clt_device *device;
    const clt_buckets *layout; /* borrowed */
    clt_coordinate at;         /* the place whose parts these are; the only one without a mesh */
    int stage;                 /* of a pipeline; 0 without */
    cl_mem *values;            /* by bucket */
    cl_mem *gradients;         /* by bucket, in f32; NULL entries for buckets of states */
    cl_mem *half_gradients; /* in f16 or bf16, half as large; NULL until needed, like `gradients` */
    cl_mem *gradient_sums;  /* in f32, of micro-batches with 16-bit gradients; NULL until needed */
    cl_mem
        *residuals; /* in f32, by bucket: what rounding gradients left over; NULL: nothing is kept
                     */
    /* Of this device's shard of each bucket only; with one shard, of whole buckets. NULL entries
     * for buckets of states, and where another shard owns the bucket. */
    cl_mem *slots[CLT_MAX_OPTIMIZER_SLOTS];
    int n_slots;
    int shard, shards;
    /* Averages of parameters and states over steps, by bucket, and an int: the number of these
     * steps (update/average.h); NULL until needed */
    cl_mem *averages, averaged;
} clt_replica;

/* Returns the bytes of a bucket's buffer of parameters, states or slots (F32), or of gradients in
 * their precision. A whole bucket with gradients has room for shards behind it. With several shards
 * the buffer is that of one shard, and has 0 bytes if another shard owns the bucket. */
int64_t clt_replica_buffer_bytes(const clt_bucket *bucket, clt_dtype dtype, int shard, int shards);

/* Makes zeroed parameters and states, at the only place. */
clt_status clt_replica_create(clt_device *device, const clt_buckets *layout, clt_replica *replica);

/* Adds gradients in `precision` (F32, F16 or BF16) and `n_slots` optimizer slots, zeroed, of shard
 * number `shard` of `shards`. Idempotent. Fails with STATE if there are slots of another shard. */
clt_status clt_replica_for_training(clt_replica *replica, clt_dtype precision, int n_slots,
                                    int shard, int shards);

/* Sets all elements of the optimizer's slots. */
clt_status clt_replica_fill_slots(const clt_replica *replica, float value);

/* Drops the optimizer's slots, so that the next trainer begins with zeros. The device must be
 * finished. */
void clt_replica_forget_slots(clt_replica *replica);

/* Returns the gradients of a precision, by bucket; NULL before clt_replica_for_training. */
cl_mem *clt_replica_gradients(const clt_replica *replica, clt_dtype precision);

/* Adds the sums in f32 of all micro-batches, for gradients in 16 bits. Idempotent. */
clt_status clt_replica_for_gradient_sums(clt_replica *replica);

/* Adds gradients of type `wire` (F16 or BF16) for other devices and, if it `rounds`, residuals of
 * zeros. Idempotent. */
clt_status clt_replica_for_wire(clt_replica *replica, clt_dtype wire, bool rounds);

/* Drops the residuals. The device must be finished. */
void clt_replica_forget_residuals(clt_replica *replica);

/* Adds averages of no step. Idempotent. */
clt_status clt_replica_for_averages(clt_replica *replica);

/* Drops the averages. The device must be finished. */
void clt_replica_forget_averages(clt_replica *replica);

void clt_replica_destroy(clt_replica *replica);

/* Copies `bytes` at `offset` of a bucket-like buffer from or to host memory; blocks. */
clt_status clt_replica_read(const clt_replica *replica, cl_mem buffer, int64_t offset,
                            int64_t bytes, void *host);
clt_status clt_replica_write(const clt_replica *replica, cl_mem buffer, int64_t offset,
                             int64_t bytes, const void *host);

#endif
