/* The store as the trainer sees it. */
#ifndef CLT_TRAIN_STORE_STORE_H
#define CLT_TRAIN_STORE_STORE_H

#include "exec/arena.h"
#include "exec/commands.h"
#include "exec/replica.h"
#include <cltrain/store.h>

struct clt_store {
    clt_buckets layout;
    int64_t bucket_bytes;
    int n_devices;
    clt_replica *replicas;
    clt_arena *arenas;                /* scratch shared by all plans of a device */
    char *file_prefix, *file_ignored; /* see clt_file_names; NULL: nothing */
    int *order;                       /* slots in the order of the graph: parameters, then states */
    int keepers;       /* trainers whose optimizer keeps tensors: they go with the last of these */
    const char *keeps; /* the first of these tensors, of them all; NULL: there is none */
};

/* Finds a slot or fails with the nearest name. */
clt_status clt_store_slot(const clt_store *store, const char *name, const clt_slot **slot);

/* What clt_freeze and clt_param_group said of the store's parameters: a line each, of those that
 * they said something of, in the graph's order. */
void clt_store_groups_text(const clt_store *store, clt_str *text);

/* Reads `count` elements of F32, F16 or BF16 from a device's buffer; waits. */
clt_status clt_replica_read_floats(const clt_replica *replica, clt_view from, clt_dtype dtype,
                                   int64_t count, float *data);

#endif
