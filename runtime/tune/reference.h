/* What a node of a plan should compute: by the portable kernels, from the same operands. */
#ifndef CLT_TUNE_REFERENCE_H
#define CLT_TUNE_REFERENCE_H

#include "tune/compare.h"

/* Whether the node's operator has a variant for any device that works on row-major values, or is
 * one of conv2d_pool and its gradients, whose reference is made of portable convolution and
 * pooling, and of loops on the host for masks. Those of layouts have none. */
bool clt_reference_exists(const clt_node *node, const clt_lab *lab);

/* Whether the variant is itself what a reference of the node is computed by. */
bool clt_reference_is(const clt_node *node, const clt_variant *variant);

/* Images that the portable kernels are asked for: all of the plan's batch, or as many as they
 * compute in a fraction of a second. */
int64_t clt_reference_count(const clt_node *node, const clt_lab *lab);

/*
 * The outputs of node number `index`, for lab->run.count images, by the operator's last variant in
 * a plan of its own, from the operands as they lie in the lab; row-major. To be compared with what
 * clt_outcome_read gives in plain order. The caller's to drop, on failure too.
 */
clt_status clt_reference_read(clt_lab *lab, int index, clt_outcome *outcome);

/* Whether the node's outputs are sums of products of its operands over the batch: the gradients of
 * weights and biases. Their terms may cancel. */
bool clt_reference_sums(const clt_node *node);

/*
 * Read the sum of the terms' magnitudes for each element of a node that clt_reference_sums names:
 * the portable kernel's outputs for the absolute values of the operands. Otherwise as
 * clt_reference_read.
 */
clt_status clt_reference_magnitudes(clt_lab *lab, int index, clt_outcome *outcome);

/* The largest difference of two right results, as a share of the magnitudes: 8 eps sqrt(K) for each
 * of the two, K the number of terms for `count` samples. */
double clt_reference_share(const clt_node *node, int64_t count);

#endif
