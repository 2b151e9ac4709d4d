/* Runs a step, whole or in parts. */
#include <stdio.h>
#include <string.h>

#include "train/core/kept.h"
#include "train/core/label_weights.h"
#include "train/core/packed.h"
#include "train/core/trainer.h"
#include "train/step/shards.h"
#include "train/ranks/shares.h"
#include "train/step/graph_collectives.h"
#include "train/step/states.h"
#include "train/step/averages.h"
#include "train/step/programs.h"
#include "train/step/verify.h"

/* --- one step -------------------------------------------------------------------------------- */

/* Checks the gradients of outputs, which backward needs. */
static clt_status check_output_gradients(const clt_trainer *t, const clt_feed *feeds, int n_feeds)
{
    for (int d = 0; d < t->all.own; d++)
        if (clt_shares_samples(&t->shares, d))
            CLT_TRY(clt_session_check_feeds(t->training, d, &t->shares, feeds, n_feeds, true));
    return CLT_OK;
}

clt_status clt_step_prepare(clt_trainer *t, clt_session *session, const clt_step_batch *batch)
{
    CLT_TRY(CLT_CHECK_STRUCT(batch, clt_step_batch));
    if (batch->count < 0 || batch->count > t->options.batch || batch->total > t->options.batch ||
        (batch->total > 0 && batch->count > batch->total))
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "a batch of %lld samples, of %lld on all ranks: the trainer was made for at most %lld",
            (long long)batch->count, (long long)(batch->total > 0 ? batch->total : batch->count),
            (long long)t->options.batch);
    CLT_TRY(clt_session_divide(session, &t->all, batch, &t->shares));
    t->call.batch = *batch;
    t->call.output_gradients = NULL;
    t->call.n_output_gradients = 0;
    t->call.session = session;
    t->call.weights_known = false;
    t->shares.counted = false;
    t->shares.rounds = 0;
    return CLT_OK;
}

static clt_status run(clt_trainer *t, clt_step_program_kind kind)
{
    char what[64];
    snprintf(what, sizeof what, "step %lld", (long long)t->steps + 1);
    CLT_TRY(clt_programs_run(t, kind, what, true));
    const bool ends =
        kind == CLT_PROGRAM_STEP || kind == CLT_PROGRAM_APPLY || kind == CLT_PROGRAM_APPLY_GIVEN;
    return ends && !(t->devices[0].votes & CLT_VOTE_DROP) ? clt_verify_step(t, what) : CLT_OK;
}

/* Runs forward to learn the weights of the losses. This is needed if data that the host does not
 * have determine the weights, and there are several devices, ranks or micro-batches. */
static clt_status weights_from_forward(clt_trainer *t)
{
    memset(t->results.sums, 0, (size_t)t->call.session->n_means * sizeof *t->results.sums);
    memset(t->results.weights, 0, (size_t)t->call.session->n_means * sizeof *t->results.weights);
    CLT_TRY(run(t, CLT_PROGRAM_WEIGHTS));
    const clt_status status = clt_session_collect(t->call.session, &t->shares, t->call.entry,
                                                  t->results.sums, t->results.weights);
    CLT_TRY(clt_lost_note(t, t->call.session->failed, status));
    memcpy(t->call.loss_weights, t->results.weights,
           (size_t)t->call.session->n_losses * sizeof *t->results.weights);
    t->call.weights_known = true;
    return CLT_OK;
}

/* Names the step in the message of an exchange that failed before the step's program. */
static clt_status of_step(const clt_trainer *t, clt_status status)
{
    return status == CLT_OK ? CLT_OK
                            : clt_fail_prefix(status, "step %lld: ", (long long)t->steps + 1);
}

static clt_status find_weights(clt_trainer *t)
{
    const double *weights = t->call.batch.loss_weights;
    t->call.weights_known =
        weights ||
        clt_session_static_weights(t->call.session, t->call.batch.total, t->call.loss_weights);
    if (weights)
        memcpy(t->call.loss_weights, weights, (size_t)t->call.session->n_losses * sizeof *weights);
    if (t->call.weights_known ||
        (clt_participants_replicas(&t->all) == 1 && t->shares.max_micro_batches == 1))
        return CLT_OK;
    if (t->all.ranks > 1)
        CLT_TRY(of_step(t, clt_label_weights(t->call.session, &t->all, &t->shares,
                                             &t->exchange.collectives, &t->call.batch,
                                             t->call.loss_weights, &t->call.weights_known)));
    else
        t->call.weights_known =
            clt_session_label_weights(t->call.session, &t->call.batch, t->call.loss_weights);
    return t->call.weights_known ? CLT_OK : weights_from_forward(t);
}

bool clt_step_stopped(const clt_trainer *t, int entry)
{
    const float *step_status = t->devices[0].step_status + CLT_STEP_STATUS * entry;
    return t->options.guard &&
           (t->options.precision == CLT_F16 ? step_status[CLT_STEP_STATUS_STOPPED] != 0
                                            : step_status[CLT_STEP_STATUS_OK] == 0);
}

clt_status clt_step_wait(clt_trainer *t, int64_t step)
{
    for (int d = 0; d < t->all.own; d++)
        CLT_TRY(
            clt_lost_note(t, d, clt_session_wait(t->training, d, (int)(step % CLT_RESULT_RING))));
    return CLT_OK;
}

/* Limits the queue: waits for the oldest step that must have left it, and checks its status. */
static clt_status throttle(clt_trainer *t)
{
    for (int back = t->queued; back <= CLT_RESULT_RING; back++) {
        const int64_t step = t->steps - back;
        if (step < 0 || t->results.records[step % CLT_RESULT_RING].step != step)
            continue;
        CLT_TRY(clt_step_wait(t, step));
        if (clt_step_stopped(t, (int)(step % CLT_RESULT_RING)))
            return clt_trainer_diagnose(t, step);
        break;
    }
    return CLT_OK;
}

clt_status clt_step_allowed(const clt_trainer *t)
{
    return t->within ? clt_fail(CLT_STATE,
                                "%s is a callback of clt_fit, which makes the steps: this call "
                                "would replace the step under way",
                                t->within)
                     : CLT_OK;
}

clt_status clt_step_may_begin(const clt_trainer *t)
{
    CLT_TRY(clt_step_allowed(t));
    if (t->reporting)
        return clt_fail(CLT_STATE,
                        "clt_fit runs and makes the steps of this trainer: its callbacks may "
                        "evaluate and predict, and end the run");
    if (t->steps < 0 || t->steps >= INT64_MAX / 2)
        return clt_fail(CLT_STATE,
                        "the trainer is at step %lld: set it to a number of steps of at least 0 "
                        "(clt_trainer_set_steps)",
                        (long long)t->steps);
    return CLT_OK;
}

static clt_status find_shares(clt_trainer *t)
{
    const clt_collectives *collectives = &t->exchange.collectives;
    CLT_TRY(clt_shares_place(&t->shares, &t->all, collectives, &t->call.batch));
    CLT_TRY(clt_states_check(t->states, &t->call.batch));
    CLT_TRY(clt_segments_rounds(t->call.session, &t->all, &t->exchange, &t->shares));
    return clt_states_need_counts(t->states) ? clt_shares_count(&t->shares, &t->all, collectives)
                                             : CLT_OK;
}

static clt_status begin_step(clt_trainer *t, const clt_step_batch *batch, bool whole)
{
    CLT_TRY(clt_step_may_begin(t));
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(clt_averages_away(t, "a step"));
    /* Drop the parts of a step that was not applied. */
    t->phase = CLT_PHASE_NONE;
    clt_gradients_forget(t);
    t->kept = false;
    for (int d = 0; d < t->all.own; d++)
        t->devices[d].rounded = false;
    CLT_TRY(throttle(t));
    CLT_TRY(clt_verify_start(t));
    clt_session_forget_output_gradients(t->training, NULL, 0);
    CLT_TRY(clt_step_prepare(t, t->training, batch));
    if (whole) /* the batch must contain all that backward needs */
        CLT_TRY(check_output_gradients(t, batch->feeds, batch->n_feeds));
    t->call.entry = (int)(t->steps % CLT_RESULT_RING);
    t->call.parity = (int)(t->steps & 1);
    CLT_TRY(clt_packed_begin(t->training, &t->shares, t->call.entry, &t->call.batch));
    clt_heartbeat_step(t->exchange.beat, t->steps + 1);
    CLT_TRY(of_step(t, find_shares(t)));
    t->results.records[t->call.entry] = (clt_step_record){
        .step = t->steps,
        .samples = t->call.batch.total,
        .feeds = t->queued > 2 ? t->call.batch.feeds : NULL,
        .n_feeds = t->call.batch.n_feeds,
        .lr = clt_schedule_rate(&t->options.schedule, t->options.lr,
                                t->schedule_step < 0 ? t->steps : t->schedule_step)};
    for (int d = 0; d < t->all.own; d++) {
        t->training->devices[d].shares[t->call.entry] = clt_shares_samples(&t->shares, d);
        t->training->devices[d].firsts[t->call.entry] =
            t->call.batch.first + clt_shares_begin(&t->shares, d);
    }
    clt_kept_note(t->training, &t->shares);
    return find_weights(t);
}

clt_status clt_step_event(const clt_session *session, int entry, struct _cl_event **event)
{
    if (!event)
        return CLT_OK;
    return clt_event_share(session->devices[0].device, session->devices[0].read[entry], event);
}

clt_status clt_step_fetched(clt_trainer *t, clt_session *session)
{
    const clt_status status = clt_packed_end(session, t->call.entry);
    return status == CLT_OK ? CLT_OK : clt_lost_note(t, session->failed, status);
}

clt_status clt_step_check_event(const clt_trainer *t, struct _cl_event *const *event)
{
    return !event || t->all.own == 1
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT,
                          "an event needs one device, and the trainer has %d: pass NULL",
                          t->all.own);
}

static clt_status dropped(clt_trainer *t)
{
    t->exchange.votes = t->devices[0].votes;
    t->results.records[t->call.entry].step = -1;
    return clt_fail(CLT_ABORTED, "step %lld: a rank could not read its samples",
                    (long long)t->steps + 1);
}

static clt_status end_step(clt_trainer *t, struct _cl_event **event)
{
    t->phase = CLT_PHASE_NONE;
    clt_gradients_forget(t);
    t->exchange.votes = t->devices[0].votes;
    if (t->exchange.votes & CLT_VOTE_DROP)
        return dropped(t);
    t->steps++;
    t->kept_updated = true;
    clt_shards_drop(t); /* slots that were set and not sent */
    CLT_TRY(clt_step_event(t->training, t->call.entry, event));
    return clt_step_fetched(t, t->training);
}

clt_status clt_trainer_step(clt_trainer *t, const clt_step_batch *batch, struct _cl_event **event)
{
    CLT_TRY(clt_step_check_event(t, event));
    CLT_TRY(begin_step(t, batch, true));
    CLT_TRY(run(t, CLT_PROGRAM_STEP));
    t->kept = t->has_gradients = true;
    return end_step(t, event);
}

clt_status clt_trainer_gradients(clt_trainer *t, const clt_step_batch *batch)
{
    CLT_TRY(begin_step(t, batch, true));
    CLT_TRY(run(t, CLT_PROGRAM_GRADIENTS));
    if (t->devices[0].votes & CLT_VOTE_DROP)
        return dropped(t);
    CLT_TRY(clt_step_fetched(t, t->training));
    t->phase = CLT_PHASE_REDUCED;
    t->measured = t->kept = t->has_gradients = true;
    t->kept_updated = false;
    return CLT_OK;
}

static clt_status need_phase(const clt_trainer *t, clt_phase phase, const char *call,
                             const char *before)
{
    CLT_TRY(clt_step_allowed(t));
    return t->phase >= phase ? CLT_OK : clt_fail(CLT_STATE, "%s needs %s before it", call, before);
}

clt_status clt_trainer_forward(clt_trainer *t, const clt_step_batch *batch)
{
    if (t->shares.max_micro_batches > 1 && t->options.virtual_shards)
        return clt_fail(CLT_STATE,
                        "the parts of a step work without micro-batches; this trainer has "
                        "several virtual shards on a device");
    if (t->shares.max_micro_batches > 1)
        return clt_fail(CLT_STATE,
                        "the parts of a step work without micro-batches; this trainer "
                        "was made with accumulate %d%s",
                        t->options.accumulate, t->options.rebalance ? " and rebalance" : "");
    CLT_TRY(begin_step(t, batch, false));
    CLT_TRY(run(t, CLT_PROGRAM_FORWARD));
    CLT_TRY(clt_step_fetched(t, t->training));
    t->phase = CLT_PHASE_FORWARD;
    return CLT_OK;
}

clt_status clt_trainer_backward(clt_trainer *t)
{
    return clt_trainer_backward_from(t, NULL, 0);
}

static clt_status check_names(const clt_trainer *t, const clt_feed *gradients, int n_gradients)
{
    const clt_graph *graph = t->training->graph;
    for (int i = 0; i < n_gradients; i++) {
        bool known = false;
        for (int v = 0; v < graph->n_values && !known; v++)
            known = graph->values[v]->output_gradient && graph->values[v]->name &&
                    !strcmp(graph->values[v]->name, gradients[i].name);
        if (!known)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "the graph declares no gradient of an output with the name %s "
                            "(clt_output_gradient)",
                            gradients[i].name);
    }
    return CLT_OK;
}

clt_status clt_trainer_backward_from(clt_trainer *t, const clt_feed *gradients, int n_gradients)
{
    const clt_feed *const given = gradients;
    CLT_TRY(clt_session_check_names(gradients, n_gradients, NULL, 0));
    CLT_TRY(need_phase(t, CLT_PHASE_FORWARD, "clt_trainer_backward", "clt_trainer_forward"));
    CLT_TRY(check_names(t, gradients, n_gradients));
    CLT_TRY(check_output_gradients(t, gradients, n_gradients));
    CLT_TRY(clt_packed_gradients(t->training, &t->shares, t->call.entry, &gradients, n_gradients));
    t->call.output_gradients = gradients;
    t->call.n_output_gradients = n_gradients;
    /* Backward overwrites what forward left, so another backward begins with forward again. */
    const bool again = t->phase > CLT_PHASE_FORWARD;
    const clt_status status = run(t, again ? CLT_PROGRAM_BACKWARD_AGAIN : CLT_PROGRAM_BACKWARD);
    /* They are for this call: another backward must not take them for its own. */
    clt_session_forget_output_gradients(t->training, given, n_gradients);
    CLT_TRY(status);
    t->phase = CLT_PHASE_BACKWARD;
    t->kept = t->has_gradients = true;
    t->kept_updated = false;
    clt_gradients_forget(t); /* another backward has replaced what was set */
    return CLT_OK;
}

static clt_status reduce(clt_trainer *t, clt_step_program_kind kind, const char *call)
{
    CLT_TRY(need_phase(t, CLT_PHASE_BACKWARD, call, "clt_trainer_backward"));
    if (t->phase > CLT_PHASE_BACKWARD)
        return clt_fail(CLT_STATE, "the gradients are reduced already: clt_trainer_apply comes "
                                   "next, or another forward or backward");
    if (kind == CLT_PROGRAM_REDUCE)
        CLT_TRY(clt_gradients_agree(t));
    CLT_TRY(run(t, kind));
    t->phase = CLT_PHASE_REDUCED;
    t->measured = kind == CLT_PROGRAM_REDUCE;
    return CLT_OK;
}

clt_status clt_trainer_reduce(clt_trainer *t)
{
    return reduce(t, CLT_PROGRAM_REDUCE, "clt_trainer_reduce");
}

clt_status clt_trainer_reduced(clt_trainer *t)
{
    if (t->exchange.wire.dtype != CLT_F32)
        return clt_fail(CLT_UNSUPPORTED,
                        "with wire %s the trainer reduces gradients itself: call "
                        "clt_trainer_reduce, or choose wire f32",
                        clt_dtype_name(t->exchange.wire.dtype));
    return reduce(t, CLT_PROGRAM_REDUCED, "clt_trainer_reduced");
}

clt_status clt_trainer_apply(clt_trainer *t, struct _cl_event **event)
{
    CLT_TRY(clt_step_check_event(t, event));
    CLT_TRY(need_phase(t, CLT_PHASE_REDUCED, "clt_trainer_apply", "clt_trainer_reduce"));
    if (!t->measured)
        CLT_TRY(clt_gradients_agree(t));
    CLT_TRY(run(t, t->measured ? CLT_PROGRAM_APPLY : CLT_PROGRAM_APPLY_GIVEN));
    return end_step(t, event);
}
