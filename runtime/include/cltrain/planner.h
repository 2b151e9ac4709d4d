/*
 * The planner: measures a training on some devices before it begins, predicts what its steps take
 * on any of them, divides the batch by their speed, and leaves out devices that would slow it down.
 *
 *     clt_planner_create(graph, devices, count, &options, NULL, &planner);
 *     ... a store of clt_planner_bucket_bytes and a trainer on the devices for which
 *     clt_planner_uses is 1, with options.weights and options.quantum from clt_planner_weights ...
 *     clt_planner_destroy(planner);
 *
 * A planner is used by one thread at a time; what it says does not change.
 *
 * Ranks (options.world, <cltrain/world.h>) plan together: clt_planner_create is collective, each
 * rank measures its devices while the others measure theirs, and all come to the same decisions, of
 * the devices of all ranks in the order of the ranks. A rank cannot leave the job: one whose
 * devices are all left out keeps one, which gets no samples.
 */
#ifndef CLTRAIN_PLANNER_H
#define CLTRAIN_PLANNER_H

#include <cltrain/train.h>

CLT_BEGIN_DECLS

typedef struct clt_planner clt_planner;

typedef struct clt_planner_options {
    size_t struct_size; /* set by clt_planner_options_init */
    int choose;         /* 0: all devices are used; 1: those are left out without which a step
                           would be predicted to take less than a twentieth longer (if all ranks
                           say so) */
    double seconds;     /* 2: for how long whole steps are measured, at most, unless one round of
                           them takes longer. Making plans and compiling kernels comes on top */
    int (*stop)(
        void *user); /* asked now and then; not 0 ends measuring with STOPPED. May be NULL */
    void *user;
} clt_planner_options;

CLT_API void clt_planner_options_init(clt_planner_options *options);

/*
 * Measures training of `graph` with options->batch on the devices: each runs the plan that it would
 * run, all at once and each alone, on parameters and data of its own; then the optimizer's update,
 * and the all-reduce of two sizes between them. Nothing of that is left afterwards but compiled
 * kernels and measurements of kernel variants (options->tune_seconds). `planner_options` may be
 * NULL. Devices, graph and options are not kept.
 *
 * Devices of one kind (parts of one CPU, GPUs of one model) count as equally fast unless one is
 * more than 45 % slower, or faster, than their median in the middle of several rounds, and 15 % in
 * four of five (a neighbour's work on the machine can make a third of difference); and an uneven
 * split must be predicted to save 3 % of a step. So noise does not make a split uneven.
 *
 * Errors: as clt_trainer_create; STOPPED.
 */
CLT_API clt_status clt_planner_create(const clt_graph *graph, clt_device *const *devices, int count,
                                      const clt_trainer_options *options,
                                      const clt_planner_options *planner_options,
                                      clt_planner **planner);

/* Takes NULL. */
CLT_API void clt_planner_destroy(clt_planner *planner);

/* 1 if this rank's device is to be used, 0 if it is left out or does not exist. */
CLT_API int clt_planner_uses(const clt_planner *planner, int device);

/* The weights of the devices that are used, in their order, those of all ranks (clt_world_count
 * says how many those are at most), and the quantum of the division, as clt_split takes them.
 * Returns 1; 0, with weights of 1 and quantum 1, if the batch is to be split equally: then pass
 * none. */
CLT_API int clt_planner_weights(const clt_planner *planner, double *weights, int64_t *quantum);

/*
 * The size of buckets for clt_store_options: of 2, 4, 8, 16 and 32 MB the one with which a step is
 * predicted to be shortest (of those within half a percent of it, the one with the fewest buckets).
 * Small buckets are reduced earlier while backward goes on, large ones have less latency; where the
 * cores that compute also reduce, nothing is hidden and the largest is best. The same on all ranks.
 * 0, the store's default, where nothing is reduced.
 */
CLT_API int64_t clt_planner_bucket_bytes(const clt_planner *planner);

/*
 * The division that a checkpoint's section CLT_SECTION_SPLIT has, for a resumed run: use[d] says
 * which of the `count` devices of this rank take part, weights (of the devices in use, of all
 * ranks; there is room for all ranks' devices, see clt_world_count, and the rest stays as it is)
 * and quantum are as those of clt_planner_weights, *uneven is what that returns, and *per_device is
 * for clt_trainer_options. `world` NULL is one rank; with several it is collective, and rank 0's
 * section counts, whatever the others give. Errors: NOT_FOUND (section NULL or ""); MISMATCH if the
 * section is of other devices (platform, name, driver, compute units, order) or another number of
 * ranks: measure anew; FORMAT.
 */
CLT_API clt_status clt_split_frozen(const char *section, const clt_world *world,
                                    clt_device *const *devices, int count, int *use,
                                    double *weights, int64_t *quantum, int64_t *per_device,
                                    int *uneven);

/*
 * The size of buckets that the section has, for clt_store_options: a run whose gradients are
 * clipped goes on to the same bits only with the same buckets. 25 MB where it does not say, as in
 * checkpoints of older versions. `world` as for clt_split_frozen.
 * Errors: NOT_FOUND (section NULL or ""); FORMAT.
 */
CLT_API clt_status clt_split_frozen_buckets(const char *section, const clt_world *world,
                                            int64_t *bucket_bytes);

/* What was decided and why, a few lines. Lives as long as the planner. */
CLT_API const char *clt_planner_text(const clt_planner *planner);

/* What a step is predicted to take, in seconds: compute + update + exposed. */
typedef struct clt_prediction {
    size_t struct_size; /* set by clt_prediction_init */
    double step;
    double compute, update;    /* of the device that takes longest; compute with what assembling a
                                  batch takes where devices use all of the host's cores */
    double reduction, exposed; /* all of it, and what is not hidden behind compute */
    double samples_per_second; /* of all ranks */
    double efficiency;         /* samples a second of a rank, as a part of one rank's alone */
    char way[16];              /* between ranks: "ring" or "halving"; "" with one */
    int64_t bucket_bytes;      /* of gradients; 0: nothing is reduced */
} clt_prediction;

CLT_API void clt_prediction_init(clt_prediction *prediction);

/* Of a step on the devices with use[device] not 0, of all ranks (NULL: those that the planner
 * uses), with the batch divided by their speed, or equally if `even`. Errors: INVALID_ARGUMENT (no
 * device).
 */
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
 * Of a step of `ranks` processes that each have these devices and the planner's batch, so the
 * global batch is ranks times it. Gradients are added on each rank, then between them by ring or by
 * recursive halving and doubling, whichever is faster for a bucket, while backward goes on, in
 * buckets of the best size for that. Errors: INVALID_ARGUMENT; UNSUPPORTED for a planner of several
 * ranks.
 */
CLT_API clt_status clt_planner_simulate(const clt_planner *planner, int ranks, const clt_link *link,
                                        clt_prediction *prediction);

CLT_END_DECLS

#endif
