/*
 * Kernels at the end of a step that add up virtual shards, and that round gradients with error
 * feedback. Each runs by itself on one device, with the kernels for CPUs and for GPUs. Expected
 * numbers are computed here, and compared bit by bit.
 */
#include "train/lab_as.h"

#include "exec/update/update.h"
#include "support/rounding.h"

/* Tensors have 1 element to more than a work-group's. Buckets pad them. */
static const int64_t sizes[] = {1, 67, 64, 4099};
enum { TENSORS = sizeof sizes / sizeof *sizes, MOST = 3 * 4608 };

typedef struct rig {
    lab l;
    clt_buckets buckets;
    clt_replica replica;
    clt_update *update;
    int64_t count; /* elements of the only bucket */
} rig;

/* The residuals are rounded to `wire` unless it is F32. */
static void open_rig(rig *r, clt_dtype precision, clt_dtype wire, bool as_gpu)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d"};
    const clt_bucket_sizes bucket_sizes = clt_bucket_sizes_default();
    const clt_update_options options = {.rule = {.kind = CLT_SGD},
                                        .guard = true,
                                        .merges = true,
                                        .precision = precision,
                                        .wire = wire};
    *r = (rig){.l = lab_as(clt_test_devices("pocl"), as_gpu)};
    ok(clt_graph_create(&r->l.graph));
    for (int t = 0; t < TENSORS; t++)
        clt_parameter(r->l.graph, names[t], 1, &sizes[t], (clt_init){0});
    ok(clt_graph_status(r->l.graph));
    ok(clt_buckets_create(r->l.graph, &bucket_sizes, &r->buckets));
    assert_int_equal(r->buckets.n_buckets, 1);
    r->count = r->buckets.buckets[0].bytes / 4;
    assert_true(r->count <= MOST);
    ok(clt_replica_create(r->l.devices[0], &r->buckets, &r->replica));
    ok(clt_replica_for_training(&r->replica, precision, 0, 0, 1));
    if (precision != CLT_F32)
        ok(clt_replica_for_gradient_sums(&r->replica));
    if (wire != CLT_F32)
        ok(clt_replica_for_wire(&r->replica, wire, true));
    ok(clt_update_create(&r->replica, &options, &r->update));
}

static void close_rig(rig *r)
{
    clt_update_destroy(r->update);
    clt_replica_destroy(&r->replica);
    clt_buckets_free(&r->buckets);
    lab_close(&r->l);
}

/* Numbers of both signs, of sizes that differ by 2^20, and zeros. */
static float number(uint32_t seed, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + seed;
    x ^= x >> 15;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    return i % 19 ? ldexpf((float)((int32_t)x >> 8), -24 - (int)(x & 15)) : 0;
}

static void equal(float a, float b, const char *what, int64_t i)
{
    if (memcmp(&a, &b, sizeof a))
        fail_msg("%s, element %d: %.9g, not %.9g", what, (int)i, (double)a, (double)b);
}

/* --- sums of shards --------------------------------------------------------------------------- */

static cl_mem buffer_of(const rig *r, clt_dtype dtype, const float *numbers)
{
    static uint16_t bits[MOST];
    const void *data = numbers;
    const int64_t bytes = r->count * clt_dtype_size(dtype);
    cl_mem buffer;
    for (int64_t i = 0; i < r->count && dtype != CLT_F32; i++)
        bits[i] = bits_of(dtype, numbers[i]);
    if (dtype != CLT_F32)
        data = bits;
    ok(clt_device_buffer_create(r->replica.device, bytes, CL_MEM_READ_WRITE, "a sum", &buffer));
    ok(clt_replica_write(&r->replica, buffer, 0, bytes, data));
    return buffer;
}

static void check_sums(const rig *r, clt_dtype dtype, cl_mem buffer, const float *sums,
                       const char *what)
{
    static uint16_t bits[MOST];
    static float read[MOST];
    ok(clt_replica_read(&r->replica, buffer, 0, r->count * clt_dtype_size(dtype),
                        dtype == CLT_F32 ? (void *)read : bits));
    for (int64_t i = 0; i < r->count; i++)
        equal(dtype == CLT_F32 ? read[i] : float_of(dtype, bits[i]), sums[i], what, i);
}

/* Merges floats, or gradients of the precision: into a third buffer, then into the second. */
static void merge(clt_dtype precision, bool floats, bool as_gpu)
{
    static float a[MOST], b[MOST], sums[MOST];
    const clt_dtype dtype = floats ? CLT_F32 : precision;
    rig r;
    open_rig(&r, precision, CLT_F32, as_gpu);
    for (int64_t i = 0; i < r.count; i++) {
        a[i] = number(1, i);
        b[i] = number(2, i);
        if (dtype != CLT_F32) {
            a[i] = nearest(dtype, a[i]);
            b[i] = nearest(dtype, b[i]);
        }
        sums[i] = dtype == CLT_F32 ? a[i] + b[i] : nearest(dtype, a[i] + b[i]);
    }
    cl_mem left = buffer_of(&r, dtype, a), right = buffer_of(&r, dtype, b);
    cl_mem third = buffer_of(&r, dtype, a);
    ok(clt_update_merge(r.update, floats, third, left, right, r.count));
    check_sums(&r, dtype, third, sums, "a sum");
    check_sums(&r, dtype, left, a, "the first addend");
    ok(clt_update_merge(r.update, floats, right, left, right, r.count));
    check_sums(&r, dtype, right, sums, "a sum in place");
    clt_release_buffer(left);
    clt_release_buffer(right);
    clt_release_buffer(third);
    close_rig(&r);
}

static void shards_are_merged(void **state)
{
    static const clt_dtype precisions[] = {CLT_F32, CLT_BF16, CLT_F16};
    (void)state;
    for (int i = 0; i < 6; i++) {
        merge(precisions[i / 2], false, i % 2);
        merge(precisions[i / 2], true, i % 2);
    }
}

/* A shard without samples has sums of 0, which make 0 of -0 and change nothing else. */
static void empty_shards_are_added(void **state)
{
    static float numbers[MOST];
    (void)state;
    for (int as_gpu = 0; as_gpu < 2; as_gpu++) {
        rig r;
        int negative = 0;
        open_rig(&r, CLT_F32, CLT_F32, as_gpu);
        for (int64_t i = 0; i < r.count; i++)
            numbers[i] = i % 19 ? number(5, i) : -0.0f;
        cl_mem sums = buffer_of(&r, CLT_F32, numbers);
        ok(clt_update_add_zeros(r.update, &sums));
        for (int64_t i = 0; i < r.count; i++) {
            negative += numbers[i] == 0 && signbit(numbers[i]);
            numbers[i] = numbers[i] == 0 ? 0.0f : numbers[i];
        }
        assert_true(negative > r.count / 20);
        check_sums(&r, CLT_F32, sums, numbers, "a sum with zeros");
        clt_release_buffer(sums);
        close_rig(&r);
    }
}

/* --- error feedback --------------------------------------------------------------------------- */

static void check_residuals(const rig *r, const float *expected, const char *what)
{
    static float read[MOST];
    ok(clt_replica_read(&r->replica, r->replica.residuals[0], 0, r->count * 4, read));
    for (int64_t i = 0; i < r->count; i++)
        equal(read[i], expected[i], what, i);
}

/* `scale` is that of losses, a power of two: gradients have it, residuals do not. */
static void feed_back(clt_dtype precision, clt_dtype wire, float scale, bool as_gpu)
{
    static float gradient[MOST], before[MOST], after[MOST];
    static uint16_t sent[MOST];
    const clt_scaling scaling = {.scale = scale};
    int kept = 0;
    rig r;
    open_rig(&r, precision, wire, as_gpu);
    for (int64_t i = 0; i < r.count; i++) {
        gradient[i] = scale * number(3, i);
        before[i] = number(4, i) / 512;
    }
    const cl_mem from = precision == CLT_F32 ? r.replica.gradients[0] : r.replica.gradient_sums[0];
    ok(clt_replica_write(&r.replica, from, 0, r.count * 4, gradient));
    ok(clt_replica_write(&r.replica, r.replica.residuals[0], 0, r.count * 4, before));
    ok(clt_update_set_scaling(r.update, &scaling));
    ok(clt_update_send(r.update, 0));
    ok(clt_replica_read(&r.replica, r.replica.half_gradients[0], 0, r.count * 2, sent));
    for (int64_t i = 0; i < r.count; i++) {
        const float exact = gradient[i] + scale * before[i], rounded = nearest(wire, exact);
        equal(float_of(wire, sent[i]), rounded, "what was sent", i);
        after[i] = (exact - rounded) / scale;
        kept += after[i] != 0;
    }
    assert_true(kept > r.count / 2);
    check_residuals(&r, before, "a residual after sending");
    ok(clt_update_set_status(r.update, 1, false));
    assert_false(clt_update_commits(r.update));
    ok(clt_update_keep(r.update, 0));
    check_residuals(&r, before, "a residual after a step that is not committed");
    ok(clt_update_set_scaling(r.update, &scaling));
    ok(clt_update_set_status(r.update, 1, true));
    ok(clt_update_keep(r.update, 0));
    check_residuals(&r, after, "a residual after a step");
    close_rig(&r);
}

static void residuals_are_kept(void **state)
{
    (void)state;
    for (int as_gpu = 0; as_gpu < 2; as_gpu++) {
        feed_back(CLT_F32, CLT_BF16, 1, as_gpu);
        feed_back(CLT_BF16, CLT_BF16, 1, as_gpu);
        feed_back(CLT_F16, CLT_F16, 1024, as_gpu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_merged),
        cmocka_unit_test(empty_shards_are_added),
        cmocka_unit_test(residuals_are_kept),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
