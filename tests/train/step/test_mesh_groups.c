/* The groups that a trainer's devices form along the axes of the store's mesh. */
#include "train/world.h"
#include "train/unsplit.h"

#include "train/core/trainer.h"

enum { IN = 5, CLASSES = 3, BATCH = 8, DEVICES = 2 };

typedef struct mesh_case {
    const char *parallel;
    bool own_world; /* the store gets no world, though the trainer has one */
} mesh_case;

static clt_status make_trainer(rank *self, lab *l, const mesh_case *c)
{
    clt_trainer_options o;
    clt_store_options store;
    clt_store_options_init(&store);
    store.parallel = c->parallel;
    store.world = c->own_world ? NULL : &self->world;
    clt_trainer_options_init(&o);
    o.batch = BATCH;
    o.world = &self->world;
    l->graph = let_axes_idle(classifier(IN, IN, CLASSES));
    CLT_TRY(clt_devices_open(runtime, clt_test_devices("pocl/2"), NULL, &l->devices, &l->n));
    CLT_TRY(clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store));
    return clt_trainer_create(l->graph, l->store, &o, &l->trainer);
}

/* Adds the participants' numbers within their groups. */
static void add_numbers(rank *self, clt_trainer *t, clt_axis axis)
{
    const clt_collectives *c = &t->exchange.collectives;
    const clt_mesh *mesh = &t->all.mesh;
    float sums[DEVICES];
    clt_collective_request requests[DEVICES];
    for (int d = 0; d < t->all.own; d++) {
        const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_REDUCE,
                                     .group = t->exchange.groups[axis],
                                     .host = &sums[d],
                                     .count = 1,
                                     .dtype = CLT_F32,
                                     .label = "numbers"};
        sums[d] = (float)(1 << (t->all.first + d));
        HOLDS(self, c->start(c->self, d, &what, 0, NULL, &requests[d]) == CLT_OK);
    }
    for (int d = 0; d < t->all.own; d++) {
        clt_collective_result result;
        int want = 0;
        HOLDS(self, c->complete(c->self, d, &requests[d], &result) == CLT_OK);
        for (int place = 0; place < mesh->size[axis]; place++)
            want += 1 << clt_mesh_neighbour(mesh, axis, t->all.first + d, place);
        HOLDS(self, sums[d] == (float)want);
    }
}

static void use_groups(rank *self)
{
    lab l = {0};
    if (HOLDS(self, make_trainer(self, &l, self->argument) == CLT_OK)) {
        for (int a = 0; a < CLT_AXES; a++) {
            HOLDS(self, (l.trainer->exchange.groups[a] < 0) == (l.trainer->all.mesh.size[a] == 1));
            if (l.trainer->all.mesh.size[a] > 1)
                add_numbers(self, l.trainer, (clt_axis)a);
        }
        HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
}

static void groups_follow_the_mesh(void **state)
{
    static const char *const meshes[] = {
        NULL, "dp=4", "tp=4", "dp=2,tp=2", "tp=2,time=1,dp=2", "time=2,space=2"};
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        rank ranks[2];
        mesh_case cases[2] = {{.parallel = meshes[i]}, {.parallel = meshes[i]}};
        run_ranks(ranks, 2, use_groups, cases, sizeof *cases);
    }
}

static void fail_to_make(rank *self)
{
    lab l = {0};
    HOLDS(self, make_trainer(self, &l, self->argument) == CLT_INVALID_ARGUMENT);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    lab_close(&l);
}

static void store_and_trainer_need_one_world(void **state)
{
    rank ranks[2];
    mesh_case cases[2] = {{"tp=2", true}, {"tp=2", true}};
    (void)state;
    run_ranks(ranks, 2, fail_to_make, cases, sizeof *cases);
    for (int r = 0; r < 2; r++)
        if (!strstr(ranks[r].message, "give the store the same world"))
            fail_msg("%s", ranks[r].message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(groups_follow_the_mesh),
                                       cmocka_unit_test(store_and_trainer_need_one_world)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
