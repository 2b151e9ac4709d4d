#include "comm/core/rounding.h"

#include "comm/core/feedback.h"

#include "comm/core/reduction.h"

/* A block stays in the first-level cache. */
enum { BLOCK = 1024 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void clt_reduce_rounded(const clt_reduce_sum *sum, int64_t n, const clt_rounding *rounding,
                        double *squares, bool *finite)
{
    const clt_reduce_fn add = clt_reduce_for(sum->from, CLT_F32);
    const clt_reduce_fn narrow = clt_reduce_for(CLT_F32, sum->to);
    const clt_reduce_fn widen = clt_reduce_for(sum->to, CLT_F32);
    const int64_t from_size = clt_dtype_size(sum->from), to_size = clt_dtype_size(sum->to);
    const float scale = rounding->scale, back = 1 / scale;
    const void *in[CLT_COMM_MAX_DEVICES];
    void *out[CLT_COMM_MAX_DEVICES + 1];
    float exact[BLOCK], rounded[BLOCK];
    uint16_t sent[BLOCK];
    bool right, all = true;
    if (squares)
        *squares = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = smaller(n - at, BLOCK);
        const float *before = rounding->before + at;
        float *after = rounding->after + at;
        double square = 0;
        for (int k = 0; k < sum->in_count; k++)
            in[k] = (const char *)sum->in[k] + at * from_size;
        for (int k = 0; k < sum->out_count; k++)
            out[k] = (char *)sum->out[k] + at * to_size;
        out[sum->out_count] = sent;
        add(in, sum->in_count, (void *[]){exact}, 1, count, CLT_COMM_SUM, 1, NULL, &right);
        for (int64_t i = 0; i < count; i++)
            exact[i] += before[i] * scale;
        narrow((const void *[]){exact}, 1, out, sum->out_count + 1, count, CLT_COMM_SUM, 1,
               squares ? &square : NULL, &right);
        all = all && (!squares || right);
        widen((const void *[]){sent}, 1, (void *[]){rounded}, 1, count, CLT_COMM_SUM, 1, NULL,
              &right);
        for (int64_t i = 0; i < count; i++)
            after[i] = (exact[i] - rounded[i]) * back;
        if (squares)
            *squares += square;
    }
    *finite = all;
}

void clt_feedback_send(const float *values, int64_t n, clt_dtype type, float scale,
                       float *residuals, uint16_t *sent)
{
    const clt_rounding rounding = {residuals, residuals, scale};
    const void *in[] = {values};
    void *out[] = {sent};
    const clt_reduce_sum sum = {CLT_F32, type, in, 1, out, 1};
    bool finite;
    clt_reduce_rounded(&sum, n, &rounding, NULL, &finite);
}

void clt_feedback_receive(const uint16_t *sent, int64_t n, clt_dtype type, float scale,
                          float *values)
{
    const float back = 1 / scale;
    bool finite;
    clt_reduce_for(type, CLT_F32)((const void *[]){sent}, 1, (void *[]){values}, 1, n, CLT_COMM_SUM,
                                  1, NULL, &finite);
    for (int64_t i = 0; i < n; i++)
        values[i] *= back;
}
