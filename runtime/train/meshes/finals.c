#include "train/meshes/finals.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/core/trainer.h"
#include "train/ranks/world.h"
#include <cltrain/data.h>

enum { BLOCKS = 5, WARMUP = 2 };

/* The least time of a block of steps, in seconds. */
static const double BLOCK = 0.05;

/* A trainer with a batch for it. */
typedef struct run {
    clt_store *store;
    clt_trainer *trainer;
    clt_feed *feeds;
    double *weights;
    clt_step_batch batch;
} run;

/* A rate of 0 keeps the parameters finite, whatever the data. */
static clt_trainer_options options_of(const clt_mesh_facts *f, const clt_world *world)
{
    clt_trainer_options o = f->options;
    o.world = world;
    o.accumulate = f->candidate.accumulate; /* a trainer counts virtual shards itself */
    o.lr = 0;
    o.schedule = (clt_schedule){.kind = CLT_SCHEDULE_CONSTANT};
    o.guard = 0;
    o.poison = 0;
    o.frozen = NULL;
    o.heartbeat = NULL;
    o.check_every = 0;
    o.tune_seconds = 0;
    o.quantum = 1;
    o.per_device = 0;
    return o;
}

/* Integers are 0, which is a valid class and a valid index into every table. */
static clt_status make_feed(const clt_value *input, int64_t samples, clt_feed *feed)
{
    const int64_t count = clt_type_elements(&input->type, samples);
    const size_t bytes = (size_t)(count * clt_dtype_size(input->type.dtype));
    void *data = clt_alloc_pages(bytes + 1);
    CLT_TRY_MEMORY(data);
    memset(data, 0, bytes);
    if (input->type.dtype == CLT_F32)
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[i] = (float)(i * 37 % 101) / 101;
    *feed = (clt_feed){.name = input->name, .device = -1, .array = CLT_HOST(data)};
    return CLT_OK;
}

/* Divides the batch: equal places of dp have equal parts, and virtual shards of all samples follow
 * each other. */
static void divide(const clt_trainer *t, clt_step_batch *batch)
{
    const int places = t->all.mesh.size[CLT_AXIS_DATA];
    const int64_t each = t->options.batch / places;
    const int64_t *shards = t->shares.bounds;
    batch->total = shards ? t->options.batch : each * places;
    batch->first = each * t->all.first_part;
    batch->count = each * t->all.own_parts;
    if (!shards)
        return;
    const int64_t all = shards[places], *own = &shards[t->all.first_part];
    batch->first = clt_virtual_shard_begin(batch->total, all, own[0]);
    batch->count = clt_virtual_shard_begin(batch->total, all, own[t->all.own_parts]) - batch->first;
}

/* Makes this rank's part of the batch. Data sets know the weights of losses, so they are given. */
static clt_status make_batch(run *r)
{
    const clt_trainer *t = r->trainer;
    const clt_graph *graph = t->graph;
    clt_step_batch_init(&r->batch);
    divide(t, &r->batch);
    r->feeds = clt_calloc((size_t)graph->n_values + 1, sizeof *r->feeds);
    r->weights = clt_calloc((size_t)graph->n_losses + 1, sizeof *r->weights);
    CLT_TRY_MEMORY(r->feeds && r->weights);
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INPUT && !graph->values[i]->output_gradient)
            CLT_TRY(make_feed(graph->values[i], r->batch.count, &r->feeds[r->batch.n_feeds++]));
    for (int l = 0; l < graph->n_losses; l++)
        r->weights[l] = (double)r->batch.total;
    r->batch.feeds = r->feeds;
    r->batch.loss_weights = r->weights;
    return CLT_OK;
}

static clt_status train(run *r, int steps, double *seconds)
{
    const double began = clt_clock();
    for (int k = 0; k < steps; k++)
        CLT_TRY(clt_trainer_step(r->trainer, &r->batch, NULL));
    CLT_TRY(clt_trainer_wait(r->trainer));
    *seconds = (clt_clock() - began) / steps;
    return CLT_OK;
}

/* All ranks run as many steps as rank 0's time says. */
static clt_status time_steps(run *r, const clt_world *world, double *seconds)
{
    double times[BLOCKS], one;
    void *all;
    clt_status status = train(r, WARMUP, &one);
    CLT_NEXT(status, train(r, WARMUP, &one));
    int64_t steps = status == CLT_OK ? 1 + (int64_t)(BLOCK / one) : 0;
    CLT_TRY(clt_ranks_agree(world, status, &steps));
    for (int k = 0; k < BLOCKS; k++)
        CLT_TRY(clt_ranks_agree(world, train(r, (int)steps, &times[k]), NULL));
    one = clt_clock_median(times, BLOCKS);
    CLT_TRY(clt_ranks_gather(world, &one, sizeof one, &all));
    *seconds = *(const double *)all;
    clt_free(all);
    return CLT_OK;
}

clt_status clt_mesh_run(const clt_mesh_setting *setting, const clt_world *world,
                        const clt_mesh_facts *f, double *seconds)
{
    clt_store_options store;
    run r = {0};
    const clt_trainer_options options = options_of(f, world);
    clt_store_options_init(&store);
    store.parallel = f->mesh;
    store.zero = f->candidate.zero == 3 ? 3 : 0;
    store.world = world;
    clt_status status = clt_ranks_agree(
        world, clt_store_create_with(f->graph, setting->devices, setting->count, &store, &r.store),
        NULL);
    CLT_NEXT(status, clt_ranks_agree(
                         world, clt_trainer_create(f->graph, r.store, &options, &r.trainer), NULL));
    CLT_NEXT(status, clt_ranks_agree(world, make_batch(&r), NULL));
    CLT_NEXT(status, time_steps(&r, world, seconds));
    CLT_NEXT(status, clt_ranks_agree(world, clt_trainer_finish(r.trainer), NULL));
    clt_trainer_destroy(r.trainer);
    clt_store_destroy(r.store);
    for (int i = 0; i < r.batch.n_feeds; i++)
        clt_free(r.feeds[i].array.host);
    CLT_FREE(r.feeds, r.weights);
    return status;
}
