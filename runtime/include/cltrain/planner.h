/*
 * The planner. Before a training begins it measures steps on the devices, predicts the time of a
 * step on any of them, divides the batch by their speed, and drops devices that would make a step
 * slower.
 *
 *     clt_planner_create(graph, devices, count, &options, NULL, &planner);
 *     ... a store of clt_planner_bucket_bytes and a trainer on the devices for which
 *     clt_planner_uses is 1, with options.weights and options.quantum from clt_planner_weights ...
 *     clt_planner_destroy(planner);
 *
 * One thread at a time uses a planner. Its answers do not change.
 *
 * Ranks (options.world, <cltrain/world.h>) plan together. All ranks call clt_planner_create and
 * measure their devices at the same time. All come to the same decisions about the devices of all
 * ranks, in the order of the ranks. A rank cannot leave the job: if all its devices are dropped, it
 * keeps one that gets no samples.
 */
#ifndef CLTRAIN_PLANNER_H
#define CLTRAIN_PLANNER_H

#include <cltrain/train.h>

CLT_BEGIN_DECLS

/* A planner. */
typedef struct clt_planner clt_planner;

/* How to plan. Set up by clt_planner_options_init. */
typedef struct clt_planner_options {
    size_t struct_size; /* set by clt_planner_options_init */
    int choose;         /* 0: use all devices; 1 (on all ranks): drop the devices without which a
                           step is predicted to take less than a twentieth longer */
    double seconds;     /* 2: most time for measuring whole steps, but at least one round of them;
                           without the time for plans and for compiling kernels */
    /* Called now and then; a result other than 0 ends measuring with STOPPED. May be NULL. */
    int (*stop)(void *user);
    void *user;
} clt_planner_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_planner_options_init(clt_planner_options *options);

/*
 * Measures the training of `graph` with options->batch on the devices. Each device runs its plan,
 * alone and together with the others, on parameters and data of its own. Then it runs the
 * optimizer's update, and all-reduces of two sizes with the others. Only compiled kernels and
 * measurements of kernel variants (options->tune_seconds) remain afterwards. `planner_options` may
 * be NULL. Devices, graph and options are not kept.
 *
 * Noise shall not make a split uneven, because other work on the machine can make a device a third
 * slower. So devices of one kind (parts of one CPU, GPUs of one model) count as equally fast,
 * unless one differs from their median by more than 45 % in the middle of several rounds and by 15
 * % in four of five rounds. An uneven split must also be predicted to save 3 % of a step.
 *
 * Errors: those of clt_trainer_create; STOPPED. Destroy *planner with clt_planner_destroy.
 */
CLT_API clt_status clt_planner_create(const clt_graph *graph, clt_device *const *devices, int count,
                                      const clt_trainer_options *options,
                                      const clt_planner_options *planner_options,
                                      clt_planner **planner);

/* Frees the planner. Takes NULL. */
CLT_API void clt_planner_destroy(clt_planner *planner);

/* Returns 1 if the device of this rank is to be used, 0 if it is dropped or does not exist. */
CLT_API int clt_planner_uses(const clt_planner *planner, int device);

/* Gives the division for clt_split: the quantum, and the weights of the devices in use, of all
 * ranks in their order. clt_world_count tells how many these are at most. Returns 1. Returns 0,
 * with weights of 1 and quantum 1, if the batch is to be split equally: then pass no weights. */
CLT_API int clt_planner_weights(const clt_planner *planner, double *weights, int64_t *quantum);

/*
 * Returns the size of buckets for clt_store_options: of 2, 4, 8, 16 and 32 MB the one with the
 * shortest predicted step. Among sizes within half a percent the one with the fewest buckets is
 * taken. All ranks get the same. 0, the store's default, if nothing is reduced.
 *
 * Small buckets are reduced earlier during the backward pass, large ones have less latency. If the
 * cores that compute also reduce, nothing is hidden and the largest size is best.
 */
CLT_API int64_t clt_planner_bucket_bytes(const clt_planner *planner);

/*
 * Reads the division from a checkpoint's section CLT_SECTION_SPLIT, for a resumed run.
 *
 * - use[d] says whether device d of the `count` devices of this rank takes part.
 * - weights and quantum are as of clt_planner_weights, and *uneven is its result. weights has room
 *   for the devices of all ranks (clt_world_count); entries beyond those in use stay as they are.
 * - *per_device is for clt_trainer_options.
 * - `world` NULL: one rank. With several ranks, all call it, and the section of rank 0 counts.
 *
 * Errors: NOT_FOUND (section NULL or ""); FORMAT; MISMATCH if the section belongs to other devices
 * (platform, name, driver, compute units, order) or another number of ranks: measure again then.
 */
CLT_API clt_status clt_split_frozen(const char *section, const clt_world *world,
                                    clt_device *const *devices, int count, int *use,
                                    double *weights, int64_t *quantum, int64_t *per_device,
                                    int *uneven);

/*
 * Reads the size of buckets from the section, for clt_store_options. A run that clips gradients
 * needs the same buckets to go on with the same bits. 25 MB if the section does not say, as in
 * checkpoints of older versions. `world` as for clt_split_frozen. Errors: NOT_FOUND (section NULL
 * or ""); FORMAT.
 */
CLT_API clt_status clt_split_frozen_buckets(const char *section, const clt_world *world,
                                            int64_t *bucket_bytes);

/* Returns a few lines that say what was decided and why. Valid as long as the planner. */
CLT_API const char *clt_planner_text(const clt_planner *planner);

/* The predicted time of a step, in seconds: compute + update + exposed. */
typedef struct clt_prediction {
    size_t struct_size; /* set by clt_prediction_init */
    double step;
    double compute, update;    /* of the slowest device. If devices use all cores of the host,
                                  compute contains the assembling of batches */
    double reduction, exposed; /* the whole, and the part that is not hidden behind compute */
    double samples_per_second; /* of all ranks */
    double efficiency;         /* samples a second of a rank, divided by those of a rank alone */
    union {
        char algorithm[16]; /* between ranks: "ring" or "halving"; "" with one rank */
        char way[16];       /* deprecated: the former name of `algorithm`, until version 1.0 */
    };
    int64_t bucket_bytes; /* of gradients; 0: nothing is reduced */
} clt_prediction;

/* Sets struct_size. */
CLT_API void clt_prediction_init(clt_prediction *prediction);

/* Predicts a step on the devices of all ranks with use[device] not 0 (NULL: those that the planner
 * uses). The batch is divided by their speed, or equally if `even` is not 0. Errors:
 * INVALID_ARGUMENT (no device). */
CLT_API clt_status clt_planner_predict(const clt_planner *planner, const int *use, int even,
                                       clt_prediction *prediction);

/* The network between ranks. */
typedef struct clt_link {
    double bytes_per_second; /* of a rank, each way */
    double latency;          /* seconds of a message */
} clt_link;

/* Reads "25GB/s,5us": a rate in B/s, KB/s, MB/s or GB/s, or bit/s likewise, and a time in s, ms, us
 * or ns, of an hour at most. Errors: INVALID_ARGUMENT. */
CLT_API clt_status clt_link_parse(const char *text, clt_link *link);

/*
 * Predicts a step of `ranks` processes. Each has these devices and the planner's batch, so the
 * global batch is `ranks` times as large. Gradients are added on each rank, then between ranks,
 * during the backward pass and in buckets of the best size. Each bucket uses a ring, or recursive
 * halving and doubling, whichever is faster. Errors: INVALID_ARGUMENT; UNSUPPORTED for a planner of
 * several ranks.
 */
CLT_API clt_status clt_planner_simulate(const clt_planner *planner, int ranks, const clt_link *link,
                                        clt_prediction *prediction);

/*
 * Chooses which cuts of the graph (clt_cut) the pipeline of a mesh uses, and removes the others.
 * Call it before a store is made of the graph. `parallel` is the mesh of the store, options are
 * those of the trainer.
 *
 * - The slowest stage gets the least work. Work is floating-point operations or, if `measured` is
 *   not 0, the time of forward and backward. Each device then runs each piece between two cuts, so
 *   that slower devices get fewer layers.
 * - A stage that does not fit its device (or options->memory) gets fewer layers, as long as another
 *   choice of cuts fits all devices.
 *
 * *text says what was chosen, in a few lines: free it with free(). It is NULL if nothing was
 * measured and all stages fit. `text` may be NULL. Ranks (options->world) call it together, and
 * choose the same. The graph stays as it is if the mesh has no axis pp, or the graph no more cuts
 * than stages need. Errors: OUT_OF_DEVICE_MEMORY (no choice fits); those of clt_store_create_with
 * and of plans.
 */
CLT_API clt_status clt_stages_choose(clt_graph *graph, clt_device *const *devices, int count,
                                     const char *parallel, const clt_trainer_options *options,
                                     int measured, char **text);

/* --- meshes ------------------------------------------------------------------------------------
 */

/* The meshes that a model's devices can form, ordered by their speed. One thread at a time uses it.
 */
typedef struct clt_meshes clt_meshes;

/* How to look for a mesh. Set up by clt_mesh_options_init. */
typedef struct clt_mesh_options {
    size_t struct_size; /* set by clt_mesh_options_init */
    double seconds; /* 20: most time for measuring plans of meshes, but at least one is measured.
                       Others are estimated. Without the time for plans and kernels */
    int all;        /* 0; 1: measure also the meshes that are estimated to be far slower */
    int finals; /* 4: so many of the meshes that are predicted to be fastest run real steps, which
                   decide; 0: predictions decide. Simulated machines run none */
    /* 0: the devices at hand. Else so many devices like devices[0]: the other members count then.
     * Each has devices[0]'s share of the batch: `batch` divided by the number of devices at hand.
     */
    int devices;
    int per_node;       /* 8: devices of a node */
    clt_link link;      /* of a device to others of its node */
    clt_link inter;     /* of a node to others; its devices share it */
    int64_t sync_every; /* 8: steps between averages of local SGD */
    /* NULL; with `devices`: an earlier search with the same graph, device and trainer's options,
     * apart from the numbers of devices and samples. Its plans and measured times are used again.
     * It need not live longer than the call. */
    const struct clt_meshes *earlier;
    /* Called now and then; a result other than 0 ends the search with STOPPED. May be NULL. */
    int (*stop)(void *user);
    void *user;
} clt_mesh_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_mesh_options_init(clt_mesh_options *options);

/* A mesh. Strings are valid as long as the clt_meshes. Times are in seconds. */
typedef struct clt_mesh_entry {
    size_t struct_size;   /* set by clt_mesh_entry_init */
    const char *parallel; /* for clt_store_options.parallel */
    int zero;             /* 0, 1 or 3: for clt_trainer_options.zero, and 3 for the store's too */
    int accumulate;       /* for clt_trainer_options.accumulate */
    int local;            /* 0; else so many such meshes train apart (local SGD): simulated only */
    int half_wire;        /* 0; 1: gradients (local: parameters) in 16 bits: simulated only */
    int possible;         /* 0: devices cannot train so; `reason` says why, the times are 0 */
    int measured;         /* 1: the plans of its devices were measured, 0: they were estimated */
    double step;          /* predicted */
    double compute, update, exposed; /* of the device that ends last, and add up to `step`;
                                        exposed: it waits and exchanges */
    double real;                     /* of a few real steps; 0: none ran */
    int64_t memory;                  /* the most bytes of a device */
    int64_t payload;                 /* bytes of the tensors in a device's collectives of a step */
    const char *reason; /* why it is slower than the first, or not possible; "" for the first */
    const char *stages; /* for clt_cut_before: the cuts that balance measured times; NULL: those of
                           clt_stages_choose without measurements, or no pipeline */
} clt_mesh_entry;

/* Sets struct_size. */
CLT_API void clt_mesh_entry_init(clt_mesh_entry *entry);

/*
 * Finds the mesh with which the devices train `graph` fastest.
 *
 * - All ways to write the number of devices as a product of axes are tried, each also with zero 1
 *   or 3 where it applies, and pipelines with several numbers of micro-batches (those of
 *   options->accumulate if it is above 1).
 * - The plans of each mesh tell whether it divides the model, and its memory.
 * - Plans of all devices run at the same time, without collectives. Collectives of three sizes are
 *   measured too. The program of a step then runs on a clock with these times, which gives overlap
 *   and pipeline bubbles.
 * - Pipelines first have the cuts that balance the arithmetic (clt_stages_choose). Once they are
 *   measured, those that balance the measured times are tried as a mesh of their own, if its step
 *   is predicted to be faster. Of pipelines over devices of different speed, too.
 * - The fastest run real steps by turns.
 *
 * With options->virtual_shards only dp is possible, without zero and with zero 1. The predicted
 * step has the sums over a device's shards, in the order of the tree.
 *
 * Simulated devices exchange over `link` and `inter`. Local SGD and 16 bits on the wire are choices
 * among them: both change the results.
 *
 * options->batch is of all devices at hand; options->zero, weights, in_flight and rebalance do not
 * count. Ranks (options->world) call it together, with equal devices in the same order, and find
 * the same. Errors: UNSUPPORTED (no mesh is possible; the ranks' devices differ); INVALID_ARGUMENT
 * (an option; virtual shards that cannot be divided over the devices); those of the devices;
 * STOPPED. Destroy *meshes with clt_meshes_destroy.
 */
CLT_API clt_status clt_meshes_create(const clt_graph *graph, clt_device *const *devices, int count,
                                     const clt_trainer_options *options,
                                     const clt_mesh_options *mesh_options, clt_meshes **meshes);

/* Frees them. Takes NULL. */
CLT_API void clt_meshes_destroy(clt_meshes *meshes);

/* Returns the number of meshes that were tried. */
CLT_API int clt_meshes_count(const clt_meshes *meshes);

/* Describes a mesh: the fastest has index 0, those that are not possible come last. Errors:
 * INVALID_ARGUMENT (the index). */
CLT_API clt_status clt_meshes_get(const clt_meshes *meshes, int index, clt_mesh_entry *entry);

/* Returns the ranking as a table, of at most `rows` meshes, with reasons. Valid until the next call
 * or as long as the meshes; NULL if memory does not suffice. */
CLT_API const char *clt_meshes_text(clt_meshes *meshes, int rows);

CLT_END_DECLS

#endif
