/*
 * A small network whose middle layer is normalised with statistics of the whole (micro-)batch of
 * all devices, through clt_all_reduce. Also the loss in double precision, and its gradient by
 * differences.
 */
#ifndef TESTS_TRAIN_NORMALISED_H
#define TESTS_TRAIN_NORMALISED_H

#include "train/lab.h"

enum { NET_IN = 6, NET_WIDE = 5, NET_CLASSES = 3, NET_MOST = 24 };

/* Sizes of the parameters, which are stored in this order. */
enum {
    NET_A = NET_WIDE * NET_IN,
    NET_A_BIAS = NET_WIDE,
    NET_B = NET_CLASSES * NET_WIDE,
    NET_B_BIAS = NET_CLASSES,
    NET_PARAMETERS = NET_A + NET_A_BIAS + NET_B + NET_B_BIAS
};

static const struct net_parameter {
    const char *name;
    int count;
} net_parameters[] = {
    {"a.weight", NET_A}, {"a.bias", NET_A_BIAS}, {"b.weight", NET_B}, {"b.bias", NET_B_BIAS}};

static float net_xs[NET_MOST * NET_IN];
static int32_t net_labels[NET_MOST];

static const clt_feed net_feeds[] = {{"x", -1, CLT_HOST(net_xs)},
                                     {"label", -1, CLT_HOST(net_labels)}};

/* Returns part `which` of a [3 * NET_WIDE] value. */
static inline clt_value *net_part(clt_value *all, int which)
{
    const int64_t start[] = {which * NET_WIDE}, stop[] = {(which + 1) * NET_WIDE};
    return clt_slice(all, start, stop, NULL);
}

/* Assigns state = 0.75 state + 0.25 mean. */
static inline void net_follow(clt_graph *graph, const char *name, clt_value *mean)
{
    const int64_t dims[] = {NET_WIDE};
    clt_value *state = clt_state(graph, name, CLT_F32, 1, dims, (clt_init){0});
    clt_assign(graph, state, clt_add(clt_scale(state, 0.75), clt_scale(mean, 0.25)));
}

/* Returns (h - mean) / (1 + variance) over the samples of all devices. Mean and variance come from
 * sums in a single all-reduce. State "running" follows the mean, and "own" the means of single
 * devices. */
static inline clt_value *net_normalise(clt_graph *graph, clt_value *h)
{
    const int axis = 0;
    clt_value *one = clt_add_scalar(clt_scale(h, 0), 1);
    clt_value *const own[] = {clt_reduce_sum(h, &axis, 1, 0),
                              clt_reduce_sum(clt_mul(h, h), &axis, 1, 0),
                              clt_reduce_sum(one, &axis, 1, 0)};
    clt_value *all = clt_name(clt_all_reduce(clt_concat(own, 3, 0)), "statistics");
    clt_value *count = net_part(all, 2), *mean = clt_div(net_part(all, 0), count);
    clt_value *variance = clt_sub(clt_div(net_part(all, 1), count), clt_mul(mean, mean));
    net_follow(graph, "running", mean);
    net_follow(graph, "own", clt_reduce_mean(h, &axis, 1, 0));
    return clt_div(clt_sub(h, mean), clt_add_scalar(variance, 1));
}

/* Ranks that are threads call this too, so it asserts nothing. */
static inline clt_graph *net_graph(void)
{
    const int64_t dims[] = {CLT_BATCH, NET_IN}, one[] = {CLT_BATCH};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    if (clt_graph_create(&graph) != CLT_OK)
        return NULL;
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_value *h = layer(graph, x, "a.weight", "a.bias", NET_IN, NET_WIDE);
    clt_value *y = clt_tanh(net_normalise(graph, h));
    clt_value *logits =
        clt_output(layer(graph, y, "b.weight", "b.bias", NET_WIDE, NET_CLASSES), "logits");
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, label, 1, -100, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    return graph;
}

static inline void net_make_samples(void)
{
    make_samples(net_xs, net_labels, NET_MOST, NET_IN, NET_CLASSES);
}

static inline clt_step_batch net_batch(int64_t count, const int64_t *offsets)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.offsets = offsets;
    batch.feeds = net_feeds;
    batch.n_feeds = 2;
    return batch;
}

/* --- the reference --------------------------------------------------------------------------- */

/* Returns the sum of the losses of the samples with group[i] == which. */
static inline double net_group_loss(const double *p, const int *group, int count, int which,
                                    double (*logits)[NET_CLASSES])
{
    const double *a = p, *a_bias = a + NET_A, *b = a_bias + NET_A_BIAS, *b_bias = b + NET_B;
    double h[NET_MOST][NET_WIDE], mean[NET_WIDE] = {0}, square[NET_WIDE] = {0}, loss = 0;
    int n = 0;
    for (int i = 0; i < count; i++) {
        n += group[i] == which;
        for (int j = 0; j < NET_WIDE; j++) {
            h[i][j] = a_bias[j];
            for (int k = 0; k < NET_IN; k++)
                h[i][j] += a[j * NET_IN + k] * (double)net_xs[i * NET_IN + k];
            mean[j] += group[i] == which ? h[i][j] : 0;
            square[j] += group[i] == which ? h[i][j] * h[i][j] : 0;
        }
    }
    for (int i = 0; i < count; i++) {
        double z[NET_CLASSES], sum = 0;
        for (int c = 0; group[i] == which && c < NET_CLASSES; c++) {
            z[c] = b_bias[c];
            for (int j = 0; j < NET_WIDE; j++) {
                const double m = mean[j] / n, variance = square[j] / n - m * m;
                z[c] += b[c * NET_WIDE + j] * tanh((h[i][j] - m) / (1 + variance));
            }
            sum += exp(z[c]);
            if (logits)
                logits[i][c] = z[c];
        }
        loss += group[i] == which ? log(sum) - z[net_labels[i]] : 0;
    }
    return loss;
}

/* Returns the mean loss. Samples with the same group[i] are normalised together (NULL: all). */
static inline double net_loss(const double *p, const int *group, int count,
                              double (*logits)[NET_CLASSES])
{
    static const int together[NET_MOST];
    double loss = 0;
    for (int g = 0; count && g < NET_MOST; g++)
        loss += net_group_loss(p, group ? group : together, count, g, logits);
    return count ? loss / count : 0;
}

/* Computes the mean of the middle layer over the samples. */
static inline void net_mean(const double *p, int count, double *mean)
{
    for (int j = 0; j < NET_WIDE; j++) {
        mean[j] = 0;
        for (int i = 0; i < count; i++) {
            mean[j] += p[NET_A + j] / count;
            for (int k = 0; k < NET_IN; k++)
                mean[j] += p[j * NET_IN + k] * (double)net_xs[i * NET_IN + k] / count;
        }
    }
}

/* Computes the gradient of net_loss by central differences. */
static inline void net_gradient(const double *p, const int *group, int count, double *gradient)
{
    const double step = 1e-5;
    double moved[NET_PARAMETERS];
    memcpy(moved, p, sizeof moved);
    for (int i = 0; i < NET_PARAMETERS; i++) {
        moved[i] = p[i] + step;
        const double above = net_loss(moved, group, count, NULL);
        moved[i] = p[i] - step;
        gradient[i] = (above - net_loss(moved, group, count, NULL)) / (2 * step);
        moved[i] = p[i];
    }
}

static inline clt_status net_read(clt_store *store, float *values)
{
    for (int i = 0; i < 4; values += net_parameters[i++].count) {
        const clt_status status = clt_store_get(store, net_parameters[i].name, values,
                                                (size_t)net_parameters[i].count * sizeof *values);
        if (status != CLT_OK)
            return status;
    }
    return CLT_OK;
}

/* Computes the distance of a device's gradient from the reference, relative to the reference's
 * length. */
static inline clt_status net_error(clt_trainer *trainer, int device, const double *want,
                                   double *error)
{
    double size = 0, difference = 0;
    float have[NET_A];
    for (int i = 0; i < 4; want += net_parameters[i++].count) {
        const int n = net_parameters[i].count;
        const clt_status status = clt_trainer_gradient(trainer, device, net_parameters[i].name,
                                                       have, (size_t)n * sizeof *have);
        if (status != CLT_OK)
            return status;
        for (int k = 0; k < n; k++) {
            size += want[k] * want[k];
            difference += pow((double)have[k] - want[k], 2);
        }
    }
    *error = size > 0 ? sqrt(difference / size) : sqrt(difference);
    return CLT_OK;
}

#endif
