/* Helpers for tests of the ranking of meshes: a small GPT, and runs of the meshes that are ranked.
 */
#ifndef TESTS_TRAIN_MESHES_MESH_LAB_H
#define TESTS_TRAIN_MESHES_MESH_LAB_H

#include "support/objects.h"
#include "train/lab.h"

#include "device/core/device.h"
#include "graph/graph.h"

#include <cltrain/models.h>
#include <cltrain/planner.h>

enum { BATCH = 8, T = 8, WORDS = 23, DEVICES_MOST = 4 };

static inline clt_graph *gpt(void)
{
    const clt_model_field fields[] = {{"tokens", CLT_I32, 1, {T}, WORDS},
                                      {"targets", CLT_I32, 1, {T}, WORDS}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *g;
    return clt_graph_create(&g) == CLT_OK &&
                   clt_model_build("gpt2:layers=2,heads=2,width=16", &input, g) == CLT_OK
               ? g
               : NULL;
}

static inline clt_trainer_options options_of(void)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_ADAMW;
    o.batch = BATCH;
    o.comm_timeout = 60;
    return o;
}

static inline clt_mesh_options search(int finals)
{
    clt_mesh_options o;
    clt_mesh_options_init(&o);
    o.finals = finals;
    o.seconds = 1;
    return o;
}

static inline clt_mesh_entry entry_of(const clt_meshes *meshes, int index)
{
    clt_mesh_entry e;
    clt_mesh_entry_init(&e);
    ok(clt_meshes_get(meshes, index, &e));
    return e;
}

/* Finds a mesh; fails the test if it was not tried. */
static inline clt_mesh_entry find(const clt_meshes *meshes, const char *parallel, int zero,
                                  int accumulate)
{
    for (int i = 0; i < clt_meshes_count(meshes); i++) {
        const clt_mesh_entry e = entry_of(meshes, i);
        if (!strcmp(e.parallel, parallel) && e.zero == zero && e.accumulate == accumulate)
            return e;
    }
    fail_msg("the mesh %s with zero %d and %d micro-batches was not tried", parallel, zero,
             accumulate);
    return entry_of(meshes, 0);
}

/* Trains two steps with the options, as the entry says, and returns the most bytes of a device. */
static inline int64_t train(const lab *l, const clt_mesh_entry *e,
                            const clt_trainer_options *options)
{
    static const float zeros[BATCH * T];
    clt_trainer_options o = *options;
    clt_store_options so;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    double sums[8], weights[8];
    int64_t before[DEVICES_MOST], most = 0;
    const clt_feed feeds[] = {{"tokens", -1, CLT_HOST(zeros)}, {"targets", -1, CLT_HOST(zeros)}};
    for (int d = 0; d < l->n; d++) {
        before[d] = objects_bytes(l->devices[d]->context);
        objects_forget_most(l->devices[d]->context);
    }
    clt_store_options_init(&so);
    so.parallel = e->parallel;
    so.zero = e->zero == 3 ? 3 : 0;
    o.zero = e->zero;
    o.accumulate = e->accumulate;
    ok(clt_graph_copy(l->graph, &graph));
    if (e->stages)
        ok(clt_cut_before(graph, e->stages));
    ok(clt_store_create_with(graph, l->devices, l->n, &so, &store));
    ok(clt_trainer_create(graph, store, &o, &trainer));
    const clt_step_batch batch = lab_batch(feeds, BATCH);
    for (int i = 0; i < 2; i++)
        ok(clt_trainer_step(trainer, &batch, NULL));
    ok(clt_trainer_evaluate(trainer, &batch, sums, weights));
    ok(clt_trainer_wait(trainer));
    for (int d = 0; d < l->n; d++) {
        const int64_t own = objects_most_bytes(l->devices[d]->context) - before[d];
        most = own > most ? own : most;
    }
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    return most;
}

#endif
