/*
 * Layer norm and RMS norm share this code. x is a matrix of rows of C contiguous elements; the last
 * `axes` axes make a row.
 *
 *     layer_norm(x, weight, bias) -> y, rstd [rows], mean [rows]
 *     layer_norm_grad(x, dy, rstd, mean, weight) -> dx, dweight, dbias
 *     rms_norm(x, weight) -> y, rstd
 *     rms_norm_grad(x, dy, rstd, NULL, weight) -> dx, dweight
 *
 * rstd and mean have x's other axes; [1] if there are none. The gradients of weight and bias are
 * computed in the same pass over memory as dx: every compute unit sums a share of the rows, and a
 * second launch adds the shares in order.
 */
#ifndef CLT_OPS_NORM_NORM_ROWS_H
#define CLT_OPS_NORM_NORM_ROWS_H

#include "graph/graph.h"
#include "ops/core/launch.h"

typedef struct clt_norm_rows_attr {
    double eps;
    int axes;
    /* For a gradient: which of dweight and dbias are wanted. Outputs that are not wanted have one
     * element that no kernel writes. */
    unsigned char weight, bias, unused[2];
} clt_norm_rows_attr;

clt_status clt_norm_rows_infer(const clt_node *node, clt_type *out);
clt_status clt_norm_rows_infer_grad(const clt_node *node, clt_type *out);

clt_status clt_norm_rows_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                  clt_value **dx);

/* clt_op.dims, and the attributes of the gradients. */
struct clt_node_dims;
void clt_norm_rows_dims(const clt_node *node, struct clt_node_dims *dims);
extern const clt_attribute clt_norm_rows_grad_attributes[];

void clt_norm_rows_describe(const clt_node *node, clt_str *text);
double clt_norm_rows_flops(const clt_node *node, int64_t n);

/* For clt_op.half: rows and their gradients may be stored in 16 bits; weights and statistics may
 * not. */
bool clt_half_rows(const clt_node *node, const clt_target *target, int index, bool output);

extern const clt_variant clt_norm_rows_variants[], clt_norm_rows_grad_variants[];

/* The members that the operators and their gradients have in common. */
#define CLT_NORM_ROWS_MEMBERS                                                                      \
    .by_node = "*", .dims = clt_norm_rows_dims, .attr_bytes = sizeof(clt_norm_rows_attr),          \
    .describe = clt_norm_rows_describe, .flops = clt_norm_rows_flops, .half = clt_half_rows

/* Adds partial sums: out[i] = sum over `parts` of block[part][first + i], i < count. `stride` is
 * the size of a part. */
void clt_norm_sum_parts(clt_program *program, const clt_target *target, int block, int out,
                        int64_t count, int64_t stride, int64_t first, int64_t parts);

#endif
