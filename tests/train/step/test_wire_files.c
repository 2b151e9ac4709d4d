/* Gradients in 16 bits with error feedback: checkpoints have the residuals. */
#include "train/step/wire_lab.h"

#include <unistd.h>

#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>

static void folder(char *path)
{
    strcpy(path, "/tmp/cltrain-wire-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static void remove_folder(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", path);
    assert_int_equal(system(command), 0);
}

static void save(lab *l, const char *dir)
{
    ok(clt_trainer_save(l->trainer, dir, (clt_position){0, 0}, COUNT, 1, 0, NULL));
}

static clt_status restore(lab *l, const char *dir)
{
    clt_position position;
    int64_t seed;
    return clt_trainer_restore(l->trainer, dir, &position, &seed);
}

/* Adds up the residuals of all senders. */
static void add_up(const lab *l, int bucket, double *sums)
{
    static residuals r;
    for (int64_t i = 0; i < count_of(l, bucket); i++)
        sums[i] = l->trainer->parked ? (double)l->trainer->parked[bucket][i] : 0;
    if (l->n == 1)
        return;
    read_residuals(l, bucket, &r);
    for (int64_t i = 0; i < count_of(l, bucket); i++) {
        sums[i] += (double)r.sum[i];
        for (int d = 0; d < l->n; d++)
            sums[i] += (double)r.device[d][i];
    }
}

static void a_resumed_run_has_the_same_bits(void **state)
{
    static residuals a, b;
    static float weights[2][HIDDEN * IN];
    const setting s = {.devices = "cpu/2", CLT_F32, CLT_BF16, 1};
    char dir[64];
    (void)state;
    folder(dir);
    lab first = lab_of(&s);
    run_step(&first, COUNT);
    run_step(&first, COUNT);
    save(&first, dir);
    lab second = lab_of(&s);
    run_step(&second, COUNT); /* residuals of its own, which go */
    ok(restore(&second, dir));
    for (int i = 0; i < 2; i++) {
        run_step(&first, COUNT);
        run_step(&second, COUNT);
    }
    for (int bucket = 0; bucket < buckets_of(&first) && first.n == 2; bucket++) {
        if (is_state(&first, bucket))
            continue;
        read_residuals(&first, bucket, &a);
        read_residuals(&second, bucket, &b);
        assert_memory_equal(&a, &b, sizeof a);
    }
    ok(clt_store_get(first.store, "a.weight", weights[0], sizeof weights[0]));
    ok(clt_store_get(second.store, "a.weight", weights[1], sizeof weights[1]));
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    lab_close(&first);
    lab_close(&second);
    remove_folder(dir);
}

/* The number of the step after a restore may be that of the last step before it. */
static void a_step_that_is_repeated_has_the_same_bits(void **state)
{
    static residuals before[MOST], after;
    static float weights[2][HIDDEN * IN];
    const setting s = {.devices = "cpu/2", CLT_F32, CLT_BF16, 1};
    char dir[64];
    (void)state;
    lab l = lab_of(&s);
    if (l.n < 2) {
        lab_close(&l);
        skip();
    }
    folder(dir);
    run_step(&l, COUNT);
    run_step(&l, COUNT);
    save(&l, dir);
    for (int k = 0; k < 2; k++) {
        run_step(&l, COUNT);
        for (int b = 0; b < buckets_of(&l); b++) {
            if (is_state(&l, b))
                continue;
            read_residuals(&l, b, k ? &after : &before[b]);
            if (k)
                assert_memory_equal(&after, &before[b], sizeof after);
        }
        if (!k)
            ok(restore(&l, dir));
    }
    for (int k = 0; k < 2; k++) { /* the residuals also count in later steps */
        ok(restore(&l, dir));
        run_step(&l, COUNT);
        run_step(&l, COUNT);
        ok(clt_store_get(l.store, "a.weight", weights[k], sizeof weights[k]));
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    lab_close(&l);
    remove_folder(dir);
}

/* From two devices to three, to one, and to two again: the sum of all residuals stays. */
static void nothing_is_lost_on_other_devices(void **state)
{
    static const char *const lists[] = {"cpu/2", "cpu/2,cpu@1", "cpu@1", "cpu/2"};
    static double sums[MOST][FLOATS], now[FLOATS];
    char dir[64];
    (void)state;
    folder(dir);
    for (int i = 0; i < 4; i++) {
        const setting s = {.devices = lists[i], CLT_F32, CLT_BF16, 1};
        double largest = 0;
        lab l = lab_of(&s);
        if (i)
            ok(restore(&l, dir));
        for (int b = 0; b < buckets_of(&l) && i; b++) {
            if (is_state(&l, b))
                continue;
            add_up(&l, b, now);
            for (int64_t k = 0; k < count_of(&l, b); k++) {
                assert_true(fabs(now[k] - sums[b][k]) <= 1e-6 * fabs(sums[b][k]) + 1e-12);
                largest = fmax(largest, fabs(now[k]));
            }
        }
        assert_true(!i || largest > 0);
        run_step(&l, COUNT);
        for (int b = 0; b < buckets_of(&l); b++)
            if (!is_state(&l, b))
                add_up(&l, b, sums[b]);
        save(&l, dir);
        lab_close(&l);
    }
    remove_folder(dir);
}

static void another_type_is_refused(void **state)
{
    const setting with = {.devices = "cpu/2", CLT_BF16, CLT_BF16, 1};
    const setting without = {.devices = "cpu/2", CLT_BF16, CLT_F32, 1};
    char dir[64];
    (void)state;
    folder(dir);
    lab l = lab_of(&with);
    run_step(&l, COUNT);
    save(&l, dir);
    lab_close(&l);
    l = lab_of(&without);
    assert_int_equal(restore(&l, dir), CLT_MISMATCH);
    assert_non_null(strstr(clt_error_message(),
                           "has residuals of wire bf16, this run has wire f32: go on with wire "
                           "bf16"));
    lab_close(&l);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(a_step_that_is_repeated_has_the_same_bits),
        cmocka_unit_test(nothing_is_lost_on_other_devices),
        cmocka_unit_test(another_type_is_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
