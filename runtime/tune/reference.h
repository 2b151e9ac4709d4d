/* Computes the outputs of a plan's node with portable kernels, from the same operands. */
#ifndef CLT_TUNE_REFERENCE_H
#define CLT_TUNE_REFERENCE_H

#include "tune/compare.h"

/* Whether the node has a reference. It needs a variant for any device that works on row-major
 * values. conv2d_pool and its gradients have a reference too, composed of portable convolution and
 * pooling, and of loops on the host for masks. Operators of layouts have none. */
bool clt_reference_exists(const clt_node *node, const clt_lab *lab);

/* Whether the variant itself computes the node's reference. */
bool clt_reference_is(const clt_node *node, const clt_variant *variant);

/* Returns the number of images for the portable kernels: the plan's whole batch, or as many as they
 * compute in a fraction of a second. */
int64_t clt_reference_count(const clt_node *node, const clt_lab *lab);

/*
 * Computes the outputs of node number `index` for lab->run.count images. The operator's last
 * variant runs in a plan of its own, on the operands that are in the lab. Outputs are row-major, as
 * clt_outcome_read gives them with `plain`. The caller drops the outcome, on failure too.
 */
clt_status clt_reference_read(clt_lab *lab, int index, clt_outcome *outcome);

/* Whether the node's outputs are sums whose terms may cancel: gradients of weights and biases,
 * reductions, and the sums of batch norm. */
bool clt_reference_sums(const clt_node *node);

/*
 * Read the sum of the terms' magnitudes for each element of a node that clt_reference_sums names:
 * the portable kernel's outputs for the magnitudes of the operands. Otherwise as
 * clt_reference_read.
 */
clt_status clt_reference_magnitudes(clt_lab *lab, int index, clt_outcome *outcome);

/* Returns the largest difference of two right results, as a share of the magnitudes: 8 eps sqrt(K)
 * for each of the two. K is the number of terms for `count` samples. */
double clt_reference_share(const clt_node *node, int64_t count);

#endif
