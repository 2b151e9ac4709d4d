/* The policy "plateau" against PyTorch's ReduceLROnPlateau, and what policies read of texts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "goldens/goldens.h"
#include "train/fit/fit.h"

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static void each_case(FILE *file, int larger)
{
    clt_plateau p;
    double lr;
    int count;
    clt_plateau_init(&p);
    long long patience, cooldown;
    assert_int_equal(fscanf(file, "%lf %lld %lf %lf %lld %lf %lf %d", &p.factor, &patience,
                            &p.minimum, &p.threshold, &cooldown, &p.epsilon, &lr, &count),
                     8);
    p.patience = patience;
    p.cooldown = cooldown;
    double values[64], rates[64];
    assert_in_range(count, 1, 64);
    for (int i = 0; i < count; i++)
        assert_int_equal(fscanf(file, "%lf", &values[i]), 1);
    for (int i = 0; i < count; i++)
        assert_int_equal(fscanf(file, "%lf", &rates[i]), 1);

    const clt_watched watched = {"loss", larger, 0};
    const char *const names[] = {"loss"};
    clt_trainer *trainer = calloc(1, sizeof *trainer);
    clt_fit_run *fit = calloc(1, sizeof *fit);
    const clt_fit_options options = {0};
    clt_policy *policy;
    trainer->options.lr = lr;
    fit->trainer = trainer;
    fit->options = &options;
    fit->policies.fit = fit;
    ok(clt_policy_plateau(&watched, &p, &policy));
    ok(policy->begin(policy->user, &fit->policies, NULL));
    for (int i = 0; i < count; i++) {
        const clt_evaluation e = {i + 1, i + 1, 1, names, &values[i]};
        if (i % 7 == 3) { /* as after a kill: another policy goes on from the state */
            char *state = policy->save(policy->user);
            clt_policy_destroy(policy);
            ok(clt_policy_plateau(&watched, &p, &policy));
            trainer->options.lr = lr;
            ok(policy->begin(policy->user, &fit->policies, state));
            free(state);
        }
        ok(policy->evaluated(policy->user, &fit->policies, &e));
        if (trainer->options.lr != rates[i])
            fail_msg("value %d: rate %.17g, PyTorch has %.17g", i, trainer->options.lr, rates[i]);
    }
    clt_policy_destroy(policy);
    free(fit);
    free(trainer);
}

static void plateau_is_pytorchs(void **state)
{
    (void)state;
    char path[512];
    int larger, cases = 0;
    golden_path("plateau.txt", path, sizeof path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (; fscanf(file, "%d", &larger) == 1; cases++)
        each_case(file, larger);
    fclose(file);
    assert_int_equal(cases, 24);
}

static void directions(void **state)
{
    (void)state;
    int larger = -1;
    ok(clt_metric_direction("val_loss", &larger));
    assert_int_equal(larger, 0);
    ok(clt_metric_direction("test_accuracy", &larger));
    assert_int_equal(larger, 1);
    ok(clt_metric_direction("rmse", &larger));
    assert_int_equal(larger, 0);
    assert_int_equal(clt_metric_direction("gloss", &larger), CLT_NOT_FOUND);
    assert_non_null(strstr(clt_error_message(), "say min:gloss or max:gloss"));
    assert_non_null(strstr(clt_error_message(), "clt_watched.larger"));
    clt_plateau p;
    ok(clt_plateau_parse("plateau:0.5:3:1e-3", &p));
    assert_true(p.factor == 0.5 && p.patience == 3 && p.minimum == 1e-3);
    ok(clt_plateau_parse("plateau:0.1:0", &p));
    static const char *const bad[] = {"plateau",      "plateau:2:1",       "plateau:0.5:-1",
                                      "plateau:0.5",  "plateau:0.5:1:2:3", "plateau:0.5:1x",
                                      "plateau:nan:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(clt_plateau_parse(bad[i], &p), CLT_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plateau_is_pytorchs),
                                       cmocka_unit_test(directions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
