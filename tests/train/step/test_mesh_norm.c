/* The norm of gradients on a mesh: parts of split tensors and whole tensors are added up apart, in
 * one bucket too, and a device with shards adds up its own. */
#include "train/lab.h"

#include "exec/update/update.h"
#include "train/store/store.h"

enum { IN = 9, WIDE = 26, CLASSES = 7 };

/* Small whole numbers, whose squares add up exactly. */
static float value_of(int64_t i)
{
    return (float)(i % 7 - 3);
}

/* Fills all gradients, with zeros as padding. Returns the sums over bytes [from, to) of buckets. */
static void fill(const clt_replica *r, int shard, int shards, clt_squares *want)
{
    for (int i = 0; i < r->layout->n_slots; i++) {
        const clt_slot *slot = &r->layout->slots[i];
        float data[WIDE * IN];
        int64_t from, to;
        if (slot->state)
            continue;
        clt_shard_part(&r->layout->buckets[slot->bucket], shard, shards, slot->offset,
                       slot->offset + slot->bytes, &from, &to);
        for (int64_t k = 0; k < slot->bytes / 4; k++) {
            const int64_t at = slot->offset + 4 * k;
            data[k] = value_of(k + i);
            if (at >= from && at < to)
                *(slot->sharding.blocks ? &want->parts : &want->whole) += data[k] * data[k];
        }
        ok(clt_replica_write(r, r->gradients[slot->bucket], slot->offset, slot->bytes, data));
    }
}

static void check(const lab *l, int shard, int shards)
{
    const clt_update_options options = {.rule = {.kind = CLT_SGD}, .precision = CLT_F32};
    for (int d = 0; d < l->n; d++) {
        clt_replica *r = &l->store->replicas[d];
        clt_squares want = {0, 0, true}, have;
        clt_update *update;
        ok(clt_replica_for_training(r, CLT_F32, 0, shard, shards));
        ok(clt_update_create(r, &options, &update));
        ok(clt_update_zero(update));
        fill(r, shard, shards, &want);
        ok(clt_update_measure(update, &have));
        assert_true(have.whole == want.whole && have.parts == want.parts);
        assert_true(have.finite && want.parts + want.whole > 0);
        const float bad = NAN;
        const clt_slot *last = &r->layout->slots[r->layout->n_slots - 1];
        int64_t from, to;
        ok(clt_replica_write(r, r->gradients[last->bucket], last->offset, sizeof bad, &bad));
        ok(clt_update_measure(update, &have));
        assert_true(have.finite == !clt_shard_part(&r->layout->buckets[last->bucket], shard, shards,
                                                   last->offset, last->offset + 4, &from, &to));
        clt_update_destroy(update);
    }
}

static void parts_are_added_up_apart(void **state)
{
    (void)state;
    for (int64_t bucket_bytes = 0; bucket_bytes <= 1024; bucket_bytes += 1024)
        for (int shards = 1; shards <= 2; shards++)
            for (int shard = 0; shard < shards; shard++) {
                clt_store_options options;
                clt_store_options_init(&options);
                options.bucket_bytes = bucket_bytes;
                options.parallel = "tp=2";
                lab l = lab_on_kept(clt_test_devices("cpu/2"));
                l.graph = classifier(IN, WIDE, CLASSES);
                ok(clt_shard(l.graph, "a.*", CLT_AXIS_TENSOR, 0, 1, NULL));
                ok(clt_store_create_with(l.graph, l.devices, l.n, &options, &l.store));
                check(&l, shard, shards);
                lab_close(&l);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_added_up_apart)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
