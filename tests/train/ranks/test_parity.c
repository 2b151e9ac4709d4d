/* LeNet, compared with PyTorch: gradients at five snapshots of a run, and trajectories of each
 * optimizer (tests/goldens/README.md). */
#include "train/parity.h"

/* Portable kernels take long, so they get one of the two batches. */
static void snapshots_on(const char *devices, int accumulate, int portable,
                         const char *const *files)
{
    static const char *const kinds[] = {"b256", "b257i"};
    double worst = 0;
    for (int i = 0; files[i]; i++)
        for (int k = portable; k < 2; k++)
            check_snapshot(devices, files[i], kinds[k], accumulate, portable, &worst);
    printf("    %s, accumulate %d%s: worst gradient error %.2f of the limit\n", devices, accumulate,
           portable ? ", portable" : "", worst);
}

static const char *const all_files[] = {
    "lenet_snapshot_000.safetensors", "lenet_snapshot_020.safetensors",
    "lenet_snapshot_060.safetensors", "lenet_snapshot_150.safetensors",
    "lenet_snapshot_400.safetensors", NULL};
static const char *const one_file[] = {"lenet_snapshot_020.safetensors", NULL};

static void gradients_agree_at_snapshots(void **state)
{
    (void)state;
    snapshots_on(clt_test_devices("cpu"), 1, 0, all_files);
}

static void gradients_agree_on_two_devices_and_in_micro_batches(void **state)
{
    (void)state;
    if (getenv("CLT_TEST_DEVICES"))
        skip();
    snapshots_on("cpu/2", 1, 0, all_files);
    snapshots_on("cpu", 4, 0, one_file);
    snapshots_on("cpu/2", 4, 0, one_file);
}

static void portable_variants_agree(void **state)
{
    (void)state;
    snapshots_on(clt_test_devices("cpu"), 1, 1, one_file);
}

/* --- trajectories ---------------------------------------------------------------------------- */

static void trajectories_stay_in_the_envelope(void **state)
{
    static const char *const optimizers[] = {"sgd", "momentum", "adamw"};
    static const char *const kinds[] = {"b256", "b257", "b257i"};
    double worst = 0;
    (void)state;
    load_training_set();
    /* Several devices take each optimizer and each kind of batches once. */
    for (int o = 0; o < 3; o++)
        for (int k = 0; k < 3; k++) {
            const bool once = o == k || getenv("CLT_TEST_ALL");
            if (once || !getenv("CLT_TEST_DEVICES"))
                follow(clt_test_devices("cpu"), optimizers[o], kinds[k], k == 1 ? 4 : 1, NULL,
                       &worst);
            if (once && !getenv("CLT_TEST_DEVICES"))
                follow("cpu/2", optimizers[o], kinds[k], k == 0 ? 4 : 1, NULL, &worst);
        }
    printf("    worst deviation of a loss: %.2f of the limit\n", worst);
}

/* The other optimizers, with PyTorch or, of lion and muon, the papers' references. `accumulate` is
 * of one device; two devices take the other. */
static void other_optimizers_stay_in_the_envelope(void **state)
{
    static const struct {
        const char *run;
        int accumulate;
    } rows[] = {{"rmsprop.b256", 1}, {"rmsprop-centered.b257i", 4},
                {"adagrad.b257", 1}, {"lion.b256", 4},
                {"muon.b256", 1},    {"muon-match.b257i", 1}};
    const char *file = "lenet_optimizers.safetensors", *list = clt_test_devices("cpu");
    (void)state;
    load_training_set();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double worst = 0;
        /* Devices of several kinds refuse muon (train.optimizer). */
        if (strchr(list, ',') && !strncmp(rows[i].run, "muon", 4))
            continue;
        follow_run(list, file, rows[i].run, rows[i].accumulate, NULL, &worst);
        printf("    %s on %s: worst deviation of a loss %.2f of the limit\n", rows[i].run, list,
               worst);
        worst = 0;
        if (getenv("CLT_TEST_DEVICES"))
            continue;
        follow_run("cpu/2", file, rows[i].run, 5 - rows[i].accumulate, NULL, &worst);
        printf("    %s on cpu/2: worst deviation of a loss %.2f of the limit\n", rows[i].run,
               worst);
    }
}

static int tear_down(void **state)
{
    free(train_images);
    free(train_labels);
    return close_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_at_snapshots),
        cmocka_unit_test(gradients_agree_on_two_devices_and_in_micro_batches),
        cmocka_unit_test(portable_variants_agree),
        cmocka_unit_test(trajectories_stay_in_the_envelope),
        cmocka_unit_test(other_optimizers_stay_in_the_envelope),
    };
    return cmocka_run_group_tests(tests, open_runtime, tear_down);
}
