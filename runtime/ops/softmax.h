/* What softmax and log_softmax share. */
#ifndef CLT_OPS_SOFTMAX_H
#define CLT_OPS_SOFTMAX_H

#include "ops/nn.h"

/* Of the four operators: operands are one (x) or two (y, dy) of one type, which the result has. */
clt_status clt_softmax_infer(const clt_node *node, clt_type *out);
void clt_softmax_describe(const clt_node *node, clt_str *text);
double clt_softmax_flops(const clt_node *node, int64_t n);

/* Launches `kernel` of portable/softmax.cl, a work-item a vector along the axis. */
void clt_softmax_portable(const clt_node *node, const char *kernel, int is_log,
                          const clt_target *target, clt_program *program);

#endif
