/*
 * Plans, profiles and measurements, for the command and for tools like it. Unlike the other headers
 * this one may change from version to version.
 */
#ifndef CLTRAIN_UNSTABLE_H
#define CLTRAIN_UNSTABLE_H

#include <cltrain/train.h>

CLT_BEGIN_DECLS

/* --- limits ------------------------------------------------------------------------------------
 */

/* What a device reaches at most, by kernels that do nothing else. */
typedef struct clt_limits {
    double flops;        /* f32 fused multiply-adds, two operations each, a second */
    double copy_bytes;   /* bytes read plus bytes written a second by a copy of 64 MiB */
    double update_bytes; /* likewise where 128 MiB are read and then written, as optimizers do: a
                            copy's processor may read what it is about to write as well */
} clt_limits;

/* Measures for about a second. Errors: those of the device. */
CLT_API clt_status clt_device_measure_limits(clt_device *device, clt_limits *limits);

typedef enum clt_limit_kind {
    CLT_LIMIT_FLOPS,
    CLT_LIMIT_COPY,
    CLT_LIMIT_UPDATE,
    CLT_LIMIT_KINDS
} clt_limit_kind;

/* The same kernels kept, so that a limit can be measured again beside what it is compared with:
 * what else runs on the machine then slows both. Not thread-safe. */
typedef struct clt_meter clt_meter;

/* Measures the limits. To be destroyed before the device is closed. Errors: those of the device. */
CLT_API clt_status clt_meter_create(clt_device *device, clt_meter **meter);

/* As clt_device_measure_limits found them when the meter was made. */
CLT_API clt_limits clt_meter_limits(const clt_meter *meter);

/* A limit in this moment, over about 20 ms: operations or bytes a second. Errors: those of the
 * device. */
CLT_API clt_status clt_meter_rate(const clt_meter *meter, clt_limit_kind kind, double *rate);

/* Takes NULL. */
CLT_API void clt_meter_destroy(clt_meter *meter);

/* --- kernels -----------------------------------------------------------------------------------
 */

/* Whether compiled kernels in FOLDER/PART may be run: both belong to this user or root, and nobody
 * else may write to them. What does not exist is fine, since it is made so. Errors: IO, with the
 * folder and what to do. Thread-safe. */
CLT_API clt_status clt_cache_check(const char *folder, const char *part);

/* Programs that were built for the device since it was opened (compiled, or read from a cache), and
 * the kernels that were taken of them, each counted once. Thread-safe. */
CLT_API void clt_device_kernel_count(const clt_device *device, int *programs, int *kernels);

/* What was measured on the device's kind, in the cache folder or shipped with the library, as JSON:
 * for each operator and class of shapes the variant and tile that is taken, its time
 * ("seconds") and that of what is taken without a record ("plain_seconds"). `own`: without what is
 * shipped. *text is the caller's, to free with free(). Errors: OUT_OF_MEMORY. */
CLT_API clt_status clt_device_tuning(const clt_device *device, int own, char **text);

/* --- graphs ------------------------------------------------------------------------------------
 */

/* A node of a graph as it was built. Strings live as long as the graph. */
typedef struct clt_node_info {
    const char *name, *op;
    clt_dtype
        dtype; /* of its first output, as are rank and dimensions (negative: times the batch) */
    int rank;
    int64_t dims[CLT_MAX_RANK];
    int64_t parameters; /* numbers in parameters that no node before it uses; */
    int64_t shared;     /* in those that one does */
    double flops;       /* for a batch of one; a multiplication and an addition are two */
} clt_node_info;

CLT_API int clt_graph_node_count(const clt_graph *graph);

/* Node `index` (0 <= index < clt_graph_node_count), operands before users. Errors: INVALID_ARGUMENT
 * for an index that is none. */
CLT_API clt_status clt_graph_node_describe(const clt_graph *graph, int index, clt_node_info *info);

/* --- profiles ----------------------------------------------------------------------------------
 */

/* A command that ran on a device. Strings live as long as the trainer. */
typedef struct clt_profile_record {
    int device;
    int64_t step;
    const char *node;    /* "" for what belongs to no node: transfers, the optimizer */
    const char *op;      /* of the node, or "" */
    const char *variant; /* of the node, or "" */
    const char *name;    /* the kernel's, or upload, download, copy, fill, reduction (its node is
                            the bucket, the graph's all-reduce or the means of states, its time
                            that of the host's part) */
    int backward;
    int launch;        /* 0: the node's first kernel in this run */
    double start, end; /* seconds since the profile began */
    double flops;      /* of the node, in its first launch's record; else 0 */
    double bytes;      /* likewise: operands and results once each; of transfers and updates: what
                          they move. 0: not known */
} clt_profile_record;

/* Seconds for which this device's updates waited for the reduction of gradients, after its last
 * gradient was on the host, and its nodes for collectives of the graph: what communication costs
 * beyond what went on beside backward. Of all steps since the last call; `device` is one of this
 * process'. Not during a step. */
CLT_API double clt_trainer_exposed(clt_trainer *trainer, int device);

/* Floating-point operations of a training step for each image: forward and backward, as the kernels
 * of the trainer's plan execute them; a multiplication and an addition are two. */
CLT_API double clt_trainer_flops(const clt_trainer *trainer);

/* Bytes that the optimizer moves in a step on each device: parameters, and what it keeps of them,
 * are read and written, gradients are read. */
CLT_API double clt_trainer_update_bytes(const clt_trainer *trainer);

/* Classes of shapes that had no measurement of kernels when the trainer was made, and how many of
 * them the time for it did not suffice for: of all of this process' kinds of devices. */
CLT_API void clt_trainer_tuning(const clt_trainer *trainer, int *classes, int *left);

typedef struct clt_profile clt_profile;

/* Begins to record what the trainer's devices run. They must have been opened with `profiling`
 * (INVALID_ARGUMENT). One profile at a time; recording costs an event a command. */
CLT_API clt_status clt_profile_start(clt_trainer *trainer, clt_profile **profile);

/* All records so far, by device and in the order of running; waits for the devices. The array is
 * the profile's and valid until the next call. */
CLT_API clt_status clt_profile_read(clt_profile *profile, const clt_profile_record **records,
                                    int *count);

/* Ends recording. Takes NULL. Call it before the trainer is destroyed. */
CLT_API void clt_profile_stop(clt_profile *profile);

/* --- variants ----------------------------------------------------------------------------------
 */

/* Whether all operators and variants of OP=NAME,... exist. Takes NULL. Errors: INVALID_ARGUMENT if
 * it is not of that form; NOT_FOUND, with the nearest name or all names there are. */
CLT_API clt_status clt_variants_check(const char *variants);

/* What of `variants` (as in the trainer's options) is not taken on its first device: *text has a
 * line "NODE: declined NAME: asked for, but REASON" for each node, and "OP=NAME: asked for, but no
 * node of the plan is OP" where training and evaluation have none; it is the caller's, to free with
 * free(). NULL if all is taken. Errors: OUT_OF_MEMORY. */
CLT_API clt_status clt_trainer_declined(const clt_trainer *trainer, const char *variants,
                                        char **text);

/* --- measurements ------------------------------------------------------------------------------
 */

typedef struct clt_measure_options {
    size_t struct_size;   /* set by clt_measure_options_init */
    int64_t batch;        /* 1 */
    int training;         /* 0: the graph's outputs only; 1: its gradients too */
    int blocks;           /* 9 */
    double seconds;       /* 0.1: least time of a block; kernels are queued back to back in it */
    const char *variants; /* OP=NAME,...: variants to take; NULL: the plan's choice */
    /* NULL, or called before each block with the number of runs in one; returns the number to make
     * (at least 1). Something else can be measured by turns in it; and where several devices are
     * measured at once, each on a thread of its own, the threads can meet in it. */
    int (*before)(void *user, int runs);
    void *user;
    int warm; /* 0; 1: runs of a block that is not timed come between `before` and each block */
    double tune_seconds; /* 0: for at most how long other variants and tiles are tried before, to
                            measure the best; what is found is not kept */
    /* NULL, or called after each timed block with its seconds a run. */
    void (*after)(void *user, double seconds);
    const clt_meter *meter; /* NULL, or of the device: the limit that bounds a node is measured
                               just before and after each of its blocks too, for `share` */
} clt_measure_options;

CLT_API void clt_measure_options_init(clt_measure_options *options);

/* A node's time for a run of the batch, over the blocks. */
typedef struct clt_node_time {
    char node[128];
    char op[64];
    char variant[64];
    char tile[128];  /* NAME=NUMBER,... that was measured best for it; empty: its own choice */
    char result[64]; /* type of the first output */
    int backward;
    double flops, bytes; /* bytes: operands and results once each */
    double median, least, most;
    double share; /* of the device's limit, arithmetic or copying, whichever the node comes nearer
                     to: the median of the blocks' shares; 0 without `meter` */
    double limit; /* that limit, the median of those beside the blocks: operations or
                     bytes a second */
    clt_limit_kind bound;
} clt_node_time;

/* Measures every node of a plan of `graph` on one device, with random inputs; *times is the
 * caller's, to free with free(). Errors: as clt_trainer_create; NOT_FOUND for a variant. */
CLT_API clt_status clt_measure_graph(const clt_graph *graph, clt_device *device,
                                     const clt_measure_options *options, clt_node_time **times,
                                     int *count);

/* What of the variants asked for in options[0] is not taken by plans of `count` graphs, at least 1,
 * each with its own options, as clt_trainer_declined says it: of an operator that some of the
 * graphs have, only what its nodes decline. Nothing is run. Errors: as clt_measure_graph. */
CLT_API clt_status clt_measure_declined(const clt_graph *const *graphs,
                                        const clt_measure_options *options, int count,
                                        const clt_device *device, char **text);

/* --- collectives -------------------------------------------------------------------------------
 */

typedef struct clt_all_reduce_options {
    size_t struct_size; /* set by clt_all_reduce_options_init */
    int blocks;         /* 9 */
    int staged;         /* 1: copies through staging where memory could be mapped */
    int peer;           /* 1: devices exchange without the host; UNSUPPORTED where they cannot */
    double timeout;     /* seconds that one may take, as clt_trainer_options.comm_timeout; 60 */
    /* NULL, or the ranks of a node between whose devices it is; all call, with the same sizes. */
    const clt_world *world;
    /* NULL, or what is measured by turns with it, on the calling thread: the same sum of `count`
     * floats done otherwise. `from` and `to` are host memory. */
    void (*other)(void *user, const float *from, float *to, int64_t count);
    void *user;
} clt_all_reduce_options;

CLT_API void clt_all_reduce_options_init(clt_all_reduce_options *options);

/* Seconds: of each block the median of its calls, over the blocks their median. */
typedef struct clt_all_reduce_time {
    int64_t bytes; /* of a device's buffer */
    double median, least, most;
    double limit, limit_least, limit_most; /* 0 between ranks */
    double of_limit;                       /* limit / ours, the median of the blocks' */
    double other, other_least, other_most; /* 0 without `other` */
    double of_other;                       /* other / ours, likewise */
    double latency;                        /* of enqueueing a small kernel and finishing */
    int64_t verified;                      /* results compared, each of all elements */
    char transports[1600]; /* a line for each: its name, and whether it is taken or why not */
} clt_all_reduce_time;

/*
 * An all-reduce of `bytes` of f32 on each device, made as a training step reduces a bucket of
 * gradients, sum of squares included: on devices' own threads, through the same table, with the
 * same deadline. Timed from when kernels that wrote the buffers have ended to when kernels that
 * read some of the result have; every result is compared, exactly. Beside it, in turns, the limit:
 * two threads of plain C that read two arrays in host memory of that size and write their sum to
 * both. Errors: INVALID_ARGUMENT; MISMATCH (a result is wrong); those of the devices and of
 * <cltrain/comm.h>.
 */
CLT_API clt_status clt_measure_all_reduce(clt_device *const *devices, int count, int64_t bytes,
                                          const clt_all_reduce_options *options,
                                          clt_all_reduce_time *time);

CLT_END_DECLS

#endif
