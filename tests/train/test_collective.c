/* Collectives of the graph in steps of several devices. */
#include "base/alloc.h"
#include "device/cl.h"
#include "support/objects.h"
#include "train/normalised.h"
#include "train/trainer.h"

static clt_trainer_options default_options(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = NET_MOST;
    options.poison = 1;
    options.comm_timeout = 120;
    return options;
}

static lab open_on(const char *list, int share_context, const clt_trainer_options *options)
{
    clt_device_options device_options;
    clt_device_options_init(&device_options);
    device_options.share_context = share_context;
    lab l = lab_on(clt_test_devices(list), &device_options);
    lab_store(&l, net_graph(), 5);
    lab_trainer(&l, options);
    return l;
}

static void read_parameters(const lab *l, double *p)
{
    float values[NET_PARAMETERS];
    ok(net_read(l->store, values));
    for (int i = 0; i < NET_PARAMETERS; i++)
        p[i] = values[i];
}

/* --- gradients ------------------------------------------------------------------------------- */

/* Which micro-batch each sample is in: the k-th ones of all devices are normalised together. */
static void find_groups(const lab *l, int *group)
{
    const clt_trainer *t = l->trainer;
    for (int d = 0; d < l->n; d++) {
        const int64_t share = t->offsets[d + 1] - t->offsets[d];
        const int micros = clt_step_micros(t, share);
        for (int m = 0; m < micros; m++)
            for (int64_t i = clt_step_micro_begin(t, share, micros, m);
                 i < clt_step_micro_begin(t, share, micros, m + 1); i++)
                group[t->offsets[d] + i] = m;
    }
}

static void check_step(lab *l, int64_t count, const int64_t *offsets, int devices_alike)
{
    double p[NET_PARAMETERS], want[NET_PARAMETERS], error;
    int group[NET_MOST];
    read_parameters(l, p);
    const clt_step_batch batch = net_batch(count, offsets);
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    clt_step_result result;
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    find_groups(l, group);
    const double loss = net_loss(p, group, (int)count, NULL);
    if (!(fabs(result.loss - loss) <= 1e-6 * (1 + loss)))
        fail_msg("batch %lld: loss %.9g, not %.9g", (long long)count, result.loss, loss);
    net_gradient(p, group, (int)count, want);
    for (int d = 0; d < (devices_alike ? l->n : 1); d++) {
        ok(net_error(l->trainer, d, want, &error));
        if (!(error <= 2e-6))
            fail_msg("batch %lld, device %d: the gradient is off by %.3g", (long long)count, d,
                     error);
    }
    ok(clt_store_check(l->store));
}

static bool alike(const lab *l)
{
    return !l->trainer->owners;
}

/* Batches of every size, also less than one sample a device, and divisions that leave devices
 * without. */
static void gradients_are_those_of_the_whole_batch(void **state)
{
    static const int64_t counts[] = {NET_MOST, 23, 17, 3, 2, 1, 0, 5, NET_MOST};
    (void)state;
    for (int accumulate = 1; accumulate <= 3; accumulate++)
        for (int separate = 0; separate < 2; separate++) {
            clt_trainer_options options = default_options();
            options.accumulate = accumulate;
            options.separate = separate;
            options.batch = 2 * NET_MOST;
            lab l = open_on("pocl/2", 0, &options);
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                const int64_t n = counts[i];
                check_step(&l, n, NULL, alike(&l));
                if (l.n != 2)
                    continue;
                const int64_t divisions[][3] = {{0, 0, n}, {0, n, n}, {0, n / 5, n}};
                for (int k = 0; k < 3; k++)
                    check_step(&l, n, divisions[k], alike(&l));
            }
            lab_close(&l);
        }
}

static int set_up(void **state)
{
    net_make_samples();
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_whole_batch),
    };
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
