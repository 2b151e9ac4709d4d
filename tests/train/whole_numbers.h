/*
 * A linear layer of whole numbers, whose f32 gradient is exact for every order of summation. The
 * expected gradient is computed in double and compared bit by bit. Each micro-batch's gradient is
 * rounded, then the f32 sum over micro-batches, then the sum over devices.
 */
#ifndef TESTS_TRAIN_WHOLE_NUMBERS_H
#define TESTS_TRAIN_WHOLE_NUMBERS_H

#include "train/store/store.h"
#include "train/core/trainer.h"
#include "train/world.h"

enum { BATCH = 8, IN = 70, OUT = 16, WEIGHTS = OUT * IN, SKIPS_MOST = 30 };

static float xs[BATCH * IN], ts[BATCH * OUT];

/* Devices use the kernels for GPUs. */
static bool as_gpu;

static inline clt_graph *build(void)
{
    const int64_t in[] = {CLT_BATCH, IN}, out[] = {CLT_BATCH, OUT}, w[] = {OUT, IN}, b[] = {OUT};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    if (clt_graph_create(&graph) != CLT_OK)
        return NULL;
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *t = clt_input(graph, "t", CLT_F32, 2, out);
    clt_value *y = clt_linear(x, clt_parameter(graph, "w", 2, w, (clt_init){0}),
                              clt_parameter(graph, "b", 1, b, (clt_init){0}));
    clt_mse(y, t, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    return graph;
}

/* Makes the data. With weights 0, the gradient of output o is 2 (0 - t) / (BATCH OUT), a power of
 * two. */
static inline void make_data(float scale)
{
    for (int i = 0; i < BATCH * IN; i++)
        xs[i] = scale * (float)((i * 7919) % 2001 - 1000);
    for (int i = 0; i < BATCH * OUT; i++)
        ts[i] = (i * 31 / 7) % 3 ? 0.5F : -0.5F;
}

/* --- expected gradients ----------------------------------------------------------------------- */

/* Rounds to the type's number of binary digits, ties to even. Returns infinity beyond the type. */
static inline double rounded(double v, clt_dtype dtype)
{
    const int digits = dtype == CLT_F16 ? 11 : 8, least = dtype == CLT_F16 ? -14 : -126;
    int exponent;
    if (v == 0 || !isfinite(v))
        return v;
    frexp(v, &exponent); /* v = f 2^exponent, f in [0.5, 1) */
    exponent = exponent - 1 < least ? least : exponent - 1;
    const double unit = ldexp(1, exponent - digits + 1), r = nearbyint(v / unit) * unit;
    return dtype == CLT_F16 && fabs(r) > 65504 ? copysign(INFINITY, r) : r;
}

/* Returns element i of w's gradient over samples [begin, end) of BATCH. */
static inline double exact(int i, int begin, int end)
{
    double sum = 0;
    for (int s = begin; s < end; s++)
        sum += -2.0 * ts[s * OUT + i / IN] / (BATCH * OUT) * xs[s * IN + i % IN];
    return sum;
}

/* Returns the gradient of `devices` that divide the batch, each in `micro_batches` micro-batches,
 * without the scale. */
static inline double expected(int i, clt_dtype dtype, int devices, int micro_batches, double scale)
{
    double total = 0;
    const int share = BATCH / devices, part = share / micro_batches;
    for (int d = 0; d < devices; d++) {
        double sum = 0;
        for (int m = 0; m < micro_batches; m++)
            sum +=
                rounded(scale * exact(i, d * share + m * part, d * share + (m + 1) * part), dtype);
        total += rounded(sum, dtype);
    }
    return rounded(total, dtype) / scale;
}

static inline bool all_finite(clt_dtype dtype, int devices, int micro_batches, double scale)
{
    for (int i = 0; i < WEIGHTS; i++)
        if (!isfinite(expected(i, dtype, devices, micro_batches, scale)))
            return false;
    return true;
}

/* --- running ---------------------------------------------------------------------------------- */

static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"t", -1, CLT_HOST(ts)}};

static inline clt_step_batch whole_batch(void)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    return batch;
}

static inline clt_trainer_options options_for(clt_dtype precision, int micro_batches)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_SGD;
    o.lr = 1; /* weights become minus the gradient */
    o.batch = BATCH;
    o.accumulate = micro_batches;
    o.precision = precision;
    o.poison = 1;
    o.separate = clt_test_oclgrind();
    return o;
}

static inline lab open_lab(const char *list, const clt_trainer_options *options)
{
    lab l = as_gpu ? lab_on(list, NULL) : lab_on_kept(list);
    for (int d = 0; as_gpu && d < l.n; d++)
        l.devices[d]->caps.kind = CLT_KIND_GPU;
    lab_store(&l, build(), 1);
    lab_trainer(&l, options);
    return l;
}

static inline clt_step_result run_step(lab *l)
{
    const clt_step_batch batch = whole_batch();
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    return result;
}

static inline void expect_weights(lab *l, clt_dtype dtype, int micro_batches, double scale,
                                  const char *where)
{
    float w[WEIGHTS], g[WEIGHTS];
    ok(clt_store_get(l->store, "w", w, sizeof w));
    ok(clt_trainer_gradient(l->trainer, 0, "w", g, sizeof g));
    for (int i = 0; i < WEIGHTS; i++) {
        const float want = (float)expected(i, dtype, l->n, micro_batches, scale);
        if (g[i] != want || w[i] != -want)
            fail_msg("%s, %s, %d micro-batches, element %d: gradient %.9g, weight %.9g, not %.9g",
                     where, clt_dtype_name(dtype), micro_batches, i, g[i], w[i], want);
    }
    if (l->n > 1)
        ok(clt_store_check(l->store));
}

static inline void expect_zero_weights(lab *l)
{
    float w[WEIGHTS];
    ok(clt_store_get(l->store, "w", w, sizeof w));
    for (int i = 0; i < WEIGHTS; i++)
        assert_true(w[i] == 0);
    if (l->n > 1)
        ok(clt_store_check(l->store));
}

static inline double expected_norm(clt_dtype dtype, int devices, int micro_batches, double scale)
{
    double sum = 0, bias;
    for (int i = 0; i < WEIGHTS; i++)
        sum += pow(expected(i, dtype, devices, micro_batches, scale), 2);
    for (int o = 0; o < OUT; o++) { /* few digits, so no rounding */
        bias = 0;
        for (int s = 0; s < BATCH; s++)
            bias += -2.0 * ts[s * OUT + o] / (BATCH * OUT);
        sum += bias * bias;
    }
    return sqrt(sum);
}

#endif
