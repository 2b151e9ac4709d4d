/*
 * A store. It holds the parameters and states of a model, a copy on each device. Any number of
 * graphs with the same parameters train, evaluate and predict on one store.
 *
 * One thread at a time uses a store. The devices must outlive it.
 */
#ifndef CLTRAIN_STORE_H
#define CLTRAIN_STORE_H

#include <cltrain/array.h>
#include <cltrain/device.h>
#include <cltrain/graph.h>

CLT_BEGIN_DECLS

struct clt_world; /* of <cltrain/world.h> */
struct _cl_event; /* cl_event is struct _cl_event *: this header needs no OpenCL header */

/* A store. */
typedef struct clt_store clt_store;

/* Creates a store for the parameters and states of `graph` on `count` devices. clt_init of each
 * tensor and `seed` give the initial values, which are equal on all devices. The graph is not kept.
 * Errors: those of the graph, OUT_OF_DEVICE_MEMORY, UNSUPPORTED (a tensor of 2^31 elements of 4
 * bytes), OPENCL. Destroy *store with clt_store_destroy. */
CLT_API clt_status clt_store_create(const clt_graph *graph, clt_device *const *devices, int count,
                                    uint64_t seed, clt_store **store);

/* Set up by clt_store_options_init, with the defaults that stand at the members. */
typedef struct clt_store_options {
    size_t struct_size; /* set by clt_store_options_init */
    uint64_t seed;      /* 0 */
    /* 0: 25 MB. Parameters and gradients lie in buckets, a buffer each, which devices reduce one by
     * one. The first bucket has about 1 MB. The others have at most bucket_bytes, or one tensor.
     * clt_planner_bucket_bytes finds the fastest size. All ranks need the same size. The bits of
     * steps do not depend on it, unless gradients are clipped (their norm is added up by buckets)
     * or devices are of several kinds. */
    int64_t bucket_bytes;
    /*
     * The mesh of all ranks' devices, such as "dp=2,tp=2"; NULL: all devices are data parallel. An
     * axis that is not named has size 1. The last axis varies fastest: here devices 0 and 1 are the
     * two places of tp for the first half of the batch. Axes:
     *
     *     dp      different samples
     *     tp      different parts of layers (clt_shard)
     *     pp      different layers (clt_cut)
     *     space   different rows of each image (clt_shard_value)
     *     time    different parts of sequences (clt_shard_value)
     */
    const char *parallel;
    /* 0; 3: each device along dp keeps a shard of each trained parameter, of its gradient and of
     * the optimizer's state, and gathers parameters where they are used (ZeRO-3; Rajbhandari et
     * al., SC 2020). The trainer needs zero 3 too. States and frozen parameters are whole. Needs
     * several devices, and a mesh that has no other axis than dp. */
    int zero;
    /* 0; K: the last K devices of each rank, which must be CPUs, have no samples. They own the
     * optimizer's state: gradients are reduced to them, they update, and send the parameters to the
     * other devices, which keep nothing of the optimizer (ZeRO-Offload; Ren et al., ATC 2021). Each
     * bucket has one owner. Needs a mesh that has no other axis than dp, of which each owner is a
     * place, and zero 0. If an owner is lost, or a rank's last device that trains, the run ends. */
    int offload;
    /* With `parallel`, `zero` or `offload`: the world of the trainer, NULL for one rank. Creating
     * the store is then collective. What `user` points to must outlive the store. */
    const struct clt_world *world;
} clt_store_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_store_options_init(clt_store_options *options);

/* Creates a store as clt_store_create, with options. Errors also: INVALID_ARGUMENT (a negative
 * size; a mesh that does not fit the devices; an axis that divides nothing of the graph; zero 3 on
 * one device; offload to devices that are no CPUs, or to all of a rank's devices), UNSUPPORTED
 * (zero 3 or offload on a mesh with other axes than dp; a dimension with fewer elements than
 * places), MISMATCH (ranks have different meshes). */
CLT_API clt_status clt_store_create_with(const clt_graph *graph, clt_device *const *devices,
                                         int count, const clt_store_options *options,
                                         clt_store **store);

/* Returns the size of buckets from the options; 25 MB if it was 0. */
CLT_API int64_t clt_store_bucket_bytes(const clt_store *store);

/* Frees the store. Takes NULL. Destroy the trainers and predictors of the store first. */
CLT_API void clt_store_destroy(clt_store *store);

/* Returns the number of parameters and states. */
CLT_API int clt_store_count(const clt_store *store);

/* Describes entry `index` (0 <= index < clt_store_count), in the graph's order: name, element type,
 * rank, dimensions (room for CLT_MAX_RANK), and whether it is a state. Outputs may be NULL. The
 * name is valid as long as the store. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_store_describe(const clt_store *store, int index, const char **name,
                                      clt_dtype *dtype, int *rank, int64_t *dims, int *is_state);

/* Copies a whole tensor to `data`, row-major: from the first device, or put together from the parts
 * of this rank's devices if the tensor is split (clt_shard). `bytes` is the exact size. Waits for
 * the devices. Errors: NOT_FOUND (suggests the nearest name), INVALID_ARGUMENT, STATE (devices of
 * other ranks have parts: call clt_store_collect). */
CLT_API clt_status clt_store_get(clt_store *store, const char *name, void *data, size_t bytes);

/* The same if devices of other ranks may have parts of the tensor. All ranks of the store's world
 * call it together, and all get the tensor. */
CLT_API clt_status clt_store_collect(clt_store *store, const char *name, void *data, size_t bytes);

/* Copies `data`, the whole tensor, to all devices of this rank, and waits. A device takes its part
 * if the tensor is split. Every rank sets the tensors of its own devices. Errors: NOT_FOUND,
 * INVALID_ARGUMENT. */
CLT_API clt_status clt_store_set(clt_store *store, const char *name, const void *data,
                                 size_t bytes);

/* The same for an array with gaps or of another type (<cltrain/array.h>), or for a buffer of the
 * first device's context. The array is `whole` or has the tensor's shape. Buffers are on devices
 * that have the whole tensor, and the call waits for the copy. Errors: NOT_FOUND, INVALID_ARGUMENT,
 * those of clt_store_get, and of clt_store_copy_out with a buffer. */
CLT_API clt_status clt_store_get_array(clt_store *store, const char *name, const clt_array *to);
CLT_API clt_status clt_store_set_array(clt_store *store, const char *name, const clt_array *from);

/* What a copy is of. */
typedef enum clt_copy_of {
    CLT_COPY_VALUE = 0,    /* a parameter or state; for clt_store_copy_out and _in */
    CLT_COPY_GRADIENT = 1, /* a parameter's gradient, as f32; for clt_trainer_copy_out and _in */
    CLT_COPY_SLOT = 2      /* an optimizer's tensor of a parameter; for the same */
} clt_copy_of;

/*
 * A copy between a tensor on one device and memory of the caller. Set up by clt_tensor_copy_init.
 *
 * - device: the store's device, which must have the whole tensor. Writing with -1: all devices of
 *   this rank.
 * - first, count: the elements to copy, in row-major order; count 0: all from `first` on.
 * - rows: instead of `first` and `count`, these n_rows rows along the first dimension, such as the
 *   tokens of a batch for an embedding. They lie one after the other in the caller's memory. A row
 *   may come several times; if it is written, its last copy counts. Neighbouring rows are one
 *   command, all others one each.
 * - array: memory of the caller, which clt_store_copy_in only reads. If it is not `whole`, its
 * shape is the tensor's; with `rows` their number comes first; with `first` or `count` it has one
 *   dimension. With memory of the host the call waits. With a buffer, which is a cl_mem in the
 *   device's context, the call enqueues the copy on the device's queue and flushes. Nothing goes
 *   through the host then, and the buffer must live, and must not change, until the copy has run.
 * - wait: cl_events of the device's context that the copy waits for.
 */
typedef struct clt_tensor_copy {
    size_t struct_size; /* set by clt_tensor_copy_init */
    const char *name;
    clt_copy_of of;
    int slot;   /* CLT_COPY_SLOT: number of the optimizer's tensor, see clt_trainer_slot_name */
    int device; /* 0 */
    int64_t first, count;
    const int64_t *rows; /* NULL */
    int64_t n_rows;
    clt_array array;
    struct _cl_event *const *wait;
    int n_wait;
} clt_tensor_copy;

/* Sets struct_size and the defaults. */
CLT_API void clt_tensor_copy_init(clt_tensor_copy *copy);

/*
 * Copy a parameter or state from a device, or to it. The copies of replicas must be equal before
 * the next step: write to all devices of all ranks. *event (may be NULL; a buffer and one device
 * only) is an event of the copy, which the caller releases.
 *
 * Errors: NOT_FOUND (suggests the nearest name), INVALID_ARGUMENT (names the tensor: a device,
 * element, row or slot that is not there, memory that is too small, a buffer of another context,
 * neither or both of host and buffer; an array of another shape or type), UNSUPPORTED (the device
 * has a part of the tensor: use clt_store_get and clt_store_set), STATE, those of the device.
 */
CLT_API clt_status clt_store_copy_out(clt_store *store, const clt_tensor_copy *copy,
                                      struct _cl_event **event);
CLT_API clt_status clt_store_copy_in(clt_store *store, const clt_tensor_copy *copy,
                                     struct _cl_event **event);

/* Returns the number of elements of all parameters. */
CLT_API int64_t clt_store_parameters(const clt_store *store);

/* Returns the number of elements of the parameters that are not frozen. */
CLT_API int64_t clt_store_trained(const clt_store *store);

/* Compares the bits of this rank's devices that have the same tensors or parts, and waits. Errors:
 * MISMATCH names the first tensor and device that differ. */
CLT_API clt_status clt_store_check(clt_store *store);

CLT_END_DECLS

#endif
