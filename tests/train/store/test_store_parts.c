/*
 * Stores whose tensors are split over the places of tp: layouts, initial values, reading, writing
 * and files. The whole tensors have the bits of a store on one device.
 */
#include "train/split_model.h"
#include "train/unsplit.h"

#include "checkpoint/scratch.h"
#include "exec/update/update.h"
#include "train/store/parts.h"
#include <cltrain/fit.h>

enum { MOST = 8 };

/* One device several times: a store of as many places as the mesh has. */
static lab store_on(clt_graph *graph, const char *parallel, int count, int64_t bucket_bytes)
{
    clt_device *devices[MOST];
    clt_store_options o;
    clt_store_options_init(&o);
    lab l = lab_on_kept(clt_test_devices("pocl@1"));
    l.graph = graph;
    o.parallel = parallel;
    o.seed = 7;
    o.bucket_bytes = bucket_bytes;
    for (int d = 0; d < count; d++)
        devices[d] = l.devices[0];
    ok(clt_store_create_with(graph, devices, count, &o, &l.store));
    return l;
}

typedef struct mesh_case {
    const char *parallel;
    int devices;
} mesh_case;

static const mesh_case meshes[] = {{"tp=2", 2},      {"tp=3", 3},      {"dp=2,tp=2", 4},
                                   {"tp=2,dp=2", 4}, {"tp=3,dp=2", 6}, {"tp=5", 5}};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Compares all whole tensors of two stores. */
static void compare(clt_store *a, clt_store *b)
{
    char x[LARGEST * sizeof(float)], y[sizeof x];
    assert_int_equal(clt_store_count(a), clt_store_count(b));
    assert_int_equal(clt_store_parameters(a), clt_store_parameters(b));
    for (int i = 0; i < clt_store_count(a); i++) {
        const char *name, *same;
        const int64_t bytes = size_of(a, i, &name);
        assert_int_equal(bytes, size_of(b, i, &same));
        assert_string_equal(name, same);
        ok(clt_store_get(a, name, x, (size_t)bytes));
        ok(clt_store_get(b, name, y, (size_t)bytes));
        assert_memory_equal(x, y, (size_t)bytes);
    }
    ok(clt_store_check(b));
}

/* Checks the part of a device against the whole tensor, element by element, and its padding. */
static void check_part(const clt_store *store, int device, const clt_slot *slot, const float *whole)
{
    const clt_replica *r = &store->replicas[device];
    const clt_slot *part = clt_store_part(store, device, slot);
    const int places = r->at.places, blocks = slot->sharding.blocks, dim = slot->sharding.dim;
    float read[LARGEST];
    int64_t outer = 1, inner = 1, at = 0;
    for (int i = 0; i < dim; i++)
        outer *= slot->whole.dims[i];
    for (int i = dim + 1; i < slot->whole.rank; i++)
        inner *= slot->whole.dims[i];
    const int64_t block = slot->whole.dims[dim] / blocks;
    const int64_t begin = block / places * r->at.place +
                          (r->at.place < block % places ? r->at.place : block % places);
    const int64_t rows = block / places + (r->at.place < block % places);
    assert_string_equal(part->name, slot->name);
    assert_true(clt_slot_padded(part) <= (int64_t)sizeof read);
    ok(clt_replica_read(r, r->values[part->bucket], part->offset, clt_slot_padded(part), read));
    for (int64_t o = 0; o < outer * blocks; o++)
        for (int64_t i = 0; i < rows * inner; i++)
            assert_float_equal(read[at++], whole[(o * block + begin) * inner + i], 0);
    assert_int_equal(at * 4, clt_slot_part_bytes(slot, r->at));
    for (; at * 4 < clt_slot_padded(part); at++)
        assert_float_equal(read[at], 0, 0);
}

static void parts_have_the_values_of_one_device(void **state)
{
    (void)state;
    for (int64_t bucket = 0; bucket <= 1024; bucket += 1024) {
        lab one = store_on(split_model(true), NULL, 1, bucket);
        for (int m = 0; m < MESHES; m++) {
            lab l = store_on(split_model(true), meshes[m].parallel, meshes[m].devices, bucket);
            float whole[LARGEST];
            compare(one.store, l.store);
            for (int i = 0; i < l.store->layout.n_slots; i++) {
                const clt_slot *slot = &l.store->layout.slots[i];
                ok(clt_store_get(one.store, slot->name, whole, (size_t)slot->bytes));
                for (int d = 0; d < meshes[m].devices && slot->sharding.blocks; d++)
                    check_part(l.store, d, slot, whole);
            }
            lab_close(&l);
        }
        lab_close(&one);
    }
}

/* Slots and buckets have the same numbers in both layouts; offsets are those of place 0. */
static void layouts_correspond(void **state)
{
    (void)state;
    for (int m = 0; m < MESHES; m++) {
        lab l = store_on(split_model(true), meshes[m].parallel, meshes[m].devices, 1024);
        const clt_buckets *whole = &l.store->layout, *parts = l.store->replicas[0].layout;
        int64_t saved = 0;
        assert_ptr_not_equal(whole, parts);
        assert_int_equal(whole->n_slots, parts->n_slots);
        assert_int_equal(whole->n_buckets, parts->n_buckets);
        for (int i = 0; i < whole->n_slots; i++) {
            const clt_slot *a = &whole->slots[i], *b = &parts->slots[i];
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->bucket, b->bucket);
            assert_true(clt_type_equal(&a->type, &a->whole) && clt_type_equal(&a->type, &b->whole));
            assert_true(b->bytes <= a->bytes);
            assert_true(!a->sharding.blocks == clt_type_equal(&a->type, &b->type));
            assert_int_equal(b->bytes, clt_slot_part_bytes(
                                           b, (clt_coordinate){0, l.store->replicas[0].at.places}));
            assert_ptr_equal(clt_store_part(l.store, 0, a), b);
            saved += a->bytes - b->bytes;
        }
        assert_true(saved > 0);
        for (int d = 0; d < l.store->n_devices; d++)
            assert_ptr_equal(l.store->replicas[d].layout, parts);
        lab_close(&l);
    }
}

/* Without splits or without places there is one layout. */
static void one_layout_without_splits(void **state)
{
    static const mesh_case whole[] = {{NULL, 2}, {"dp=2", 2}, {"dp=2,tp=1", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        lab l = store_on(split_model(true), whole[i].parallel, whole[i].devices, 0);
        assert_ptr_equal(&l.store->layout, l.store->replicas[0].layout);
        assert_false(clt_buckets_split(&l.store->layout));
        lab_close(&l);
    }
    lab unsplit = store_on(let_axes_idle(split_model(false)), "tp=2", 2, 0);
    assert_ptr_equal(&unsplit.store->layout, unsplit.store->replicas[1].layout);
    lab_close(&unsplit);
}

static void set_writes_parts(void **state)
{
    (void)state;
    for (int m = 0; m < MESHES; m++) {
        lab one = store_on(split_model(true), NULL, 1, 0);
        lab l = store_on(split_model(true), meshes[m].parallel, meshes[m].devices, 0);
        float whole[LARGEST];
        for (int i = 0; i < clt_store_count(l.store); i++) {
            const char *name;
            const int64_t bytes = size_of(l.store, i, &name);
            const clt_slot *slot;
            for (int e = 0; e < LARGEST; e++)
                whole[e] = (float)(1000 * i + e + 1);
            ok(clt_store_set(l.store, name, whole, (size_t)bytes));
            ok(clt_store_set(one.store, name, whole, (size_t)bytes));
            ok(clt_store_slot(l.store, name, &slot));
            for (int d = 0; d < meshes[m].devices && slot->sharding.blocks; d++)
                check_part(l.store, d, slot, whole);
        }
        compare(one.store, l.store);
        lab_close(&l);
        lab_close(&one);
    }
}

static void check_compares_equal_parts(void **state)
{
    (void)state;
    lab l = store_on(split_model(true), "dp=2,tp=2", 4, 0);
    const clt_replica *r = &l.store->replicas[3];
    const clt_slot *slot = clt_buckets_find(r->layout, "packed.weight");
    const float other = 9;
    ok(clt_store_check(l.store));
    ok(clt_replica_write(r, r->values[slot->bucket], slot->offset, sizeof other, &other));
    assert_int_equal(clt_store_check(l.store), CLT_MISMATCH);
    assert_non_null(strstr(clt_error_message(), "packed.weight"));
    lab_close(&l);
}

static void files_have_whole_tensors(void **state)
{
    (void)state;
    lab one = store_on(split_model(true), NULL, 1, 0);
    ok(clt_store_save(one.store, in_scratch("one")));
    for (int m = 0; m < MESHES; m++) {
        size_t n_want, n_got;
        lab l = store_on(split_model(true), meshes[m].parallel, meshes[m].devices, 0);
        ok(clt_store_save(l.store, in_scratch("parts")));
        unsigned char *want = get_file(in_scratch("one"), &n_want);
        unsigned char *got = get_file(in_scratch("parts"), &n_got);
        assert_int_equal(n_want, n_got);
        assert_memory_equal(want, got, n_want);
        free(want);
        free(got);
        for (int i = 0; i < clt_store_count(l.store); i++) {
            const char *name;
            const float zeros[LARGEST] = {0};
            const int64_t bytes = size_of(l.store, i, &name);
            ok(clt_store_set(l.store, name, zeros, (size_t)bytes));
        }
        ok(clt_store_load(l.store, in_scratch("one")));
        compare(one.store, l.store);
        lab_close(&l);
    }
    lab_close(&one);
}

static void too_many_places(void **state)
{
    (void)state;
    clt_device *devices[8];
    clt_store_options o;
    clt_store *store;
    clt_store_options_init(&o);
    o.parallel = "tp=8";
    lab l = lab_on_kept(clt_test_devices("pocl@1"));
    for (int d = 0; d < 8; d++)
        devices[d] = l.devices[0];
    l.graph = split_model(true);
    assert_int_equal(clt_store_create_with(l.graph, devices, 8, &o, &store), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "cannot be split over 8 devices"));
    lab_close(&l);
}

static void plans_are_shared_within_dp(void **state)
{
    (void)state;
    lab l = store_on(split_model(true), "dp=2,tp=2", 4, 0);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            assert_int_equal(clt_store_same_plan(l.store, a, b), a % 2 == b % 2);
            assert_int_equal(clt_store_neighbours(l.store, CLT_AXIS_TENSOR, a, b), a / 2 == b / 2);
        }
    lab_close(&l);
    l = store_on(split_model(true), NULL, 2, 0);
    assert_true(clt_store_same_plan(l.store, 0, 1));
    assert_false(clt_store_neighbours(l.store, CLT_AXIS_TENSOR, 0, 1));
    lab_close(&l);
}

/* Gives each device its part of a gradient. */
static void set_gradients(clt_store *store)
{
    float whole[LARGEST], part[LARGEST];
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        if (slot->state)
            continue;
        for (int e = 0; e < LARGEST; e++)
            whole[e] = (float)((e * 37 + slot->stream * 11) % 101 - 50) / 40;
        for (int d = 0; d < store->n_devices; d++) {
            const clt_replica *r = &store->replicas[d];
            const clt_slot *own = clt_store_part(store, d, slot);
            const int64_t bytes = clt_slot_part_bytes(slot, r->at);
            clt_part_take(slot, r->at, 0, bytes, whole, part);
            ok(clt_replica_write(r, r->gradients[own->bucket], own->offset, bytes, part));
        }
    }
}

/* RMSprop is centered and has momentum. */
static clt_optimizer_rule rule_of(clt_optimizer optimizer)
{
    return (clt_optimizer_rule){.kind = optimizer,
                                .momentum = 0.9,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1,
                                .alpha = 0.9,
                                .centered = true};
}

static void update(clt_store *store, clt_optimizer optimizer, int steps)
{
    const clt_optimizer_rule rule = rule_of(optimizer);
    const clt_update_options o = {.rule = rule};
    for (int d = 0; d < store->n_devices; d++)
        ok(clt_replica_for_training(&store->replicas[d], CLT_F32,
                                    clt_optimizer_find(&rule)->n_slots, 0, 1));
    set_gradients(store);
    for (int d = 0; d < store->n_devices; d++) {
        clt_update *u;
        ok(clt_update_create(&store->replicas[d], &o, &u));
        for (int s = 0; s < steps; s++)
            ok(clt_update_apply(u, 0.01, s));
        ok(clt_device_finish(store->replicas[d].device));
        clt_update_destroy(u);
    }
}

/* The bytes behind the smaller parts stay zero in a set of buffers. */
static void check_padding(const clt_store *store, int device, cl_mem *set)
{
    const clt_replica *r = &store->replicas[device];
    char read[LARGEST * sizeof(float)];
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i], *part = clt_store_part(store, device, slot);
        if (!set[part->bucket])
            continue;
        ok(clt_replica_read(r, set[part->bucket], part->offset, clt_slot_padded(part), read));
        for (int64_t at = clt_slot_part_bytes(slot, r->at); at < clt_slot_padded(part); at++)
            assert_int_equal(read[at], 0);
    }
}

static void optimizers_work_on_parts(void **state)
{
    static const clt_optimizer optimizers[] = {CLT_SGD,     CLT_NESTEROV, CLT_ADAM, CLT_ADAMW,
                                               CLT_RMSPROP, CLT_ADAGRAD,  CLT_LION};
    (void)state;
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++)
        for (int m = 0; m < MESHES; m++) {
            char x[LARGEST * sizeof(float)], y[sizeof x];
            const clt_optimizer_rule rule = rule_of(optimizers[o]);
            const int kinds = clt_optimizer_find(&rule)->n_slots;
            lab one = store_on(split_model(true), NULL, 1, 512);
            lab l = store_on(split_model(true), meshes[m].parallel, meshes[m].devices, 512);
            update(one.store, optimizers[o], 3);
            update(l.store, optimizers[o], 3);
            compare(one.store, l.store);
            for (int i = 0; i < l.store->layout.n_slots; i++) {
                const clt_slot *slot = &l.store->layout.slots[i], *same;
                ok(clt_store_slot(one.store, slot->name, &same));
                for (int k = 0; k < kinds && !slot->state; k++) {
                    ok(clt_store_read(one.store, k, same, x));
                    ok(clt_store_read(l.store, k, slot, y));
                    assert_memory_equal(x, y, (size_t)slot->bytes);
                }
            }
            for (int d = 0; d < meshes[m].devices; d++) {
                check_padding(l.store, d, l.store->replicas[d].values);
                for (int k = 0; k < kinds; k++)
                    check_padding(l.store, d, l.store->replicas[d].slots[k]);
            }
            lab_close(&l);
            lab_close(&one);
        }
}

static int open_all(void **state)
{
    return scratch_make(state) || open_runtime(state);
}

static int close_all(void **state)
{
    return close_runtime(state) || scratch_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_the_values_of_one_device),
                                       cmocka_unit_test(layouts_correspond),
                                       cmocka_unit_test(one_layout_without_splits),
                                       cmocka_unit_test(set_writes_parts),
                                       cmocka_unit_test(check_compares_equal_parts),
                                       cmocka_unit_test(files_have_whole_tensors),
                                       cmocka_unit_test(too_many_places),
                                       cmocka_unit_test(plans_are_shared_within_dp),
                                       cmocka_unit_test(optimizers_work_on_parts)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
