/* Numbers in 16 bits with error feedback, outside collectives. */
#ifndef CLT_COMM_FEEDBACK_H
#define CLT_COMM_FEEDBACK_H

#include <stdint.h>

#include <cltrain/types.h>

/* Rounds v = values + scale x residuals to `sent`, the nearest numbers of F16 or BF16 (ties to
 * even). The new residuals are (v - sent) / scale. `scale` is a power of two. */
void clt_feedback_send(const float *values, int64_t n, clt_dtype type, float scale,
                       float *residuals, uint16_t *sent);

/* Converts numbers of F16 or BF16 to f32, divided by `scale`. */
void clt_feedback_receive(const uint16_t *sent, int64_t n, clt_dtype type, float scale,
                          float *values);

#endif
