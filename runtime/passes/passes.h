/* Passes over graphs. Each keeps the meaning of every output, loss and gradient. */
#ifndef CLT_PASSES_PASSES_H
#define CLT_PASSES_PASSES_H

#include "graph/mesh.h"
#include "ops/core/launch.h"

/*
 * Adds nodes that compute gradients by reverse accumulation (Griewank and Walther, "Evaluating
 * Derivatives", 2nd ed., chapter 3). gradients[i] is the gradient of the sum over k of <seeds[k],
 * outputs[k]> with respect to wanted[i]. gradients[i] is NULL, for zero, if no path connects the
 * two. wanted[] are parameters, inputs or states.
 */
clt_status clt_autodiff(clt_graph *graph, clt_value *const *outputs, clt_value *const *seeds,
                        int n_outputs, clt_value *const *wanted, int n_wanted,
                        clt_value **gradients);

/* Makes a training graph from a graph with losses. Each loss gets its upstream input (a scalar
 * named "<loss>.upstream"), and the gradients of all parameters are added. gradients[] has room for
 * one value a parameter, in the order of graph->values. A node of its own writes each gradient, so
 * that the gradient can be placed in a bucket. NULL: the gradient is zero. Gradients of inputs
 * (clt_input_gradient) become outputs. */
clt_status clt_pass_train(clt_graph *graph, clt_value **gradients);

/* Adds up the gradients of inputs over the places of axes space and time, each of which has found
 * what its part of the samples adds. Runs after clt_pass_train. */
clt_status clt_pass_sum_input_gradients(clt_graph *graph, const clt_mesh *mesh);

/* Replaces collectives by their operands, for a plan without collectives on one device. */
clt_status clt_pass_drop_collectives(clt_graph *graph);

/* What a choice of cuts depends on. Piece p of a graph lies between its cuts p and p + 1. */
typedef struct clt_stage_costs {
    int pieces, stages;
    const double *work; /* [stages][pieces]: of the piece on the devices of the stage */
    const int *ends;    /* [stages][pieces]: a stage that begins at the piece must end before this
                           one, since more does not fit its devices; NULL: they have room */
} clt_stage_costs;

/* Writes the first piece of each stage to begins[], so that the largest stage has the least work.
 * *found becomes false if no choice fits. */
clt_status clt_stages_balance(const clt_stage_costs *costs, int *begins, bool *found);

/* Adds the floating-point operations of forward in each piece to work[]. Errors: INVALID_ARGUMENT
 * (the cuts do not have the order of the nodes). */
clt_status clt_stages_work(const clt_graph *graph, double *work);

/* Values have a bit for each stage that uses them. */
enum { CLT_MOST_STAGES = 64 };

/*
 * Gives each node its stage, by the graph's cuts (clt_cut). Of more cuts than needed, those are
 * used with which the largest stage has the least work. Parameters that are trained and used by
 * several stages get a copy for each stage but the first, so that autodiff gives a gradient for
 * each. If parameters and states have stages already, which another graph gave them in a store, the
 * cuts are used that lie between those. Runs before clt_pass_train. Errors: INVALID_ARGUMENT, with
 * one line that names the cut or the stage; MISMATCH, if the cuts do not fit the given stages.
 */
clt_status clt_pass_stages(clt_graph *graph, int stages);

/*
 * Makes the graph that of one stage. Nodes of other stages leave it, with their inputs, parameters,
 * states and outputs. Values that other stages compute are received, and those that other stages
 * read are sent (ops/collective/transfer.h). Losses and metrics of other stages are 0, with weight
 * 0. gradients[] become those of the stage's parameters, and *n_gradients their number. Appends a
 * line for each message to `report`. Runs after clt_pass_train and clt_graph_clean.
 */
clt_status clt_pass_pipeline(clt_graph *graph, int stage, clt_value **gradients, int *n_gradients,
                             clt_str *report);

/* What clt_pass_partition did, for readers and tests. */
typedef struct clt_partition_report {
    int gathers; /* nodes whose split operands were gathered, because nothing divides the node */
    char gathered[160]; /* the first of them, with axis and operator */
    clt_str text;       /* one line for each split parameter, collective and such node */
} clt_partition_report;

/*
 * Makes the graph that of one place of a mesh. Parameters that are split (clt_shard) get the types
 * of their parts, and collectives join the parts of values. gradients[] become those of the parts.
 * `batch` is for comparing costs. Axis tp is divided; others leave the graph as it is. Runs after
 * clt_pass_train. Errors: SHAPE, and those of operators that do not divide.
 */
clt_status clt_pass_partition(clt_graph *graph, const clt_mesh *mesh, int participant,
                              int64_t batch, clt_value **gradients, int n_gradients,
                              clt_partition_report *report);

/*
 * Makes a graph without gradients that of one place of axes space and time: each place computes
 * parts of the values that are split (clt_shard_value) and of those that depend on them. Losses and
 * metrics become the place's share of them; outputs are whole. Runs before clt_pass_train. Errors:
 * SHAPE (a dimension that cannot be divided; a part with fewer rows than its neighbour needs);
 * UNSUPPORTED (batch norm that is not synchronised).
 */
clt_status clt_pass_partition_forward(clt_graph *graph, const clt_mesh *mesh, int participant,
                                      int64_t batch, clt_partition_report *report);

/*
 * Makes the parameters that are split along axis dp (CLT_FLAT), which has so many places, shards.
 * Collectives gather them where they are used, and reduce their gradients into shards. All trained
 * parameters must be split. gradients[] become those
 * of the shards. Appends a line for each collective to `report`. Runs after clt_pass_train and
 * clt_pass_simplify. Errors: UNSUPPORTED (a parameter is an output).
 */
clt_status clt_pass_gather(clt_graph *graph, int places, clt_value **gradients, int n_gradients,
                           clt_str *report);

/* Replaces nodes for evaluation: dropout disappears. */
clt_status clt_pass_evaluate(clt_graph *graph);

/* Removes reshapes and transposes without effect, and computes equal nodes only once. */
clt_status clt_pass_simplify(clt_graph *graph);

/* Fuses nodes with their only users where the operators allow it. */
clt_status clt_pass_fuse(clt_graph *graph);

/* Chooses the layout of every value for the target, and adds conversions between layouts. `fixed`
 * values (gradients) stay plain. */
clt_status clt_pass_layout(clt_graph *graph, const clt_target *target, clt_value **fixed,
                           int n_fixed);

/* Stores layers' values and their gradients in `precision` (CLT_F16 or CLT_BF16). Kernels still
 * compute in f32. Runs after all other passes but clt_pass_round_gradients and
 * clt_pass_recompute. */
clt_status clt_pass_precision(clt_graph *graph, const clt_target *target, clt_dtype precision);

/* Lets operators read states in 16 bits without a conversion before them. Runs after
 * clt_pass_layout; clt_graph_clean must follow. */
clt_status clt_pass_read_halves(clt_graph *graph, const clt_target *target);

/* Whether clt_pass_precision stores the value in 16 bits, as far as the graph shows before other
 * passes. Stages of a pipeline ask for values of another stage. */
bool clt_precision_rounds(const clt_value *value);

/* Stores the parameters' gradients in `precision`, rounded once. clt_pass_precision leaves them in
 * f32 and runs before. NULL entries of gradients[] stay NULL. */
clt_status clt_pass_round_gradients(clt_graph *graph, const clt_target *target, clt_dtype precision,
                                    clt_value **gradients, int n_gradients);

/* Fuses convolution, ReLU and 2 x 2 pooling in the batch-blocked layout into one node. Runs after
 * clt_pass_layout. */
clt_status clt_pass_fuse_pool(clt_graph *graph);

/* Makes the backward pass recompute the forward values for which recomputed[] (by value id) is
 * true, instead of reading them. Runs last; clt_graph_clean must follow. recomputed[] must be false
 * for outputs, for assigned values, for operands and results of collectives, and for values made
 * from no other value. It must be true for a view if it is true for the view's operand, and only
 * then. */
clt_status clt_pass_recompute(clt_graph *graph, const bool *recomputed);

#endif
