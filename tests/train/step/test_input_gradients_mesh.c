/*
 * Gradients of inputs on meshes that divide the samples themselves: images in space, sequences in
 * time. They are those of one device, which test_input_gradients.c compares with differences.
 */
#include "train/lab.h"
#include "device/core/device.h"
#include "support/convolution.h"

enum { SAMPLE = 64, SAMPLES = 5 };

static void field(clt_graph *g)
{
    const int64_t dims[] = {CLT_BATCH, 2, 8, 4};
    const clt_init init = {CLT_INIT_UNIFORM, 0.5, 0};
    clt_value *sum, *weight, *x = clt_input(g, "x", CLT_F32, 4, dims);
    ok(clt_shard_value(x, CLT_AXIS_SPACE, 2));
    clt_value *h = clt_tanh(square_conv(x, "a", 3, (square){3, 1, 1, 1}, true, init));
    h = clt_output(square_conv(h, "b", 2, (square){3, 1, 1, 1}, true, init), "y");
    clt_mse(h, clt_input(g, "target", CLT_F32, 4, dims), &sum, &weight);
    ok(clt_loss(g, "loss", sum, weight, 1));
}

static void sequence(clt_graph *g)
{
    const int64_t dims[] = {CLT_BATCH, 8, 8};
    clt_attention_options o;
    clt_attention_options_init(&o);
    o.is_causal = 1;
    clt_value *sum, *weight, *x = clt_input(g, "x", CLT_F32, 3, dims);
    ok(clt_shard_value(x, CLT_AXIS_TIME, 1));
    clt_value *h = clt_attention_packed(layer(g, x, "a.weight", "a.bias", 8, 24), 2, 0, &o);
    h = clt_output(clt_tanh(layer(g, h, "b.weight", "b.bias", 8, 8)), "y");
    clt_mse(h, clt_input(g, "target", CLT_F32, 3, dims), &sum, &weight);
    ok(clt_loss(g, "loss", sum, weight, 1));
}

/* Whether there are two devices of one kind. */
static bool has_two_alike(void)
{
    lab l = lab_on_kept(clt_test_devices("pocl/2"));
    const bool alike =
        l.n == 2 && !memcmp(&l.devices[0]->caps, &l.devices[1]->caps, sizeof l.devices[0]->caps);
    lab_close(&l);
    return alike;
}

static void near(const char *what, const float *have, const float *want)
{
    double most = 0;
    for (int i = 0; i < SAMPLE * SAMPLES; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int i = 0; i < SAMPLE * SAMPLES; i++)
        if (!(fabs((double)have[i] - (double)want[i]) <= 1e-5 * most))
            fail_msg("%s: dx[%d] is %.9g, not %.9g (the largest is %.3g)", what, i, (double)have[i],
                     (double)want[i], most);
}

static void on_mesh(void (*make)(clt_graph *g), const char *devices, const char *parallel,
                    int accumulate, float *dx)
{
    static float x[SAMPLE * SAMPLES], target[SAMPLE * SAMPLES];
    const clt_feed own[] = {{"x", -1, CLT_HOST(x)}, {"target", -1, CLT_HOST(target)}};
    const clt_array to = CLT_HOST(dx);
    clt_store_options stored;
    clt_trainer_options o;
    clt_store_options_init(&stored);
    clt_trainer_options_init(&o);
    stored.seed = 5;
    stored.parallel = parallel;
    o.batch = SAMPLES;
    o.accumulate = accumulate;
    o.poison = 1;
    for (int i = 0; i < SAMPLE * SAMPLES; i++) {
        x[i] = (float)sin(0.3 * i);
        target[i] = (float)cos(0.2 * i);
    }
    lab l = lab_on_kept(clt_test_devices(devices));
    ok(clt_graph_create(&l.graph));
    make(l.graph);
    ok(clt_input_gradient(l.graph, "x"));
    ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &o, &l.trainer));
    const clt_step_batch batch = lab_batch(own, SAMPLES);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_input_gradient(l.trainer, -1, "x", &to));
    lab_close(&l);
}

static void space_and_time(void **state)
{
    (void)state;
    static const struct {
        void (*make)(clt_graph *g);
        const char *parallel;
        int accumulate;
    } meshes[] = {{field, "space=2", 1},
                  {field, "space=2", 2},
                  {sequence, "time=2", 1},
                  {sequence, "time=2", 2}};
    for (int i = 0; i < 4 && has_two_alike(); i++) {
        float one[SAMPLE * SAMPLES], two[SAMPLE * SAMPLES];
        on_mesh(meshes[i].make, "pocl", NULL, 1, one);
        on_mesh(meshes[i].make, "pocl/2", meshes[i].parallel, meshes[i].accumulate, two);
        near(meshes[i].parallel, two, one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(space_and_time)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
