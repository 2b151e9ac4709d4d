/*
 * Training with parameters that are split over tp: parameters and optimizer slots are close to one
 * device's, checkpoints do not know the mesh, and a run goes on from them on any mesh.
 */
#include "train/split_model.h"

#include "checkpoint/scratch.h"
#include "train/store/parts.h"
#include <cltrain/fit.h>

enum { DEVICES = 4 };

static float xs[COUNT * IN];
static int32_t labels[COUNT];

/* How and where a run trains. */
typedef struct setting {
    const char *parallel; /* NULL: one device */
    int devices;
    clt_optimizer optimizer;
    int zero;
    clt_dtype precision;
    double clip_norm;
    bool freezes; /* b.weight is frozen */
} setting;

static clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = COUNT;
    o.lr = 0.05;
    o.weight_decay = 0.1;
    o.zero = s->zero;
    o.precision = s->precision;
    o.clip_norm = s->clip_norm;
    o.check_every = 1;
    o.poison = 1;
    o.comm_timeout = 60;
    return o;
}

static lab lab_of(const setting *s)
{
    clt_device *devices[DEVICES];
    clt_store_options so;
    const clt_trainer_options o = options_of(s);
    lab l = lab_on_kept(clt_test_devices(s->devices > 1 ? "pocl/2" : "pocl@1"));
    for (int d = 0; d < s->devices; d++)
        devices[d] = l.devices[d % l.n];
    clt_store_options_init(&so);
    so.parallel = s->parallel;
    so.zero = s->zero == 3 ? 3 : 0;
    so.seed = 3;
    so.bucket_bytes = 512;
    l.graph = split_network(s->freezes);
    ok(clt_store_create_with(l.graph, devices, s->devices, &so, &l.store));
    lab_trainer(&l, &o);
    return l;
}

static void make_batch(clt_step_batch *batch)
{
    static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    clt_step_batch_init(batch);
    batch->count = COUNT;
    batch->feeds = feeds;
    batch->n_feeds = 2;
}

static void train(lab *l, int steps)
{
    clt_step_batch batch;
    make_batch(&batch);
    for (int s = 0; s < steps; s++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
}

static const char *place = "";

static void compare_arrays(const char *name, const float *x, const float *y, int count,
                           double tolerance)
{
    for (int e = 0; e < count; e++)
        if (tolerance > 0 ? !(fabs(x[e] - y[e]) <= tolerance)
                          : memcmp(&x[e], &y[e], sizeof *x) != 0)
            fail_msg("%s: %s[%d]: %.9g, not %.9g", place, name, e, y[e], x[e]);
}

/* Compares parameters and slots. Tolerance 0: all bits. */
static void compare(lab *a, lab *b, double tolerance)
{
    float x[LARGEST], y[LARGEST];
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof *x;
        const clt_slot *slot;
        ok(clt_store_get(a->store, names[i], x, bytes));
        ok(clt_store_get(b->store, names[i], y, bytes));
        compare_arrays(names[i], x, y, sizes[i], tolerance);
        ok(clt_store_slot(a->store, names[i], &slot));
        for (int k = 0; clt_trainer_slot_name(a->trainer, k) && !slot->frozen; k++) {
            ok(clt_trainer_slot_get(a->trainer, k, names[i], x, bytes));
            ok(clt_trainer_slot_get(b->trainer, k, names[i], y, bytes));
            compare_arrays(names[i], x, y, sizes[i], tolerance);
        }
    }
    assert_int_equal(clt_trainer_steps(a->trainer), clt_trainer_steps(b->trainer));
    ok(clt_store_check(b->store));
}

/* The zeros behind the smaller parts stay zeros. */
static void check_padding(const clt_store *store)
{
    char read[LARGEST * sizeof(float)];
    for (int d = 0; d < store->n_devices; d++)
        for (int i = 0; i < store->layout.n_slots; i++) {
            const clt_replica *r = &store->replicas[d];
            const clt_slot *slot = &store->layout.slots[i], *part = clt_store_part(store, d, slot);
            ok(clt_replica_read(r, r->values[part->bucket], part->offset, clt_slot_padded(part),
                                read));
            for (int64_t at = clt_slot_part_bytes(slot, r->at); at < clt_slot_padded(part); at++)
                assert_int_equal(read[at], 0);
        }
}

static const setting splits[] = {
    {"tp=2", 2, CLT_ADAMW, 0, CLT_F32, 0, false},
    {"tp=3", 3, CLT_MOMENTUM, 0, CLT_F32, 0, false},
    {"dp=2,tp=2", 4, CLT_ADAM, 0, CLT_F32, 0.1, false},
    {"tp=2,dp=2", 4, CLT_SGD, 0, CLT_F32, 0, false},
    {"tp=2", 2, CLT_ADAMW, 0, CLT_F32, 0.1, true},
    {"dp=2,tp=2", 4, CLT_ADAMW, 1, CLT_F32, 0.1, false},
    {"dp=2", 2, CLT_ADAMW, 3, CLT_F32, 0, false},
    {NULL, 3, CLT_MOMENTUM, 3, CLT_F32, 0.1, false},
    {NULL, 4, CLT_ADAM, 3, CLT_F32, 0, true},
};
enum { SPLITS = sizeof splits / sizeof *splits };

static setting on_one_device(const setting *s)
{
    setting one = *s;
    one.parallel = NULL;
    one.devices = 1;
    one.zero = 0;
    return one;
}

static void splits_train_like_one_device(void **state)
{
    (void)state;
    for (int i = 0; i < SPLITS; i++) {
        const setting whole = on_one_device(&splits[i]);
        place = splits[i].parallel ? splits[i].parallel : "zero 3";
        lab one = lab_of(&whole), l = lab_of(&splits[i]);
        compare(&one, &l, 0);
        train(&one, 5);
        train(&l, 5);
        compare(&one, &l, 1e-5);
        check_padding(l.store);
        lab_close(&one);
        lab_close(&l);
    }
}

/* Shards of the optimizer's slots lie along dp, within the parts. */
static void zero_changes_no_bits(void **state)
{
    setting s = {"dp=2,tp=2", 4, CLT_ADAMW, 0, CLT_F32, 0, false};
    (void)state;
    lab plain = lab_of(&s);
    s.zero = 1;
    lab zero = lab_of(&s);
    train(&plain, 4);
    train(&zero, 4);
    compare(&plain, &zero, 0);
    lab_close(&plain);
    lab_close(&zero);
}

/* A graph that says nothing of splits trains on a store that has them. */
static void the_store_says_what_is_split(void **state)
{
    const setting s = {"tp=2", 2, CLT_ADAMW, 0, CLT_F32, 0, false};
    (void)state;
    lab usual = lab_of(&s), l = lab_of(&s);
    clt_graph *plain = classifier(IN, WIDE, CLASSES);
    ok(clt_param_group(plain, "*.bias", 0.5, 0, NULL));
    clt_trainer_destroy(l.trainer);
    const clt_trainer_options o = options_of(&s);
    ok(clt_trainer_create(plain, l.store, &o, &l.trainer));
    train(&usual, 3);
    train(&l, 3);
    compare(&usual, &l, 0);
    clt_graph_destroy(plain);
    lab_close(&usual);
    lab_close(&l);
}

static void sixteen_bits_of(const setting *split)
{
    const setting s = *split, whole = on_one_device(&s);
    lab one = lab_of(&whole), l = lab_of(&s);
    train(&one, 3);
    train(&l, 3);
    /* Adam's first steps have the learning rate's size, whatever the gradient's rounding. */
    compare(&one, &l, 0.05);
    check_padding(l.store);
    lab_close(&one);
    lab_close(&l);
}

static void sixteen_bits(void **state)
{
    (void)state;
    sixteen_bits_of(&(setting){"tp=2", 2, CLT_ADAMW, 0, CLT_BF16, 0, false});
    sixteen_bits_of(&(setting){NULL, 2, CLT_ADAMW, 3, CLT_BF16, 0, false});
    sixteen_bits_of(&(setting){NULL, 3, CLT_ADAMW, 3, CLT_F16, 0, false});
}

static void whole_gradients(const setting *split)
{
    const setting s = *split, whole = on_one_device(&s);
    float x[LARGEST], y[LARGEST];
    lab one = lab_of(&whole), l = lab_of(&s);
    train(&one, 1);
    train(&l, 1);
    for (int i = 0; i < TENSORS; i++)
        for (int d = 0; d < 2; d++) {
            const size_t bytes = (size_t)sizes[i] * sizeof *x;
            ok(clt_trainer_gradient(one.trainer, 0, names[i], x, bytes));
            ok(clt_trainer_gradient(l.trainer, d, names[i], y, bytes));
            compare_arrays(names[i], x, y, sizes[i], 1e-6);
        }
    lab_close(&one);
    lab_close(&l);
}

static void gradients_are_whole(void **state)
{
    (void)state;
    whole_gradients(&(setting){"tp=2", 2, CLT_SGD, 0, CLT_F32, 0, false});
    whole_gradients(&(setting){"dp=2", 2, CLT_SGD, 3, CLT_F32, 0, false});
}

static void files_equal(const char *a, const char *b)
{
    size_t n, m;
    unsigned char *x = get_file(a, &n), *y = get_file(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void save(lab *l, const char *dir)
{
    ok(clt_trainer_save(l->trainer, dir, (clt_position){0, 0}, COUNT, 1, 0, "test"));
}

static void restore(lab *l, const char *dir)
{
    clt_position position;
    int64_t seed;
    ok(clt_trainer_restore(l->trainer, dir, &position, &seed));
}

/* A checkpoint of each mesh is read on one device and on all meshes: the same bits, and the same
 * files if saved again. On its own mesh the run goes on as if it had not been interrupted. */
static void checkpoints_do_not_know_the_mesh(void **state)
{
    static const setting places[] = {{NULL, 1, CLT_ADAMW, 0, CLT_F32, 0, false},
                                     {"tp=2", 2, CLT_ADAMW, 0, CLT_F32, 0, false},
                                     {"tp=3", 3, CLT_ADAMW, 0, CLT_F32, 0, false},
                                     {"dp=2,tp=2", 4, CLT_ADAMW, 0, CLT_F32, 0, false},
                                     {"tp=2,dp=2", 4, CLT_ADAMW, 1, CLT_F32, 0, false},
                                     {NULL, 2, CLT_ADAMW, 1, CLT_F32, 0, false},
                                     {NULL, 3, CLT_ADAMW, 3, CLT_F32, 0, false}};
    enum { PLACES = sizeof places / sizeof *places };
    (void)state;
    for (int from = 0; from < PLACES; from++) {
        char dir[64], again[64], file[2][200];
        lab wrote = lab_of(&places[from]);
        snprintf(dir, sizeof dir, "run-%d", from);
        const char *folder = strdup(in_scratch(dir));
        train(&wrote, 3);
        save(&wrote, folder);
        for (int to = 0; to < PLACES; to++) {
            lab read = lab_of(&places[to]);
            restore(&read, folder);
            compare(&wrote, &read, 0);
            snprintf(again, sizeof again, "again-%d-%d", from, to);
            const char *copy = strdup(in_scratch(again));
            save(&read, copy);
            for (int f = 0; f < 2; f++) {
                const char *part = f ? "optimizer" : "model";
                snprintf(file[0], sizeof file[0], "%s/step-00000003/%s.safetensors", folder, part);
                snprintf(file[1], sizeof file[1], "%s/step-00000003/%s.safetensors", copy, part);
                files_equal(file[0], file[1]);
            }
            free((char *)copy);
            lab_close(&read);
        }
        lab later = lab_of(&places[from]);
        restore(&later, folder);
        train(&wrote, 2);
        train(&later, 2);
        compare(&wrote, &later, 0);
        free((char *)folder);
        lab_close(&later);
        lab_close(&wrote);
    }
}

static int open_all(void **state)
{
    make_samples(xs, labels, COUNT, IN, CLASSES);
    return scratch_make(state) || open_runtime(state);
}

static int close_all(void **state)
{
    return close_runtime(state) || scratch_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(splits_train_like_one_device),
                                       cmocka_unit_test(zero_changes_no_bits),
                                       cmocka_unit_test(the_store_says_what_is_split),
                                       cmocka_unit_test(sixteen_bits),
                                       cmocka_unit_test(gradients_are_whole),
                                       cmocka_unit_test(checkpoints_do_not_know_the_mesh)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
