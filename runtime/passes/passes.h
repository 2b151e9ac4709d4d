/* Graph to graph. Each pass keeps the meaning of every output, loss and gradient. */
#ifndef CLT_PASSES_PASSES_H
#define CLT_PASSES_PASSES_H

#include "ops/core/launch.h"

/*
 * Reverse-mode differentiation: adds nodes that compute, for each i, gradients[i] = the gradient of
 * sum over k of <seeds[k], outputs[k]> with respect to wanted[i] (reverse accumulation; see
 * Griewank and Walther, "Evaluating Derivatives", 2nd ed., chapter 3). A gradient that is zero
 * because nothing connects the two is NULL. wanted[] are parameters, inputs or states.
 */
clt_status clt_autodiff(clt_graph *graph, clt_value *const *outputs, clt_value *const *seeds,
                        int n_outputs, clt_value *const *wanted, int n_wanted,
                        clt_value **gradients);

/* Makes of a graph with losses a training graph: gives each loss its upstream input (scalar, named
 * "<loss>.upstream") and adds the gradients of all parameters. gradients[] has room for one value a
 * parameter, in the order of graph->values; each is written by a node of its own, so that it can be
 * placed in a bucket, or NULL if zero. */
clt_status clt_pass_train(clt_graph *graph, clt_value **gradients);

/* Makes collectives what they are for one device alone: their operands. */
clt_status clt_pass_alone(clt_graph *graph);

/* Turns nodes into what they are outside training (dropout into nothing). */
clt_status clt_pass_evaluate(clt_graph *graph);

/* Removes reshapes and transposes without effect and computes equal nodes once. */
clt_status clt_pass_simplify(clt_graph *graph);

/* Lets nodes absorb their only users where the operators allow it. */
clt_status clt_pass_fuse(clt_graph *graph);

/* Chooses the layout of every value for the target, adding conversions at the borders; `fixed`
 * values (gradients) stay plain. */
clt_status clt_pass_layout(clt_graph *graph, const clt_target *target, clt_value **fixed,
                           int n_fixed);

/* The last pass: keeps layers' values and their gradients in `precision` (CLT_F16 or CLT_BF16);
 * everything is still computed in f32. */
clt_status clt_pass_precision(clt_graph *graph, const clt_target *target, clt_dtype precision);

/* After it: the parameters' gradients, which it leaves in f32, become values in `precision`,
 * rounded once. NULL entries of gradients[] stay. */
clt_status clt_pass_round_gradients(clt_graph *graph, const clt_target *target, clt_dtype precision,
                                    clt_value **gradients, int n_gradients);

/* After the layout pass: convolution, ReLU and 2 x 2 pooling in LANES become one node. */
clt_status clt_pass_fuse_pool(clt_graph *graph);

/* The very last: backward computes the forward values for which again[] (by value id) is true once
 * more, instead of reading what forward computed; clt_graph_clean must follow. Values that are
 * outputs, assigned, of collectives or made from no other value must not be among them; a view must
 * be where its operand is. */
clt_status clt_pass_recompute(clt_graph *graph, const bool *again);

#endif
