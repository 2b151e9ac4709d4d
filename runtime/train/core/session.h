/* One plan on all devices of a store, with its input buffers, the upstream gradients of its losses,
 * and a ring of results that are read late. A trainer has up to three: training, evaluation and
 * prediction. */
#ifndef CLT_TRAIN_CORE_SESSION_H
#define CLT_TRAIN_CORE_SESSION_H

#include "exec/collective.h"
#include "device/core/shared.h"
#include "exec/exec.h"
#include "train/ranks/shares.h"
#include "train/store/store.h"
#include <cltrain/train.h>

/* CLT_MOST_QUEUED steps may be queued at once. Results of CLT_RESULT_RING steps are kept, since
 * some may be unread. Copies of arrays of CLT_PACKED_RING steps are kept; it divides
 * CLT_RESULT_RING. */
enum { CLT_MOST_QUEUED = 8, CLT_RESULT_RING = 12, CLT_PACKED_RING = 4 };

/* The gradient of an input, see train/core/kept.h. */
typedef struct clt_kept {
    const clt_value *gradient; /* NULL: the plan computes none */
    cl_mem buffer;             /* with room for all micro-batches */
} clt_kept;

typedef struct clt_session_device {
    clt_device *device;
    clt_plan *plan; /* shared by devices for which clt_store_same_plan holds */
    bool owns_plan;
    clt_exec *exec;
    /* by plan input, with room for all micro-batches; even and odd steps alternate */
    cl_mem *buffers[2];
    clt_view *views; /* by plan input, for the run that is being enqueued */
    /* By plan input: the place of the device's first sample in the caller's buffer, for the last
     * even and the last odd step. A NULL buffer means that the samples came from the host. */
    clt_view *fed[2];
    cl_mem upstream; /* one float for each loss */
    float *known;    /* by loss: the value last written from the host; NaN: the device wrote it */
    int *upstream_input; /* by loss: the plan input that reads its upstream; -1: none */
    cl_mem results;      /* [ring][micro-batch][losses, metrics][sum, weight] */
    cl_mem totals;       /* results summed over ranks; NULL: one rank */
    clt_shared memory;   /* of `results`; zeros: the host has a copy */
    float *staging;      /* the results on the host */
    cl_event read[CLT_RESULT_RING];
    int micro_batches[CLT_RESULT_RING]; /* by ring entry: number of micro-batches */
    /* by ring entry: the device's samples in the global batch */
    int64_t shares[CLT_RESULT_RING], firsts[CLT_RESULT_RING];
    int max_micro_batches;
    clt_kept *kept;                 /* by plan input; NULL: no gradients of inputs are wanted */
    int64_t kept_begin, kept_count; /* the device's samples in this rank's batch of `kept` */
} clt_session_device;

/* Memory for arrays that a run cannot use where they lie (train/core/packed.h). */
typedef struct clt_packed_block {
    void *memory;
    int64_t bytes;
} clt_packed_block;

typedef struct clt_packed {
    clt_packed_block *blocks; /* by feed, then by fetch */
    clt_feed *feeds;
    clt_fetch *fetches;
    clt_array *targets; /* by fetch: the caller's array, to be filled behind the run */
    int n_blocks, n_feeds, n_fetches, n_targets;
    int room_blocks, room_feeds, room_fetches, room_targets;
    int fetched; /* the last target that is to be filled, plus 1 */
} clt_packed;

typedef struct clt_session {
    clt_store *store;
    int n_devices;
    int max_micro_batches;
    /* Places for results of a ring entry: of the micro-batches of a device, or of all virtual
     * shards of a batch. */
    int places;
    int64_t totals[CLT_RESULT_RING]; /* with virtual shards: samples of the batch, by ring entry */
    int failed;                      /* the device on which clt_session_collect failed */
    bool shared;                     /* results are summed over ranks */
    int64_t kept_count;              /* samples of this rank's batch of `kept` */
    int n_losses, n_means;           /* a mean is a loss or a metric */
    double *coefficients;            /* by loss */
    const clt_graph *graph;          /* as the user built it; borrowed */
    clt_session_device *devices;
    clt_packed packed[CLT_PACKED_RING], packed_gradients[CLT_PACKED_RING];
} clt_session;

/* Plans `graph` for each device, with the measurements in records[device]. A run holds up to
 * options->max_batch samples, and a step up to `max_micro_batches` micro-batches. `arena_limits`:
 * options->arena_limit by device; NULL: no limits. If `shared`, results are summed over ranks. */
clt_status clt_session_create(const clt_graph *graph, clt_store *store,
                              const clt_plan_options *options, const int64_t *arena_limits,
                              const clt_tuning_record *const *records, int max_micro_batches,
                              bool shared, clt_session **session);

/* Returns the bytes of a device's results and upstream gradients in a session of so many losses and
 * metrics, with so many places for results. */
int64_t clt_session_bytes(int means, int64_t places, bool shared);

/* Returns the bytes of an input in a micro-batch of up to `samples` samples. */
int64_t clt_session_input_bytes(const clt_value *input, int64_t samples);

void clt_session_destroy(clt_session *session);

/* Describes dense memory of so many samples of a value. */
clt_array clt_session_dense(const clt_value *value, int64_t samples, const void *host);

/* Finds an output of a plan by its name; NULL if it has none. */
const clt_value *clt_session_output(const clt_plan *plan, const char *name);

/* Checks that feeds and fetches have names, feeds different ones, and devices that may be. */
clt_status clt_session_check_names(const clt_feed *feeds, int n_feeds, const clt_fetch *fetches,
                                   int n_fetches);

/* Checks, before a step, that every input which the plan reads on this device has a feed that is
 * large enough. A mistake then stops no device halfway. If `given`, checks only gradients of
 * outputs; else only all other inputs. */
clt_status clt_session_check_feeds(const clt_session *session, int device, const clt_shares *shares,
                                   const clt_feed *feeds, int n_feeds, bool output_gradients);

/* Points the device's inputs at those of a micro-batch of the last even or odd step. `first` is the
 * micro-batch's first sample in the device's part. Returns false if an input's data is gone. */
bool clt_session_refeed(clt_session_device *device, int parity, int micro, int64_t first);

/* Drops all references to the caller's buffers, which are about to be released. */
void clt_session_forget_buffers(clt_session *session);

/* Drops the gradients of outputs that the caller passed: those in `given`, or with NULL all. The
 * next backward or step must pass its own. */
void clt_session_forget_output_gradients(clt_session *session, const clt_feed *given, int n_given);

/* Points the device's inputs at its part of the batch. Host arrays are uploaded into the buffers of
 * `parity`; device buffers are used in place. Inputs without a batch dimension are set even if the
 * part has no samples. */
clt_status clt_session_feed(clt_session *session, int device, const clt_step_batch *batch,
                            clt_part part, int parity);

/* Points the inputs for gradients of outputs at the caller's `feeds`, for a device's part. An input
 * that has no feed keeps the memory that clt_session_feed found in the batch. */
clt_status clt_session_feed_output_gradients(clt_session *session, int device,
                                             const clt_feed *feeds, int n_feeds, clt_part part,
                                             int parity);

/* Divides a batch into the parts of this rank, into shares->offsets. The batch's own offsets are
 * used if there are any, else the weights. Fails if a share exceeds the device's room, if a feed or
 * an output is missing, or if there is a wait list for several devices. */
clt_status clt_session_divide(const clt_session *session, const clt_participants *all,
                              const clt_step_batch *batch, clt_shares *shares);

/* Enqueues the copies of the outputs that the batch asks for, for the part that ran last. Without
 * `leads`, another device of this process has the same samples and copies them to memory of the
 * whole batch. */
clt_status clt_session_fetch(clt_session *session, int device, const clt_step_batch *batch,
                             clt_part part, bool leads, const clt_run *run);

/* Copies each value that the plan assigns to a state into the state. A value that was computed in
 * the state's place needs no copy. */
clt_status clt_session_carry(clt_session *session, int device, const clt_run *run);

/* Sets upstream[l] = coefficient / weights[l] on the device. Enqueues a write only if the value
 * changes. */
clt_status clt_session_upstream(clt_session *session, int device, const double *weights);

/* Computes the weight of every loss over `count` samples. Returns false if the weight of a loss
 * depends on data. */
bool clt_session_static_weights(const clt_session *session, int64_t count, double *weights);
bool clt_graph_static_weights(const clt_graph *graph, int64_t count, double *weights);

/* Returns the weight of a sample in a loss; 0: it depends on data. */
double clt_graph_sample_weight(const clt_mean *loss);

/* Computes the weight of every loss over the batch, from the labels that the host has. Returns
 * false if a weight depends on other data. */
bool clt_session_label_weights(const clt_session *session, const clt_step_batch *batch,
                               double *weights);

/* The place of the results of a micro-batch in a ring entry. */
clt_view clt_session_results(const clt_session *session, int device, int entry, int micro);

/* Describes, in *what, the collective that sums a ring entry's results over the ranks. Zeros are
 * enqueued for the places of micro-batches that the device's share does not have. */
clt_status clt_session_share(const clt_session *session, int device, int entry,
                             const clt_share *share, clt_collective *what);

/* Enqueues the download of a ring entry's results. Without micro-batches the results are zero. */
clt_status clt_session_read(clt_session *session, int device, int entry, const clt_share *share);

/* Waits for the entry and adds its results over the parts of the batch and micro-batches to sums[]
 * and weights[], by mean. */
clt_status clt_session_collect(clt_session *session, const clt_shares *shares, int entry,
                               double *sums, double *weights);

/* Waits for the entry on one device and releases its event. Later calls return at once. */
clt_status clt_session_wait(clt_session *session, int device, int entry);

#endif
