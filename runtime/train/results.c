/* Reading what steps gave, and evaluation. */
#include <string.h>

#include "train/capacity.h"
#include "train/reduce.h"
#include "train/segments.h"

static clt_status find_record(clt_trainer *t, int64_t step, int *entry)
{
    *entry = step < 0 ? 0 : (int)(step % CLT_RESULT_RING);
    /* A step that failed before it ran has left a record. */
    const bool begun = step < t->steps || (step == t->steps && t->phase > 0);
    if (step < 0 || !begun || t->records[*entry].step != step)
        return clt_fail(CLT_NOT_FOUND,
                        "the results of step %lld are not kept; the last step was "
                        "%lld",
                        (long long)step, (long long)t->steps - 1);
    return CLT_OK;
}

static clt_status collect(clt_trainer *t, clt_session *session, int entry)
{
    const size_t bytes = (size_t)session->n_means * sizeof *t->sums;
    memset(t->sums, 0, bytes);
    memset(t->weights, 0, bytes);
    const clt_status status = clt_session_collect(session, entry, t->sums, t->weights);
    return clt_lost_note(t, session->failed, status);
}

clt_status clt_trainer_result(clt_trainer *t, int64_t step, clt_step_result *result)
{
    int entry;
    CLT_TRY(CLT_CHECK_STRUCT(result, clt_step_result));
    CLT_TRY(find_record(t, step, &entry));
    CLT_TRY(collect(t, t->training, entry));
    const float *word = t->devices[0].word + CLT_WORD * entry;
    clt_step_result r = {.struct_size = sizeof r,
                         .step = step,
                         .norm = word[CLT_WORD_NORM],
                         .finite = word[CLT_WORD_OK] == 1.0f,
                         .loss_scale = t->options.precision == CLT_F16 ? word[CLT_WORD_USED] : 1,
                         .skipped = (int64_t)word[CLT_WORD_SKIPPED],
                         .lr = t->records[entry].lr,
                         .samples = t->records[entry].samples};
    for (int l = 0; l < t->training->n_losses; l++)
        if (t->weights[l] > 0)
            r.loss += t->training->coefficients[l] * t->sums[l] / t->weights[l];
    if (clt_step_stopped(t, entry))
        return clt_trainer_diagnose(t, step);
    *result = r;
    return CLT_OK;
}

clt_status clt_trainer_metric(clt_trainer *t, int64_t step, int index, double *sum, double *weight)
{
    int entry;
    CLT_TRY(find_record(t, step, &entry));
    if (index < 0 || index >= t->training->n_means - t->training->n_losses)
        return clt_fail(CLT_INVALID_ARGUMENT, "the graph has no metric %d", index);
    CLT_TRY(collect(t, t->training, entry));
    *sum = t->sums[t->training->n_losses + index];
    *weight = t->weights[t->training->n_losses + index];
    return CLT_OK;
}

/* A batch outside training runs in pieces of the plan's size on each device, one result entry. */
static clt_status run_part(void *arg, int d)
{
    clt_trainer *t = arg;
    clt_session *s = t->session;
    clt_device *device = s->devices[d].device;
    /* The entry may still be in use by the prediction four calls ago. */
    CLT_TRY(clt_session_wait(s, d, t->entry));
    CLT_TRY(clt_enqueue_wait(device, t->batch->n_wait, t->batch->wait));
    const int micros = clt_step_micros(t, t->offsets[d + 1] - t->offsets[d]);
    for (int m = 0; m < clt_step_rounds(t, d); m++) {
        const clt_part part = clt_step_part(t, d, m);
        const clt_run run = {.count = part.count,
                             .seed = t->options.seed,
                             .step = (uint32_t)t->steps,
                             .sample = t->batch->first + part.begin,
                             .inputs = s->devices[d].views,
                             .results = clt_session_results(s, d, t->entry, m)};
        if (t->options.poison)
            CLT_TRY(clt_arena_poison(&t->store->arenas[d]));
        CLT_TRY(clt_session_feed(s, d, t->batch, part, 0));
        CLT_TRY(clt_segments_forward(t, d, &run));
        if (part.count)
            CLT_TRY(clt_session_fetch(s, d, t->batch, part, &run));
    }
    if (s->shared) {
        CLT_TRY(clt_reduce_results(t, d, micros));
        CLT_TRY(clt_reduce_results_end(t, d));
    }
    CLT_TRY(clt_session_read(s, d, t->entry, micros));
    return clt_device_flush(device);
}

/* `what`: "evaluation". A device that fails releases those that wait for it. */
static clt_status noted_part(clt_trainer *t, int d, const char *what, bool awaited)
{
    const clt_status status = clt_lost_note(t, d, run_part(t, d));
    if (status == CLT_OK)
        return CLT_OK;
    clt_fail_prefix(status, "%s after step %lld: ", what, (long long)t->steps);
    if (awaited && status != CLT_ABORTED)
        t->collectives.stop(t->collectives.self, clt_lost_reason(t, status), clt_error_message());
    return status;
}

static clt_status evaluate_part(void *arg, int d)
{
    clt_trainer *t = arg;
    return noted_part(t, d, "evaluation", t->ranks > 1 || t->rounds);
}

static clt_status predict_part(void *arg, int d)
{
    clt_trainer *t = arg;
    return noted_part(t, d, "prediction", t->rounds);
}

clt_status clt_trainer_evaluate(clt_trainer *t, const clt_step_batch *batch, double *sums,
                                double *weights)
{
    CLT_TRY(clt_step_prepare(t, t->evaluation, batch));
    CLT_TRY(clt_segments_rounds(t));
    t->entry = 0;
    t->phase = 0;
    CLT_TRY(clt_step_run(t, evaluate_part));
    const clt_status status = clt_session_collect(t->evaluation, 0, sums, weights);
    return clt_lost_note(t, t->evaluation->failed, status);
}

static clt_status make_prediction(clt_trainer *t)
{
    if (t->prediction)
        return CLT_OK;
    clt_plan_options options = clt_capacity_options(&t->options, CLT_PLAN_PREDICT, t->per_device);
    options.several = t->total > 1;
    CLT_TRY(clt_session_create(t->graph, t->store, &options, t->tuning_of, t->max_micros, false,
                               &t->prediction));
    return clt_segments_check(t->prediction);
}

clt_status clt_trainer_predict(clt_trainer *t, const clt_step_batch *batch,
                               struct _cl_event **event)
{
    CLT_TRY(clt_step_check_event(t, event));
    CLT_TRY(make_prediction(t));
    CLT_TRY(clt_step_prepare(t, t->prediction, batch));
    CLT_TRY(clt_segments_rounds(t));
    t->entry = (int)(t->predictions % CLT_RESULT_RING);
    t->phase = 0;
    CLT_TRY(clt_step_run(t, predict_part));
    t->predictions++;
    return clt_step_event(t->prediction, t->entry, event);
}
