/*
 * The graph: operators on values of known shape. Functions here and in ops.h build it once.
 * Trainers and predictors compile it to plans. It holds no numbers but constants.
 *
 * Builder functions return the new value, or NULL on failure. A graph keeps its first failure
 * (clt_graph_status). A builder that gets NULL returns NULL and keeps that failure. So a model
 * needs one check at its end, not one a line.
 *
 * Dimensions are int64. A positive dimension is constant. A negative one, -c, is c times the batch,
 * which is known when a plan runs. CLT_BATCH is one times the batch. Only the first dimension of an
 * input may depend on the batch.
 *
 * One thread at a time uses a graph. Values and nodes belong to their graph.
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

/* The initial value of a parameter or state. UNIFORM: in [-bound, bound). Random numbers depend on
 * the store's seed and the parameter's position in the graph only. */
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

/* Creates an empty graph. Free *graph with clt_graph_destroy. Errors: OUT_OF_MEMORY. */
CLT_API clt_status clt_graph_create(clt_graph **graph);

/* Frees the graph with its values and nodes. Takes NULL. */
CLT_API void clt_graph_destroy(clt_graph *graph);

/* Returns CLT_OK, or the status of the first builder that failed, and sets its message. */
CLT_API clt_status clt_graph_status(const clt_graph *graph);

/* Adds a value that the caller provides at each run. The first dimension may be CLT_BATCH. Names of
 * inputs, parameters and states are unique within a graph. */
CLT_API clt_value *clt_input(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                             const int64_t *dims);

/* Adds a trainable f32 tensor of constant dimensions. Checkpoints have its name and layout. */
CLT_API clt_value *clt_parameter(clt_graph *graph, const char *name, int rank, const int64_t *dims,
                                 clt_init init);

/*
 * Freezes the parameters that match `pattern`, as requires_grad = False does. They have no gradient
 * and no memory for the optimizer, and are neither reduced nor updated. They stay in stores and
 * checkpoints. Gradients of other parameters pass through them. Call it before a store is made of
 * the graph, whose layout depends on it.
 *
 * A pattern is one or several patterns of fnmatch(3), separated by '|', for names. '*' matches dots
 * too. "1d" matches all parameters of at most one dimension: biases, and weights and biases of
 * norms. A pattern behind '!' excludes names that others match. "!fc.*" alone matches all but those
 * of layer fc.
 *
 * *count (may be NULL) is the number of parameters that match. Errors: NOT_FOUND (none matches),
 * OUT_OF_MEMORY.
 */
CLT_API clt_status clt_freeze(clt_graph *graph, const char *pattern, int *count);

/* For lr and weight_decay of clt_param_group: keep the value of an earlier call, else 1 and the
 * decay of the trainer's options. */
#define CLT_COMMON_RATE (-1.0)
#define CLT_COMMON_DECAY (-1.0)

/*
 * Makes a parameter group, as PyTorch's optimizers have them. Parameters that match `pattern` learn
 * at `lr` times the rate of the step, with their own weight decay. If several calls match a
 * parameter, the last call that gives the rate and the last call that gives the decay count. GPT-2
 * is usually trained without decay on biases and norms:
 *
 *     clt_param_group(graph, "1d", CLT_COMMON_RATE, 0, NULL);
 *
 * Call it before a store is made of the graph. *count and patterns are as for clt_freeze. Errors:
 * as clt_freeze; INVALID_ARGUMENT (lr or weight_decay negative or not finite).
 */
CLT_API clt_status clt_param_group(clt_graph *graph, const char *pattern, double lr,
                                   double weight_decay, int *count);

/* The axes of a mesh of devices. */
typedef enum clt_axis {
    CLT_AXIS_DATA = 0,     /* dp: different samples */
    CLT_AXIS_TENSOR = 1,   /* tp: different parts of layers */
    CLT_AXIS_PIPELINE = 2, /* pp: different layers */
    CLT_AXIS_SPACE = 3,    /* space: different rows of images */
    CLT_AXIS_TIME = 4,     /* time: different parts of sequences */
    CLT_AXES = 5
} clt_axis;

/*
 * Splits the parameters that match `pattern` over the places of an axis, along dimension `dim`. The
 * dimension is first cut into `blocks` equal blocks. Each place gets a part of every block. With 3
 * blocks, packed weights of queries, keys and values are split by heads. The parts of a block may
 * differ by one element; the first places then have the larger ones.
 *
 * This has an effect only in stores whose mesh has the axis (clt_store_options.parallel). Which
 * parameters are split never changes the result, except by rounding. Checkpoints have whole
 * tensors. A later call replaces the split of an earlier one. Call it before a store is made of the
 * graph. Other graphs on the store have the same splits, whatever they say. Models of
 * <cltrain/models.h> have splits.
 *
 * *count and patterns are as for clt_freeze. Errors: as clt_freeze; UNSUPPORTED (an axis other than
 * CLT_AXIS_TENSOR); SHAPE (a parameter lacks the dimension, or does not have `blocks` equal blocks
 * there).
 */
CLT_API clt_status clt_shard(clt_graph *graph, const char *pattern, clt_axis axis, int dim,
                             int blocks, int *count);

/*
 * Splits a value over the places of an axis, along dimension `dim`: each place computes its part of
 * the value, and of the values that depend on it. Usually the value is an input, an image, and the
 * dimension its height. Places exchange the rows at their borders where an operator needs rows of
 * its neighbours. Parts differ by one element at most; the first places have the larger ones.
 *
 * Over axis time the value is a sequence, and the dimension its positions. Attention gathers keys
 * and values. If the graph has causal attention, each place gets early and late positions, so that
 * all have as much work. The positions must then be a multiple of twice the places.
 *
 * This has an effect only on meshes with the axis (clt_store_options.parallel). It never changes
 * the result, except by rounding. All places get whole samples, and outputs are whole. Batch norm
 * must be synchronised. Errors: UNSUPPORTED (an axis other than CLT_AXIS_SPACE and CLT_AXIS_TIME,
 * a parameter or state); SHAPE (no such dimension, or it depends on the batch).
 */
CLT_API clt_status clt_shard_value(clt_value *value, clt_axis axis, int dim);

/*
 * Ends a stage of the pipeline behind a computed value. The nodes that were added so far up to the
 * one that computes the value belong to this stage, those behind it to the next stage. Along axis
 * pp each place has one stage: its nodes, their parameters and states. Values that another stage
 * needs are sent there, and their gradients back. A parameter that several stages use is on each of
 * them.
 *
 * Cuts have an effect only with a mesh of pp=N, which needs N - 1 of them, in the order of the
 * nodes. Of more cuts, those are used with which the largest stage has the fewest floating-point
 * operations. Models of <cltrain/models.h> have cuts behind their blocks. Returns the value.
 * Errors: INVALID_ARGUMENT (no node computes the value, or it is cut already).
 */
CLT_API clt_value *clt_cut(clt_value *value);

/*
 * Cuts the graph before layers, instead of where it was cut so far. `patterns` has patterns of
 * fnmatch(3), separated by '|', one for each stage but the first. A stage begins at the first node
 * that a pattern matches: the node's name, the name of a parameter or state that it reads, or this
 * name up to the last dot. "h.4.*|h.8.*" makes three stages of GPT-2. Call it before a store is
 * made of the graph. Errors, which leave the cuts as they are: NOT_FOUND (a pattern matches
 * nothing); INVALID_ARGUMENT (two stages would begin at one node, one at the first node, or stages
 * are not in the order of the nodes).
 */
CLT_API clt_status clt_cut_before(clt_graph *graph, const char *patterns);

/* Adds a tensor of constant dimensions that persists between steps and changes only by clt_assign.
 * All replicas are equal. Checkpoints contain it. */
CLT_API clt_value *clt_state(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                             const int64_t *dims, clt_init init);

/*
 * Adds a state that a predictor (<cltrain/predict.h>) carries from one run to the next, such as a
 * key-value cache or the state of a recurrent layer. It is zero when the store is made, and
 * clt_store_set writes it. Files and checkpoints do not contain it. After every run it takes the
 * value of clt_assign. If that value is clt_index_copy into the state, and no later node reads the
 * old state, only the new rows are written. Training and evaluation refuse a graph that uses such a
 * state.
 */
CLT_API clt_value *clt_carried(clt_graph *graph, const char *name, clt_dtype dtype, int rank,
                               const int64_t *dims);

/*
 * Lets clt_store_load accept files that other programs wrote. Call it before a store is made of the
 * graph. Either argument may be NULL.
 *
 * - `prefix`: each tensor may have it before its name.
 * - `ignored`: patterns of fnmatch(3), separated by '|', for names without the prefix. Matching
 *   tensors that the graph lacks, such as buffers with masks, are ignored.
 * - An item COPY=NAME in `ignored` names a tensor that is tied to NAME of the graph. It is ignored,
 *   with or without the prefix, if it equals NAME bit for bit, and refused otherwise.
 *
 * Errors: OUT_OF_MEMORY.
 */
CLT_API clt_status clt_file_names(clt_graph *graph, const char *prefix, const char *ignored);

/* Adds a constant. `data` (row-major, clt_dtype_size bytes an element) is copied. */
CLT_API clt_value *clt_constant(clt_graph *graph, clt_dtype dtype, int rank, const int64_t *dims,
                                const void *data);

/*
 * Assigns `value` (same dtype and dimensions) to `state` at the end of each training step that is
 * committed. The value is that of the step; of a parameter, that before the update. Evaluation
 * ignores it. Replicas keep the same bits:
 *
 * - A value that does not depend on the batch is computed on every device, without communication.
 * - A value that depends on a device's own samples becomes the mean over the devices of all ranks
 *   and their micro-batches, weighted by their numbers of samples. One all-reduce a step does this
 *   for all such states. Running means of activations are then those of the whole batch. Running
 *   variances lack the differences between the means of the parts. (PyTorch's
 *   DistributedDataParallel takes the value of rank 0, and updates with every micro-batch.)
 * - A value that depends on samples through clt_all_reduce alone is equal on all devices. Its mean
 *   over micro-batches is taken from the first device, in the same all-reduce.
 * - The result of clt_batch_rows_put takes each row from the device and micro-batch of its sample,
 *   in the same all-reduce; see <cltrain/ops/recurrent.h>.
 * - In a step without samples, states whose value depends on the batch stay as they are.
 * - Element types other than f32 have no mean. Of several micro-batches the last value is taken. A
 *   trainer on several devices refuses such a state if its value depends on the batch
 *   (UNSUPPORTED).
 * - States of training need a multiple of 4 bytes (UNSUPPORTED otherwise, by the trainer).
 */
CLT_API clt_status clt_assign(clt_graph *graph, clt_value *state, clt_value *value);

/* Names a value. Plans report and return it under this name. Returns the value. */
CLT_API clt_value *clt_name(clt_value *value, const char *name);

/* Labels the node that computes a value, for messages, profiles and listings. Labels need not be
 * unique. Unlike a value of clt_name, the value has no name and may be fused away. Returns the
 * value. */
CLT_API clt_value *clt_label(clt_value *value, const char *label);

/* Marks a value as an output. It can be read under its name after a run. Returns the value. */
CLT_API clt_value *clt_output(clt_value *value, const char *name);

/*
 * Declares that the caller gives the gradient of an output. Use it for a loss that the host program
 * or another graph computes. Returns a new input `name` of the output's type (f32). Training adds
 * the inner product of that input and the output, summed over all samples, to the objective. So the
 * gradient of a mean over the global batch contains the factor 1 / batch. Feed the input with a
 * training batch, or in clt_trainer_backward_from. Evaluation and prediction do not use it.
 */
CLT_API clt_value *clt_output_gradient(clt_value *output, const char *name);

/*
 * Asks training for the gradient of the objective with respect to an f32 input, beside those of the
 * parameters: the derivative of the sum over all losses of coefficient * sum / weight, and of the
 * inner products that clt_output_gradient adds. clt_trainer_input_gradient reads it. In a graph
 * without losses it is exactly the vector-Jacobian product of the gradients that the caller gives.
 * If all parameters are frozen (clt_freeze), only gradients of inputs are computed.
 *
 * Call it before a trainer is made of the graph. The trainer fails with INVALID_ARGUMENT if neither
 * a loss nor an output with a gradient depends on the input. It also needs the name NAME.gradient
 * for a value of its own. Errors: NOT_FOUND (no such input; suggests the nearest name),
 * INVALID_ARGUMENT (not f32).
 */
CLT_API clt_status clt_input_gradient(clt_graph *graph, const char *name);

/* Declares a loss. `sum` and `weight` are scalars, as clt_cross_entropy returns them, and are added
 * over the whole global batch. The training objective is the sum over all losses of coefficient *
 * sum / weight. Errors: SHAPE (not one f32 each), INVALID_ARGUMENT (a coefficient that is not
 * finite). */
CLT_API clt_status clt_loss(clt_graph *graph, const char *name, clt_value *sum, clt_value *weight,
                            double coefficient);

/* Declares a metric, such as accuracy. It is reported as sum / weight over the global batch or
 * epoch. Errors: SHAPE. */
CLT_API clt_status clt_metric(clt_graph *graph, const char *name, clt_value *sum,
                              clt_value *weight);

/* Return the number of losses and metrics declared so far, and their names in this order; NULL for
 * another index. */
CLT_API int clt_graph_loss_count(const clt_graph *graph);
CLT_API const char *clt_graph_loss_name(const clt_graph *graph, int index);
/* Returns the coefficient of a loss; 0 for another index. */
CLT_API double clt_graph_loss_coefficient(const clt_graph *graph, int index);
CLT_API int clt_graph_metric_count(const clt_graph *graph);
CLT_API const char *clt_graph_metric_name(const clt_graph *graph, int index);

/* Return the rank, a dimension (negative: times the batch) and the element type of a value. */
CLT_API int clt_value_rank(const clt_value *value);
CLT_API int64_t clt_value_dim(const clt_value *value, int axis);
CLT_API clt_dtype clt_value_dtype(const clt_value *value);

/* Returns the name of a value, or NULL. */
CLT_API const char *clt_value_name(const clt_value *value);

/* Returns the input, parameter, state or output of this name; NULL if there is none. */
CLT_API clt_value *clt_graph_find(clt_graph *graph, const char *name);

CLT_END_DECLS

#endif
