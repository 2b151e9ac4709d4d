/* Functions that avg_pool2d, max_pool2d and their gradients share. */
#ifndef CLT_OPS_POOL_POOL2D_H
#define CLT_OPS_POOL_POOL2D_H

#include "ops/core/dims.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"

/* Fills the attributes for pooling x. Fails x's graph and returns false if the options are not
 * valid. */
bool clt_pool2d_attr_from(const char *op, const clt_value *x, const clt_pool2d_options *options,
                          clt_pool2d_attr *attr);

/* Returns the attributes as options. */
clt_pool2d_options clt_pool2d_options_of(const clt_pool2d_attr *attr);

extern const clt_attribute clt_avg_pool2d_attributes[], clt_max_pool2d_attributes[];

clt_status clt_pool2d_infer(const clt_node *node, clt_type *out);
clt_status clt_pool2d_infer_grad(const clt_node *node, clt_type *out);

void clt_pool2d_describe(const clt_node *node, clt_str *text);

/* For clt_op.reach and clt_op.within. The windows of maxima are filled with the smallest number. */
bool clt_max_pool2d_reach(const clt_node *node, clt_window *window);
bool clt_avg_pool2d_reach(const clt_node *node, clt_window *window);
clt_value *clt_pool2d_within(const clt_node *node, const clt_window *window, clt_value *const *in);

/* One operation for each element of each window. */
double clt_pool2d_flops(const clt_node *node, int64_t n);
double clt_pool2d_flops_grad(const clt_node *node, int64_t n);

/* The variant for GPUs, in pool2d_gpu.c. */
void clt_pool2d_gpu(const clt_node *node, const clt_target *target, clt_program *program);

/* The variant for CPUs that computes rows of windows, in pool2d_cpu.c. */
bool clt_pool2d_cpu_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_pool2d_cpu(const clt_node *node, const clt_target *target, clt_program *program);

/* For clt_op.half and clt_op.variants of all four operators. */
bool clt_pool2d_half(const clt_node *node, const clt_target *target, int index, bool output);

extern const clt_variant clt_pool2d_variants[];

/* The members that the four operators have in common. */
#define CLT_POOL2D_MEMBERS                                                                         \
    .halo = "hw", .attr_bytes = sizeof(clt_pool2d_attr), .describe = clt_pool2d_describe,          \
    .batch_blocked = clt_wants_batch_blocked, .half = clt_pool2d_half,                             \
    .variants = clt_pool2d_variants

#endif
