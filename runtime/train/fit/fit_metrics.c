/* Evaluation that also collects metrics of an output. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/array.h"
#include "base/error.h"
#include "train/core/use.h"
#include "train/fit/fit.h"
#include "train/metrics/metrics.h"

/* An evaluation with metrics. */
typedef struct measured {
    clt_trainer *trainer;
    clt_metrics *metrics;
    const clt_value *output, *target;
    int64_t output_elements, target_elements; /* of a sample */
    int64_t positions;                        /* of a sample that count each: 1, or the tokens */
    float *predictions;                       /* of a batch */
} measured;

static clt_status find(measured *m, const clt_dataset *dataset, const char *output,
                       const char *field)
{
    const int64_t classes = m->metrics->options.classes;
    const clt_session *s = m->trainer->evaluation;
    int number;
    m->output = clt_session_output(s->devices[0].plan, output);
    if (!m->output || m->output->type.dtype != CLT_F32 || !clt_type_has_batch(&m->output->type))
        return clt_fail(CLT_NOT_FOUND, "the graph has no output %s in f32 of each sample", output);
    m->target = clt_graph_find(m->trainer->graph, field);
    if (!m->target || m->target->kind != CLT_VALUE_INPUT ||
        m->target->type.dtype != (classes ? CLT_I32 : CLT_F32))
        return clt_fail(CLT_NOT_FOUND, "the graph has no input %s in %s", field,
                        classes ? "i32, as labels are" : "f32");
    CLT_TRY(clt_dataset_find_field(dataset, field, &number));
    m->output_elements = clt_type_coefficient(&m->output->type);
    m->target_elements = clt_type_coefficient(&m->target->type);
    m->positions = classes ? m->target_elements : 1;
    const clt_type *t = &m->output->type;
    const bool fits =
        classes ? m->output_elements == m->positions * classes && t->dims[t->rank - 1] == classes
                : m->output_elements == m->target_elements;
    if (!fits)
        return clt_fail(CLT_SHAPE,
                        "metrics: a sample has %lld numbers in output %s and %lld in %s; expected "
                        "are %lld%s",
                        (long long)m->output_elements, output, (long long)m->target_elements, field,
                        (long long)(classes ? m->positions * classes : m->target_elements),
                        classes ? ", with the classes in the last dimension" : "");
    return CLT_OK;
}

static const clt_feed *find_feed(const clt_step_batch *batch, const char *name, int device)
{
    for (int i = 0; i < batch->n_feeds; i++)
        if (batch->feeds[i].device == device && !strcmp(batch->feeds[i].name, name))
            return &batch->feeds[i];
    return NULL;
}

/* Adds the samples of all devices of this rank. */
static clt_status add(const measured *m, const clt_step_batch *batch)
{
    const clt_trainer *t = m->trainer;
    for (int d = 0; d < t->all.own; d++) {
        const int part = t->shares.part[d];
        const int64_t begin = batch->offsets[part], count = batch->offsets[part + 1] - begin;
        const clt_feed *feed = find_feed(batch, m->target->name, d);
        const int64_t rows = count * m->positions;
        const int64_t shape[] = {rows, m->output_elements / m->positions};
        const int64_t target_shape[] = {rows, m->target_elements / m->positions};
        if (!count)
            continue;
        const clt_array predictions =
            clt_array_dense(m->predictions + begin * m->output_elements, CLT_F32, 2, shape);
        const clt_array targets =
            clt_array_dense(feed->array.host, m->target->type.dtype, 2, target_shape);
        CLT_TRY(clt_metrics_add(m->metrics, &predictions, &targets, NULL, rows));
    }
    return CLT_OK;
}

static clt_status run(measured *m, clt_source *source, double *sums, double *weights)
{
    clt_trainer *t = m->trainer;
    for (;;) {
        clt_source_batch batch;
        CLT_TRY(clt_source_next(source, &batch));
        if (batch.slot < 0)
            return CLT_OK;
        const clt_fetch fetch = {
            .name = m->output->name, .device = -1, .array = CLT_HOST(m->predictions)};
        batch.step.fetches = &fetch;
        batch.step.n_fetches = 1;
        clt_heartbeat_state_is(t->exchange.beat, CLT_HEARTBEAT_EVALUATING);
        CLT_TRY(clt_trainer_evaluate(t, &batch.step, sums, weights));
        CLT_TRY(add(m, &batch.step));
        CLT_TRY(clt_source_release(source, batch.slot));
    }
}

static clt_status evaluate(clt_trainer *t, clt_dataset *dataset, const clt_fit_options *options,
                           const char *output, const char *field, clt_metrics *metrics,
                           double *sums, double *weights)
{
    if (!output || !field || !metrics)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "metrics need an output, a field and a place for the result");
    CLT_TRY(clt_store_check_devices(t->store));
    if (clt_participants_have_axes(&t->all))
        return clt_fail(CLT_UNSUPPORTED,
                        "metrics are computed where devices have samples of their own: use a mesh "
                        "of dp alone");
    if (clt_dataset_kind(dataset) == CLT_DATA_DEVICE)
        return clt_fail(CLT_UNSUPPORTED,
                        "metrics need labels in host memory; those of %s are on devices",
                        clt_dataset_name(dataset));
    measured m = {.trainer = t, .metrics = metrics};
    CLT_TRY(find(&m, dataset, output, field));
    const int64_t most = t->options.batch * m.output_elements;
    m.predictions = clt_alloc((size_t)most * sizeof *m.predictions);
    CLT_TRY_MEMORY(m.predictions);
    clt_fit_options own = *options;
    own.shuffle = own.drop_last = 0;
    clt_source *source = NULL;
    const size_t bytes = (size_t)t->evaluation->n_means * sizeof *sums;
    memset(sums, 0, bytes);
    memset(weights, 0, bytes);
    clt_status status = clt_source_create(&t->all, &t->shares, t->evaluation, dataset, &own,
                                          t->options.batch, 0, (clt_position){0, 0}, 1, &source);
    CLT_NEXT(status, run(&m, source, sums, weights));
    if (status != CLT_OK) { /* other devices may still read the batch */
        char message[1024];
        snprintf(message, sizeof message, "%s", clt_error_message());
        for (int d = 0; d < t->all.own; d++)
            clt_device_finish(t->store->replicas[d].device);
        clt_error_restore(message);
    }
    clt_source_destroy(source);
    clt_free(m.predictions);
    return status == CLT_OK ? clt_metrics_gather(metrics, t->all.world) : status;
}

clt_status clt_evaluate_metrics(clt_trainer *trainer, clt_dataset *dataset,
                                const clt_fit_options *options, const char *output,
                                const char *field, clt_metrics *metrics, double *sums,
                                double *weights)
{
    const clt_use use = {trainer, {dataset}};
    clt_use_begin(&use);
    return clt_use_end(&use,
                       evaluate(trainer, dataset, options, output, field, metrics, sums, weights));
}
