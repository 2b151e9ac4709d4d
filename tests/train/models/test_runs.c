/* Fifty steps of GPT-2 nano and of ResNet-18 at 32 x 32, on each axis of a mesh, compared with
 * PyTorch in f64 (tests/goldens/README.md). */
#include "train/models/golden_model.h"

static const char *const TWO = "pocl@1,pocl@1";

/* Checks a run. `parallel` NULL: one device, or several along dp. */
static void check(const char *name, const char *devices, const char *parallel, int zero,
                  int accumulate)
{
    subject s = subject_open("runs", name);
    double worst = 0;
    s.parallel = parallel;
    s.zero = zero;
    s.accumulate = accumulate;
    lab l = subject_lab(&s, NULL, devices);
    check_run(&s, &l, &worst);
    printf("    %s on %s %s zero %d, %d micro-batches: %.2f of the limit\n", name, devices,
           parallel ? parallel : "", zero, accumulate, worst);
    lab_close(&l);
    subject_close(&s);
}

static void gpt2(void **state)
{
    (void)state;
    check("gpt2-nano", "pocl@1", NULL, 0, 1);
    check("gpt2-nano", TWO, "dp=2", 0, 1);
    check("gpt2-nano", TWO, "tp=2", 0, 1);
    check("gpt2-nano", TWO, "tp=2:sequence", 0, 1);
    check("gpt2-nano", TWO, "pp=2", 0, 4);
    check("gpt2-nano", TWO, "time=2", 0, 1);
    check("gpt2-nano", TWO, "dp=2", 1, 1);
    check("gpt2-nano", TWO, "dp=2", 3, 1);
}

static void resnet18(void **state)
{
    (void)state;
    check("resnet18", "pocl@1", NULL, 0, 1);
    check("resnet18", TWO, "dp=2", 0, 1);
    check("resnet18", TWO, "tp=2", 0, 1);
    check("resnet18", TWO, "space=2", 0, 1);
}

/* Batch norm takes the statistics of each micro-batch, so that these runs have a golden of their
 * own. */
static void resnet18_in_micro_batches(void **state)
{
    (void)state;
    check("resnet18-micro", "pocl@1", NULL, 0, 4);
    check("resnet18-micro", TWO, "pp=2", 0, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(resnet18),
        cmocka_unit_test(resnet18_in_micro_batches),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
