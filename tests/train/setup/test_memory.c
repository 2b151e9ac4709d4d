/* Devices of one process have the bytes of memory that a plan names. */
#include "train/planned_memory.h"

static const char two[] = "pocl@1,pocl@1", three[] = "pocl@1,pocl@1,pocl@1",
                  four[] = "pocl@1,pocl@1,pocl@1,pocl@1", both[] = "pocl@1,intel";

static const setting settings[] = {
    {MLP, "pocl@1", NULL, 6, 0, 1, CLT_SGD, CLT_F32, 0},
    {MLP, two, NULL, 6, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {MLP, three, NULL, 6, 0, 2, CLT_ADAMW, CLT_F32, 0},
    {MLP, two, NULL, 6, 0, 3, CLT_ADAM, CLT_BF16, 0},
    {GPT, two, NULL, 0, 0, 1, CLT_ADAMW, CLT_F32, 1},
    {"resnet18:width=4,sync", two, NULL, 32, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {MLP, two, NULL, 6, 1, 1, CLT_ADAMW, CLT_F32, 0},
    {MLP, three, NULL, 6, 1, 2, CLT_MOMENTUM, CLT_F32, 0},
    {GPT, two, NULL, 0, 1, 1, CLT_ADAMW, CLT_F16, 0},
    {GPT, two, NULL, 0, 3, 1, CLT_ADAMW, CLT_F32, 0},
    {GPT, three, NULL, 0, 3, 2, CLT_MOMENTUM, CLT_F32, 0},
    {GPT, two, "tp=2", 0, 0, 1, CLT_ADAMW, CLT_F32, 0},
    {GPT, two, "tp=2:sequence", 0, 0, 1, CLT_SGD, CLT_F32, 0},
    {GPT, four, "dp=2,tp=2", 0, 1, 2, CLT_ADAM, CLT_F32, 0},
    {GPT, two, "pp=2", 0, 0, 4, CLT_ADAMW, CLT_F32, 0},
    {"resnet18:width=4", two, "pp=2", 32, 0, 2, CLT_SGD, CLT_F32, 0},
    {GPT, four, "dp=2,pp=2", 0, 0, 4, CLT_ADAMW, CLT_BF16, 0},
    {"resnet18:width=4,sync", two, "space=2", 32, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {"resnet18:width=4,sync", two, "space=2", 32, 0, 2, CLT_ADAM, CLT_F32, 0},
    {GPT, two, "time=2", 0, 0, 1, CLT_ADAMW, CLT_F32, 0},
    {LSTM, two, "time=2", 0, 0, 1, CLT_SGD, CLT_F32, 0},
    {MLP, three, NULL, 6, 4, 1, CLT_ADAMW, CLT_F32, 0},
    {MLP, both, NULL, 6, 0, 1, CLT_ADAMW, CLT_F32, 0},
    {GPT, both, "pp=2", 0, 0, 2, CLT_ADAMW, CLT_F32, 0}};

static const setting in_shards[] = {
    {MLP, "pocl@1", NULL, 6, 0, 1, CLT_ADAMW, CLT_BF16, 0},
    {MLP, three, NULL, 6, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {MLP, three, NULL, 6, 1, 1, CLT_ADAMW, CLT_F32, 0},
    {"resnet18:width=4", two, NULL, 32, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {GPT, two, NULL, 0, 0, 1, CLT_ADAMW, CLT_BF16, 1}};

/* Three devices have four, two and two of them. */
static void virtual_shards(void **state)
{
    (void)state;
    memory_shards = 8;
    for (size_t i = 0; i < sizeof in_shards / sizeof *in_shards; i++)
        check_memory(&in_shards[i]);
    memory_shards = 0;
}

static void buffers_have_the_planned_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!strstr(settings[i].devices, "intel") || strstr(clt_test_devices(""), "intel"))
            check_memory(&settings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_have_the_planned_bytes),
                                       cmocka_unit_test(virtual_shards)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
