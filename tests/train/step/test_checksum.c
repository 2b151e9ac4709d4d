/* Checksums of a replica's tensors, with the kernels for CPUs and for GPUs, compared with sums in
 * this file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/core/device.h"
#include "exec/checksum.h"
#include "support/devices.h"
#include <cltrain/cltrain.h>

/* Whole vectors and remainders, with more elements than work-items and with fewer. */
static const int64_t sizes[] = {1, 3, 64, 67, 4096 * 4 + 2, 40001};
enum { TENSORS = sizeof sizes / sizeof *sizes, MOST = 40001 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

static uint32_t word(int tensor, int64_t at)
{
    return (uint32_t)(at + 1) * 2654435761u ^ (uint32_t)tensor << 27;
}

static uint64_t expected(int tensor)
{
    uint32_t a = 0, b = 0;
    for (int64_t i = 0; i < sizes[tensor]; i++) {
        const uint32_t x = word(tensor, i), at = (uint32_t)i;
        a += x * (2 * at + 1);
        b += (x ^ at * 0x9E3779B9u) * 0x85EBCA6Bu ^ x >> 15;
    }
    return (uint64_t)b << 32 | a;
}

static void check(bool as_gpu)
{
    static const char *const names[TENSORS] = {"a", "b", "c", "d", "e", "f"};
    static uint32_t words[MOST];
    const clt_bucket_sizes bucket_sizes = clt_bucket_sizes_default();
    clt_runtime *runtime;
    clt_device **devices;
    clt_graph *graph;
    clt_buckets buckets;
    clt_replica replica;
    clt_checksum *checksum;
    uint64_t sums[TENSORS];
    int n;
    ok(clt_runtime_create(NULL, &runtime));
    ok(clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &devices, &n));
    if (as_gpu)
        devices[0]->caps.kind = CLT_KIND_GPU;
    ok(clt_graph_create(&graph));
    for (int t = 0; t < TENSORS; t++)
        clt_parameter(graph, names[t], 1, &sizes[t], (clt_init){0});
    ok(clt_graph_status(graph));
    ok(clt_buckets_create(graph, &bucket_sizes, &buckets));
    ok(clt_replica_create(devices[0], &buckets, &replica));
    assert_int_equal(buckets.n_slots, TENSORS);
    for (int s = 0; s < TENSORS; s++) {
        const int t = buckets.slots[s].name[0] - 'a';
        for (int64_t i = 0; i < sizes[t]; i++)
            words[i] = word(t, i);
        ok(clt_replica_write(&replica, replica.values[buckets.slots[s].bucket],
                             buckets.slots[s].offset, sizes[t] * 4, words));
    }
    ok(clt_checksum_create(&replica, &checksum));
    ok(clt_checksum_run(checksum, sums));
    for (int s = 0; s < TENSORS; s++) {
        const int t = buckets.slots[s].name[0] - 'a';
        if (sums[s] != expected(t))
            fail_msg("%s: %016llx, not %016llx", buckets.slots[s].name, (unsigned long long)sums[s],
                     (unsigned long long)expected(t));
    }
    clt_checksum_destroy(checksum);
    clt_replica_destroy(&replica);
    clt_buckets_free(&buckets);
    clt_graph_destroy(graph);
    clt_devices_close(devices, n);
    clt_runtime_destroy(runtime);
}

static void test_as_device(void **state)
{
    (void)state;
    check(false);
}

static void test_as_gpu(void **state)
{
    (void)state;
    check(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_device),
        cmocka_unit_test(test_as_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
