/*
 * The planner's choice among meshes: it finds what devices at hand can do, says why not, counts the
 * memory that a run then has, and comes to one answer on all ranks.
 */
#include "train/meshes/mesh_lab.h"
#include "train/world.h"

#include "exec/testing/lose.h"
#include "train/meshes/meshes.h"
#include "train/setup/capacity.h"
#include <cltrain/local.h>

enum { RANKS = 2 };

/* All meshes that two devices can form, with the memory that training on them takes. */
static void at_hand(void **state)
{
    const clt_trainer_options o = options_of();
    const clt_mesh_options s = search(2);
    clt_meshes *meshes;
    int real = 0;
    lab l = lab_on("pocl/2", NULL);
    (void)state;
    l.graph = gpt();
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes));
    const clt_mesh_entry best = entry_of(meshes, 0);
    assert_true(best.possible);
    assert_string_equal(best.reason, "");
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        assert_true(e.possible && e.step > 0 && (i == 0 || *e.reason));
        assert_true(fabs(e.step - e.compute - e.update - e.exposed) < 1e-9);
        assert_int_equal(train(&l, &e, &o), e.memory);
        real += e.real > 0;
    }
    assert_true(real == 2 || real == 0); /* 0: no other is near the best */
    find(meshes, "tp=2", 0, 1);
    find(meshes, "dp=2", 3, 1);
    find(meshes, "time=2", 1, 1);
    find(meshes, "pp=2", 0, 4);
    assert_non_null(strstr(clt_meshes_text(meshes, 3), "space: the model has nothing that it"));
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

/* Gradients in 16 bits: meshes that exclude them are rows with a reason, others have the memory of
 * a run, and half of the bytes of gradients. */
static void half_wire(void **state)
{
    clt_trainer_options o = options_of();
    const clt_mesh_options s = search(4);
    clt_meshes *meshes, *full;
    lab l = lab_on("pocl/2", NULL);
    (void)state;
    l.graph = gpt();
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &full));
    o.wire = CLT_BF16;
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes));
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        const bool axes = strstr(e.parallel, "tp") || strstr(e.parallel, "pp");
        assert_true(e.possible == (!axes && e.zero != 3));
        if (e.possible)
            assert_int_equal(train(&l, &e, &o), e.memory);
        else
            assert_non_null(strstr(e.reason, axes
                                                 ? "wire bf16 does not work with the axes tp and pp"
                                                 : "wire bf16 does not work with zero 3"));
    }
    assert_int_equal(2 * find(meshes, "dp=2", 0, 1).payload, find(full, "dp=2", 0, 1).payload);
    assert_true(find(meshes, "dp=2", 0, 1).memory > find(full, "dp=2", 0, 1).memory);
    clt_meshes_destroy(meshes);
    clt_meshes_destroy(full);
    lab_close(&l);
}

/* With little memory only meshes that divide the model are left. */
static void too_large(void **state)
{
    clt_trainer_options o = options_of();
    const clt_mesh_options s = search(0);
    clt_meshes *meshes;
    lab l = lab_on("pocl/2", NULL);
    (void)state;
    l.graph = gpt();
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes));
    /* Less than dp needs, however much it computes again, and more than tp needs. */
    const int64_t tp = find(meshes, "tp=2", 0, 1).memory;
    assert_true(tp < find(meshes, "dp=2", 0, 1).memory);
    clt_meshes_destroy(meshes);
    o.memory = tp;
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes));
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        if (e.possible)
            assert_true(e.memory <= o.memory);
        else
            assert_non_null(strstr(e.reason, "MiB"));
    }
    assert_true(find(meshes, "tp=2", 0, 1).possible);
    clt_meshes_destroy(meshes);
    o.memory = 1000;
    assert_int_equal(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "no mesh of 2 devices can train this model"));
    lab_close(&l);
}

/* --- ranks ----------------------------------------------------------------------------------- */

/* Two devices a rank: groups lie within ranks and across them. */
static void choose(rank *self)
{
    clt_trainer_options o = options_of();
    const clt_mesh_options s = search(2);
    clt_meshes *meshes = NULL;
    clt_mesh_entry e;
    lab l = {0};
    o.world = &self->world;
    l.graph = gpt();
    clt_mesh_entry_init(&e);
    if (HOLDS(self, clt_devices_open(runtime, "pocl/2", NULL, &l.devices, &l.n) == CLT_OK) &&
        HOLDS(self, clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes) == CLT_OK))
        for (int i = 0; i < 4; i++) {
            HOLDS(self, clt_meshes_get(meshes, i, &e) == CLT_OK);
            self->numbers[2 * i] = e.step;
            self->numbers[2 * i + 1] = e.real + 10 * e.zero + (double)strlen(e.parallel);
        }
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

static void ranks_agree(void **state)
{
    rank ranks[RANKS];
    (void)state;
    run_ranks(ranks, RANKS, choose, NULL, 0);
    for (int i = 0; i < 8; i++)
        assert_true(ranks[0].numbers[i] == ranks[1].numbers[i] && ranks[0].numbers[i] > 0);
}

/* Ranks that measure and estimate other times come to rank 0's numbers and order. */
static void choose_apart(rank *self)
{
    clt_trainer_options o = options_of();
    clt_mesh_options s = search(0);
    clt_meshes *meshes = NULL;
    clt_mesh_entry e;
    lab l = {0};
    s.seconds = 0; /* one is measured */
    o.world = &self->world;
    o.portable = self->number; /* slower kernels, and more of them */
    l.graph = gpt();
    clt_mesh_entry_init(&e);
    if (HOLDS(self, clt_devices_open(runtime, "cpu@1", NULL, &l.devices, &l.n) == CLT_OK) &&
        HOLDS(self, clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes) == CLT_OK))
        for (int i = 0; i < 8; i++) {
            HOLDS(self, clt_meshes_get(meshes, i, &e) == CLT_OK);
            self->numbers[i] = e.step + 10 * e.zero + 1000 * e.measured + (double)*e.parallel;
        }
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

static void ranks_differ(void **state)
{
    rank ranks[RANKS];
    (void)state;
    run_ranks(ranks, RANKS, choose_apart, NULL, 0);
    for (int i = 0; i < 8; i++)
        assert_true(ranks[0].numbers[i] == ranks[1].numbers[i] && ranks[0].numbers[i] > 0);
}

/* Plans of one rank's devices do not hold for those of another kind. */
static void refuse_unlike(rank *self)
{
    clt_trainer_options o = options_of();
    const clt_mesh_options s = search(0);
    clt_meshes *meshes = NULL;
    lab l = {0};
    o.world = &self->world;
    l.graph = gpt();
    if (HOLDS(self, clt_devices_open(runtime, self->number ? "pocl@2" : "pocl@1", NULL, &l.devices,
                                     &l.n) == CLT_OK)) {
        self->status = clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

static void unlike_ranks(void **state)
{
    rank ranks[RANKS];
    (void)state;
    run_ranks(ranks, RANKS, refuse_unlike, NULL, 0);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, CLT_UNSUPPORTED);
        assert_non_null(strstr(ranks[r].message, "device 0 of rank 1 ("));
        assert_non_null(strstr(ranks[r].message, "is not like that of rank 0"));
    }
}

#ifdef CLT_TESTING
/* Waits for the other ranks, then sets which device fails from a step on. */
static void set_lost(rank *self, const char *text)
{
    int32_t mine = 0, all[RANKS];
    self->world.gather(self->world.user, &mine, sizeof mine, all);
    if (self->number == 0)
        clt_exec_testing_lose = text;
    self->world.gather(self->world.user, &mine, sizeof mine, all);
}

/* `argument`: the device that fails in real steps, and from which one on; NULL: none. */
static void lose_finals(rank *self)
{
    clt_trainer_options o = options_of();
    const clt_mesh_options s = search(0);
    const char *lost = *(const char **)self->argument;
    clt_meshes *meshes = NULL;
    lab l = {0};
    o.world = &self->world;
    l.graph = gpt();
    if (!HOLDS(self, clt_devices_open(runtime, "pocl/2", NULL, &l.devices, &l.n) == CLT_OK) ||
        !HOLDS(self,
               clt_meshes_create(l.graph, &l.devices[self->number], 1, &o, &s, &meshes) == CLT_OK))
        return;
    /* Whatever was measured, the first two run real steps. */
    meshes->options.finals = 2;
    for (int i = 0; i < meshes->possible; i++)
        meshes->ranks[i].step.seconds = 1;
    self->numbers[0] = meshes->possible;
    set_lost(self, lost);
    self->status = clt_meshes_run_finals(meshes);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    set_lost(self, NULL);
    self->numbers[1] = meshes->possible;
    self->numbers[2] = meshes->ranks[0].real;
    self->numbers[3] = meshes->ranks[0].facts->candidate.zero;
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

/* All ranks end with one line that names the rank, the device and the mesh. */
static void lost_finals(void **state)
{
    rank ranks[RANKS];
    const char *lost[RANKS] = {"#1=2", "#1=2"};
    (void)state;
    run_ranks(ranks, RANKS, lose_finals, lost, sizeof *lost);
    for (int r = 0; r < RANKS; r++) {
        assert_true(ranks[r].status == (r ? CLT_DEVICE_LOST : CLT_ABORTED));
        assert_non_null(strstr(ranks[r].message, "real steps of all meshes failed; '"));
        assert_non_null(strstr(ranks[r].message, "#1 ("));
        assert_non_null(strstr(ranks[r].message, "CL_DEVICE_NOT_AVAILABLE"));
        assert_null(strchr(ranks[r].message, '\n'));
        assert_true(ranks[r].numbers[1] == ranks[r].numbers[0] - 1);
    }
    assert_non_null(strstr(ranks[0].message, "rank 1"));
}

/* Without a failure the same finals decide, and all ranks get the same. */
static void run_finals(void **state)
{
    rank ranks[RANKS];
    const char *lost[RANKS] = {NULL, NULL};
    (void)state;
    run_ranks(ranks, RANKS, lose_finals, lost, sizeof *lost);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, CLT_OK);
        assert_true(ranks[r].numbers[1] == ranks[r].numbers[0]);
        assert_true(ranks[r].numbers[2] > 0 && ranks[r].numbers[2] == ranks[0].numbers[2]);
        assert_true(ranks[r].numbers[3] == ranks[0].numbers[3]);
    }
}

#endif

/* --- machines that are not there ------------------------------------------------------------- */

/* Returns the same mesh in f32. */
static clt_mesh_entry full_row(const clt_meshes *meshes, const clt_mesh_entry *half)
{
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        if (!e.half_wire && e.local == half->local && !strcmp(e.parallel, half->parallel) &&
            e.zero == half->zero && e.accumulate == half->accumulate)
            return e;
    }
    fail_msg("%s with zero %d has no row in f32", half->parallel, half->zero);
    return *half;
}

static void simulated(void **state)
{
    const clt_trainer_options o = options_of();
    clt_mesh_options s = search(2);
    clt_trainer_options narrow = o;
    clt_meshes *meshes;
    int local = 0, half = 0, both = 0;
    lab l = lab_on("cpu@1", NULL);
    (void)state;
    l.graph = gpt();
    s.devices = 16;
    assert_int_equal(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes),
                     CLT_INVALID_ARGUMENT); /* no links */
    s.link = (clt_link){25e9, 5e-6};
    s.inter = (clt_link){1e9, 30e-6};
    ok(clt_meshes_create(l.graph, l.devices, l.n, &o, &s, &meshes));
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        local += e.local > 0;
        half += e.half_wire;
        both += e.local > 0 && e.half_wire;
        assert_true(e.real == 0);
        if (e.half_wire && !e.local) /* residuals of gradients */
            assert_true(e.memory > full_row(meshes, &e).memory);
        if (e.half_wire && e.local) { /* those of replicas are on the host */
            assert_true(e.memory == full_row(meshes, &e).memory);
            assert_true(e.payload < full_row(meshes, &e).payload);
        }
    }
    assert_true(local > 0 && half > 0 && both > 0);
    /* tp=2 has its whole batch: 128 samples of dp=16's 8 each. */
    const clt_mesh_entry dp = find(meshes, "dp=16", 0, 1), tp = find(meshes, "dp=8,tp=2", 0, 1);
    assert_true(dp.possible && tp.possible && dp.payload > 0);
    /* Two heads cannot be divided over four places. */
    assert_non_null(strstr(clt_meshes_text(meshes, 3), "tp=4: "));
    clt_meshes_destroy(meshes);
    /* Gradients of 16-bit precisions are not halved again. */
    narrow.precision = CLT_BF16;
    ok(clt_meshes_create(l.graph, l.devices, l.n, &narrow, &s, &meshes));
    for (int i = 0; i < clt_meshes_count(meshes); i++)
        assert_int_equal(entry_of(meshes, i).half_wire, 0);
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

/* Returns the bytes of a synchronisation of two replicas of the graph, each on a device. */
static int64_t sync_bytes(const lab *l, clt_trainer_options o, clt_dtype wire)
{
    clt_store *stores[2];
    clt_trainer *trainers[2];
    clt_local_options options;
    clt_local *local;
    clt_local_options_init(&options);
    options.wire = wire;
    o.batch /= 2;
    for (int i = 0; i < 2; i++) {
        ok(clt_store_create(l->graph, l->devices + i, 1, 1, &stores[i]));
        ok(clt_trainer_create(l->graph, stores[i], &o, &trainers[i]));
    }
    ok(clt_local_create(trainers, 2, &options, &local));
    const int64_t bytes = clt_local_sync_bytes(local);
    clt_local_destroy(local);
    for (int i = 0; i < 2; i++) {
        clt_trainer_destroy(trainers[i]);
        clt_store_destroy(stores[i]);
    }
    return bytes;
}

/* Replicas also average the states of batch norm, which stay in f32. The row has the bytes that a
 * synchronisation counts. */
static void states_of_replicas(void **state)
{
    const clt_model_field fields[] = {{"image", CLT_F32, 3, {3, 8, 8}, 0},
                                      {"label", CLT_I32, 0, {0}, 10}};
    const clt_model_input input = {.fields = fields, .n_fields = 2};
    clt_trainer_options o = options_of();
    clt_mesh_options s = search(0);
    clt_meshes *meshes;
    int rows = 0;
    lab l = lab_on("pocl@1,pocl@1", NULL);
    (void)state;
    ok(clt_graph_create(&l.graph));
    ok(clt_model_build("resnet18:width=1,blocks=1", &input, l.graph));
    o.optimizer = CLT_SGD;
    s.devices = 2;
    s.sync_every = 1;
    s.link = s.inter = (clt_link){1e9, 1e-6};
    ok(clt_meshes_create(l.graph, l.devices, 1, &o, &s, &meshes));
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        if (e.local == 2)
            assert_int_equal(e.payload, sync_bytes(&l, o, e.half_wire ? CLT_BF16 : CLT_F32));
        rows += e.local == 2;
    }
    assert_int_equal(rows, 2);
    clt_meshes_destroy(meshes);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_hand),      cmocka_unit_test(half_wire),
        cmocka_unit_test(too_large),    cmocka_unit_test(ranks_differ),
        cmocka_unit_test(unlike_ranks), cmocka_unit_test(ranks_agree),
#ifdef CLT_TESTING
        cmocka_unit_test(lost_finals),  cmocka_unit_test(run_finals),
#endif
        cmocka_unit_test(simulated),    cmocka_unit_test(states_of_replicas)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
