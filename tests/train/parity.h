/* LeNet, compared with PyTorch's goldens (tests/goldens/README.md): gradients at snapshots of a
 * run, and trajectories. Runs on the devices of one process or of several ranks. */
#ifndef TESTS_TRAIN_PARITY_H
#define TESTS_TRAIN_PARITY_H

#include "goldens/goldens.h"

#include "train/lab.h"
#include <cltrain/data.h>
#include <cltrain/models.h>
#include <cltrain/train.h>

enum { IMAGE = 28 * 28, MOST = 257 };

/* The ranks that train together, with the same number of devices each. NULL for this process
 * only. */
static const clt_world *parity_world;

/* The weights of the devices of all ranks. NULL for equal shares. */
static const double *parity_weights;

/* Opens LeNet with the weights of a snapshot. */
static lab lab_open(const char *devices, const clt_trainer_options *options,
                    const clt_tensors *weights)
{
    lab l = lab_on_kept(devices);
    clt_graph *graph;
    clt_model_field fields[2];
    clt_model_images(1, 28, 28, 10, fields);
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    ok(clt_graph_create(&graph));
    ok(clt_model_build("lenet", &input, graph));
    lab_store(&l, graph, 1);
    for (int i = 0; i < GOLDEN_PARAMETERS; i++) {
        const clt_tensor *tensor = golden_find(weights, "param", golden_parameters[i]);
        ok(clt_store_set(l.store, golden_parameters[i], tensor->data,
                         (size_t)clt_tensor_bytes(tensor)));
    }
    clt_trainer_options own = *options;
    own.world = parity_world;
    own.weights = parity_weights;
    lab_trainer(&l, &own);
    return l;
}

/* Runs one step on a global batch. This rank feeds its own part. */
static double step_loss(lab *l, const float *images, const int32_t *labels, int64_t count,
                        double weight)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = batch.total = count;
    int64_t offsets[64];
    if (parity_world) {
        int64_t *own = offsets + parity_world->rank * l->n;
        ok(clt_split(count, parity_world->ranks * l->n, parity_weights, 1, offsets));
        batch.first = own[0];
        for (int d = 0; d <= l->n; d++)
            own[d] -= batch.first;
        batch.count = own[l->n];
        batch.offsets = own;
    }
    const clt_feed feeds[] = {{"image", -1, CLT_HOST(images + batch.first * IMAGE)},
                              {"label", -1, CLT_HOST(labels + batch.first)}};
    batch.feeds = feeds;
    batch.n_feeds = 2;
    /* With a negative weight the trainer computes the weight on the devices. */
    batch.loss_weights = weight < 0 ? NULL : &weight;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    return result.loss;
}

static void check_gradient(lab *l, const clt_tensors *golden, const char *prefix, int parameter,
                           double torch_error, double *worst)
{
    const char *name = golden_parameters[parameter];
    const clt_tensor *tensor = golden_find(golden, prefix, name);
    const size_t bytes = (size_t)clt_tensor_bytes(tensor);
    const float *want = tensor->data;
    float *have = malloc(bytes);
    double difference = 0, size = 0;
    ok(clt_trainer_gradient(l->trainer, 0, name, have, bytes));
    for (size_t i = 0; i < bytes / sizeof *have; i++) {
        difference += pow((double)have[i] - want[i], 2);
        size += pow((double)want[i], 2);
    }
    free(have);
    const double error = sqrt(difference / size), limit = fmax(1e-5, 4 * torch_error);
    if (error / limit > *worst)
        *worst = error / limit;
    if (!(error <= limit))
        fail_msg("%s: relative error %.3g of the gradient of %s, at most %.3g allowed", prefix,
                 error, name, limit);
}

static void check_snapshot(const char *devices, const char *file, const char *kind, int accumulate,
                           int portable, double *worst)
{
    clt_tensors *golden = golden_open(file);
    char labels_name[64], grad[64];
    snprintf(labels_name, sizeof labels_name, "%s", kind);
    if (!golden_try(golden, kind, "labels")) {
        clt_tensors_close(golden);
        return;
    }
    snprintf(grad, sizeof grad, "%s.grad", kind);
    const int64_t count = golden_count(golden_find(golden, kind, "labels"));
    const int32_t *labels = golden_i32(golden, kind, "labels", count);
    const uint8_t *bytes = golden_u8(golden, NULL, "images", MOST * IMAGE);
    static float images[MOST * IMAGE];
    double weight = 0;
    for (int64_t i = 0; i < count * IMAGE; i++)
        images[i] = (float)bytes[i] / 255;
    for (int64_t i = 0; i < count; i++)
        weight += labels[i] != -100;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = count;
    options.lr = 0;
    options.accumulate = accumulate;
    options.portable = portable;
    options.poison = 1;
    lab l = lab_open(devices, &options, golden);
    const double want = *golden_f64(golden, kind, "loss", 1);
    for (int known = 0; known < 2; known++) {
        const double have = step_loss(&l, images, labels, count, known ? weight : -1);
        if (!(fabs(have - want) <= 1e-5 * want))
            fail_msg("%s %s: loss %.9g, PyTorch's is %.9g", file, kind, have, want);
        const double *torch_error = golden_f64(golden, kind, "grad_error", GOLDEN_PARAMETERS);
        for (int p = 0; p < GOLDEN_PARAMETERS; p++)
            check_gradient(&l, golden, grad, p, torch_error[p], worst);
    }
    ok(clt_store_check(l.store));
    lab_close(&l);
    clt_tensors_close(golden);
}

/* --- trajectories ---------------------------------------------------------------------------- */

/* The most steps of a run; 0: all of the golden's. */
static int64_t parity_steps;

static float *train_images;
static int32_t *train_labels;

static void load_training_set(void)
{
    clt_dataset *set;
    const void *data;
    const int64_t count = (parity_steps ? parity_steps : 150) * MOST;
    if (train_images)
        return;
    ok(clt_dataset_open("fashion-mnist", NULL, &set));
    train_images = malloc((size_t)count * IMAGE * sizeof *train_images);
    train_labels = malloc((size_t)count * sizeof *train_labels);
    ok(clt_dataset_field_data(set, 0, &data));
    for (int64_t i = 0; i < count * IMAGE; i++)
        train_images[i] = (float)((const uint8_t *)data)[i] / 255;
    ok(clt_dataset_field_data(set, 1, &data));
    for (int64_t i = 0; i < count; i++)
        train_labels[i] = ((const uint8_t *)data)[i];
    clt_dataset_free(set);
}

/* The numbers of a run, in the order of `hyper` in the goldens. lenet_trajectories has six. */
enum {
    LR,
    MOMENTUM,
    DECAY,
    BETA1,
    BETA2,
    EPSILON,
    ALPHA,
    CENTERED,
    LR_DECAY,
    INITIAL,
    ADAMW_LR,
    MATCH,
    NUMBERS
};

/* The optimizer's name is that of the run, up to a hyphen. */
static clt_trainer_options options_of(const char *run, const double *hyper, bool all, int64_t batch)
{
    char name[64];
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(run, "-."), run);
    ok(clt_optimizer_parse(name, &options.optimizer));
    options.batch = batch;
    options.lr = hyper[LR];
    options.momentum = hyper[MOMENTUM];
    options.weight_decay = hyper[DECAY];
    if (hyper[BETA1] > 0) {
        options.beta1 = hyper[BETA1];
        options.beta2 = hyper[BETA2];
    }
    if (hyper[EPSILON] > 0)
        options.epsilon = hyper[EPSILON];
    if (!all)
        return options;
    options.alpha = hyper[ALPHA];
    options.centered = hyper[CENTERED] > 0;
    options.lr_decay = hyper[LR_DECAY];
    options.initial_accumulator = hyper[INITIAL];
    options.adamw_lr = hyper[ADAMW_LR];
    options.muon_scale = hyper[MATCH] > 0 ? CLT_MUON_MATCH_RMS_ADAMW : CLT_MUON_ORIGINAL;
    return options;
}

/* Trains a run of a file and compares its losses. Calls `after` (may be NULL) at the end. */
static void follow_run(const char *devices, const char *file, const char *run, int accumulate,
                       void (*after)(lab *l), double *worst)
{
    clt_tensors *start = golden_open("lenet_snapshot_000.safetensors");
    clt_tensors *golden = golden_open(file);
    const int32_t *shape = golden_i32(golden, run, "batch", 3);
    const int64_t batch = shape[1], all = golden_count(golden_find(golden, run, "loss"));
    const int64_t steps = parity_steps && parity_steps < all ? parity_steps : all;
    const double *loss = golden_f64(golden, run, "loss", all);
    /* The envelope comes from PyTorch's f32 runs with two sets of convolution kernels. Runs with
     * equal kernels round alike, and differ far less from each other than from any other
     * program. */
    const double *envelope = golden_f64(golden, run, "kernel_envelope", all);
    const int64_t numbers = golden_count(golden_find(golden, run, "hyper"));
    assert_true(numbers == EPSILON + 1 || numbers == NUMBERS);
    clt_trainer_options options =
        options_of(run, golden_f64(golden, run, "hyper", numbers), numbers == NUMBERS, batch);
    options.accumulate = accumulate;
    lab l = lab_open(devices, &options, start);
    int32_t labels[MOST];
    for (int64_t s = 0; s < steps; s++) {
        double weight = 0;
        for (int64_t p = 0; p < batch; p++) {
            labels[p] = shape[2] && golden_ignored(p, batch) ? -100 : train_labels[s * batch + p];
            weight += labels[p] != -100;
        }
        const double have = step_loss(&l, train_images + s * batch * IMAGE, labels, batch, weight);
        const double limit = 1e-5 + 4 * envelope[s], off = fabs(have - loss[s]);
        if (off / limit > *worst)
            *worst = off / limit;
        if (!(off <= limit))
            fail_msg("%s on %s, step %lld: loss %.9g, golden %.9g, at most %.3g off", run, devices,
                     (long long)s, have, loss[s], limit);
    }
    ok(clt_store_check(l.store));
    if (after)
        after(&l);
    lab_close(&l);
    clt_tensors_close(golden);
    clt_tensors_close(start);
}

/* Trains a run of lenet_trajectories. */
static void follow(const char *devices, const char *optimizer, const char *kind, int accumulate,
                   void (*after)(lab *l), double *worst)
{
    char run[64];
    snprintf(run, sizeof run, "%s.%s", optimizer, kind);
    follow_run(devices, "lenet_trajectories.safetensors", run, accumulate, after, worst);
}

#endif
