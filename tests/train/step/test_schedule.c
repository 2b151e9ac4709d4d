/* Learning-rate schedules, compared with their formulas, and the texts that name them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <cltrain/train.h>

static clt_schedule parse(const char *text, int64_t total)
{
    clt_schedule schedule;
    memset(&schedule, 0x55, sizeof schedule);
    if (clt_schedule_parse(text, total, &schedule) != CLT_OK)
        fail_msg("%s: %s", text, clt_error_message());
    return schedule;
}

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("rate %.17g, expected %.17g", have, want);
}

static void test_constant(void **state)
{
    (void)state;
    const clt_schedule s = parse("constant", 100), zero = {0};
    const int64_t steps[] = {0, 1, 99, 100, 12345678};
    for (int i = 0; i < 5; i++) {
        near(clt_schedule_rate(&s, 0.2, steps[i]), 0.2);
        near(clt_schedule_rate(&zero, 0.2, steps[i]), 0.2); /* the initial value of options */
    }
}

static void test_step(void **state)
{
    (void)state;
    const clt_schedule s = parse("step:30:0.1", 100);
    near(clt_schedule_rate(&s, 0.5, 0), 0.5);
    near(clt_schedule_rate(&s, 0.5, 29), 0.5);
    near(clt_schedule_rate(&s, 0.5, 30), 0.05);
    near(clt_schedule_rate(&s, 0.5, 59), 0.05);
    near(clt_schedule_rate(&s, 0.5, 60), 0.005);
    near(clt_schedule_rate(&s, 0.5, 95), 0.0005);
}

static void test_cosine(void **state)
{
    (void)state;
    const double pi = 3.14159265358979323846;
    const clt_schedule s = parse("cosine", 80), m = parse("cosine:0.01", 80);
    for (int64_t t = 0; t <= 80; t++) {
        near(clt_schedule_rate(&s, 0.4, t), 0.4 * (1 + cos(pi * (double)t / 80)) / 2);
        near(clt_schedule_rate(&m, 0.4, t),
             0.01 + (0.4 - 0.01) * (1 + cos(pi * (double)t / 80)) / 2);
    }
    near(clt_schedule_rate(&s, 0.4, 40), 0.2);
    near(clt_schedule_rate(&s, 0.4, 80), 0);
    near(clt_schedule_rate(&m, 0.4, 1000), 0.01); /* the rate stays at the minimum */
}

static void test_warmup(void **state)
{
    (void)state;
    const double pi = 3.14159265358979323846;
    const clt_schedule c = parse("constant,warmup:10", 100);
    for (int64_t t = 0; t < 10; t++)
        near(clt_schedule_rate(&c, 0.3, t), 0.3 * (double)(t + 1) / 10);
    near(clt_schedule_rate(&c, 0.3, 10), 0.3);
    /* The cosine covers the steps after the warm-up. */
    const clt_schedule s = parse("cosine:0.05,warmup:20", 100);
    for (int64_t t = 0; t < 20; t++)
        near(clt_schedule_rate(&s, 0.3, t), 0.3 * (double)(t + 1) / 20);
    for (int64_t t = 20; t <= 100; t++)
        near(clt_schedule_rate(&s, 0.3, t),
             0.05 + (0.3 - 0.05) * (1 + cos(pi * (double)(t - 20) / 80)) / 2);
    const clt_schedule e = parse("step:8:0.5,warmup:4", 100);
    near(clt_schedule_rate(&e, 1, 0), 0.25);
    near(clt_schedule_rate(&e, 1, 3), 1);
    near(clt_schedule_rate(&e, 1, 8), 0.5);
    /* The cosine ends at the minimum, and the warm-up begins below it. */
    const clt_schedule m = parse("cosine:0.2,warmup:10", 50);
    near(clt_schedule_rate(&m, 0.3, 0), 0.03);
    near(clt_schedule_rate(&m, 0.3, 10), 0.3);
    near(clt_schedule_rate(&m, 0.3, 50), 0.2);
    /* step:N counts from step 0, with the steps of the warm-up. */
    const clt_schedule i = parse("step:4:0.5,warmup:8", 100);
    near(clt_schedule_rate(&i, 1, 3), 0.5);
    near(clt_schedule_rate(&i, 1, 4), 0.3125);
    near(clt_schedule_rate(&i, 1, 8), 0.25);
    /* The warm-up takes all steps, so a division by zero must be avoided. */
    const clt_schedule all = parse("cosine,warmup:100", 100);
    assert_true(isfinite(clt_schedule_rate(&all, 1, 100)));
}

static void test_bad_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "const",
                                        "constant:1",
                                        "step",
                                        "step:10",
                                        "step:0:0.1",
                                        "step:-5:0.1",
                                        "step:10:nan",
                                        "step:10:0.1:2",
                                        "cosine:",
                                        "cosine:inf",
                                        "cosine:0.1x",
                                        "constant,warmup",
                                        "constant,warmup:",
                                        "constant,warmup:-1",
                                        "constant,warmup:5x",
                                        "constant,cooldown:5",
                                        ",warmup:5"};
    clt_schedule before, schedule;
    memset(&before, 0x55, sizeof before);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        schedule = before;
        if (clt_schedule_parse(texts[i], 10, &schedule) != CLT_INVALID_ARGUMENT)
            fail_msg("'%s' was taken", texts[i]);
        assert_memory_equal(&schedule, &before, sizeof before);
        if (*texts[i])
            assert_non_null(strstr(clt_error_message(), texts[i]));
    }
}

static void test_optimizer_names(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd", "momentum", "nesterov", "adam", "adamw"};
    clt_optimizer o;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(clt_optimizer_parse(names[i], &o), CLT_OK);
        assert_int_equal(o, i);
        assert_string_equal(clt_optimizer_name(o), names[i]);
    }
    o = CLT_ADAM;
    assert_int_equal(clt_optimizer_parse("nestrov", &o), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "did you mean nesterov?"));
    assert_int_equal(o, CLT_ADAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant),  cmocka_unit_test(test_step),
        cmocka_unit_test(test_cosine),    cmocka_unit_test(test_warmup),
        cmocka_unit_test(test_bad_texts), cmocka_unit_test(test_optimizer_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
