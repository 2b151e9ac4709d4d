/*
 * A store: the parameters and states of a model, one copy on each device. Training, evaluation and
 * prediction of any number of graphs with the same parameters work on one store.
 *
 * Not thread-safe. The devices must outlive the store.
 */
#ifndef CLTRAIN_STORE_H
#define CLTRAIN_STORE_H

#include <cltrain/device.h>
#include <cltrain/graph.h>

CLT_BEGIN_DECLS

typedef struct clt_store clt_store;

/* A store for the parameters and states of `graph` on `count` devices, initialised by their
 * clt_init and `seed`, equally on all devices. The graph is not kept. Errors: those of the graph,
 * OUT_OF_DEVICE_MEMORY, UNSUPPORTED (a tensor of 2^31 elements of 4 bytes), OPENCL. */
CLT_API clt_status clt_store_create(const clt_graph *graph, clt_device *const *devices, int count,
                                    uint64_t seed, clt_store **store);

typedef struct clt_store_options {
    size_t struct_size; /* set by clt_store_options_init */
    uint64_t seed;      /* 0 */
    /* 0: 25 MB. Parameters and gradients lie in buckets, one buffer each, which devices reduce one
     * by one: the first has about 1 MB, the others up to so many bytes, or one tensor.
     * clt_planner_bucket_bytes finds what is fastest. The same on all ranks. Steps of the same run
     * have the same bits with any size, but where gradients are clipped (their norm is added up by
     * buckets) or devices of several kinds take part. */
    int64_t bucket_bytes;
} clt_store_options;

CLT_API void clt_store_options_init(clt_store_options *options);

/* clt_store_create with options. Errors: also INVALID_ARGUMENT (a negative size). */
CLT_API clt_status clt_store_create_with(const clt_graph *graph, clt_device *const *devices,
                                         int count, const clt_store_options *options,
                                         clt_store **store);

/* The size of its buckets: what the options said, 25 MB where that was 0. */
CLT_API int64_t clt_store_bucket_bytes(const clt_store *store);

/* Takes NULL. What uses the store (trainers) must be destroyed before. */
CLT_API void clt_store_destroy(clt_store *store);

/* Number of parameters and states. */
CLT_API int clt_store_count(const clt_store *store);

/* Description of entry `index` (0 <= index < clt_store_count), in the graph's order: name, element
 * type, rank, dimensions (CLT_MAX_RANK of room), whether it is a state. Outputs may be NULL. The
 * name lives as long as the store. */
CLT_API clt_status clt_store_describe(const clt_store *store, int index, const char **name,
                                      clt_dtype *dtype, int *rank, int64_t *dims, int *is_state);

/* Copies a tensor, row-major, to `data` of `bytes` bytes (its exact size) from the first device.
 * Waits for the device. Errors: NOT_FOUND (suggests the nearest name), INVALID_ARGUMENT. */
CLT_API clt_status clt_store_get(clt_store *store, const char *name, void *data, size_t bytes);

/* Copies `data` to the tensor on all devices; waits. Errors as above. */
CLT_API clt_status clt_store_set(clt_store *store, const char *name, const void *data,
                                 size_t bytes);

/* Parameters in all, as elements. */
CLT_API int64_t clt_store_parameters(const clt_store *store);

/* Whether all devices hold the same bits: CLT_OK, or MISMATCH naming the first tensor and device
 * that differ. Waits. */
CLT_API clt_status clt_store_check(clt_store *store);

CLT_END_DECLS

#endif
