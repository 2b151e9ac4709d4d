/* Reads results of steps, and runs evaluation. */
#include <stdio.h>
#include <string.h>

#include "train/core/packed.h"
#include "train/core/trainer.h"
#include "train/setup/capacity.h"
#include "train/setup/choices.h"
#include "train/step/graph_collectives.h"
#include "train/step/programs.h"
#include "train/step/verify.h"

static clt_status find_record(clt_trainer *t, int64_t step, int *entry)
{
    *entry = step < 0 ? 0 : (int)(step % CLT_RESULT_RING);
    /* A step that failed before it ran has left a record too. */
    const bool begun = step < t->steps || (step == t->steps && t->phase > 0);
    if (step < 0 || !begun || t->results.records[*entry].step != step)
        return clt_fail(CLT_NOT_FOUND,
                        "the results of step %lld are not kept; the last step was "
                        "%lld",
                        (long long)step, (long long)t->steps - 1);
    return CLT_OK;
}

/* Within a step, evaluation and prediction would take the memory that the update reads. */
static clt_status check_outside(const clt_trainer *t)
{
    return t->phase == CLT_PHASE_NONE ? CLT_OK : clt_step_allowed(t);
}

static clt_status collect(clt_trainer *t, clt_session *session, int entry)
{
    const size_t bytes = (size_t)session->n_means * sizeof *t->results.sums;
    memset(t->results.sums, 0, bytes);
    memset(t->results.weights, 0, bytes);
    const clt_status status =
        clt_session_collect(session, &t->shares, entry, t->results.sums, t->results.weights);
    return clt_lost_note(t, session->failed, status);
}

clt_status clt_trainer_result(clt_trainer *t, int64_t step, clt_step_result *result)
{
    int entry;
    CLT_TRY(CLT_CHECK_STRUCT(result, clt_step_result));
    CLT_TRY(find_record(t, step, &entry));
    CLT_TRY(collect(t, t->training, entry));
    /* Until its update a step has losses only. The status is that of an earlier step. */
    static const float unknown[CLT_STEP_STATUS] = {
        [CLT_STEP_STATUS_OK] = 1, [CLT_STEP_STATUS_USED] = 1};
    const bool updated = step < t->steps;
    const float *step_status =
        updated ? t->devices[0].step_status + CLT_STEP_STATUS * entry : unknown;
    clt_step_result r = {
        .struct_size = sizeof r,
        .step = step,
        .norm = step_status[CLT_STEP_STATUS_NORM],
        .finite = step_status[CLT_STEP_STATUS_OK] == 1.0f,
        .loss_scale = t->options.precision == CLT_F16 ? step_status[CLT_STEP_STATUS_USED] : 1,
        .skipped = (int64_t)step_status[CLT_STEP_STATUS_SKIPPED],
        .lr = t->results.records[entry].lr,
        .samples = t->results.records[entry].samples};
    for (int l = 0; l < t->training->n_losses; l++)
        if (t->results.weights[l] > 0)
            r.loss += t->training->coefficients[l] * t->results.sums[l] / t->results.weights[l];
    if (updated && clt_step_stopped(t, entry))
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
    *sum = t->results.sums[t->training->n_losses + index];
    *weight = t->results.weights[t->training->n_losses + index];
    return CLT_OK;
}

/* Runs a batch outside training in micro-batches of the plan's size on each device, in one result
 * entry. With `reads`, other ranks wait for this rank's results. */
static clt_status run_outside(clt_trainer *t, const char *name, bool reads)
{
    char what[64];
    t->phase = 0;
    t->call.parity = 0;
    snprintf(what, sizeof what, "%s after step %lld", name, (long long)t->steps);
    return clt_programs_run(t, CLT_PROGRAM_OUTSIDE, what,
                            (reads && t->evaluation->shared) || t->shares.rounds ||
                                clt_store_stages(t->store) > 1);
}

clt_status clt_trainer_evaluate(clt_trainer *t, const clt_step_batch *batch, double *sums,
                                double *weights)
{
    CLT_TRY(check_outside(t));
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(clt_verify_evaluation(t));
    CLT_TRY(clt_step_prepare(t, t->evaluation, batch));
    CLT_TRY(clt_segments_rounds(t->call.session, &t->all, &t->exchange, &t->shares));
    t->call.entry = 0;
    CLT_TRY(clt_packed_begin(t->evaluation, &t->shares, 0, &t->call.batch));
    CLT_TRY(run_outside(t, "evaluation", true));
    CLT_TRY(clt_step_fetched(t, t->evaluation));
    const clt_status status = clt_session_collect(t->evaluation, &t->shares, 0, sums, weights);
    return clt_lost_note(t, t->evaluation->failed, status);
}

static clt_status make_prediction(clt_trainer *t)
{
    if (t->prediction)
        return CLT_OK;
    clt_plan_options options =
        clt_capacity_options(&t->options, CLT_PLAN_PREDICT, t->shares.per_run);
    options.several = clt_participants_parts(&t->all) > 1;
    CLT_TRY(clt_session_create(t->graph, t->store, &options, NULL, t->choices->of,
                               t->shares.max_micro_batches, false, &t->prediction));
    CLT_TRY(clt_segments_check(t->prediction));
    return clt_programs_predict(t);
}

clt_status clt_trainer_predict(clt_trainer *t, const clt_step_batch *batch,
                               struct _cl_event **event)
{
    CLT_TRY(check_outside(t));
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(clt_step_check_event(t, event));
    CLT_TRY(make_prediction(t));
    CLT_TRY(clt_step_prepare(t, t->prediction, batch));
    CLT_TRY(clt_segments_rounds(t->call.session, &t->all, &t->exchange, &t->shares));
    t->call.entry = (int)(t->predictions % CLT_RESULT_RING);
    CLT_TRY(clt_packed_begin(t->prediction, &t->shares, t->call.entry, &t->call.batch));
    CLT_TRY(run_outside(t, "prediction", false));
    t->predictions++;
    CLT_TRY(clt_step_event(t->prediction, t->call.entry, event));
    return clt_step_fetched(t, t->prediction);
}
