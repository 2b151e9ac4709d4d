#include "train/source.h"

#include <string.h>

#include "base/alloc.h"
#include "train/trainer.h"

/* Two steps may be queued; two more batches are assembled meanwhile. */
enum { SLOTS = 4, MAX_INPUTS = 16 };

struct clt_source {
    clt_loader *loader;
    int n_devices, n_outputs;
    const char *names[MAX_INPUTS]; /* of the outputs; the plan's */
    clt_feed *feeds;               /* [slot][device][output] */
    double loss_weight[SLOTS];
    bool weighted; /* the loader knows the weight of the only loss */
};

static bool is_upstream(const clt_plan *plan, const clt_value *input)
{
    for (int l = 0; l < plan->graph->n_losses; l++)
        if (plan->graph->losses[l].upstream == input)
            return true;
    return false;
}

static clt_status check_field(const clt_dataset *dataset, int field, const clt_value *input)
{
    clt_dtype dtype;
    int rank;
    int64_t shape[CLT_DATA_MAX_RANK], bytes;
    CLT_TRY(clt_dataset_field_info(dataset, field, NULL, &dtype, &rank, shape, &bytes));
    if (bytes / clt_dtype_size(dtype) == clt_type_coefficient(&input->type))
        return CLT_OK;
    char text[CLT_TYPE_TEXT];
    return clt_fail(CLT_SHAPE, "input %s is %s; a sample of %s has %lld elements there",
                    input->name, clt_type_text(&input->type, text), clt_dataset_name(dataset),
                    (long long)(bytes / clt_dtype_size(dtype)));
}

static clt_status add_input(clt_source *s, const clt_dataset *dataset,
                            const clt_fit_options *options, const clt_plan *plan,
                            const clt_value *input)
{
    int field, output;
    clt_dtype dtype;
    if (s->n_outputs == MAX_INPUTS)
        return clt_fail(CLT_UNSUPPORTED, "a graph fed by a data set has %d inputs at most",
                        MAX_INPUTS);
    clt_status status = clt_dataset_find_field(dataset, input->name, &field);
    if (status != CLT_OK)
        return clt_fail_prefix(status, "input %s of the graph: ", input->name);
    CLT_TRY(check_field(dataset, field, input));
    CLT_TRY(clt_dataset_field_info(dataset, field, NULL, &dtype, NULL, NULL, NULL));
    CLT_TRY(clt_loader_add_output(s->loader, input->name, input->type.dtype, &output));
    s->names[s->n_outputs++] = input->name;
    if (options->channels && input->type.dtype == CLT_F32)
        CLT_TRY(clt_loader_normalize(s->loader, output, dtype == CLT_U8 ? 255 : 1,
                                     options->channels, options->mean, options->std));
    if (input->type.dtype == CLT_I32 && clt_dataset_classes(dataset, field) > 0) {
        const bool ignores = options->ignore_index != INT64_MIN;
        CLT_TRY(clt_loader_set_labels(s->loader, output, ignores ? &options->ignore_index : NULL));
        s->weighted = plan->graph->n_losses == 1 && clt_type_coefficient(&input->type) == 1;
    }
    return CLT_OK;
}

static clt_status make_feeds(clt_source *s)
{
    s->feeds = clt_calloc((size_t)(SLOTS * s->n_devices * s->n_outputs) + 1, sizeof *s->feeds);
    if (!s->feeds)
        return CLT_OUT_OF_MEMORY;
    clt_feed *feed = s->feeds;
    for (int slot = 0; slot < SLOTS; slot++)
        for (int d = 0; d < s->n_devices; d++)
            for (int o = 0; o < s->n_outputs; o++)
                *feed++ = (clt_feed){.name = s->names[o],
                                     .device = d,
                                     .host = clt_loader_memory(s->loader, slot, d, o)};
    return CLT_OK;
}

clt_status clt_source_create(const clt_trainer *trainer, const clt_session *session,
                             clt_dataset *dataset, const clt_fit_options *options, int64_t batch,
                             int64_t seed, clt_position start, int64_t end_epoch, clt_source **out)
{
    clt_source *s = CLT_NEW(clt_source);
    if (!s)
        return CLT_OUT_OF_MEMORY;
    s->n_devices = trainer->n_devices;
    clt_loader_desc desc;
    clt_loader_desc_init(&desc);
    desc.dataset = dataset;
    desc.batch = batch;
    desc.seed = seed;
    desc.shuffle = options->shuffle;
    desc.epoch = start.epoch;
    desc.offset = start.sample;
    desc.end_epoch = end_epoch;
    desc.parts = s->n_devices;
    desc.slots = SLOTS;
    const clt_plan *plan = session->devices[0].plan;
    clt_status status = clt_loader_create(&desc, &s->loader);
    for (int i = 0; status == CLT_OK && i < plan->n_inputs; i++)
        if (!is_upstream(plan, plan->inputs[i]) && !plan->inputs[i]->given)
            status = add_input(s, dataset, options, plan, plan->inputs[i]);
    if (status == CLT_OK)
        status = clt_loader_start(s->loader);
    if (status == CLT_OK)
        status = make_feeds(s);
    if (status != CLT_OK) {
        clt_source_destroy(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

void clt_source_destroy(clt_source *s)
{
    if (!s)
        return;
    clt_loader_free(s->loader);
    clt_free(s->feeds);
    clt_free(s);
}

clt_status clt_source_next(clt_source *s, clt_source_batch *out)
{
    clt_batch batch = {.struct_size = sizeof batch};
    CLT_TRY(clt_loader_next(s->loader, &batch));
    *out = (clt_source_batch){.slot = batch.slot,
                              .last_of_epoch = batch.last_of_epoch != 0,
                              .epoch = batch.epoch,
                              .next_epoch = batch.next_epoch,
                              .next_sample = batch.next_offset};
    clt_step_batch_init(&out->step);
    if (batch.slot < 0)
        return CLT_OK;
    out->step.count = batch.count;
    out->step.offsets = batch.offsets;
    out->step.feeds = s->feeds + batch.slot * s->n_devices * s->n_outputs;
    out->step.n_feeds = s->n_devices * s->n_outputs;
    if (s->weighted && batch.weight >= 0) {
        s->loss_weight[batch.slot] = (double)batch.weight;
        out->step.loss_weights = &s->loss_weight[batch.slot];
    }
    return CLT_OK;
}

clt_status clt_source_release(clt_source *s, int slot)
{
    return clt_loader_release(s->loader, slot);
}

double clt_source_waited(const clt_source *s)
{
    clt_loader_stats stats = {.struct_size = sizeof stats};
    return clt_loader_get_stats(s->loader, &stats) == CLT_OK ? stats.wait_seconds : 0;
}
