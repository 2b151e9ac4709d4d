/*
 * The graph: operators on values of known shape. It is built once, by the functions here and in
 * ops.h, and compiled to plans; it holds no numbers but constants.
 *
 * Builder functions return the new value, or NULL on failure. A graph keeps its first failure
 * (clt_graph_status), and every builder given NULL returns NULL without touching it, so a model can
 * be written without a check a line and be checked once at its end.
 *
 * Dimensions are int64. A positive one is constant; a negative one, -c, is c times the batch, which
 * is known only when a plan runs. CLT_BATCH is one times the batch. Only the first dimension of an
 * input can depend on the batch.
 *
 * A graph is not thread-safe. Values and nodes belong to their graph.
 */
#ifndef CLTRAIN_GRAPH_H
#define CLTRAIN_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/export.h>
#include <cltrain/status.h>
#include <cltrain/types.h>

CLT_BEGIN_DECLS

typedef struct clt_graph clt_graph;
typedef struct clt_value clt_value;

#define CLT_BATCH ((int64_t)-1)

/* How a parameter or state starts. UNIFORM: in [-bound, bound). All are a pure function of the
 * store's seed and the parameter's position in the graph. */
typedef enum clt_init_kind {
    CLT_INIT_ZERO = 0,
    CLT_INIT_CONSTANT = 1, /* a: the value */
    CLT_INIT_UNIFORM = 2,  /* a: the bound */
    CLT_INIT_NORMAL = 3    /* a: mean, b: standard deviation */
} clt_init_kind;

typedef struct clt_init {
    clt_init_kind kind;
    double a, b;
} clt_init;

/* A new empty graph; *graph is set on CLT_OK. Free with clt_graph_destroy. */
CLT_API clt_status clt_graph_create(clt_graph **graph);

/* Frees the graph, its values and nodes. NULL is allowed. */
CLT_API void clt_graph_destroy(clt_graph *graph);

/* CLT_OK, or the status of the first builder that failed; the message becomes the thread's. */
CLT_API clt_status clt_graph_status(const clt_graph *graph);

/* A value that the caller provides at each run. The first dimension may be CLT_BATCH. Names of
 * inputs, parameters and states are unique within a graph. */
CLT_API clt_value *clt_input(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                             const int64_t *dims);

/* A trainable f32 tensor of constant dimensions. `name` and layout are those of the checkpoint. */
CLT_API clt_value *clt_parameter(clt_graph *graph, const char *name, int rank, const int64_t *dims,
                                 clt_init init);

/*
 * Freezes the parameters that match `pattern`, as requires_grad = False does: they get no gradient,
 * no memory for one or for the optimizer, are not reduced between devices nor updated, and stay in
 * stores and checkpoints. The gradients of other parameters pass through them.
 *
 * A pattern is one or several of fnmatch(3), parted by '|', on names ('*' matches dots too); "1d"
 * stands for all parameters of at most one dimension: biases, and weights and biases of norms.
 *
 * Before a store is made of the graph: the store's layout depends on it. *count (may be NULL): how
 * many parameters match. Errors: NOT_FOUND (none does), OUT_OF_MEMORY.
 */
CLT_API clt_status clt_freeze(clt_graph *graph, const char *pattern, int *count);

/* An lr and a weight_decay of clt_param_group: as an earlier call says, else 1 and what the
 * trainer's options say. */
#define CLT_COMMON_RATE (-1.0)
#define CLT_COMMON_DECAY (-1.0)

/*
 * A parameter group, as PyTorch's optimizers have them: the parameters that match `pattern` are
 * updated with `lr` times the rate of the step (of the schedule, too) and with their own weight
 * decay. Where several calls match a parameter, the last that gives the rate and the last that
 * gives the decay count. The usual recipe of GPT-2 (no decay on biases and norms) is
 *
 *     clt_param_group(graph, "1d", CLT_COMMON_RATE, 0, NULL);
 *
 * Before a store is made of the graph. *count, patterns and errors: as clt_freeze; INVALID_ARGUMENT
 * (lr or weight_decay negative or not finite).
 */
CLT_API clt_status clt_param_group(clt_graph *graph, const char *pattern, double lr,
                                   double weight_decay, int *count);

/* A tensor that persists between steps and changes only through clt_assign. Constant dimensions:
 * equal on all replicas and part of checkpoints. */
CLT_API clt_value *clt_state(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                             const int64_t *dims, clt_init init);

/*
 * A state that is carried from one run of a predictor (<cltrain/predict.h>) to the next, as a
 * key-value cache or what a recurrent layer remembers: zero when the store is made, no part of
 * files and checkpoints, written by clt_store_set. After every run it takes the value of
 * clt_assign. Where that is clt_index_copy into the state, and nothing later reads what the state
 * was, only the new rows are written, in the store's memory. Training and evaluation refuse a graph
 * that uses one.
 */
CLT_API clt_value *clt_carried(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                               const int64_t *dims);

/*
 * For files that other programs wrote: each tensor may have `prefix` before its name, and tensors
 * that match `ignored` and are none of the graph's are passed over (buffers, as masks; fnmatch(3)
 * patterns, parted by '|', on names without the prefix). An item COPY=NAME of `ignored` names a
 * tensor that is tied to the graph's NAME: it is passed over, with the prefix or without, where it
 * equals NAME bit for bit, and refused where not. Either may be NULL. Before a store is made of the
 * graph: clt_store_load of that store then accepts such files; anything else that does not fit is
 * an error as before. Errors: OUT_OF_MEMORY.
 */
CLT_API clt_status clt_file_names(clt_graph *graph, const char *prefix, const char *ignored);

/* A constant; `data` (row-major, clt_dtype_size bytes an element) is copied. */
CLT_API clt_value *clt_constant(clt_graph *graph, clt_dtype dtype, int rank, const int64_t *dims,
                                const void *data);

/*
 * At the end of a training step that is committed, `state` takes the value of `value` (same dtype
 * and dimensions) as it was in the step: of a parameter, before the update. Evaluation plans ignore
 * it. Replicas keep the same bits:
 *
 * - A value that does not depend on the batch is computed on every device, and costs no
 *   communication.
 * - A value that depends on a device's own images is the mean over the devices of all ranks and
 *   their micro-batches, each weighted by its number of images: running means of activations are
 *   those of the whole batch, running variances leave out what the parts' means differ by.
 *   (PyTorch's DistributedDataParallel keeps what rank 0 has of its own images, and updates with
 *   every micro-batch.) One all-reduce a step, of all such states together.
 * - A value that depends on images through clt_all_reduce alone is the same on all devices, and is
 *   taken as it is: the mean over micro-batches, from the first device, in the same all-reduce.
 * - The result of clt_batch_rows_put has each row from the device and micro-batch of its sample, in
 *   the same all-reduce; see <cltrain/ops_recurrent.h>.
 * - In a step without samples, states whose value depends on the batch stay as they are.
 * - Other element types than f32 have no mean: of several micro-batches the last one's value is
 *   taken, and a trainer on several devices refuses such a state where its value depends on the
 *   batch (UNSUPPORTED).
 * - States of training have a multiple of 4 bytes: a trainer refuses others (UNSUPPORTED).
 */
CLT_API clt_status clt_assign(clt_graph *graph, clt_value *state, clt_value *value);

/* Gives a value a name, under which plans report and return it. */
CLT_API clt_value *clt_name(clt_value *value, const char *name);

/* Calls the node that computes a value by a name, in messages, profiles and listings; names need
 * not be unique. The value gets no name: unlike one of clt_name, it may be fused away. */
CLT_API clt_value *clt_label(clt_value *value, const char *label);

/* Marks a value as a result that plans keep: readable after a run under its name. */
CLT_API clt_value *clt_output(clt_value *value, const char *name);

/*
 * Declares that the caller gives the gradient of an output: of a loss that is computed elsewhere,
 * by a kernel of the host program or by another graph. Returns a new input `name` of the output's
 * type (f32). Training then adds <that input, output>, summed over all samples, to the objective:
 * what the caller gives for a mean over the global batch has its 1 / batch in it. The input is fed
 * with a training batch, or to clt_trainer_backward_from; evaluation and prediction do not use it.
 */
CLT_API clt_value *clt_output_gradient(clt_value *output, const char *name);

/* Declares a loss: `sum` and `weight` are scalars, as clt_cross_entropy returns them, and the
 * training objective is the sum over all losses of coefficient * sum / weight, where sum and weight
 * run over the whole global batch. Errors: SHAPE (not one f32 each), INVALID_ARGUMENT (a
 * coefficient that is not finite). */
CLT_API clt_status clt_loss(clt_graph *graph, const char *name, clt_value *sum, clt_value *weight,
                            double coefficient);

/* Declares a metric: reported as sum / weight over the global batch or epoch (accuracy, top-k). */
CLT_API clt_status clt_metric(clt_graph *graph, const char *name, clt_value *sum,
                              clt_value *weight);

/* Losses and metrics declared so far, and their names in that order; NULL for an index that is
 * none.
 */
CLT_API int clt_graph_loss_count(const clt_graph *graph);
CLT_API const char *clt_graph_loss_name(const clt_graph *graph, int index);
/* What clt_loss gave for it; 0 for an index that is none. */
CLT_API double clt_graph_loss_coefficient(const clt_graph *graph, int index);
CLT_API int clt_graph_metric_count(const clt_graph *graph);
CLT_API const char *clt_graph_metric_name(const clt_graph *graph, int index);

/* Rank, dimensions (negative: times the batch) and element type of a value. */
CLT_API int clt_value_rank(const clt_value *value);
CLT_API int64_t clt_value_dim(const clt_value *value, int axis);
CLT_API clt_dtype clt_value_dtype(const clt_value *value);

/* The name, or NULL. */
CLT_API const char *clt_value_name(const clt_value *value);

/* An input, parameter, state or output by name; NULL if there is none. */
CLT_API clt_value *clt_graph_find(clt_graph *graph, const char *name);

CLT_END_DECLS

#endif
