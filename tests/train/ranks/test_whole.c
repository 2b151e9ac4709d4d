/*
 * Stores whose parts and shards are on several ranks, which are threads here: all ranks together
 * read, write, save and load whole tensors with the bits of one device.
 */
#include "train/split_model.h"
#include "train/unsplit.h"
#include "train/world.h"

#include "checkpoint/scratch.h"
#include "train/ranks/whole.h"
#include "train/store/parts.h"
#include <cltrain/fit.h>

enum { ENTRIES = 8, MOST = 6, SLOTS = 2 };

typedef struct setting {
    const char *parallel;
    int ranks;
    int counts[RANKS_MOST];
    bool spread; /* a rank lacks parts */
    bool zero;   /* the optimizer's slots are sharded over dp */
} setting;

/* The tensors and the file of one device. */
static char want[ENTRIES][LARGEST * sizeof(float)];
static const char *one_file, *ranks_file, *no_folder;

static bool open_store(rank *self, lab *l)
{
    const setting *s = self->argument;
    clt_device *devices[MOST];
    clt_store_options o;
    clt_store_options_init(&o);
    o.parallel = s->parallel;
    o.world = &self->world;
    o.seed = 7;
    o.bucket_bytes = 1024;
    l->graph = split_model(true);
    if (!HOLDS(self, clt_devices_open(runtime, clt_test_devices("pocl@1"), NULL, &l->devices,
                                      &l->n) == CLT_OK))
        return false;
    const int count = s->counts[self->number];
    for (int d = 0; d < count; d++)
        devices[d] = l->devices[0];
    return HOLDS(self, clt_store_create_with(l->graph, devices, count, &o, &l->store) == CLT_OK);
}

/* Reads all tensors in both ways. A rank reads a split tensor alone only if it has all parts. */
static void read_all(rank *self, clt_store *store, bool *lacks)
{
    char data[LARGEST * sizeof(float)];
    for (int i = 0; i < ENTRIES && !*self->failed; i++) {
        const char *name;
        const int64_t bytes = size_of(store, i, &name);
        memset(data, 7, sizeof data);
        HOLDS(self, clt_store_collect(store, name, data, (size_t)bytes) == CLT_OK);
        HOLDS(self, !memcmp(data, want[i], (size_t)bytes));
        const clt_status status = clt_store_get(store, name, data, (size_t)bytes);
        if (status == CLT_OK) {
            HOLDS(self, !memcmp(data, want[i], (size_t)bytes));
            continue;
        }
        *lacks = true;
        HOLDS(self, status == CLT_STATE && strstr(clt_error_message(), "clt_store_collect"));
    }
}

static void use_store(rank *self)
{
    const setting *s = self->argument;
    const char zeros[LARGEST * sizeof(float)] = {0};
    lab l = {0};
    bool lacks = false;
    if (open_store(self, &l)) {
        const clt_participants all = clt_whole_participants(l.store);
        HOLDS(self, clt_whole_spread(&all, l.store) == s->spread);
        read_all(self, l.store, &lacks);
        self->numbers[0] = lacks;
        if (s->spread || !self->number)
            HOLDS(self, clt_store_save(l.store, ranks_file) == CLT_OK);
        HOLDS(self, clt_ranks_agree(&self->world, CLT_OK, NULL) == CLT_OK);
        for (int i = 0; i < ENTRIES && !*self->failed; i++) {
            const char *name;
            const int64_t bytes = size_of(l.store, i, &name);
            HOLDS(self, clt_store_set(l.store, name, zeros, (size_t)bytes) == CLT_OK);
        }
        HOLDS(self, clt_store_load(l.store, one_file) == CLT_OK);
        read_all(self, l.store, &lacks);
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
        if (s->spread) { /* all ranks fail with rank 0, and go on afterwards */
            const clt_status status = clt_store_save(l.store, no_folder);
            HOLDS(self, status == (self->number ? CLT_ABORTED : CLT_IO));
            HOLDS(self, !self->number || strstr(clt_error_message(), "rank 0 failed"));
            read_all(self, l.store, &lacks);
        }
    }
    lab_close(&l);
}

static void fill(float *data, const clt_slot *slot, int kind)
{
    for (int64_t i = 0; i < slot->bytes / 4; i++)
        data[i] = (float)(slot->stream * 1000 + kind * 500 + i + 1);
}

/* On rank 0: sets and gets the optimizer's slots of all parameters. */
static clt_status lead(const clt_participants *all, const clt_store *store)
{
    float data[LARGEST], again[LARGEST];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < store->layout.n_slots; i++)
            for (int k = 0; k < SLOTS && !store->layout.slots[i].state; k++) {
                const clt_slot *slot = &store->layout.slots[i];
                fill(data, slot, k);
                if (!round)
                    CLT_TRY(clt_whole_set(all, store, k, slot, data));
                else
                    CLT_TRY(clt_whole_get(all, store, k, slot, again));
                if (round && memcmp(data, again, (size_t)slot->bytes))
                    return clt_error_set(CLT_MISMATCH, "the slot came back changed");
            }
    return CLT_OK;
}

static void use_slots(rank *self)
{
    const setting *s = self->argument;
    lab l = {0};
    if (open_store(self, &l)) {
        const clt_participants all = clt_whole_participants(l.store);
        const int shards = s->zero ? all.mesh.size[CLT_AXIS_DATA] : 1;
        for (int d = 0; d < l.store->n_devices; d++) {
            const int shard = clt_mesh_coordinate(&all.mesh, CLT_AXIS_DATA, all.first + d);
            HOLDS(self, clt_replica_for_training(&l.store->replicas[d], CLT_F32, SLOTS,
                                                 s->zero ? shard : 0, shards) == CLT_OK);
        }
        HOLDS(self, (self->number ? clt_whole_follow(&all, l.store)
                                  : clt_whole_end(&all, lead(&all, l.store))) == CLT_OK);
        for (int i = 0; i < l.store->layout.n_slots; i++) {
            const clt_slot *slot = &l.store->layout.slots[i];
            float data[LARGEST], made[LARGEST];
            if (slot->state)
                continue;
            fill(made, slot, 1);
            HOLDS(self, clt_whole_collect(&all, l.store, 1, slot, data) == CLT_OK);
            HOLDS(self, !memcmp(data, made, (size_t)slot->bytes));
        }
    }
    lab_close(&l);
}

static const setting settings[] = {
    {"tp=2", 2, {1, 1}, true, false},        {"tp=3", 2, {2, 1}, true, false},
    {"tp=2,dp=2", 2, {2, 2}, true, true},    {"dp=2,tp=2", 2, {2, 2}, false, true},
    {"dp=2,tp=2", 3, {1, 2, 1}, true, true}, {"dp=2,tp=2", 4, {1, 1, 1, 1}, true, false},
    {"tp=3,dp=2", 3, {1, 4, 1}, true, true}, {"dp=3,tp=2", 3, {2, 2, 2}, false, false},
    {"dp=5,tp=1", 2, {2, 3}, false, true}};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void compare_files(void)
{
    size_t n_want, n_got;
    unsigned char *a = get_file(one_file, &n_want), *b = get_file(ranks_file, &n_got);
    assert_int_equal(n_want, n_got);
    assert_memory_equal(a, b, n_want);
    free(a);
    free(b);
    unlink(ranks_file);
}

static void run_all(void (*run)(rank *self), bool *lacks)
{
    for (int i = 0; i < SETTINGS; i++) {
        rank ranks[RANKS_MOST];
        setting each[RANKS_MOST];
        for (int r = 0; r < settings[i].ranks; r++)
            each[r] = settings[i];
        run_ranks(ranks, settings[i].ranks, run, each, sizeof *each);
        if (run == use_store)
            compare_files();
        lacks[i] = false;
        for (int r = 0; r < settings[i].ranks; r++)
            lacks[i] = lacks[i] || ranks[r].numbers[0] > 0;
    }
}

static void ranks_have_the_tensors_of_one_device(void **state)
{
    clt_store *store;
    bool lacks[SETTINGS];
    (void)state;
    one_file = in_scratch("one");
    ranks_file = in_scratch("ranks");
    no_folder = in_scratch("none/file");
    lab l = lab_on(clt_test_devices("pocl@1"), NULL);
    l.graph = split_model(true);
    ok(clt_store_create(l.graph, l.devices, 1, 7, &store));
    l.store = store;
    assert_int_equal(clt_store_count(store), ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        const char *name;
        const int64_t bytes = size_of(store, i, &name);
        ok(clt_store_collect(store, name, want[i], (size_t)bytes));
    }
    ok(clt_store_save(store, one_file));
    run_all(use_store, lacks);
    for (int i = 0; i < SETTINGS; i++)
        assert_int_equal(lacks[i], settings[i].spread);
    lab_close(&l);
}

static void optimizer_slots_pass_between_ranks(void **state)
{
    bool lacks[SETTINGS];
    (void)state;
    run_all(use_slots, lacks);
}

typedef struct broadcast_case {
    const char *parallel;
    int ranks, counts[RANKS_MOST];
    bool split;
    clt_status status;
} broadcast_case;

/* Copies the replica of rank 1, whose store begins with other values than those of other ranks. */
static void broadcast(rank *self)
{
    const broadcast_case *s = self->argument;
    clt_device *devices[MOST];
    clt_store_options so;
    clt_trainer_options o;
    lab l = {0};
    clt_store_options_init(&so);
    clt_trainer_options_init(&o);
    so.parallel = s->parallel;
    so.world = o.world = &self->world;
    so.seed = (uint64_t)self->number;
    o.batch = 6;
    o.comm_timeout = 60;
    l.graph = let_axes_idle(classifier(3, 4, 2));
    if (s->split)
        HOLDS(self, clt_shard(l.graph, "a.*", CLT_AXIS_TENSOR, 0, 1, NULL) == CLT_OK);
    if (HOLDS(self, clt_devices_open(runtime, clt_test_devices("pocl@1"), NULL, &l.devices, &l.n) ==
                        CLT_OK)) {
        const int count = s->counts[self->number];
        float weight[4 * 3];
        for (int d = 0; d < count; d++)
            devices[d] = l.devices[0];
        HOLDS(self, clt_store_create_with(l.graph, devices, count, &so, &l.store) == CLT_OK);
        HOLDS(self, clt_trainer_create(l.graph, l.store, &o, &l.trainer) == CLT_OK);
        self->status = clt_trainer_broadcast(l.trainer, 1);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        HOLDS(self, clt_store_get(l.store, "a.weight", weight, sizeof weight) == CLT_OK);
        for (int i = 0; i < 8; i++)
            self->numbers[i] = weight[i];
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
}

static void broadcasts_need_a_whole_replica(void **state)
{
    static const broadcast_case cases[] = {{"dp=3,tp=2", 2, {2, 4}, false, CLT_OK},
                                           {"dp=3,tp=2", 3, {1, 1, 4}, false, CLT_OK},
                                           {"tp=3", 3, {1, 1, 1}, false, CLT_OK},
                                           {"space=2,tp=2", 2, {2, 2}, true, CLT_OK},
                                           {"dp=3,tp=2", 2, {2, 4}, true, CLT_OK},
                                           {"dp=4,tp=2", 3, {3, 2, 3}, true, CLT_INVALID_ARGUMENT}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rank ranks[RANKS_MOST];
        broadcast_case each[RANKS_MOST];
        const broadcast_case *c = &cases[i];
        for (int r = 0; r < c->ranks; r++)
            each[r] = *c;
        run_ranks(ranks, c->ranks, broadcast, each, sizeof *each);
        for (int r = 0; r < c->ranks; r++) {
            if (ranks[r].status != c->status)
                fail_msg("%s: %s", c->parallel, ranks[r].message);
            if (c->status == CLT_OK)
                assert_memory_equal(ranks[0].numbers, ranks[r].numbers, sizeof ranks[0].numbers);
            else
                assert_non_null(strstr(ranks[r].message, "rank 1 has no whole replica"));
        }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_have_the_tensors_of_one_device),
                                       cmocka_unit_test(optimizer_slots_pass_between_ranks),
                                       cmocka_unit_test(broadcasts_need_a_whole_replica)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
