/*
 * Training and evaluation of a graph on the devices of a store.
 *
 * Two levels. clt_trainer_step does a whole step (forward, loss, backward, reduce, apply) with
 * communication overlapped. The same trainer offers each part on its own, for loops of one's own:
 *
 *     clt_trainer_forward(t, &batch);       on all devices
 *     clt_trainer_backward(t);              gradients of the losses, into the buckets
 *     clt_trainer_reduce(t);                sums them over the devices
 *     clt_trainer_apply(t);                 the optimizer's update
 *
 * Several processes train together where the options name a world (<cltrain/world.h>): gradients,
 * losses, metrics and weights of losses are then those of all ranks.
 *
 * A trainer is used by one thread at a time; it starts a thread for each device if there are
 * several. Steps return when they are enqueued: results are read later, with clt_trainer_result.
 */
#ifndef CLTRAIN_TRAIN_H
#define CLTRAIN_TRAIN_H

#include <cltrain/store.h>
#include <cltrain/world.h>

CLT_BEGIN_DECLS

struct _cl_mem;   /* cl_mem is struct _cl_mem *, cl_event struct _cl_event *: this header needs */
struct _cl_event; /* no OpenCL header */

typedef enum clt_optimizer {
    CLT_SGD = 0,
    CLT_MOMENTUM = 1,
    CLT_NESTEROV = 2,
    CLT_ADAM = 3,
    CLT_ADAMW = 4
} clt_optimizer;

typedef enum clt_schedule_kind {
    CLT_SCHEDULE_CONSTANT = 0,
    CLT_SCHEDULE_STEP = 1,  /* times `factor` every `every` steps */
    CLT_SCHEDULE_COSINE = 2 /* from lr down to `minimum`, over the steps after warm-up */
} clt_schedule_kind;

/*
 * Learning rate as a function of the step s = 0, 1, ... Steps count from the run's begin, warm-up
 * included. With the base rate lr:
 *   CONSTANT   lr
 *   STEP       lr * factor^(s / every), the division rounded down
 *   COSINE     minimum + (lr - minimum) * (1 + cos(pi * p)) / 2, with p = (s - warmup) / (total -
 *              warmup) limited to 0 to 1: lr until warm-up ends, `minimum` from step `total` on
 * In the first `warmup` steps that rate is multiplied by (s + 1) / warmup. With COSINE it rises
 * linearly to lr, and the cosine begins at step `warmup`.
 */
typedef struct clt_schedule {
    clt_schedule_kind kind;
    int64_t every;  /* STEP */
    double factor;  /* STEP */
    double minimum; /* COSINE: a rate, not a factor; warm-up may begin below it */
    int64_t total;  /* COSINE: steps of the run, those of warm-up included */
    int64_t warmup;
} clt_schedule;

/* The rate at a step (0, 1, ...), for the base rate `base`. */
CLT_API double clt_schedule_rate(const clt_schedule *schedule, double base, int64_t step);

/* Parses "constant", "step:EVERY:FACTOR", "cosine[:MIN]", each with ",warmup:STEPS". `total` is the
 * number of steps of the run, those of warm-up included (cosine). */
CLT_API clt_status clt_schedule_parse(const char *text, int64_t total, clt_schedule *schedule);

/* sgd, momentum, nesterov, adam, adamw. Errors: NOT_FOUND with the nearest name. */
CLT_API const char *clt_optimizer_name(clt_optimizer optimizer);
CLT_API clt_status clt_optimizer_parse(const char *text, clt_optimizer *optimizer);

/* Micro-batches that a step may have at most. */
#define CLT_MOST_ACCUMULATE 1048576

/* Formulas: PyTorch's optimizers of the same names, momentum without dampening. Decay of sgd,
 * momentum, nesterov and adam is L2 (added to the gradient) unless `decoupled`; adamw's is always
 * decoupled (Loshchilov and Hutter, ICLR 2019). It acts on all parameters but
 * those that clt_freeze or clt_param_group says otherwise of; a resumed run has the same groups. A
 * parameter that no loss depends on is not updated: neither decay nor momentum moves it. */
typedef struct clt_trainer_options {
    size_t struct_size; /* set by clt_trainer_options_init */
    clt_optimizer optimizer;
    double lr;           /* 0.1 */
    double momentum;     /* 0.9; momentum and nesterov */
    double beta1, beta2; /* 0.9, 0.999; adam and adamw */
    double epsilon;      /* 1e-8 */
    double weight_decay; /* 0 */
    int decoupled;       /* 0 */
    clt_schedule schedule;
    /* 0: no clipping; else gradients are multiplied by min(1, clip_norm / (norm + 1e-6)), with the
     * norm of the whole gradient. */
    double clip_norm;
    int guard; /* 1: a step with a non-finite gradient changes nothing, nor do later ones */
    /* Largest global batch of a step, over all ranks, devices and micro-batches. Each device has
     * room for an equal part of it: where callers divide batches otherwise, the largest part that a
     * device gets, times the number of devices. */
    int64_t batch;
    int accumulate; /* 1, up to CLT_MOST_ACCUMULATE; micro-batches a step, each of about
                       batch / accumulate */
    uint64_t seed;  /* of dropout */
    int separate;   /* 0; 1: every value its own buffer (for memory checkers) */
    int portable;   /* 0; 1: the reference variant of every operator (for tests) */
    int poison;     /* 0; 1: scratch memory is filled with NaN before each step (for tests) */
    /* CLT_F32; CLT_BF16 or CLT_F16: layers' values, their gradients and those of parameters are
     * kept in 16 bits, and added up over devices and ranks so, each rounded to the nearest once (a
     * parameter's of up to four uses, as a tied weight's, once for each use); kernels and sums
     * compute in f32, and parameters, optimizer and results stay f32. With micro-batches the
     * gradients of each are added in f32, which takes a set of gradients in f32 beside the one in
     * 16 bits, and rounded at the end.
     *
     * CLT_F16 scales losses, since small gradients would vanish: by 2^16 at first, twice as much
     * after 2000 good steps, half after a step whose gradient is not finite, which is skipped: it
     * changes nothing but counts as a step. The update divides again; norms, clipping and
     * clt_trainer_gradient are of gradients without the scale. Adam counts no skipped steps. The
     * guard stops where 2^-14 was still too large. Graphs with clt_output_gradient are UNSUPPORTED
     * in f16. */
    clt_dtype precision;
    /* 0; 1: backward computes activations again instead of keeping them, for the least memory that
     * is found: each node at most once more, so that a step takes up to a forward pass longer. No
     * bit of any result changes. */
    int recompute;
    /* 0: as much as the device has; else bytes that the trainer may take of each device, with
     * parameters, gradients, optimizer, intermediates and inputs. Backward then computes again what
     * it takes to stay within, and no more than that, whatever `recompute` is. Measuring kernels
     * is left out where it would take more. */
    int64_t memory;
    /* OP=NAME,...: kernel variants to take for these operators, where they accept; NULL: none. Read
     * by clt_trainer_create and clt_trainer_predict: keep it as long as the trainer. */
    const char *variants;
    /* 0; else seconds that clt_trainer_create may spend, on each kind of device, on measuring
     * kernel variants for shapes that the device's tuning record does not have; the record keeps
     * them. */
    double tune_seconds;
    int tune_anew; /* 0; 1: also for those that only a record shipped with the library has; and
                      clt_trainer_create fails (IO) where the record cannot be kept */
    /* Asked before each measurement; not 0 ends measuring early. May be NULL. */
    int (*tune_stop)(void *user);
    void *tune_user;
    /* The section CLT_SECTION_FROZEN of a checkpoint: choices of kernels to repeat, so that a
     * resumed run gives the same bits. NULL: the device's tuning record decides. Read by
     * clt_trainer_create. */
    const char *frozen;
    /* The ranks that train together; NULL: this process alone. Outlives the trainer. */
    const clt_world *world;
    /* Seconds that a device or rank may be late for a reduction; then the step fails with TIMEOUT
     * and names who is missing, and so do the other ranks. 0: without end. */
    double comm_timeout;
    /* 0: never; else after every so many steps checksums of all parameters and states are compared
     * over devices and ranks, and the step fails with MISMATCH naming the tensor and the device
     * that differs. */
    int64_t check_every;
    /* How batches are divided among the devices, in the store's order, those of all ranks in the
     * order of the ranks, as clt_split takes it (clt_planner_weights finds it). NULL: equally, in
     * samples. Read by clt_trainer_create. */
    const double *weights;
    int64_t quantum; /* 1 */
    /* 0; 1: clt_trainer_set_weights may change the division, and clt_fit does where a device has
     * become slower or faster than its share, of any rank. Shares may become twice as large as the
     * largest one at the beginning; what goes beyond that runs as further micro-batches. */
    int rebalance;
    /* 0; else the largest micro-batch that plans are made for, where the shares fit so: a run that
     * goes on after its division changed runs the same micro-batches as before. */
    int64_t per_device;
    /* A file in which the trainer says where it is, as <cltrain/heartbeat.h> describes, replaced by
     * clt_trainer_create and left behind; every rank has its own. NULL: none. Read by
     * clt_trainer_create. */
    const char *heartbeat;
} clt_trainer_options;

CLT_API void clt_trainer_options_init(clt_trainer_options *options);

typedef struct clt_trainer clt_trainer;

/* Plans the graph's training and evaluation on the store's devices. The graph is copied. The store
 * must outlive the trainer. The optimizer's tensors begin with zeros, but are shared by trainers
 * that live on one store at the same time (UNSUPPORTED, where they would keep different ones); a
 * parameter on which no loss of the graph depends has a gradient of zeros. Errors: INVALID_ARGUMENT
 * (names the option), UNSUPPORTED, BUILD,
 * OUT_OF_DEVICE_MEMORY (what is needed, what there is, and the largest batch that fits). */
CLT_API clt_status clt_trainer_create(const clt_graph *graph, clt_store *store,
                                      const clt_trainer_options *options, clt_trainer **trainer);

/*
 * Ends the use of a trainer of several ranks: waits until all ranks have called it, no longer than
 * options.comm_timeout; then what is held between them, as a communicator of MPI's, is given back
 * by clt_trainer_destroy. Later steps fail with STATE. With one rank nothing happens. After a
 * failure destroy the trainer without it: the others' calls end with ABORTED then.
 * Errors: ABORTED, TIMEOUT, MPI, those of the devices; what is held then stays until MPI_Finalize.
 */
CLT_API clt_status clt_trainer_finish(clt_trainer *trainer);

/* Waits for the devices. Takes NULL. */
CLT_API void clt_trainer_destroy(clt_trainer *trainer);

/*
 * One input of the graph for one batch. Either `host` or `buffer` is set.
 *
 * device -1: `host` has the samples of the whole batch, row-major, and each device takes its part.
 * Else the samples of that device alone; every device with samples needs a feed.
 * host: must stay unchanged until the step's results were read or clt_trainer_wait returned.
 * buffer: a cl_mem in the device's context, used where it is, from `offset` bytes on; it must not
 * change until the step has ended on the device, and lives until its results were read.
 * bytes: how many there are at `host`, `offset` included; 0: enough, which is not checked. What is
 * too small is INVALID_ARGUMENT at the call, as is a buffer (whose size is known) that is, or that
 * is of another context.
 */
typedef struct clt_feed {
    const char *name;
    int device;
    const void *host;
    struct _cl_mem *buffer;
    int64_t offset;
    int64_t bytes;
} clt_feed;

/*
 * Where an output of the graph (clt_output) goes: to memory of the host or of the device.
 *
 * device -1: `host` gets the samples of the whole batch, row-major; with one device, `buffer` too.
 * Else the samples of that device alone; outputs without a batch dimension need this where there
 * are several devices.
 * host: filled when the step's results were read or clt_trainer_wait returned.
 * buffer: a cl_mem in the device's context, written on the device from `offset` bytes on, before
 * the event of the step.
 * bytes: as of clt_feed.
 */
typedef struct clt_fetch {
    const char *name;
    int device;
    void *host;
    struct _cl_mem *buffer;
    int64_t offset;
    int64_t bytes;
} clt_fetch;

typedef struct clt_step_batch {
    size_t struct_size;     /* set by clt_step_batch_init */
    int64_t count;          /* samples over all devices of this rank; 0 is legal */
    int64_t first;          /* position of sample 0 in the global batch (dropout, rows); 0 */
    int64_t total;          /* several ranks: samples of the global batch, over all of them; 0: the
                               ranks tell each other their counts, at the cost of a short wait, and
                               `first` follows from the order of the ranks */
    const int64_t *offsets; /* devices + 1: device d has samples [offsets[d], offsets[d + 1]);
                               NULL: clt_split's parts by the trainer's weights */
    const clt_feed *feeds;
    int n_feeds;
    const clt_fetch *fetches; /* outputs to copy */
    int n_fetches;
    /* Weight of each loss over the global batch (of all ranks), in the graph's order; NULL: the
     * trainer finds it (from the count where that decides it, else from the labels on the devices,
     * which waits for the forward pass when there are several devices or micro-batches). */
    const double *loss_weights;
    /* One device: the step waits for these cl_events (of the device's context). */
    struct _cl_event *const *wait;
    int n_wait;
} clt_step_batch;

CLT_API void clt_step_batch_init(clt_step_batch *batch);

/* What a step gave, over the whole batch. */
typedef struct clt_step_result {
    size_t struct_size; /* set by clt_step_result_init */
    int64_t step;
    double loss; /* sum over losses of coefficient * sum / weight, before the update */
    double norm; /* of the gradient before clipping; 0 in evaluation */
    int finite;  /* 0: the step was not applied */
    double lr;
    int64_t samples;
    double loss_scale; /* of the step; 1 but in f16 */
    int64_t skipped;   /* steps, this one included, since training began; 0 but in f16 */
} clt_step_result;

CLT_API void clt_step_result_init(clt_step_result *result);

/* One training step. *event (may be NULL; one device only) is set to an event of the step's last
 * command, which the caller releases. Returns when all is enqueued; at most two steps are queued.
 * Before the first one, checksums of all parameters and states are compared over devices and ranks.
 * Errors: NONFINITE if the guard stopped an earlier step (names step and first non-finite tensor),
 * INVALID_ARGUMENT (names the input), MISMATCH (ranks or devices do not begin with the same
 * parameters: names the first tensor, and where it differs), OPENCL, ABORTED. */
CLT_API clt_status clt_trainer_step(clt_trainer *trainer, const clt_step_batch *batch,
                                    struct _cl_event **event);

/*
 * After a step, result or evaluation failed because a device did (DEVICE_LOST, OPENCL) of which
 * this process has several: goes on without it. Its part of the batches goes to the others, and the
 * trainer's devices are numbered anew; the store's are too. *redo 1: no replica has changed, give
 * the step's batch again. 0: others had updated already, the step counts as done. Results of
 * earlier steps are gone. Buffers of feeds and fetches belong to devices: give those of the new
 * numbers.
 *
 * Collective over ranks, all of one node: a rank that lost no device fails with ABORTED in the
 * same step, or in the one before or behind, and calls this likewise; clt_trainer_steps is equal on
 * all afterwards. Errors: STATE (no device has failed, or it was this rank's only one; ranks on
 * several nodes; neither guard nor clipping; devices of several kinds, where the optimizer's state
 * went with the device or a step was half done: go on from the last checkpoint), ABORTED (another
 * rank cannot go on), those of clt_trainer_create.
 */
CLT_API clt_status clt_trainer_recover(clt_trainer *trainer, int *redo);

/* The parts of a step, in this order; backward may be left out, and reduce and apply be delayed.
 * Between forward and backward no other plan of the store may run (STATE). A step's parts may be
 * given up: clt_trainer_forward and clt_trainer_step begin another one. Gradients are reduced once
 * (STATE).
 * clt_trainer_backward_from brings the gradients that the graph declares by clt_output_gradient;
 * without them they are those that forward's batch had (INVALID_ARGUMENT if it had none). */
CLT_API clt_status clt_trainer_forward(clt_trainer *trainer, const clt_step_batch *batch);
CLT_API clt_status clt_trainer_backward(clt_trainer *trainer);
CLT_API clt_status clt_trainer_backward_from(clt_trainer *trainer, const clt_feed *gradients,
                                             int n_gradients);
CLT_API clt_status clt_trainer_reduce(clt_trainer *trainer);
CLT_API clt_status clt_trainer_apply(clt_trainer *trainer, struct _cl_event **event);

/* Result of step `step` (0, 1, ...; one of the last two); waits for it. */
CLT_API clt_status clt_trainer_result(clt_trainer *trainer, int64_t step, clt_step_result *result);

/* Sum and weight of metric `index` (order of clt_metric) of such a step. */
CLT_API clt_status clt_trainer_metric(clt_trainer *trainer, int64_t step, int index, double *sum,
                                      double *weight);

/* Evaluates one batch: adds to sums[] and weights[], which have an entry for each loss, then for
 * each metric. Waits. */
CLT_API clt_status clt_trainer_evaluate(clt_trainer *trainer, const clt_step_batch *batch,
                                        double *sums, double *weights);

/*
 * Computes outputs as outside training, without losses and metrics: needs no feeds for inputs that
 * only these use, as labels. The outputs go where batch->fetches says. Returns when all is
 * enqueued; at most four predictions are queued. Where outputs depend on clt_all_reduce, all ranks
 * call it together, those without samples too. *event (may be NULL; one device only) is set to an
 * event of the last command, which the caller releases. The first call makes the plan.
 */
CLT_API clt_status clt_trainer_predict(clt_trainer *trainer, const clt_step_batch *batch,
                                       struct _cl_event **event);

/* Reads a gradient after backward or reduce, from device `device`; waits. Where devices are of
 * different kinds, the sum of a parameter's gradients is on the device that updates it, and is read
 * there; UNSUPPORTED if that is another rank's. */
CLT_API clt_status clt_trainer_gradient(clt_trainer *trainer, int device, const char *name,
                                        void *data, size_t bytes);

/* The base rate of the steps that begin from now on, for rules of one's own; the schedule still
 * applies. INVALID_ARGUMENT if it is negative or not finite. */
CLT_API clt_status clt_trainer_set_lr(clt_trainer *trainer, double lr);

/* Divides the batches of the steps that begin from now on by other weights, of the devices of all
 * ranks; every rank gives the same, before the same step. Errors: STATE without
 * clt_trainer_options.rebalance and between the parts of a step; INVALID_ARGUMENT if the weights
 * are none, or give a device more than there is room for. */
CLT_API clt_status clt_trainer_set_weights(clt_trainer *trainer, const double *weights,
                                           int64_t quantum);

/* Steps done so far; setting it restores schedule, random streams and bias corrections. */
CLT_API int64_t clt_trainer_steps(const clt_trainer *trainer);
CLT_API void clt_trainer_set_steps(clt_trainer *trainer, int64_t steps);

/* The optimizer's tensors: slot names ("momentum_buffer", or "exp_avg", "exp_avg_sq"; NULL past the
 * last) and access by parameter name, as clt_store_get and clt_store_set. Where ranks have devices
 * of different kinds, getting is collective, as is clt_trainer_save. */
CLT_API const char *clt_trainer_slot_name(const clt_trainer *trainer, int slot);
CLT_API clt_status clt_trainer_slot_get(clt_trainer *trainer, int slot, const char *name,
                                        void *data, size_t bytes);
CLT_API clt_status clt_trainer_slot_set(clt_trainer *trainer, int slot, const char *name,
                                        const void *data, size_t bytes);

/* Several ranks: parameters, states, optimizer slots and number of steps of the others become those
 * of rank `root`, as after clt_store_load or clt_trainer_restore on that rank. */
CLT_API clt_status clt_trainer_broadcast(clt_trainer *trainer, int root);

/* Waits until the devices have done all that was enqueued. */
CLT_API clt_status clt_trainer_wait(clt_trainer *trainer);

/* What clt_trainer_create would plan, as readable tables of training and evaluation on device 0,
 * with the memory that it needs and the largest batch that fits. `explain` adds why each kernel
 * variant was chosen, and the program that device 0 executes in a step. Runs nothing and allocates
 * nothing on a device, so the batch may be one that does not fit. *text is the caller's, to free
 * with free(). */
CLT_API clt_status clt_trainer_plan(const clt_graph *graph, clt_store *store,
                                    const clt_trainer_options *options, int explain, char **text);

CLT_END_DECLS

#endif
