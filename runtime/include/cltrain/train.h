/*
 * Training and evaluation of a graph on the devices of a store.
 *
 * clt_trainer_step does a whole step and overlaps communication with computation. For loops of your
 * own, the same trainer offers the parts of a step:
 *
 *     clt_trainer_forward(t, &batch);       on all devices
 *     clt_trainer_backward(t);              gradients of the losses, into the buckets
 *     clt_trainer_reduce(t);                sums of the gradients over the devices
 *     clt_trainer_apply(t);                 the optimizer's update
 *
 * Between these calls the functions of <cltrain/gradients.h> read and set gradients. A scheme that
 * reduces gradients in another way calls clt_trainer_reduced instead of clt_trainer_reduce.
 *
 * Several processes train together if the options name a world (<cltrain/world.h>). Gradients,
 * losses, metrics and weights of losses then count over all ranks.
 *
 * One thread at a time uses a trainer. With several devices the trainer starts a thread for each.
 * Steps return when they are enqueued. Read their results later, with clt_trainer_result.
 */
#ifndef CLTRAIN_TRAIN_H
#define CLTRAIN_TRAIN_H

#include <cltrain/array.h>
#include <cltrain/store.h>
#include <cltrain/world.h>

CLT_BEGIN_DECLS

typedef enum clt_optimizer {
    CLT_SGD = 0,
    CLT_MOMENTUM = 1,
    CLT_NESTEROV = 2,
    CLT_ADAM = 3,
    CLT_ADAMW = 4,
    CLT_RMSPROP = 5,
    CLT_ADAGRAD = 6,
    CLT_LION = 7,
    CLT_MUON = 8
} clt_optimizer;

/* How the steps of muon depend on the size of a matrix, as `adjust_lr_fn` of torch.optim.Muon. */
typedef enum clt_muon_scale {
    CLT_MUON_ORIGINAL = 0,       /* lr * sqrt(max(1, rows / columns)) */
    CLT_MUON_MATCH_RMS_ADAMW = 1 /* lr * 0.2 * sqrt(max(rows, columns)): rates of AdamW suit */
} clt_muon_scale;

/* Whether consecutive launches of little work become one launch of one work-item, on CPUs. Results
 * have the same bits, except on Intel's runtime with portable kernels. */
typedef enum clt_merging {
    CLT_MERGE_OFF = 0,
    CLT_MERGE_AUTO = 1, /* where the launches take a part of a step that counts, unless kernels are
                           portable or the run is too short (merge_steps) */
    CLT_MERGE_ON = 2    /* wherever a launch is predicted to take less than 20 us on one core */
} clt_merging;

typedef enum clt_schedule_kind {
    CLT_SCHEDULE_CONSTANT = 0,
    CLT_SCHEDULE_STEP = 1,  /* times `factor` every `every` steps */
    CLT_SCHEDULE_COSINE = 2 /* from lr down to `minimum`, over the steps after warm-up */
} clt_schedule_kind;

/*
 * The learning rate as a function of the step s = 0, 1, ... Steps count from the begin of the run
 * and include the warm-up. With the base rate lr: CONSTANT   lr STEP       lr * factor^(s / every),
 * the division rounded down COSINE     minimum + (lr - minimum) * (1 + cos(pi * p)) / 2, with p =
 * (s - warmup) / (total - warmup) limited to 0 to 1: lr until warm-up ends, `minimum` from step
 * `total` on In the first `warmup` steps the rate is multiplied by (s + 1) / warmup. With COSINE
 * the rate rises linearly to lr, and the cosine begins at step `warmup`.
 */
typedef struct clt_schedule {
    clt_schedule_kind kind;
    int64_t every;  /* STEP */
    double factor;  /* STEP */
    double minimum; /* COSINE: a rate, not a factor; warm-up may begin below this rate */
    int64_t total;  /* COSINE: steps of the run, with the warm-up */
    int64_t warmup;
} clt_schedule;

/* Returns the rate at a step (0, 1, ...) for the base rate `base`. Thread-safe. */
CLT_API double clt_schedule_rate(const clt_schedule *schedule, double base, int64_t step);

/* Reads "constant", "step:EVERY:FACTOR" or "cosine[:MIN]", each with an optional ",warmup:STEPS".
 * `total` is the number of steps of the run, with the warm-up (cosine). Errors: INVALID_ARGUMENT.
 * Thread-safe. */
CLT_API clt_status clt_schedule_parse(const char *text, int64_t total, clt_schedule *schedule);

/* sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad, lion, muon. clt_optimizer_name gives "?"
 * for other numbers. Errors: NOT_FOUND with the nearest name. */
CLT_API const char *clt_optimizer_name(clt_optimizer optimizer);
CLT_API clt_status clt_optimizer_parse(const char *text, clt_optimizer *optimizer);

/* Averages of weights over the steps of training. */
typedef enum clt_average_kind {
    CLT_AVERAGE_NONE = 0,
    CLT_AVERAGE_EMA = 1,  /* average = decay * average + (1 - decay) * parameter, after each step */
    CLT_AVERAGE_EQUAL = 2 /* the mean of the parameters after steps from, from + every, ... (SWA) */
} clt_average_kind;

/*
 * How to average. The first step is copied, as by PyTorch's AveragedModel. States in f32, such as
 * the statistics of batch norm, are averaged too; other states and frozen parameters are copied.
 * Steps that change nothing do not count: those that f16 skips, and those at which the guard stops.
 */
typedef struct clt_average {
    clt_average_kind kind;
    double decay;        /* EMA: at least 0 and below 1 */
    int64_t from, every; /* EQUAL: at least 1 */
} clt_average;

/* Reads "ema:DECAY" or "swa:FROM[:EVERY]". Errors: INVALID_ARGUMENT. Thread-safe. */
CLT_API clt_status clt_average_parse(const char *text, clt_average *average);

/* Most micro-batches of a step. */
#define CLT_MOST_ACCUMULATE 1048576

/*
 * How to train. Set up by clt_trainer_options_init, with the defaults that stand at the members.
 *
 * Optimizers compute as PyTorch's of the same names, momentum without dampening. lion is Algorithm
 * 2 of Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023. Decay is L2
 * (added to the gradient) unless `decoupled`. The decay of adamw, lion and muon is always decoupled
 * (Loshchilov and Hutter, ICLR 2019). Usual numbers differ between optimizers:
 * clt_optimizer_defaults sets an optimizer with its own. Decay acts on all parameters, unless
 * clt_freeze or clt_param_group says otherwise. A resumed run needs the same groups. A parameter
 * that no loss depends on is not updated: neither decay nor momentum changes it.
 *
 * muon is that of Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024
 * (github.com/KellerJordan/Muon): Nesterov's momentum of each matrix G, m = momentum * m + (1 -
 * momentum) * G, is made orthogonal by five Newton-Schulz iterations with the coefficients 3.4445,
 * -4.7750 and 2.0315, here in f32. Rows and columns are those of the parameter as it is stored.
 * muon updates parameters of two dimensions that only products read (linear, matmul, recurrent
 * layers), except those of the last layers: the ones from which values reach a loss or an output
 * without another such product. Embeddings, convolutions, biases and all others get AdamW, with
 * beta1, beta2, epsilon and the rate adamw_lr. Matrices must be whole on each device: zero, split
 * matrices (tp), devices of several kinds and asynchronous training are UNSUPPORTED.
 */
typedef struct clt_trainer_options {
    size_t struct_size; /* set by clt_trainer_options_init */
    clt_optimizer optimizer;
    double lr;           /* 0.1 */
    double momentum;     /* -1: the usual one of the optimizer, which is 0.9 for momentum and
                            nesterov, 0 for rmsprop and 0.95 for muon. Others have none */
    double beta1, beta2; /* 0.9, 0.999; adam, adamw, lion and muon */
    double epsilon;      /* 1e-8; adam, adamw, rmsprop, adagrad and muon */
    double weight_decay; /* 0 */
    int decoupled;       /* 0 */
    clt_schedule schedule;
    /* 0: no clipping. Else gradients are multiplied by min(1, clip_norm / (norm + 1e-6)), where
     * norm is that of the whole gradient. */
    double clip_norm;
    /* 0; 1: each device keeps the optimizer's state of its share of the parameters only, updates
     * that share and sends it to all others (ZeRO-1; Rajbhandari et al., SC 2020). The results are
     * those of 0, except that sums of squares for clip_norm are added in another order. Devices of
     * several kinds work so in any case. Saving, and clt_trainer_slot_get, are then collective; a
     * device that is lost takes its state along. All trainers of a store have the same setting. At
     * most 256 devices.
     *
     * 3: the store's devices also keep shards of parameters and gradients only; see
     * clt_store_options.zero. With a precision of 16 bits, parameters are gathered and gradients
     * reduced in 16 bits, and the shard that is updated stays f32. A device that is lost ends the
     * run. */
    int zero;
    int guard; /* 1: a step with a non-finite gradient changes nothing, nor do later steps */
    /* Largest global batch of a step, over all ranks, devices and micro-batches. Each device has
     * room for an equal part. If you divide batches otherwise, give the largest part of a device
     * times the number of devices. */
    int64_t batch;
    int accumulate; /* 1; up to CLT_MOST_ACCUMULATE: micro-batches of a step, each of about
                       batch / accumulate samples */
    /*
     * 0; a power of two, at least the number of devices of all ranks: gradients, norms, losses,
     * metrics and means of states are summed over so many shards of each batch in the order of a
     * binary tree. So parameters have the same bits on any number of devices, ranks and nodes.
     *
     * - Shard v of a batch of n samples begins with sample clt_virtual_shard_begin(n, V, v). Each
     * is a micro-batch, and batch norm computes its statistics from a shard.
     * - Devices must be of one kind. Kernels are those of a canonical device: neither the number of
     *   compute units nor measurements matter.
     * - Stores need the same clt_store_options.bucket_bytes, because norms are added up by bucket.
     * - A device adds up its shards in log2(shards) more sets of gradients, in f32 one less. f16
     * and bf16 are rounded at each node of the tree.
     * - Several ranks must give batch.total.
     * - With zero 1 each device gets whole sums of gradients, because the norm needs them. The bits
     *   are those without zero.
     * - Not with accumulate, in_flight, weights, quantum, rebalance, tune_seconds, zero 3, wire,
     *   offload, axes other than dp, and collectives in the graph (synchronised batch norm).
     */
    int64_t virtual_shards;
    /* Forward of so many micro-batches runs before backward of the first, up to `accumulate`. They
     * take memory at the same time, and no bit of the results changes. 0: each micro-batch runs by
     * itself; in a pipeline (clt_cut) as many as 1F1B needs: on each stage one for itself and one
     * for each stage behind it. `accumulate`: a pipeline runs as GPipe. Not with `rebalance`. A
     * pipeline needs at least as many micro-batches as stages. */
    int in_flight;
    uint64_t seed; /* of dropout */
    int separate;  /* 0; 1: every value has a buffer of its own (for memory checkers) */
    int portable;  /* 0; 1: the reference variant of every operator (for tests) */
    int poison;    /* 0; 1: fill scratch memory with NaN before each step (for tests) */
    /* CLT_F32, CLT_BF16 or CLT_F16. The last two keep values and gradients of layers, and gradients
     * of parameters, in 16 bits, also in all-reduces. Each is rounded to the nearest once; the
     * gradient of a parameter with up to four uses (a tied weight) once for each use. Kernels and
     * sums compute in f32. Parameters, optimizer and results stay f32. With micro-batches,
     * gradients are added in f32 and rounded at the end, which needs memory for gradients in f32
     * too.
     *
     * CLT_F16 scales losses, because small gradients would vanish: by 2^16 at first, twice as much
     * after 2000 good steps, half as much after a step whose gradient is not finite. Such a step is
     * skipped: it counts as a step and changes nothing. The update divides by the scale. Norms,
     * clipping and clt_trainer_gradient see gradients without the scale. Adam does not count
     * skipped steps. The guard stops if a scale of 2^-14 is still too large. Graphs with
     * clt_output_gradient are UNSUPPORTED in f16. */
    clt_dtype precision;
    /* 0; 1: the backward pass computes activations again instead of keeping them, for the least
     * memory that is found. Each node runs at most once more, so a step takes at most one forward
     * pass longer. No bit of the results changes. */
    int recompute;
    /* 0: as much as the device has. Else the bytes that the trainer may use of each device that has
     * samples, with
     * parameters, gradients, optimizer, intermediates and inputs. The backward pass then computes
     * just enough activations again, whatever `recompute` is. Kernels are not measured if that
     * would need more memory. */
    int64_t memory;
    /* OP=NAME,...: kernel variants to use for these operators where they accept; NULL: none. Read
     * by clt_trainer_create and clt_trainer_predict; must outlive the trainer. */
    const char *variants;
    clt_merging merge_launches;
    /* 0; else the steps of the run. CLT_MERGE_AUTO then merges only if they are predicted to save
     * more time than compiling takes: other models share the kernels of single launches. */
    int64_t merge_steps;
    /* 0; else the seconds that clt_trainer_create may spend, on each kind of device, on measuring
     * kernel variants for shapes that the device's tuning record lacks. The record keeps the
     * results. */
    double tune_seconds;
    /* 0; else the steps of the run. Kernels are then measured only before a run that repays it: one
     * that takes at least 60 times tune_seconds at a rate that no device of its kind exceeds. See
     * clt_kernels_measure for the others. */
    int64_t tune_steps;
    int tune_anew; /* 0; 1: also measure what only a record shipped with the library has, and fail
                      (IO) if the record cannot be kept */
    /* Called before each measurement; a result other than 0 ends measuring. May be NULL. */
    int (*tune_stop)(void *user);
    void *tune_user;
    /* The section CLT_SECTION_FROZEN of a checkpoint: choices of kernels to repeat, so that a
     * resumed run gives the same bits. NULL: the device's tuning record decides. Read by
     * clt_trainer_create. */
    const char *frozen;
    /* The ranks that train together; NULL: this process alone. Must outlive the trainer. */
    const clt_world *world;
    /* Seconds that a device or rank may be late for a reduction; 0: without limit. After that the
     * step fails with TIMEOUT on all ranks and names who is missing. */
    double comm_timeout;
    /* 0: never. Else the checksums of all parameters and states are compared over devices and ranks
     * after every so many steps. If they differ, the step fails with MISMATCH and names the tensor
     * and the device. */
    int64_t check_every;
    /* The division of batches among the devices of all ranks, in the order of the ranks and of
     * their stores, as for clt_split (clt_planner_weights finds it). On a mesh, devices at one
     * place of dp have the same weight. NULL: equally, in samples. Read by clt_trainer_create. */
    const double *weights;
    int64_t quantum; /* 1 */
    /* 0; 1: clt_trainer_set_weights may change the division. clt_fit changes it when a device of
     * any rank becomes slower or faster than its share. A share may become twice as large as the
     * largest one at the beginning; larger shares run as further micro-batches. */
    int rebalance;
    /* 0; else the largest micro-batch of plans, if the shares fit. A run that resumes with another
     * division then runs the same micro-batches as before. */
    int64_t per_device;
    /* A file for the trainer's position, see <cltrain/heartbeat.h>; every rank has its own. NULL:
     * none. clt_trainer_create replaces the file, and nothing removes it. Read by
     * clt_trainer_create. */
    const char *heartbeat;
    /* CLT_F32, CLT_BF16 or CLT_F16: the type in which gradients travel between devices, ranks of a
     * node and nodes. F32: they travel as they are, in 16 bits if `precision` has 16 bits. Else
     * with error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019): who
     * rounds v = gradient + residual to s, the nearest 16-bit number, adds v - s to its next
     * gradient. Devices, ranks and nodes round what they send, and the owner of a slice of the sum
     * rounds the result. Sums are computed in f32. Parameters that devices with shards (`zero` 1,
     * or devices of several kinds) send are f32. A step that is not committed changes no residual.
     *
     * With precision BF16 gradients have 16 bits already: BF16 here adds the residuals of sums.
     * F16 needs precision F16, because losses must be scaled, and precision F16 needs F16.
     *
     * Checkpoints have the residuals. A run goes on with the same type only (else MISMATCH). From a
     * checkpoint of wire F32 it goes on with residuals of zeros. On the same devices and ranks it
     * has the bits of a run without a break. On others, rank 0 adds the sum of all residuals to
     * what it sends first. A device or rank that is lost takes its own residuals along. With one
     * device nothing travels: residuals wait in its checkpoints. Trainers that live on one store at
     * the same time share the residuals of its devices.
     *
     * For parameters in f32 it takes 6 bytes a parameter on each device, and 8 bytes of host memory
     * on each rank for each kind of sum that the rank rounds (see clt_comm_residual_create). Saving
     * gathers the residuals of all ranks in the memory of rank 0's host. Saving and restoring are
     * collective. Gradients cannot be set after their reduction, and clt_trainer_reduced is
     * UNSUPPORTED. So are zero 3, offload, virtual_shards, and meshes with tp or pp. */
    clt_dtype wire;
    double alpha;    /* 0.99; rmsprop: the part of the mean square that a step keeps */
    int centered;    /* 0; rmsprop: 1 divides by the deviation instead of the root mean square */
    double lr_decay; /* 0; adagrad: step t = 0, 1, ... has the rate lr / (1 + t * lr_decay) */
    double initial_accumulator; /* 0; adagrad: with which its sums of squares begin */
    /* Averages of the parameters, kept on each device in as much memory as the parameters. They are
     * in checkpoints (average.safetensors), and clt_fit evaluates them too. One trainer of a store
     * can have them. Not for replicas of local SGD and asynchronous training. */
    clt_average average;
    clt_muon_scale muon_scale; /* CLT_MUON_ORIGINAL */
    double adamw_lr; /* 0.0003; muon: the rate of the parameters that AdamW updates. It follows the
                        schedule as lr does: it is multiplied by the current rate / lr */
    /* NULL: as above. Else patterns as of clt_freeze: muon updates all parameters of two dimensions
     * but those that match, which get AdamW. Must outlive the trainer. */
    const char *muon_adamw;
} clt_trainer_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_trainer_options_init(clt_trainer_options *options);

/* Sets options->optimizer, and the usual numbers of this optimizer, which are PyTorch's and of lion
 * and muon the papers': lr, momentum, beta1, beta2, epsilon, alpha, centered, lr_decay,
 * initial_accumulator, muon_scale and adamw_lr. Weight decay stays as it is. Errors:
 * INVALID_ARGUMENT (no such optimizer). Thread-safe. */
CLT_API clt_status clt_optimizer_defaults(clt_optimizer optimizer, clt_trainer_options *options);

/* A trainer. One thread at a time uses it. */
typedef struct clt_trainer clt_trainer;

/* Plans training and evaluation of the graph on the devices of the store. The graph is copied. The
 * store must outlive the trainer. The optimizer's tensors begin with zeros. Trainers that live on
 * one store at the same time share them, and are UNSUPPORTED if they need different ones. A
 * parameter that no loss depends on has a gradient of zeros. Errors: INVALID_ARGUMENT (names the
 * option), UNSUPPORTED (such as heads, rows or positions that the mesh cannot divide), BUILD,
 * OUT_OF_DEVICE_MEMORY (what is needed, what there is, and the largest batch that fits). Destroy
 * *trainer with clt_trainer_destroy. */
CLT_API clt_status clt_trainer_create(const clt_graph *graph, clt_store *store,
                                      const clt_trainer_options *options, clt_trainer **trainer);

/*
 * Ends the use of a trainer of several ranks. Waits until all ranks have called it, for at most
 * options.comm_timeout. clt_trainer_destroy then gives back what ranks hold together, such as an
 * MPI communicator. Later steps fail with STATE. With one rank nothing happens. After a failure,
 * destroy the trainer without this call: the calls of the other ranks then end with ABORTED.
 *
 * Errors: ABORTED, TIMEOUT, MPI, those of the devices. What ranks hold then stays until
 * MPI_Finalize.
 */
CLT_API clt_status clt_trainer_finish(clt_trainer *trainer);

/* Waits for the devices and frees the trainer. Takes NULL. In a callback of a call that uses the
 * trainer, such as clt_fit, the trainer is freed when that call ends. Until then its store, world
 * and devices must live, and a second destroy does nothing. */
CLT_API void clt_trainer_destroy(clt_trainer *trainer);

/*
 * An input of the graph for one batch.
 *
 * - device -1: the array has the samples of the whole batch. Each device takes its part.
 * - device d: the samples of device d. Every device with samples needs a feed.
 * - array: see <cltrain/array.h>. If it is not `whole`, its first dimension is the number of
 * samples and the others are the input's.
 * - Memory of the host that has the input's type and no gaps is read in place. It must not change
 *   until the step's results were read or clt_trainer_wait returned. Other memory of the host is
 *   copied before the call returns.
 * - A buffer is a cl_mem in the device's context, used in place. It must not change until the step
 *   has ended on the device, and must live until the results were read.
 *
 * The call fails with INVALID_ARGUMENT if an array has another shape or type, if memory or a buffer
 * is too small, and if a buffer belongs to another context.
 */
typedef struct clt_feed {
    const char *name;
    int device;
    clt_array array; /* is only read */
} clt_feed;

/*
 * Where an output of the graph (clt_output) goes: to memory of the host or of a device.
 *
 * - device -1: the array gets the samples of the whole batch. With one device it may be a buffer.
 * - device d: the samples of device d. With several parts of a batch, outputs without a batch
 *   dimension need a device.
 * - array: as in clt_feed. Memory of the host that has the output's type and no gaps is filled when
 *   the step's results were read or clt_trainer_wait returned. Other memory of the host is filled
 *   when the call returns, which waits for the step. A buffer is written before the event of the
 *   step.
 */
typedef struct clt_fetch {
    const char *name;
    int device;
    clt_array array;
} clt_fetch;

/*
 * The batch of a step. Set up by clt_step_batch_init.
 *
 * On a mesh (clt_store_options.parallel) a batch has a part for each place of dp. A rank gives the
 * samples of the places that its devices have, in their order. Ranks that share a place give the
 * same samples for it.
 */
typedef struct clt_step_batch {
    size_t struct_size;     /* set by clt_step_batch_init */
    int64_t count;          /* samples over all devices of this rank; 0 is legal */
    int64_t first;          /* position of sample 0 in the global batch (dropout, rows); 0 */
    int64_t total;          /* several ranks: samples of the global batch. 0: the ranks tell each
                               other their counts, which costs a short wait, and `first` follows
                               from the order of the ranks */
    const int64_t *offsets; /* devices + 1: device d has samples [offsets[d], offsets[d + 1]).
                               On a mesh with other axes than dp: by place of dp that this rank has.
                               NULL: clt_split's parts by the trainer's weights */
    const clt_feed *feeds;
    int n_feeds;
    /* Outputs to copy. Training and evaluation do not gather outputs that a mesh divides over tp,
     * space or time, so only a prediction has them (else UNSUPPORTED). */
    const clt_fetch *fetches;
    int n_fetches;
    /* Weight of each loss over the global batch of all ranks, in the graph's order. NULL: found
     * from the number of samples or from labels in host memory. Else a step of several devices,
     * ranks or micro-batches runs forward once before. */
    const double *loss_weights;
    /* One device: cl_events of the device's context that the step waits for. */
    struct _cl_event *const *wait;
    int n_wait;
    /* 0; 1: memory of the host is not used where it lies. Feeds are copied before the call returns,
     * and fetches are filled before it returns. So the memory may be changed or freed at once. */
    int copied;
} clt_step_batch;

/* Sets struct_size and the defaults. */
CLT_API void clt_step_batch_init(clt_step_batch *batch);

/* The results of a step, over the whole batch. */
typedef struct clt_step_result {
    size_t struct_size; /* set by clt_step_result_init */
    int64_t step;
    double loss; /* sum over losses of coefficient * sum / weight, before the update */
    double norm; /* of the gradient before clipping; 0 in evaluation */
    int finite;  /* 0: the step was not applied */
    double lr;
    int64_t samples;
    double loss_scale; /* of the step; 1 but in f16 */
    int64_t skipped;   /* steps skipped since training began, with this one; 0 but in f16 */
} clt_step_result;

/* Sets struct_size. */
CLT_API void clt_step_result_init(clt_step_result *result);

/* Enqueues a training step. At most two steps are queued. *event (may be NULL; one device only) is
 * an event of the step's last command, which the caller releases. Before the first step, checksums
 * of all parameters and states are compared over devices and ranks.
 *
 * Errors: NONFINITE if the guard stopped an earlier step (names the step and the first non-finite
 * tensor), INVALID_ARGUMENT (names the input), MISMATCH (ranks or devices begin with different
 * parameters: names the first tensor and where it differs), OPENCL, ABORTED. */
CLT_API clt_status clt_trainer_step(clt_trainer *trainer, const clt_step_batch *batch,
                                    struct _cl_event **event);

/*
 * Drops a device that failed, and goes on with the others. Call it after a step, result or
 * evaluation has failed with DEVICE_LOST or OPENCL.
 *
 * - The other devices take the device's part of the batches. The devices of trainer and store are
 *   numbered anew. Give buffers in feeds and fetches by the new numbers.
 * - On a mesh all devices at the same place of dp leave; if dp has one place, all at the same place
 *   of space or time. If fewer places of space or time cannot divide the samples, more leave.
 * - *redo 1: no replica has changed; give the batch of the step again. 0: other devices had updated
 *   already; the step counts as done.
 * - Results of earlier steps are gone.
 * - All ranks call it, and must be on one node. A rank that lost no device fails with ABORTED in
 *   the same step, in the step before or in the step after. clt_trainer_steps is equal on all ranks
 *   afterwards.
 *
 * Errors: STATE, ABORTED (another rank cannot go on), those of clt_trainer_create. STATE means that
 * the run must go on from its last checkpoint: no device has failed, or a rank would have none
 * left (only clt_fit goes on then); ranks are on several nodes; there is neither guard nor
 * clipping; all places of dp, space and time have failed, so that parts of the model are gone (the
 * message names tp or pp); zero is 3; or the optimizer has shards (zero 1, or devices of several
 * kinds), and one was lost or a step was half done.
 */
CLT_API clt_status clt_trainer_recover(clt_trainer *trainer, int *redo);

/* Run the parts of a step, in this order. Backward may be left out, and reduce and apply may come
 * later. Backward may be called again with other gradients of outputs; it then computes forward
 * again, because the first one has used its memory. clt_trainer_forward and clt_trainer_step give
 * up a step whose parts are not complete.
 *
 * clt_trainer_backward_from takes the gradients that the graph declares by clt_output_gradient.
 * clt_trainer_backward uses those in the batch of clt_trainer_forward. Each call needs a gradient
 * of each output, its own or from the batch: those of an earlier call do not count, and replace the
 * batch's. INVALID_ARGUMENT: one is missing, or the graph does not declare a name. Errors: those of
 * clt_trainer_step; STATE if another plan of the store ran between forward and backward, or if
 * gradients are reduced twice. */
CLT_API clt_status clt_trainer_forward(clt_trainer *trainer, const clt_step_batch *batch);
CLT_API clt_status clt_trainer_backward(clt_trainer *trainer);
CLT_API clt_status clt_trainer_backward_from(clt_trainer *trainer, const clt_feed *gradients,
                                             int n_gradients);
CLT_API clt_status clt_trainer_reduce(clt_trainer *trainer);
CLT_API clt_status clt_trainer_apply(clt_trainer *trainer, struct _cl_event **event);

/*
 * Runs a step up to its update: forward, backward and the reduction of all micro-batches. It takes
 * the place of clt_trainer_forward, _backward and _reduce, and also works with several
 * micro-batches (accumulate, rebalance, virtual_shards, pipelines). Gradients may be read and set
 * before clt_trainer_apply. The bits are those of clt_trainer_step. Errors: those of
 * clt_trainer_step.
 */
CLT_API clt_status clt_trainer_gradients(clt_trainer *trainer, const clt_step_batch *batch);

/* In place of clt_trainer_reduce: the caller has reduced the gradients itself, and sets the sums
 * over all devices of all ranks with clt_trainer_set_gradient, before this call or behind it.
 * clt_trainer_apply measures them, so norm, clipping, guard and loss scaling are equal on all
 * ranks. It fails with MISMATCH if devices of one kind have other gradients than each other; then
 * nothing was updated. A step without samples is possible too: clt_trainer_forward with a count of
 * 0, then clt_trainer_backward, which makes all gradients zero. Errors: as clt_trainer_reduce. */
CLT_API clt_status clt_trainer_reduced(clt_trainer *trainer);

/* Waits for step `step` (0, 1, ...; one of the last two) and reads its result. A step whose parts
 * have run up to forward or further, but not its update, has a loss; its norm is 0, `finite` 1. */
CLT_API clt_status clt_trainer_result(clt_trainer *trainer, int64_t step, clt_step_result *result);

/* Waits for such a step and reads the sum and weight of metric `index`, in the order of
 * clt_metric. */
CLT_API clt_status clt_trainer_metric(clt_trainer *trainer, int64_t step, int index, double *sum,
                                      double *weight);

/* Evaluates one batch and waits for it. Adds to sums[] and weights[], which have an entry for each
 * loss, then for each metric. All ranks call it together. If no step was made before the first
 * evaluation, checksums of all parameters and states are compared over devices and ranks
 * (MISMATCH).
 */
CLT_API clt_status clt_trainer_evaluate(clt_trainer *trainer, const clt_step_batch *batch,
                                        double *sums, double *weights);

/*
 * Enqueues the computation of outputs, as in evaluation, without losses and metrics. Inputs that
 * only losses and metrics use, such as labels, need no feeds. The outputs go where batch->fetches
 * says. At most four predictions are queued. *event (may be NULL; one device only) is an event of
 * the last command, which the caller releases. The first call makes the plan. If outputs depend on
 * clt_all_reduce, all ranks call it together, those without samples too.
 */
CLT_API clt_status clt_trainer_predict(clt_trainer *trainer, const clt_step_batch *batch,
                                       struct _cl_event **event);

/* Short forms for programs that have their samples in arrays of the host. The first dimension of
 * the arrays is the batch. clt_step_arrays makes a training step. If `loss` is not NULL, it waits
 * for the step and stores the loss, which is that before the update. clt_predict_arrays waits for
 * the outputs. Errors: as clt_trainer_step and clt_trainer_predict; NOT_FOUND (no such input);
 * INVALID_ARGUMENT (arrays that are `whole`, or of different numbers of samples). */
CLT_API clt_status clt_step_arrays(clt_trainer *trainer, const clt_feed *feeds, int n_feeds,
                                   double *loss);
CLT_API clt_status clt_predict_arrays(clt_trainer *trainer, const clt_feed *feeds, int n_feeds,
                                      const clt_fetch *fetches, int n_fetches);

/* Sets the base rate of the steps that begin from now on. The schedule still applies. Errors:
 * INVALID_ARGUMENT if the rate is negative or not finite. */
CLT_API clt_status clt_trainer_set_lr(clt_trainer *trainer, double lr);

/* Divides the batches of the steps that begin from now on by other weights of the devices of all
 * ranks. Every rank gives the same weights before the same step. Errors: STATE without
 * clt_trainer_options.rebalance and between the parts of a step; INVALID_ARGUMENT for weights that
 * clt_split refuses, or that give a device more samples than it has room for. */
CLT_API clt_status clt_trainer_set_weights(clt_trainer *trainer, const double *weights,
                                           int64_t quantum);

/* Get and set the number of steps done. Setting it restores schedule, random streams and bias
 * corrections. */
CLT_API int64_t clt_trainer_steps(const clt_trainer *trainer);
CLT_API void clt_trainer_set_steps(clt_trainer *trainer, int64_t steps);

/* Sets *steps to the number of steps in the averages, and waits. Errors: STATE without averages. */
CLT_API clt_status clt_trainer_averaged(clt_trainer *trainer, int64_t *steps);

/* With `on`, puts the averages in the place of the parameters and states, on all devices of this
 * rank: evaluations, predictions and clt_store_save then use them. With 0, puts the parameters back
 * with the same bits. Meanwhile steps, and saving and restoring checkpoints, fail with STATE. Every
 * rank calls it. Errors: STATE (no averages, or no step in them yet), those of devices. */
CLT_API clt_status clt_trainer_use_average(clt_trainer *trainer, int on);

/* Copies parameters, states, averages, optimizer slots and the number of steps from rank `root` to
 * the others. All ranks call it. Use it after clt_store_load or clt_trainer_restore on rank `root`.
 * If parameters are split over ranks (clt_shard), all ranks load or restore before it. With `wire`
 * all ranks restore before it, because residuals stay where they are. Errors: INVALID_ARGUMENT
 * (also if the rank does not have all parts of the parameters).
 */
CLT_API clt_status clt_trainer_broadcast(clt_trainer *trainer, int root);

/* Waits until the devices have done everything that was enqueued. */
CLT_API clt_status clt_trainer_wait(clt_trainer *trainer);

/* Describes what clt_trainer_create would plan for device 0: tables of training and evaluation, the
 * memory of each device, and the largest batch that fits. `explain` adds why each kernel variant
 * was chosen, and the program of a step. Runs nothing and allocates nothing on a device, so the
 * batch need not fit. Free *text with free(). */
CLT_API clt_status clt_trainer_plan(const clt_graph *graph, clt_store *store,
                                    const clt_trainer_options *options, int explain, char **text);

/* Compares the memory that clt_trainer_create would need with that of the devices. Allocates
 * nothing on a device. Errors: as clt_trainer_create, without BUILD. */
CLT_API clt_status clt_trainer_fits(const clt_graph *graph, clt_store *store,
                                    const clt_trainer_options *options);

CLT_END_DECLS

#endif
