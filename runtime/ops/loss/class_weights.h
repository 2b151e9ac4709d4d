/* Cross entropy with weights of classes. */
#ifndef CLT_OPS_LOSS_CLASS_WEIGHTS_H
#define CLT_OPS_LOSS_CLASS_WEIGHTS_H

#include <cltrain/ops/nn.h>

/* As clt_cross_entropy, for options with class_weights. */
clt_status clt_cross_entropy_weighted(clt_value *logits, clt_value *labels,
                                      const clt_cross_entropy_options *options, clt_value **sum,
                                      clt_value **weight);

#endif
