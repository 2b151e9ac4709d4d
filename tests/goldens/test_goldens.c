/*
 * The goldens say what README.md says they do: LeNet's loss computed here in double from the stored
 * weights and images is PyTorch's, and every file has the tensors and sizes it should.
 */
#include "goldens.h"

#include <math.h>

#include <jansson.h>

static const char *const snapshots[] = {"000", "020", "060", "150", "400"};
static const char *const cases[] = {"b256", "b257", "b257i"};
static const char *const operators[] = {
    "conv2d", "avg_pool2d", "max_pool2d",  "relu",          "leaky_relu", "sigmoid",   "tanh",
    "gelu",   "softmax",    "log_softmax", "cross_entropy", "mse_loss",   "add",       "sub",
    "mul",    "div",        "sum",         "mean",          "max",        "pad",       "concat",
    "slice",  "transpose",  "reshape",     "linear",        "matmul",     "attention",
};
enum { OPERATORS = sizeof operators / sizeof operators[0] };

/* Valid convolution, ReLU, average pooling by 2 that drops an odd last row: one image. */
static void conv_relu_pool(const double *x, int channels, int side, const float *w, const float *b,
                           int outputs, int kernel, double *y)
{
    int wide = side - kernel + 1;
    int half = wide / 2;
    memset(y, 0, sizeof *y * (size_t)(outputs * half * half));
    for (int o = 0; o < outputs; o++) {
        for (int r = 0; r < 2 * half; r++) {
            for (int c = 0; c < 2 * half; c++) {
                double sum = (double)b[o];
                for (int i = 0; i < channels; i++)
                    for (int u = 0; u < kernel; u++)
                        for (int v = 0; v < kernel; v++)
                            sum += x[(i * side + r + u) * side + c + v] *
                                   (double)w[((o * channels + i) * kernel + u) * kernel + v];
                y[(o * half + r / 2) * half + c / 2] += sum > 0 ? sum / 4 : 0;
            }
        }
    }
}

static void linear(const double *x, int inputs, const float *w, const float *b, int outputs,
                   double *y)
{
    for (int o = 0; o < outputs; o++) {
        y[o] = (double)b[o];
        for (int i = 0; i < inputs; i++)
            y[o] += x[i] * (double)w[o * inputs + i];
    }
}

/* The ten logits of one image. */
static void lenet(const float *const *p, const uint8_t *image, double *logits)
{
    static double x[28 * 28], first[20 * 13 * 13], second[800], third[128];
    for (int i = 0; i < 28 * 28; i++)
        x[i] = image[i] / 255.0;
    conv_relu_pool(x, 1, 28, p[0], p[1], 20, 3, first);
    conv_relu_pool(first, 20, 13, p[2], p[3], 50, 5, second);
    linear(second, 800, p[4], p[5], 128, third);
    for (int i = 0; i < 128; i++)
        third[i] = fmax(third[i], 0);
    linear(third, 128, p[6], p[7], 10, logits);
}

static double cross_entropy(const double *logits, int32_t label)
{
    double top = logits[0], sum = 0;
    for (int i = 1; i < 10; i++)
        top = fmax(top, logits[i]);
    for (int i = 0; i < 10; i++)
        sum += exp(logits[i] - top);
    return log(sum) + top - logits[label];
}

static double mean_loss(const double *losses, const int32_t *labels, int batch)
{
    double sum = 0;
    int weight = 0;
    for (int i = 0; i < batch; i++) {
        if (labels[i] >= 0) {
            sum += losses[i];
            weight++;
        }
    }
    return sum / weight;
}

static void test_snapshots(void **state)
{
    (void)state;
    int found = 0;
    for (int s = 0; s < 5; s++) {
        char file[64];
        snprintf(file, sizeof file, "lenet_snapshot_%s.safetensors", snapshots[s]);
        clt_tensors *golden = golden_open(file);
        const float *parameters[GOLDEN_PARAMETERS];
        int64_t total = 0;
        for (int i = 0; i < GOLDEN_PARAMETERS; i++) {
            const clt_tensor *tensor = golden_find(golden, "param", golden_parameters[i]);
            parameters[i] = golden_f32(golden, "param", golden_parameters[i], -1);
            total += golden_count(tensor);
        }
        assert_int_equal(total, 129068);
        const uint8_t *images = golden_u8(golden, NULL, "images", 257 * 784);
        int last = golden_try(golden, "b257i", "labels") ? 257 : 256;
        const int32_t *all = golden_i32(golden, last == 257 ? "b257i" : "b256", "labels", last);
        double losses[257];
        for (int i = 0; i < last; i++) {
            /* An ignored label of one case may count in the other. */
            int32_t label = i < 256 ? golden_i32(golden, "b256", "labels", 256)[i] : all[i];
            double logits[10];
            lenet(parameters, images + 784 * i, logits);
            losses[i] = cross_entropy(logits, label);
        }
        for (int c = 0; c < 3; c++) {
            if (!golden_try(golden, cases[c], "loss"))
                continue;
            int batch = c == 0 ? 256 : 257;
            const int32_t *labels = golden_i32(golden, cases[c], "labels", batch);
            for (int i = 0; i < batch; i++)
                assert_int_equal(labels[i] < 0, c == 2 && golden_ignored(i, batch));
            double want = *golden_f64(golden, cases[c], "loss", 1);
            double got = mean_loss(losses, labels, batch);
            assert_true(fabs(got - want) <= 1e-12 * want);
            const double *error = golden_f64(golden, cases[c], "grad_error", GOLDEN_PARAMETERS);
            for (int i = 0; i < GOLDEN_PARAMETERS; i++) {
                char name[64];
                snprintf(name, sizeof name, "grad.%s", golden_parameters[i]);
                const clt_tensor *like = golden_find(golden, "param", golden_parameters[i]);
                golden_f32(golden, cases[c], name, golden_count(like));
                assert_true(error[i] > 0 && error[i] < 1e-4);
            }
            found++;
        }
        clt_tensors_close(golden);
    }
    assert_int_equal(found, 7);
}

/* Checks a run, and returns its settings. */
static const double *check_trajectory(const clt_tensors *golden, const char *run, int numbers,
                                      int most)
{
    const int64_t steps = golden_count(golden_find(golden, run, "loss"));
    const double *loss = golden_f64(golden, run, "loss", steps);
    const double *envelope = golden_f64(golden, run, "envelope", steps);
    const double *kernels = golden_f64(golden, run, "kernel_envelope", steps);
    const double *hyper = golden_f64(golden, run, "hyper", numbers);
    const int32_t *batch = golden_i32(golden, run, "batch", 3);
    const char *kind = strchr(run, '.') + 1;
    assert_true(steps >= 20 && steps <= most);
    assert_true(steps == most || envelope[steps - 1] > 1e-3);
    assert_true(loss[0] > 2.2 && loss[0] < 2.4);
    assert_true(hyper[0] > 0);
    assert_int_equal(batch[1], strcmp(kind, "b256") ? 257 : 256);
    assert_int_equal(batch[2], !strcmp(kind, "b257i"));
    for (int64_t i = 1; i < steps; i++) {
        assert_true(envelope[i] >= envelope[i - 1] && kernels[i] >= envelope[i]);
        assert_true(i < 20 || envelope[i - 1] <= 1e-3);
    }
    return hyper;
}

static void test_trajectories(void **state)
{
    static const char *const optimizers[] = {"sgd", "momentum", "adamw"};
    (void)state;
    clt_tensors *golden = golden_open("lenet_trajectories.safetensors");
    for (int o = 0; o < 3; o++) {
        for (int c = 0; c < 3; c++) {
            char run[64];
            snprintf(run, sizeof run, "%s.%s", optimizers[o], cases[c]);
            check_trajectory(golden, run, 6, 150);
        }
    }
    clt_tensors_close(golden);
}

static void test_optimizers(void **state)
{
    static const char *const runs[] = {"rmsprop.b256", "rmsprop-centered.b257i",
                                       "adagrad.b257", "lion.b256",
                                       "muon.b256",    "muon-match.b257i"};
    (void)state;
    clt_tensors *golden = golden_open("lenet_optimizers.safetensors");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const double *hyper = check_trajectory(golden, runs[i], 12, 40);
        assert_int_equal(hyper[6] > 0, !strncmp(runs[i], "rmsprop", 7));
        assert_int_equal(hyper[7] > 0, i == 1);
        assert_int_equal(hyper[8] > 0, !strncmp(runs[i], "adagrad", 7));
        assert_int_equal(hyper[10] > 0, !strncmp(runs[i], "muon", 4));
        assert_int_equal(hyper[11] > 0, i == 5);
    }
    clt_tensors_close(golden);
}

/* Every differentiable input has a gradient of its own shape; y and dy agree. */
static void check_case(const clt_tensors *golden, const char *prefix)
{
    const char *text = clt_tensors_metadata(golden, prefix);
    assert_non_null(text);
    json_t *attributes = json_loads(text, 0, NULL);
    assert_true(json_is_object(attributes));
    json_decref(attributes);
    int64_t outputs = golden_count(golden_find(golden, prefix, "y"));
    golden_f64(golden, prefix, "dy", outputs);
    size_t length = strlen(prefix);
    int inputs = 0;
    for (int i = 0; i < clt_tensors_count(golden); i++) {
        const clt_tensor *tensor = clt_tensors_at(golden, i);
        const char *name = tensor->name + length + 1;
        if (strncmp(tensor->name, prefix, length) != 0 || tensor->name[length] != '.' ||
            name[0] == 'd' || strcmp(name, "y") == 0 || strcmp(name, "labels") == 0)
            continue;
        char gradient[64];
        snprintf(gradient, sizeof gradient, "d%s", name);
        const clt_tensor *other = golden_find(golden, prefix, gradient);
        assert_int_equal(other->dtype, CLT_FILE_F64);
        assert_int_equal(other->rank, tensor->rank);
        assert_memory_equal(other->dims, tensor->dims, sizeof(int64_t) * (size_t)tensor->rank);
        inputs++;
    }
    assert_true(inputs > 0);
}

static void test_operators(void **state)
{
    (void)state;
    for (size_t o = 0; o < OPERATORS; o++) {
        char file[64];
        snprintf(file, sizeof file, "ops/%s.safetensors", operators[o]);
        clt_tensors *golden = golden_open(file);
        assert_string_equal(clt_tensors_metadata(golden, "op"), operators[o]);
        int count = atoi(clt_tensors_metadata(golden, "cases"));
        assert_true(count >= 4);
        for (int c = 0; c < count; c++) {
            char prefix[16];
            snprintf(prefix, sizeof prefix, "c%02d", c);
            check_case(golden, prefix);
        }
        clt_tensors_close(golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_trajectories),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
