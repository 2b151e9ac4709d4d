/*
 * The canonical layout of parameters, gradients and optimizer slots, the same on every device and
 * in every plan of a store. Parameters are ordered as the backward pass finishes their gradients
 * (last layer first), at multiples of 256 bytes with zero padding. Each bucket is one buffer
 * object. Within a bucket parameters are ordered by parameter group. Gradients in 16 bits have the
 * same order at half the offsets. Frozen parameters and states come last, in buckets of their own.
 *
 * On a mesh a device has parts of the tensors that are split (clt_shard). The layout then has room
 * for the part of place 0, which is the largest, so that all places have equal offsets. Smaller
 * parts end with zeros. In a pipeline a device has the tensors of its stage. Those of other stages
 * have 0 bytes in its layout.
 */
#ifndef CLT_PLAN_BUCKETS_H
#define CLT_PLAN_BUCKETS_H

#include "graph/mesh.h"
#include "graph/sharding.h"

enum { CLT_TENSOR_ALIGN = 256 };

typedef struct clt_slot {
    char *name;
    clt_type type;         /* of the part of place 0; if the tensor is not split, the whole type */
    clt_type whole;        /* the type in the graph as the user built it */
    clt_sharding sharding; /* along clt_mesh_split_axis; 0 blocks: the tensor is not split */
    uint64_t stages;       /* bit s: stage s of axis pp has the tensor; see clt_buckets_stage */
    clt_init init;
    int stream; /* number of the parameter in the graph; selects its random stream */
    int bucket;
    int64_t offset;     /* bytes from the bucket's start */
    int64_t bytes;      /* without padding */
    bool state;         /* has no gradient: a state, or frozen */
    bool frozen;        /* a frozen parameter */
    bool carried;       /* a state that is never written to a file; see clt_carried */
    int group;          /* of parameters; tensors of one group are neighbours within a bucket */
    double rate, decay; /* of the group; see clt_param_group */
} clt_slot;

/* Whether several stages of a pipeline have the tensor and its gradient. Of these, the first counts
 * in norms. */
static inline bool clt_slot_tied(const clt_slot *slot)
{
    return !slot->state && (slot->stages & (slot->stages - 1)) != 0;
}

/* Whether the tensor is a state that steps change: replicas that train apart must exchange it.
 * Frozen parameters stay as they are, and carried states belong to predictions. */
static inline bool clt_slot_changes_apart(const clt_slot *slot)
{
    return slot->state && !slot->frozen && !slot->carried;
}

/* Returns the number of stages that have the tensor. */
static inline int clt_slot_stages(const clt_slot *slot)
{
    int count = 0;
    for (uint64_t rest = slot->stages; rest; rest &= rest - 1)
        count++;
    return count;
}

/* Returns the first stage after `stage` that has the tensor; stage -1: the first of all. */
static inline int clt_slot_next_stage(const clt_slot *slot, int stage)
{
    do
        stage++;
    while (stage < 63 && !(slot->stages >> stage & 1));
    return stage;
}

/* Returns the slot's bytes with padding. */
static inline int64_t clt_slot_padded(const clt_slot *slot)
{
    return (slot->bytes + CLT_TENSOR_ALIGN - 1) / CLT_TENSOR_ALIGN * CLT_TENSOR_ALIGN;
}

typedef struct clt_bucket {
    int64_t bytes;  /* with padding; a multiple of CLT_TENSOR_ALIGN */
    int first, end; /* slots */
    bool state;
    int owner; /* the shard that has the whole bucket, if others have none of it; 0: no such shard
                */
} clt_bucket;

/* Returns the bytes of the bucket's gradients in f32, f16 or bf16. They are laid out like the
 * parameters. */
static inline int64_t clt_bucket_gradient_bytes(const clt_bucket *bucket, clt_dtype precision)
{
    return bucket->bytes / (int64_t)sizeof(float) * clt_dtype_size(precision);
}

/* A bucket may be divided among devices into shards of equal size, the last of which may reach
 * behind the bucket's end or lie there. Buffers have room for this with so many devices. */
enum { CLT_MOST_SHARDS = 256, CLT_SHARD_ROOM = CLT_MOST_SHARDS * CLT_TENSOR_ALIGN };

/* Returns the bytes of each of `shards` shards, a multiple of CLT_TENSOR_ALIGN. */
static inline int64_t clt_shard_bytes(const clt_bucket *bucket, int shards)
{
    const int64_t lines = bucket->bytes / CLT_TENSOR_ALIGN;
    return (lines + shards - 1) / shards * CLT_TENSOR_ALIGN;
}

/* Returns the first byte of a shard, and its size: 0 if another shard owns the bucket. */
static inline int64_t clt_shard_begin(const clt_bucket *bucket, int shard, int shards)
{
    return bucket->owner ? 0 : shard * clt_shard_bytes(bucket, shards);
}

static inline int64_t clt_shard_size(const clt_bucket *bucket, int shard, int shards)
{
    if (bucket->owner && shards > 1)
        return shard == bucket->owner ? bucket->bytes : 0;
    return clt_shard_bytes(bucket, shards);
}

/* Returns the part of the bytes [from, to) of a bucket that lies in a shard: sets *begin and *end.
 * Returns false if there is none. */
static inline bool clt_shard_part(const clt_bucket *bucket, int shard, int shards, int64_t from,
                                  int64_t to, int64_t *begin, int64_t *end)
{
    const int64_t first = clt_shard_begin(bucket, shard, shards);
    const int64_t last = first + clt_shard_size(bucket, shard, shards);
    *begin = from > first ? from : first;
    *end = to < last ? to : last;
    return *begin < *end;
}

typedef struct clt_buckets {
    clt_slot *slots;
    int n_slots, room_slots;
    clt_bucket *buckets;
    int n_buckets, room_buckets;
    clt_table names; /* index of slots by name */
} clt_buckets;

/* Sizes at which a bucket is closed. The first bucket is small, so that its reduction starts
 * early. */
typedef struct clt_bucket_sizes {
    int64_t first_bytes, other_bytes;
    int64_t max_bytes; /* the smallest CL_DEVICE_MAX_MEM_ALLOC_SIZE of the devices */
} clt_bucket_sizes;

/* About 1 MB first, then 25 MB, as PyTorch's DDP found to work (Li et al., VLDB 2020). */
enum { CLT_BUCKET_FIRST = 1 << 20, CLT_BUCKET_BYTES = 25 << 20 };

static inline clt_bucket_sizes clt_bucket_sizes_default(void)
{
    return (clt_bucket_sizes){CLT_BUCKET_FIRST, CLT_BUCKET_BYTES, INT64_MAX};
}

/* Whether a tensor of `padded` bytes begins a new bucket. There are `n_buckets` so far, and the
 * last has `last_bytes` of tensors of its kind. */
bool clt_bucket_closes(const clt_bucket_sizes *sizes, int n_buckets, int64_t last_bytes,
                       int64_t padded);

/* Lays out the parameters and states of `graph`, unsplit. Free with clt_buckets_free. */
clt_status clt_buckets_create(const clt_graph *graph, const clt_bucket_sizes *sizes,
                              clt_buckets *buckets);

/* Lays out the parts that each device of a mesh has. A NULL mesh splits nothing. Errors also: SHAPE
 * (a parameter cannot be split over so many places). */
clt_status clt_buckets_create_parts(const clt_graph *graph, const clt_bucket_sizes *sizes,
                                    const clt_mesh *mesh, clt_buckets *parts);

/* Whether the layout has split tensors, or tensors that several stages have. */
bool clt_buckets_split(const clt_buckets *buckets);
bool clt_buckets_tied(const clt_buckets *buckets);

/* Makes the layout of the whole tensors from the layout of parts. Slots and buckets keep their
 * numbers. */
clt_status clt_buckets_whole(const clt_buckets *parts, clt_buckets *whole);

/* Makes the layout of a stage's devices from the layout of all tensors. Slots and buckets keep
 * their numbers. A bucket without tensors has a line of zeros. */
clt_status clt_buckets_stage(const clt_buckets *all, int stage, clt_buckets *own);

/* Writes the type of a place's part, and returns its bytes, at most slot->bytes. */
clt_status clt_slot_part_type(const clt_slot *slot, clt_coordinate at, clt_type *part);
int64_t clt_slot_part_bytes(const clt_slot *slot, clt_coordinate at);

void clt_buckets_free(clt_buckets *buckets);

/* Makes a deep copy. */
clt_status clt_buckets_copy(const clt_buckets *buckets, clt_buckets *copy);

/* Finds a slot by name; NULL if there is none. */
const clt_slot *clt_buckets_find(const clt_buckets *buckets, const char *name);

/* Returns a hash of the layout (names, types, splits, places). Equal hashes mean equal layouts. */
uint64_t clt_buckets_hash(const clt_buckets *buckets);

#endif
