/* Steps on samples of a reservoir, for loops of the host program. */
#include <math.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/reservoir/reservoir.h"
#include "train/core/reservoir_buffers.h"
#include "train/core/trainer.h"
#include "train/fit/batch_source.h"
#include "train/fit/fit.h"
#include "train/saved/reservoir_files.h"
#include <cltrain/reservoir.h>

/* What clt_trainer_set_reservoir was given, and the source of batches. */
typedef struct drawn {
    clt_dataset *reservoir;
    clt_fit_options options;
    double *channels;         /* means, then deviations */
    int64_t builds, restores; /* of the trainer when the source was made */
    clt_source *source;
    clt_reservoir_side *lent; /* NULL: no device was lent */
} drawn;

static void drawn_free(void *user)
{
    drawn *d = user;
    clt_reservoir_take_back(d->lent, d);
    clt_source_destroy(d->source);
    CLT_FREE(d->channels, d);
}

static clt_status make_source(clt_trainer *t, drawn *d)
{
    const clt_fit_options *o = &d->options;
    clt_source_destroy(d->source);
    d->source = NULL;
    d->builds = t->builds;
    d->restores = t->restores;
    return clt_source_create_drawn(t, d->reservoir, o, o->batch ? o->batch : t->options.batch,
                                   o->seed < 0 ? t->options.seed : (uint64_t)o->seed, false, 0,
                                   &d->source);
}

/* Lets pushes read buffers through the trainer's first device. */
static void lend(const clt_trainer *t, drawn *d)
{
    clt_reservoir_take_back(d->lent, d);
    d->lent = NULL;
    if (t->store->n_devices)
        d->lent = clt_reservoir_lend(d->reservoir, t->store->replicas[0].device, d);
}

static clt_status copy_channels(drawn *d)
{
    clt_fit_options *o = &d->options;
    const size_t n = o->channels > 0 ? (size_t)o->channels : 0;
    d->channels = clt_calloc(2 * n + 1, sizeof *d->channels);
    CLT_TRY_MEMORY(d->channels);
    for (size_t c = 0; c < n; c++) {
        d->channels[c] = o->mean ? o->mean[c] : 0;
        d->channels[n + c] = o->std ? o->std[c] : 1;
    }
    o->mean = d->channels;
    o->std = d->channels + n;
    return CLT_OK;
}

/* Adds a field for each input with a sample in each row. */
static clt_status add_fields(const clt_graph *graph, clt_dataset *reservoir)
{
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *input = graph->values[i];
        const int64_t *dims = input->type.dims;
        const int rank = input->type.rank;
        if (input->kind == CLT_VALUE_INPUT && !input->output_gradient && rank && dims[0] == -1)
            CLT_TRY(clt_dataset_add_field(reservoir, input->name, input->type.dtype, rank - 1,
                                          dims + 1, NULL, CLT_DATA_BORROW, NULL));
    }
    return CLT_OK;
}

static clt_status attach(clt_trainer *t, clt_dataset *reservoir, const clt_fit_options *options,
                         drawn *d)
{
    clt_reservoir *r = NULL;
    CLT_TRY(clt_reservoir_of(reservoir, &r));
    clt_fit_options_init(&d->options);
    if (options) {
        CLT_TRY(clt_fit_options_check(options, t));
        d->options = *options;
    }
    if (!clt_dataset_field_count(reservoir))
        CLT_TRY(add_fields(t->training->graph, reservoir));
    d->reservoir = reservoir;
    CLT_TRY(copy_channels(d));
    return make_source(t, d);
}

/* What must be equal on all ranks. */
static uint64_t hash_of(const clt_trainer *t, const drawn *d)
{
    if (!d)
        return 0;
    const clt_fit_options *o = &d->options;
    const int64_t numbers[] = {1,
                               clt_reservoir_saves(d->reservoir),
                               o->batch ? o->batch : t->options.batch,
                               o->seed < 0 ? (int64_t)t->options.seed : o->seed,
                               o->channels,
                               o->ignore_index};
    return clt_hash(d->channels, 2 * (size_t)(o->channels > 0 ? o->channels : 0) * sizeof(double),
                    clt_hash(numbers, sizeof numbers, 0));
}

clt_status clt_trainer_set_reservoir(clt_trainer *t, clt_dataset *reservoir,
                                     const clt_fit_options *options)
{
    CLT_TRY(clt_store_check_devices(t->store));
    if (t->may_idle)
        return clt_fail(CLT_STATE, "clt_fit runs with this trainer: set its reservoir before or "
                                   "after that");
    drawn *d = reservoir ? CLT_NEW(drawn) : NULL;
    clt_status status = reservoir && !d ? CLT_OUT_OF_MEMORY : CLT_OK;
    if (d)
        status = attach(t, reservoir, options, d);
    status = clt_world_agree(&t->all, status);
    if (t->all.ranks > 1)
        CLT_NEXT(status, clt_ranks_compare(t->all.world, hash_of(t, d),
                                           "reservoir, its `save`, or batch, seed, channels or "
                                           "ignore_index of clt_trainer_set_reservoir"));
    CLT_NEXT(status, clt_trainer_wait(t)); /* transfers from the memory of the last source */
    if (status != CLT_OK) {
        if (d)
            drawn_free(d);
        return status;
    }
    if (t->drawn)
        drawn_free(t->drawn);
    t->drawn = d;
    t->drawn_free = drawn_free;
    if (d)
        lend(t, d);
    t->reservoir = d && clt_reservoir_saves(reservoir) ? reservoir : NULL;
    return CLT_OK;
}

clt_status clt_step_reservoir(clt_trainer *t, int64_t steps, double *loss)
{
    drawn *d = t->drawn;
    clt_source_batch batch = {.slot = -1};
    if (!d)
        return clt_fail(CLT_STATE, "the trainer has no reservoir: clt_trainer_set_reservoir "
                                   "gives it one");
    /* A device was lost, or a rank's samples may be gone. */
    if (d->builds != t->builds || d->restores != t->restores) {
        CLT_TRY(clt_world_agree(&t->all, make_source(t, d)));
        lend(t, d);
    }
    for (int64_t i = 0; i < steps; i++) {
        CLT_TRY(clt_source_next(d->source, &batch));
        if (batch.slot < 0)
            break;
        CLT_TRY(clt_trainer_step(t, &batch.step, NULL));
    }
    if (!loss)
        return CLT_OK;
    *loss = NAN;
    if (batch.slot < 0)
        return CLT_OK;
    clt_step_result result;
    clt_step_result_init(&result);
    CLT_TRY(clt_trainer_result(t, t->steps - 1, &result));
    *loss = result.loss;
    return CLT_OK;
}
