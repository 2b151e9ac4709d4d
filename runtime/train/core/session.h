/*
 * One plan on all devices of a store, with what a run needs beside it: input buffers, the upstream
 * of the losses, and a ring of results that are read late. The trainer has two: training and
 * evaluation.
 */
#ifndef CLT_TRAIN_CORE_SESSION_H
#define CLT_TRAIN_CORE_SESSION_H

#include "exec/collective.h"
#include "exec/exec.h"
#include "train/ranks/shares.h"
#include "train/store/store.h"
#include <cltrain/train.h>

/* Steps whose results are kept: two may be queued and two may still be read. */
enum { CLT_RESULT_RING = 4 };

typedef struct clt_session_device {
    clt_device *device;
    clt_plan *plan; /* shared by devices with equal capabilities */
    bool owns_plan;
    clt_exec *exec;
    cl_mem
        *buffers[2];  /* by plan input, for all micro-batches; used by even and odd steps in turn */
    clt_view *views;  /* by plan input, of the run being enqueued */
    clt_view *fed[2]; /* by plan input: where the caller's buffer has the device's first sample of
                         the last even and odd step; NULL buffer: the host's samples */
    cl_mem upstream;  /* a float a loss */
    float *known;     /* the upstreams last written from the host; NaN: by the device */
    int *upstream_input; /* by loss: the plan input that reads it; -1: none */
    cl_mem results;      /* [ring][micro-batch][losses, metrics][sum, weight] */
    cl_mem totals;       /* the same, added up over ranks; NULL: one rank */
    float *staging;      /* the same on the host */
    cl_event read[CLT_RESULT_RING];
    int micros[CLT_RESULT_RING]; /* micro-batches that the entry holds */
    int64_t shares[CLT_RESULT_RING],
        firsts[CLT_RESULT_RING]; /* their samples in the global batch */
    int max_micros;
} clt_session_device;

typedef struct clt_session {
    clt_store *store;
    int n_devices;
    int max_micros;
    int failed;            /* the device on which clt_session_collect failed */
    bool shared;           /* results are added up over ranks */
    int n_losses, n_means; /* means: losses and metrics */
    double *coefficients;  /* by loss */
    clt_session_device *devices;
} clt_session;

/* Plans `graph` for each device, with the measurements in records[device], for up to
 * options->max_batch samples at once and `max_micros` micro-batches a step. `shared`: its results
 * are added up over ranks. */
clt_status clt_session_create(const clt_graph *graph, clt_store *store,
                              const clt_plan_options *options,
                              const clt_tuning_record *const *records, int max_micros, bool shared,
                              clt_session **session);

void clt_session_destroy(clt_session *session);

/* Fails if an input that the plan reads on this device has no feed, or one that is too small: the
 * inputs that a gradient is given by, or all others. `offsets`: as those of a batch. Before a step,
 * so that a mistake stops no device halfway. */
clt_status clt_session_check_feeds(const clt_session *session, int device, const int64_t *offsets,
                                   const clt_feed *feeds, int n_feeds, bool given);

/* Points the device's inputs at those of a micro-batch of an earlier step, of the last even or odd
 * one; `first` is the micro-batch's first sample in the device's part. False if they are not there
 * any more. */
bool clt_session_refeed(clt_session_device *device, int parity, int micro, int64_t first);

/* Buffers that were fed are about to go. */
void clt_session_forget_buffers(clt_session *session);

/* No gradient is given any more: the next step must bring its own. */
void clt_session_forget_given(clt_session *session);

/* Points the device's inputs at the batch's part: host arrays are enqueued as transfers into the
 * buffers of `parity`, device buffers used where they are. A part without samples still has the
 * inputs without a batch dimension. */
clt_status clt_session_feed(clt_session *session, int device, const clt_step_batch *batch,
                            clt_part part, int parity);

/* The gradients that the caller gives, for a device's part, from `feeds` or, where those have none,
 * as clt_session_feed found them in the batch. */
clt_status clt_session_feed_given(clt_session *session, int device, const clt_feed *feeds,
                                  int n_feeds, clt_part part, int parity);

/* Divides a batch over the devices, into shares->offsets: as the batch says, else by weights. Fails
 * if a device had no room for its share, if a feed or an output is missing, or if there is a wait
 * list for several devices. */
clt_status clt_session_divide(const clt_session *session, const clt_participants *all,
                              const clt_step_batch *batch, clt_shares *shares);

/* Enqueues the copies of outputs that the batch asks for, for the part that just ran. */
clt_status clt_session_fetch(clt_session *session, int device, const clt_step_batch *batch,
                             clt_part part, const clt_run *run);

/* Copies the values that the plan assigns to states, as far as they were not made in the states'
 * place. */
clt_status clt_session_carry(clt_session *session, int device, const clt_run *run);

/* Sets upstream[l] = coefficient / weights[l] on the device (enqueued only if it changes). */
clt_status clt_session_upstream(clt_session *session, int device, const double *weights);

/* The weight of every loss over `count` images, where no data is needed to know it; else false. */
bool clt_session_static_weights(const clt_session *session, int64_t count, double *weights);
bool clt_graph_static_weights(const clt_graph *graph, int64_t count, double *weights);

/* The place of results for (ring entry, micro-batch). */
clt_view clt_session_results(const clt_session *session, int device, int entry, int micro);

/* What adds up a ring entry's results over the ranks, of which the device has so many
 * micro-batches: enqueues zeros for the others. */
clt_status clt_session_share(const clt_session *session, int device, int entry, int micros,
                             clt_collective *what);

/* Enqueues the reading of a ring entry's results; without micro-batches they are zero. */
clt_status clt_session_read(clt_session *session, int device, int entry, int micros);

/* Waits for the entry and adds up over devices and micro-batches: sums[], weights[] by mean. */
clt_status clt_session_collect(clt_session *session, int entry, double *sums, double *weights);

/* Waits for the entry on one device, once; its event is released then. */
clt_status clt_session_wait(clt_session *session, int device, int entry);

#endif
