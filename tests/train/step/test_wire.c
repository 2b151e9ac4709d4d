/*
 * Gradients in 16 bits with error feedback. Each step's roundings and residuals are computed again
 * here, from the f32 gradients that the devices keep, and compared bit by bit.
 */
#include "train/lab.h"

#include <unistd.h>

#include "train/core/trainer.h"
#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>

enum { COUNT = 24, IN = 37, HIDDEN = 50, CLASSES = 7, MOST = 4, FLOATS = 8192 };

static float xs[COUNT * IN];
static int32_t labels[COUNT];
static const clt_feed feeds[] = {{"x", -1, xs, NULL, 0, 0}, {"label", -1, labels, NULL, 0, 0}};

typedef struct setting {
    const char *devices;
    clt_dtype precision, wire;
    int accumulate, zero, no_guard, as_gpu;
} setting;

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_MOMENTUM;
    o.lr = 0.25;
    o.batch = COUNT;
    o.accumulate = s->accumulate;
    o.precision = s->precision;
    o.wire = s->wire;
    o.zero = s->zero;
    o.guard = !s->no_guard;
    o.poison = 1;
    o.separate = clt_test_oclgrind();
    return o;
}

static lab lab_of(const setting *s)
{
    const clt_trainer_options options = options_of(s);
    clt_store_options stored;
    clt_store_options_init(&stored);
    stored.seed = 3;
    stored.bucket_bytes = 4096;
    make_samples(xs, labels, COUNT, IN, CLASSES);
    lab l = s->as_gpu ? lab_on(clt_test_devices(s->devices), NULL)
                      : lab_on_kept(clt_test_devices(s->devices));
    for (int d = 0; d < l.n && s->as_gpu; d++)
        l.devices[d]->caps.kind = CLT_KIND_GPU;
    l.graph = classifier(IN, HIDDEN, CLASSES);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &options, &l.trainer));
    return l;
}

static clt_step_result run_step(lab *l, int64_t count)
{
    clt_step_batch batch;
    clt_step_result result;
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = count;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    ok(clt_trainer_wait(l->trainer));
    return result;
}

/* --- arithmetic of this file ------------------------------------------------------------------ */

static float nearest(clt_dtype dtype, float x)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexpf(x, &exponent);
    int last = exponent - (dtype == CLT_BF16 ? 8 : 11);
    last = dtype == CLT_F16 && last < -24 ? -24 : last;
    const double r = ldexp(nearbyint(ldexp((double)x, -last)), last);
    return dtype == CLT_F16 && fabs(r) > 65504 ? copysignf(INFINITY, x) : (float)r;
}

static float float_of(clt_dtype dtype, uint16_t h)
{
    float x;
    const uint32_t u = (uint32_t)h << 16;
    memcpy(&x, &u, sizeof x);
    if (dtype == CLT_BF16)
        return x;
    const int exponent = h >> 10 & 31;
    x = exponent == 31 ? INFINITY
        : exponent     ? ldexpf((float)((h & 0x3ff) | 0x400), exponent - 25)
                       : ldexpf((float)(h & 0x3ff), -24);
    return h & 0x8000 ? -x : x;
}

/* --- what the trainer has --------------------------------------------------------------------- */

/* The residuals of one bucket. */
typedef struct residuals {
    float device[MOST][FLOATS], sum[FLOATS];
} residuals;

static int64_t count_of(const lab *l, int bucket)
{
    const int64_t count = l->store->layout.buckets[bucket].bytes / 4;
    assert_true(count <= FLOATS / 2);
    return count;
}

static void read_residuals(const lab *l, int bucket, residuals *r)
{
    const clt_trainer *t = l->trainer;
    memset(r, 0, sizeof *r);
    for (int d = 0; d < l->n && t->exchange.wire.rounds; d++)
        ok(clt_replica_read(&l->store->replicas[d], l->store->replicas[d].residuals[bucket], 0,
                            count_of(l, bucket) * 4, r->device[d]));
    t->exchange.collectives.residual_get(t->exchange.wire.sums[bucket], CLT_ROUNDS_SUM, r->sum);
}

static int buckets_of(const lab *l)
{
    return l->store->layout.n_buckets;
}

static bool is_state(const lab *l, int bucket)
{
    return l->store->layout.buckets[bucket].state;
}

/* The f32 gradients of a device, before rounding. */
static void read_gradients(const lab *l, int device, int bucket, float *data)
{
    const clt_replica *r = &l->store->replicas[device];
    const cl_mem *from = l->trainer->options.precision == CLT_F32 ? r->gradients : r->gradient_sums;
    ok(clt_replica_read(r, from[bucket], 0, count_of(l, bucket) * 4, data));
}

static void equal(float a, float b, const char *what, int bucket, int64_t i)
{
    if (memcmp(&a, &b, sizeof a))
        fail_msg("%s, bucket %d, element %d: %.9g, not %.9g", what, bucket, (int)i, (double)a,
                 (double)b);
}

/* Compares a bucket with the residuals before the step. Devices from `senders` on sent nothing. */
static void check_bucket(const lab *l, const setting *s, int bucket, const residuals *before,
                         int senders)
{
    static residuals after;
    static float gradient[MOST][FLOATS];
    static uint16_t sums[MOST][FLOATS];
    const clt_bucket *b = &l->store->layout.buckets[bucket];
    read_residuals(l, bucket, &after);
    for (int d = 0; d < l->n; d++) {
        const clt_replica *r = &l->store->replicas[d];
        read_gradients(l, d, bucket, gradient[d]);
        ok(clt_replica_read(r, r->half_gradients[bucket], 0, count_of(l, bucket) * 2, sums[d]));
    }
    for (int64_t i = 0; i < count_of(l, bucket); i++) {
        float sum = 0;
        for (int d = 0; d < l->n; d++) {
            const float v = gradient[d][i] + before->device[d][i], sent = nearest(s->wire, v);
            equal(after.device[d][i], d < senders ? v - sent : before->device[d][i],
                  "a device's residual", bucket, i);
            if (d < senders) {
                equal(sent + after.device[d][i], v, "what a device sent and kept", bucket, i);
                sum += sent;
            }
        }
        const float w = sum + before->sum[i], result = nearest(s->wire, w);
        equal(after.sum[i], w - result, "the owner's residual", bucket, i);
        for (int d = 0; d < l->n; d++) {
            const int64_t begin = clt_shard_begin(b, d, l->n) / 4;
            if (!s->zero || (i >= begin && i < begin + clt_shard_size(b, d, l->n) / 4))
                equal(float_of(s->wire, sums[d][i]), result, "the sum", bucket, i);
        }
    }
}

static void check_steps(const setting *s, int64_t count, int senders)
{
    static residuals before[MOST];
    lab l = lab_of(s);
    double largest = 0;
    if (l.n < 2) {
        lab_close(&l);
        return;
    }
    assert_true(buckets_of(&l) > 1 && buckets_of(&l) <= MOST);
    for (int step = 0; step < 4; step++) {
        for (int b = 0; b < buckets_of(&l); b++)
            if (!is_state(&l, b))
                read_residuals(&l, b, &before[b]);
        assert_true(run_step(&l, step == 2 ? count : COUNT).finite);
        for (int b = 0; b < buckets_of(&l); b++)
            if (!is_state(&l, b)) {
                check_bucket(&l, s, b, &before[b], step == 2 ? senders : l.n);
                largest = fmax(largest, fabs((double)before[b].device[0][0]));
            }
    }
    assert_true(largest > 0);
    lab_close(&l);
}

static void residuals_are_what_was_rounded(void **state)
{
    static const setting settings[] = {
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 1},
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 2},
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .zero = 1},
        {.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .no_guard = 1},
        {.devices = "cpu/2", CLT_BF16, CLT_BF16, 2},
        {.devices = "cpu/2,cpu@1", CLT_F32, CLT_BF16, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check_steps(&settings[i], COUNT, MOST);
}

static void residuals_on_gpu_kernels(void **state)
{
    (void)state;
    check_steps(&(setting){.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .as_gpu = 1}, COUNT, MOST);
}

/* One sample: the other device has none and sends nothing. */
static void a_device_without_samples_keeps_its_residuals(void **state)
{
    (void)state;
    check_steps(&(setting){.devices = "cpu/2", CLT_F32, CLT_BF16, 1}, 1, 1);
}

/* --- loss scaling ------------------------------------------------------------------------------
 */

/* In f16 gradients are 16 bits already, so only the owner rounds. Its residual is kept without the
 * loss scale, whatever scale the steps have. Steps in parts show the gradients before the sum. */
static void loss_scaling(void **state)
{
    static uint16_t given[MOST][2][FLOATS], sums[FLOATS];
    static residuals before[MOST], after;
    const setting s = {.devices = "cpu/2", CLT_F16, CLT_F16, 1};
    lab l = lab_of(&s);
    clt_step_batch batch;
    int rounded = 0;
    (void)state;
    clt_step_batch_init(&batch);
    batch.count = COUNT;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int step = 0; step < 6 && l.n == 2; step++) {
        /* Scales change between steps, and the first is too large. */
        const clt_scaling scaling = {.scale = step ? ldexpf(1, 6 + step) : 0x1p30f};
        ok(clt_trainer_set_scaling(l.trainer, &scaling));
        ok(clt_trainer_forward(l.trainer, &batch));
        ok(clt_trainer_backward(l.trainer));
        ok(clt_trainer_wait(l.trainer));
        for (int b = 0; b < buckets_of(&l); b++) {
            if (is_state(&l, b))
                continue;
            read_residuals(&l, b, &before[b]);
            for (int d = 0; d < 2; d++)
                ok(clt_replica_read(&l.store->replicas[d], l.store->replicas[d].half_gradients[b],
                                    0, count_of(&l, b) * 2, given[b][d]));
        }
        ok(clt_trainer_reduce(l.trainer));
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_trainer_wait(l.trainer));
        for (int b = 0; b < buckets_of(&l); b++) {
            if (is_state(&l, b))
                continue;
            read_residuals(&l, b, &after);
            ok(clt_replica_read(&l.store->replicas[1], l.store->replicas[1].half_gradients[b], 0,
                                count_of(&l, b) * 2, sums));
            for (int64_t i = 0; i < count_of(&l, b); i++) {
                const float w = float_of(CLT_F16, given[b][0][i]) +
                                float_of(CLT_F16, given[b][1][i]) +
                                scaling.scale * before[b].sum[i];
                const float sent = nearest(CLT_F16, w);
                equal(after.sum[i], step ? (w - sent) / scaling.scale : 0, "the residual", b, i);
                if (step)
                    equal(float_of(CLT_F16, sums[i]), sent, "the sum", b, i);
                rounded += after.sum[i] != 0;
            }
        }
    }
    assert_true(l.n < 2 || rounded > 100);
    lab_close(&l);
}

/* --- steps that do not count -------------------------------------------------------------------
 */

static void try_step(lab *l, clt_status expected)
{
    clt_step_batch batch;
    clt_step_result result;
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = COUNT;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    assert_int_equal(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result),
                     expected);
    ok(clt_trainer_wait(l->trainer));
}

static void a_step_that_is_not_finite_changes_no_residual(void **state)
{
    static residuals before[MOST], after;
    (void)state;
    for (int guard = 0; guard < 2; guard++) {
        const setting s = {.devices = "cpu/2", CLT_F32, CLT_BF16, 1, .no_guard = !guard};
        lab l = lab_of(&s);
        if (l.n == 2) {
            run_step(&l, COUNT);
            run_step(&l, COUNT);
            for (int b = 0; b < buckets_of(&l); b++)
                if (!is_state(&l, b))
                    read_residuals(&l, b, &before[b]);
            xs[5] = INFINITY;
            try_step(&l, guard ? CLT_NONFINITE : CLT_OK);
            make_samples(xs, labels, COUNT, IN, CLASSES);
            /* Without the guard each bucket is updated when its sum is there: a finite one counts.
             */
            for (int b = 0; b < buckets_of(&l) && guard; b++) {
                if (is_state(&l, b))
                    continue;
                read_residuals(&l, b, &after);
                assert_memory_equal(&after, &before[b], sizeof after);
            }
            for (int b = 0; b < buckets_of(&l); b++) {
                if (is_state(&l, b))
                    continue;
                read_residuals(&l, b, &after);
                for (int64_t i = 0; i < count_of(&l, b); i++)
                    assert_true(isfinite(after.device[0][i]) && isfinite(after.sum[i]));
            }
        }
        lab_close(&l);
    }
}

/* --- checkpoints -------------------------------------------------------------------------------
 */

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

/* --- refused -----------------------------------------------------------------------------------
 */

static void refuse(const char *parallel, int zero, int offload, clt_dtype precision, clt_dtype wire,
                   clt_status status, const char *text)
{
    const setting s = {.devices = "cpu/2", precision, wire, 2, zero};
    const clt_trainer_options options = options_of(&s);
    clt_store_options stored;
    clt_store_options_init(&stored);
    stored.parallel = parallel;
    stored.zero = zero == 3 ? 3 : 0;
    stored.offload = offload;
    lab l = lab_on_kept(clt_test_devices(s.devices));
    l.graph = classifier(IN, HIDDEN, CLASSES);
    if (l.n == 2) {
        ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
        assert_int_equal(clt_trainer_create(l.graph, l.store, &options, &l.trainer), status);
        if (!strstr(clt_error_message(), text))
            fail_msg("\"%s\" lacks \"%s\"", clt_error_message(), text);
    }
    lab_close(&l);
}

static void what_does_not_work_is_refused(void **state)
{
    (void)state;
    refuse(NULL, 0, 0, CLT_F32, CLT_F16, CLT_INVALID_ARGUMENT, "wire f16 needs losses that are");
    refuse(NULL, 0, 0, CLT_BF16, CLT_F16, CLT_INVALID_ARGUMENT, "wire f16 needs losses that are");
    refuse(NULL, 0, 0, CLT_F16, CLT_BF16, CLT_INVALID_ARGUMENT, "gradients are f16 already");
    refuse(NULL, 0, 0, CLT_F32, CLT_I32, CLT_INVALID_ARGUMENT, "wire i32 is not possible");
    refuse("dp=2", 3, 0, CLT_F32, CLT_BF16, CLT_UNSUPPORTED, "wire bf16 does not work with zero 3");
    refuse(NULL, 0, 1, CLT_F32, CLT_BF16, CLT_UNSUPPORTED, "wire bf16 does not work with offload");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_are_what_was_rounded),
        cmocka_unit_test(residuals_on_gpu_kernels),
        cmocka_unit_test(a_device_without_samples_keeps_its_residuals),
        cmocka_unit_test(loss_scaling),
        cmocka_unit_test(a_step_that_is_not_finite_changes_no_residual),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(nothing_is_lost_on_other_devices),
        cmocka_unit_test(another_type_is_refused),
        cmocka_unit_test(what_does_not_work_is_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
