/*
 * Plans, profiles and measurements, for the command and similar tools. Unlike the other headers,
 * this one may change between versions.
 */
#ifndef CLTRAIN_UNSTABLE_H
#define CLTRAIN_UNSTABLE_H

#include <cltrain/operators.h>
#include <cltrain/train.h>

CLT_BEGIN_DECLS

/* --- limits ------------------------------------------------------------------------------------
 */

/* The limits of a device, measured by kernels that do nothing else. */
typedef struct clt_limits {
    double flops;        /* f32 fused multiply-adds, two operations each, a second */
    double copy_bytes;   /* bytes read plus bytes written a second by a copy of 64 MiB */
    double update_bytes; /* the same for 128 MiB that are read and then written in place, as by
                            optimizers. In a copy, processors may also read the destination */
} clt_limits;

/* Measures the limits, in `blocks` timed blocks each. 0 and numbers above 9 mean 9, which take
 * about a second. The best block counts. Errors: those of the device. */
CLT_API clt_status clt_device_measure_limits(clt_device *device, int blocks, clt_limits *limits);

typedef enum clt_limit_kind {
    CLT_LIMIT_FLOPS,
    CLT_LIMIT_COPY,
    CLT_LIMIT_UPDATE,
    CLT_LIMIT_KINDS
} clt_limit_kind;

/* A meter. It keeps these kernels, so that a limit can be measured beside the thing that is
 * compared with it. Other work on the machine then slows both. One thread at a time uses it. */
typedef struct clt_meter clt_meter;

/* Creates a meter and measures the limits, as clt_device_measure_limits does. Destroy the meter
 * before the device is closed. Errors: those of the device. */
CLT_API clt_status clt_meter_create(clt_device *device, int blocks, clt_meter **meter);

/* Returns the limits that were measured when the meter was made. */
CLT_API clt_limits clt_meter_limits(const clt_meter *meter);

/* Measures a limit now, for about 20 ms: operations or bytes a second. Errors: those of the
 * device. */
CLT_API clt_status clt_meter_rate(const clt_meter *meter, clt_limit_kind kind, double *rate);

/* Frees the meter. Takes NULL. */
CLT_API void clt_meter_destroy(clt_meter *meter);

/* --- kernels -----------------------------------------------------------------------------------
 */

/* Checks that compiled kernels in FOLDER/PART may be run: both folders belong to this user or root,
 * and nobody else may write to them. Folders that do not exist pass, because the library makes them
 * so. Errors: IO, with the folder and what to do. Thread-safe. */
CLT_API clt_status clt_cache_check(const char *folder, const char *part);

/* Counts the programs that were built for the device since it was opened (compiled, or read from a
 * cache), and the kernels in use, each once. Thread-safe. */
CLT_API void clt_device_kernel_count(const clt_device *device, int *programs, int *kernels);

/* Gives the measurements of the device's kind as JSON, from the cache folder and those shipped with
 * the library: for each operator and class of shapes the chosen variant and tile, its time
 * ("seconds"), and the time of the choice without a record ("plain_seconds"). `own` not 0: without
 * those shipped. Free *text with free(). Errors: OUT_OF_MEMORY. */
CLT_API clt_status clt_device_tuning(const clt_device *device, int own, char **text);

/* --- graphs ------------------------------------------------------------------------------------
 */

/* A node of a graph as it was built. Strings are valid as long as the graph. */
typedef struct clt_node_info {
    const char *name, *op;
    const clt_operator *schema; /* of op */
    clt_dtype
        dtype; /* of its first output, as are rank and dimensions (negative: times the batch) */
    int rank;
    int64_t dims[CLT_MAX_RANK];
    int64_t parameters; /* elements of parameters that no earlier node uses */
    int64_t shared;     /* elements of parameters that an earlier node uses */
    double flops;       /* for a batch of one; a multiplication and an addition are two */
} clt_node_info;

/* Returns the number of nodes. */
CLT_API int clt_graph_node_count(const clt_graph *graph);

/* Describes node `index` (0 <= index < clt_graph_node_count). Operands come before users. Errors:
 * INVALID_ARGUMENT (the index). */
CLT_API clt_status clt_graph_node_describe(const clt_graph *graph, int index, clt_node_info *info);

/* --- profiles ----------------------------------------------------------------------------------
 */

/* A command that ran on a device. Strings are valid as long as the trainer and, of a
 * synchronisation, the clt_local. */
typedef enum clt_command_kind {
    CLT_COMMAND_KERNEL,
    CLT_COMMAND_TRANSFER, /* an upload, download, copy or fill */
    CLT_COMMAND_REDUCTION /* the host's part of one */
} clt_command_kind;

typedef struct clt_profile_record {
    clt_command_kind kind;
    int device;
    int64_t step;
    const char *node;    /* "" for commands without a node: transfers, the optimizer */
    const char *op;      /* of the node, or "" */
    const char *variant; /* of the node, or "" */
    const char *name;    /* the kernel's, or upload, download, copy, fill, reduction (its node is
                            the bucket, the graph's all-reduce or the means of states, its time
                            that of the host's part), synchronisation (the same reduction, of
                            parameters of replicas, after the step) */
    int backward;
    int launch;        /* 0: the node's first kernel in this run */
    double start, end; /* seconds since the profile began */
    double flops;      /* of the node, in its first launch's record; else 0 */
    double bytes;      /* of the node, in its first launch's record: operands and results once each.
                          Of transfers and updates: the bytes that they move. 0: unknown */
} clt_profile_record;

/* Returns the exposed time of communication, in seconds, of all steps since the last call: how long
 * the device's updates waited for the reduction of gradients after its last gradient was on the
 * host, and its nodes for collectives of the graph. `device` is a device of this process. Do not
 * call it during a step. */
CLT_API double clt_trainer_exposed(clt_trainer *trainer, int device);

/* Returns the floating-point operations of a training step for each sample, forward and backward,
 * as the kernels of the trainer's plan execute them. A multiplication and an addition are two. */
CLT_API double clt_trainer_flops(const clt_trainer *trainer);

/* Returns the bytes that the optimizer moves in a step on each device. It reads and writes
 * parameters and its own tensors, and reads gradients. */
CLT_API double clt_trainer_update_bytes(const clt_trainer *trainer);

/* Counts the classes of shapes without a measurement of kernels when the trainer was made, of all
 * kinds of devices in this process. *left of them were not measured, because the time was up. */
CLT_API void clt_trainer_tuning(const clt_trainer *trainer, int *classes, int *left);

/* Returns whether kernels were not measured since the run is too short (tune_steps). */
CLT_API int clt_trainer_tunes_later(const clt_trainer *trainer);

/* Returns the most samples that a device of the trainer takes in one run of its plan. */
CLT_API int64_t clt_trainer_run_samples(const clt_trainer *trainer);

/* Measures kernels for the shapes of a training graph, for at most options->tune_seconds on each
 * kind of device, and keeps the results in the tuning records for later trainers. Ignores
 * options->tune_steps and options->frozen. `samples` is clt_trainer_run_samples of the trainer that
 * had these options. Destroy that trainer first: measuring needs memory. *classes: the classes of
 * shapes that had no measurement; *left of them still have none. Errors: those of plans and
 * devices. */
CLT_API clt_status clt_kernels_measure(const clt_graph *graph, const clt_store *store,
                                       const clt_trainer_options *options, int64_t samples,
                                       int *classes, int *left);

/* A profile. */
typedef struct clt_profile clt_profile;

/* Begins to record the commands of the trainer's devices. One profile at a time. Recording costs an
 * event a command. Errors: INVALID_ARGUMENT if a device was opened without `profiling`. */
CLT_API clt_status clt_profile_start(clt_trainer *trainer, clt_profile **profile);

/* Waits for the devices and gives all records so far, by device and in the order of execution. The
 * array is the profile's and valid until the next call. */
CLT_API clt_status clt_profile_read(clt_profile *profile, const clt_profile_record **records,
                                    int *count);

/* Ends recording and frees the profile. Takes NULL. Call it before the trainer is destroyed. */
CLT_API void clt_profile_stop(clt_profile *profile);

/* --- variants ----------------------------------------------------------------------------------
 */

/* Checks that all operators and variants of OP=NAME,... exist. Takes NULL. Errors: INVALID_ARGUMENT
 * for another form; NOT_FOUND, with the nearest name or all names. */
CLT_API clt_status clt_variants_check(const char *variants);

/* Tells which of `variants` (as in the trainer's options) the first device does not use. *text has
 * a line "NODE: declined NAME: asked for, but REASON" for each node, and a line "OP=NAME: asked
 * for, but no node of the plan is OP" if neither training nor evaluation has such a node. It is
 * NULL if all are used. Free it with free(). Errors: OUT_OF_MEMORY. */
CLT_API clt_status clt_trainer_declined(const clt_trainer *trainer, const char *variants,
                                        char **text);

/* --- measurements ------------------------------------------------------------------------------
 */

typedef struct clt_measure_options {
    size_t struct_size;   /* set by clt_measure_options_init */
    int64_t batch;        /* 1 */
    int training;         /* 0: the graph's outputs only; 1: its gradients too */
    int blocks;           /* 9 */
    double seconds;       /* 0.1: least time of a block, in which kernels are queued back to back */
    const char *variants; /* OP=NAME,...: variants to use; NULL: the plan's choice */
    /* Called before each block with its number of runs; returns the number to make (at least 1).
     * May be NULL. It may measure something else by turns. If several devices are measured at once,
     * each on a thread of its own, the threads can meet in it. */
    int (*before)(void *user, int runs);
    void *user;
    int warm; /* 0; 1: the runs of an untimed block come between `before` and each block */
    double tune_seconds; /* 0; else try other variants and tiles for at most so long, and measure
                            the best. The result is not kept */
    /* Called after each timed block with its seconds a run. May be NULL. */
    void (*after)(void *user, double seconds);
    const clt_meter *meter; /* NULL, or a meter of the device. For `share`, it measures the limit of
                               a node just before and after each block too */
    clt_dtype precision;    /* CLT_F32; CLT_BF16 or CLT_F16: layers store values in it, as with
                               clt_trainer_options.precision. Nodes that convert are measured too */
} clt_measure_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_measure_options_init(clt_measure_options *options);

/* The time of a node for a run of the batch, over the blocks. */
typedef struct clt_node_time {
    char node[128];
    char op[64];
    const clt_operator *schema; /* of op */
    char variant[64];
    char tile[128];  /* NAME=NUMBER,... that was measured best; empty: the variant's own choice */
    char result[64]; /* type of the first output */
    int backward;
    double flops, bytes; /* bytes: operands and results once each */
    double median, least, most;
    double share; /* part of the device's limit of arithmetic or copying, whichever is nearer: the
                     median over blocks; 0 without `meter` */
    double limit; /* this limit, the median of those measured beside the blocks: operations or bytes
                     a second */
    clt_limit_kind bound;
} clt_node_time;

/* Measures every node of a plan of `graph` on one device, with random inputs. Free *times with
 * free(). Errors: as clt_trainer_create; NOT_FOUND for a variant. */
CLT_API clt_status clt_measure_graph(const clt_graph *graph, clt_device *device,
                                     const clt_measure_options *options, clt_node_time **times,
                                     int *count);

/* Tells which variants of options[0] the plans of `count` (at least 1) graphs do not use, in the
 * lines of clt_trainer_declined. Each graph has its own options. If some graphs have an operator,
 * only its nodes are told. Runs nothing. Errors: as clt_measure_graph. */
CLT_API clt_status clt_measure_declined(const clt_graph *const *graphs,
                                        const clt_measure_options *options, int count,
                                        const clt_device *device, char **text);

/* --- collectives -------------------------------------------------------------------------------
 */

typedef struct clt_all_reduce_options {
    size_t struct_size; /* set by clt_all_reduce_options_init */
    int blocks;         /* 9 */
    int staged;         /* 1: copy through staging even if memory can be mapped */
    int peer;           /* 1: exchange without the host; UNSUPPORTED if the devices cannot */
    double timeout;     /* 60; most seconds of an all-reduce, as clt_trainer_options.comm_timeout */
    /* NULL, or the ranks of a node whose devices take part. All ranks call, with the same sizes. */
    const clt_world *world;
    /* NULL, or another way to compute the same sum of `count` floats in host memory, which is
     * measured by turns on the calling thread. `from` and `to` may be the same. */
    void (*other)(void *user, const float *from, float *to, int64_t count);
    void *user;
} clt_all_reduce_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_all_reduce_options_init(clt_all_reduce_options *options);

/* Seconds over blocks, each the median of the block's calls. 0: not measured. */
typedef struct clt_all_reduce_span {
    double median, least, most;
    double ratio; /* to our time: the median of the blocks' ratios */
} clt_all_reduce_span;

typedef struct clt_all_reduce_time {
    int64_t bytes; /* of a device's buffer */
    clt_all_reduce_span ours;
    clt_all_reduce_span limit;  /* two threads of plain C; not between ranks */
    clt_all_reduce_span floor;  /* several devices of one process that meet, and sum nothing */
    clt_all_reduce_span other;  /* with `other`, on memory of the host */
    clt_all_reduce_span mapped; /* with `other`, if each rank has one device: map its buffer, call
                                   `other` in place, and unmap */
    double latency;             /* of enqueueing a small kernel and finishing */
    int64_t verified;           /* results compared, each of all elements */
    char transports[1600];      /* a line for each: its name, and whether it is taken or why not */
} clt_all_reduce_time;

/*
 * Measures an all-reduce of `bytes` of f32 on each device. It runs as a training step reduces a
 * bucket of gradients, with the sum of squares: on the devices' threads, through the same table,
 * with the same deadline. The time is from the end of the kernels that wrote the buffers to the end
 * of kernels that read some of the result. Every result is compared, exactly.
 *
 * By turns it measures what bounds this time:
 * - limit: two threads of plain C read two arrays of that size in host memory and write their sum
 *   to both.
 * - floor: the thread of each device maps the buffer behind its kernel, spins until all others have
 *   come, unmaps it, and enqueues the reading kernel. No host-driven sum of these queues is faster.
 *
 * Errors: INVALID_ARGUMENT; MISMATCH (a result is wrong); those of the devices and of
 * <cltrain/comm.h>.
 */
CLT_API clt_status clt_measure_all_reduce(clt_device *const *devices, int count, int64_t bytes,
                                          const clt_all_reduce_options *options,
                                          clt_all_reduce_time *time);

CLT_END_DECLS

#endif
