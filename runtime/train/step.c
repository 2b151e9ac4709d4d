/* Running a step, whole or in parts. The part functions run on the device threads. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/planner/balance.h"
#include "train/reduce.h"
#include "train/segments.h"
#include "train/states.h"
#include <cltrain/data.h>

static clt_session_device *session_device(const clt_trainer *t, int d)
{
    return &t->session->devices[d];
}

static int64_t share_of(const clt_trainer *t, int d)
{
    return t->offsets[d + 1] - t->offsets[d];
}

int clt_step_micros(const clt_trainer *t, int64_t share)
{
    const int64_t needed = (share + t->per_device - 1) / t->per_device;
    const int64_t micros = needed > t->options.accumulate ? needed : t->options.accumulate;
    return (int)(share < micros ? share : micros);
}

int64_t clt_step_micro_begin(const clt_trainer *t, int64_t share, int micros, int micro)
{
    const int64_t quantum = t->options.quantum, each = (share + micros - 1) / micros;
    const int64_t whole = (each + quantum - 1) / quantum * quantum;
    if (quantum > 1 && whole <= t->per_device && whole * (micros - 1) < share)
        return micro < micros ? micro * whole : share;
    return share * micro / micros;
}

static int micros_of(const clt_trainer *t, int d)
{
    return clt_step_micros(t, share_of(t, d));
}

int clt_step_rounds(const clt_trainer *t, int d)
{
    return t->rounds ? t->rounds : micros_of(t, d);
}

clt_part clt_step_part(const clt_trainer *t, int d, int micro)
{
    const int64_t share = share_of(t, d);
    const int micros = micros_of(t, d);
    if (micro >= micros)
        return (clt_part){t->offsets[d + 1], 0, t->offsets[d], micro};
    const int64_t begin = clt_step_micro_begin(t, share, micros, micro),
                  end = clt_step_micro_begin(t, share, micros, micro + 1);
    return (clt_part){t->offsets[d] + begin, end - begin, t->offsets[d], micro};
}

/* In f32 each further micro-batch has its gradients apart, to be added to the first one's; those in
 * 16 bits are added to a sum in f32. */
static clt_run run_of(const clt_trainer *t, int d, int micro, bool accumulate)
{
    const clt_replica *replica = &t->store->replicas[d];
    const bool apart = accumulate && micro && t->options.precision == CLT_F32;
    clt_run run = {.seed = t->options.seed,
                   .step = (uint32_t)t->steps,
                   .inputs = session_device(t, d)->views,
                   .gradients = apart ? replica->micro_gradients
                                      : clt_replica_gradients(replica, t->options.precision),
                   .results = clt_session_results(t->session, d, t->entry, micro)};
    const clt_part part = clt_step_part(t, d, micro);
    run.count = part.count;
    run.sample = t->batch->first + part.begin;
    return run;
}

/* --- parts ----------------------------------------------------------------------------------- */

/* The loss scale is the device's: what it is in this step may not be known here yet. */
static clt_status known_upstreams(clt_trainer *t, int d)
{
    clt_session_device *sd = session_device(t, d);
    if (t->options.precision != CLT_F16)
        return clt_session_upstream(t->session, d, t->loss_weights);
    for (int l = 0; l < t->session->n_losses; l++)
        CLT_TRY(clt_update_scale_upstream(
            t->devices[d].update, sd->upstream, l,
            t->loss_weights[l] > 0 ? t->session->coefficients[l] / t->loss_weights[l] : 0));
    return CLT_OK;
}

static clt_status begin_micro(clt_trainer *t, int d, int micro)
{
    /* First of all: the inputs may be what the events announce. */
    if (micro == 0)
        CLT_TRY(clt_enqueue_wait(session_device(t, d)->device, t->batch->n_wait, t->batch->wait));
    if (t->options.poison)
        CLT_TRY(clt_arena_poison(&t->store->arenas[d]));
    const clt_part part = clt_step_part(t, d, micro);
    CLT_TRY(clt_session_feed(t->session, d, t->batch, part, (int)(t->steps & 1)));
    if (t->weights_known)
        CLT_TRY(known_upstreams(t, d));
    return CLT_OK;
}

/* The weights of the losses stay on the device: one device, one micro-batch. */
static clt_status device_upstreams(clt_trainer *t, int d, const clt_run *run)
{
    clt_session_device *sd = session_device(t, d);
    const clt_graph *graph = sd->plan->graph;
    for (int l = 0; l < graph->n_losses; l++) {
        clt_view weight;
        CLT_TRY(clt_exec_locate(sd->exec, run, graph->losses[l].weight, &weight));
        CLT_TRY(clt_update_upstream(t->devices[d].update, weight, sd->upstream, l,
                                    graph->losses[l].coefficient));
        sd->known[l] = NAN;
    }
    return CLT_OK;
}

static clt_status forward_micro(clt_trainer *t, int d, int micro)
{
    const clt_run run = run_of(t, d, micro, true);
    CLT_TRY(begin_micro(t, d, micro));
    CLT_TRY(clt_segments_forward(t, d, &run));
    CLT_TRY(clt_states_add(t, d, micro, &run));
    return run.count ? clt_session_fetch(t->session, d, t->batch, clt_step_part(t, d, micro), &run)
                     : CLT_OK;
}

/* Parameters that no loss of this graph depends on have no gradient, but what another graph on the
 * same store has left in their place. */
static clt_status clear_unwritten(clt_trainer *t, int d, const clt_run *run)
{
    const clt_session_device *sd = session_device(t, d);
    const clt_plan *plan = sd->plan;
    const int64_t size = clt_dtype_size(t->options.precision);
    for (int s = 0; s < plan->buckets.n_slots; s++) {
        const clt_slot *slot = &plan->buckets.slots[s];
        if (slot->state || plan->gradients[s])
            continue;
        const clt_view place = {run->gradients[slot->bucket],
                                slot->offset / (int64_t)sizeof(float) * size};
        CLT_TRY(clt_enqueue_zeros(sd->device, place,
                                  clt_slot_padded(slot) / (int64_t)sizeof(float) * size));
    }
    return CLT_OK;
}

/* Backward of a micro-batch; starts a bucket's reduction when its last gradient is enqueued. What
 * is computed without samples is no gradient. */
static clt_status backward_micro(clt_trainer *t, int d, int micro, bool reduce)
{
    const clt_run run = run_of(t, d, micro, true);
    if (!t->weights_known)
        CLT_TRY(device_upstreams(t, d, &run));
    if (run.count)
        CLT_TRY(clt_session_feed_given(t->session, d, t->given, t->n_given,
                                       clt_step_part(t, d, micro), (int)(t->steps & 1)));
    CLT_TRY(clear_unwritten(t, d, &run));
    CLT_TRY(clt_segments_backward(t, d, &run, reduce));
    if (!run.count)
        return CLT_OK;
    if (t->options.precision != CLT_F32)
        return clt_step_rounds(t, d) > 1 ? clt_update_sum_half(t->devices[d].update, micro == 0)
                                         : CLT_OK;
    return micro ? clt_update_add_micro(t->devices[d].update) : CLT_OK;
}

/* Without samples: no gradient, but states that do not depend on the batch go on. */
static clt_status idle(clt_trainer *t, int d)
{
    clt_session_device *sd = session_device(t, d);
    const clt_run run = run_of(t, d, 0, false);
    if (!sd->plan->graph->n_assigns)
        return CLT_OK;
    CLT_TRY(clt_session_feed(t->session, d, t->batch, clt_step_part(t, d, 0), (int)(t->steps & 1)));
    CLT_TRY(clt_exec_enqueue(sd->exec, &run, 0, sd->plan->n_forward, 0, NULL));
    return clt_states_add(t, d, 0, &run);
}

/* What all of forward has made. */
static clt_status reduce_forward(clt_trainer *t, int d)
{
    CLT_TRY(clt_reduce_results(t, d, micros_of(t, d)));
    return clt_states_reduce(t, d);
}

static clt_status reduce_buckets(clt_trainer *t, int d)
{
    const clt_plan *plan = session_device(t, d)->plan;
    for (int r = 0; r < plan->n_ready; r++)
        CLT_TRY(clt_reduce_start(t, d, plan->ready[r]));
    return CLT_OK;
}

/* `reduce`: results, means of states and buckets begin to be added up as they become ready. */
static clt_status gradients(clt_trainer *t, int d, bool reduce)
{
    const int rounds = clt_step_rounds(t, d);
    if (!rounds)
        CLT_TRY(idle(t, d));
    if (!micros_of(t, d))
        CLT_TRY(clt_update_zero(t->devices[d].update));
    if (!rounds)
        CLT_TRY(reduce ? reduce_forward(t, d) : CLT_OK);
    for (int m = 0; m < rounds; m++) {
        CLT_TRY(forward_micro(t, d, m));
        if (reduce && m == rounds - 1) /* before the first bucket */
            CLT_TRY(reduce_forward(t, d));
        CLT_TRY(backward_micro(t, d, m, reduce && rounds == 1));
    }
    if (rounds > 1 && micros_of(t, d) && t->options.precision != CLT_F32)
        CLT_TRY(clt_update_round_sum(t->devices[d].update));
    return reduce && rounds != 1 ? reduce_buckets(t, d) : CLT_OK;
}

static clt_status commit(clt_trainer *t, int d)
{
    clt_session_device *sd = session_device(t, d);
    clt_trainer_device *td = &t->devices[d];
    const clt_run run = run_of(t, d, 0, false);
    td->begun = t->steps + 1;
    if (!t->streams || t->phase == 3)
        CLT_TRY(clt_update_apply(td->update, t->records[t->entry].lr, t->steps, t->owners,
                                 t->first + d));
    CLT_TRY(clt_states_assign(t, d, &run));
    CLT_TRY(clt_owners_ship(t, d));
    CLT_TRY(clt_enqueue_download(sd->device, (clt_view){clt_update_word_buffer(td->update), 0},
                                 td->word + CLT_WORD * t->entry, CLT_WORD * sizeof *td->word,
                                 NULL));
    CLT_TRY(clt_session_read(t->session, d, t->entry, micros_of(t, d)));
    CLT_TRY(clt_device_flush(sd->device));
    if (t->total > 1) /* known without waiting */
        CLT_TRY(clt_update_scaling(td->update, &td->scaling));
    td->done = t->steps + 1;
    return CLT_OK;
}

/* Known before anything of the step is applied, and alike on all devices and ranks. */
static bool drops(const clt_trainer *t, int d)
{
    return t->devices[d].votes & CLT_VOTE_DROP;
}

static clt_status word(clt_trainer *t, int d)
{
    bool finite;
    double squares;
    if (t->total == 1)
        return clt_update_word(t->devices[d].update);
    CLT_TRY(clt_reduce_complete(t, d, &finite, &squares));
    if (drops(t, d))
        return CLT_OK;
    return clt_update_set_word(t->devices[d].update, squares, finite);
}

static clt_status whole_step(clt_trainer *t, int d)
{
    const bool reduce = t->total > 1, apart = reduce && clt_balance_apart(t, d);
    CLT_TRY(clt_balance_begin(t, d));
    CLT_TRY(gradients(t, d, reduce && !apart));
    CLT_TRY(clt_balance_end(t, d));
    if (apart) {
        CLT_TRY(reduce_forward(t, d));
        CLT_TRY(reduce_buckets(t, d));
    }
    CLT_TRY(clt_reduce_results_end(t, d));
    CLT_TRY(clt_states_reduce_end(t, d));
    CLT_TRY(word(t, d));
    if (drops(t, d))
        return clt_device_flush(session_device(t, d)->device);
    CLT_TRY(commit(t, d));
    return clt_verify(t, d);
}

/* A device that fails releases those that wait for it. */
static clt_status guarded(clt_trainer *t, int d, clt_status status)
{
    if (status == CLT_OK)
        return CLT_OK;
    clt_lost_note(t, d, status);
    clt_fail_prefix(status, "step %lld: ", (long long)t->steps + 1);
    if (t->collectives.stop && status != CLT_ABORTED)
        t->collectives.stop(t->collectives.self, clt_lost_reason(t, status), clt_error_message());
    return status;
}

static clt_status step_part(void *arg, int d)
{
    return guarded(arg, d, whole_step(arg, d));
}

static clt_status forward_part(void *arg, int d)
{
    clt_trainer *t = arg;
    clt_status status = clt_step_rounds(t, d) ? forward_micro(t, d, 0) : idle(t, d);
    if (status == CLT_OK)
        status = clt_reduce_results(t, d, micros_of(t, d));
    if (status == CLT_OK)
        status = clt_reduce_results_end(t, d);
    if (status == CLT_OK)
        status = clt_session_read(t->session, d, t->entry, micros_of(t, d));
    if (status == CLT_OK)
        status = clt_device_flush(session_device(t, d)->device);
    return guarded(t, d, status);
}

static clt_status backward_part(void *arg, int d)
{
    clt_trainer *t = arg;
    clt_status status = CLT_OK;
    if (t->weights_known)
        status = known_upstreams(t, d);
    if (status == CLT_OK && clt_step_rounds(t, d))
        status = backward_micro(t, d, 0, false);
    if (status == CLT_OK && !micros_of(t, d))
        status = clt_update_zero(t->devices[d].update);
    return guarded(t, d, status);
}

static clt_status reduce_part(void *arg, int d)
{
    clt_trainer *t = arg;
    clt_status status = clt_states_reduce(t, d);
    if (status == CLT_OK && t->total > 1)
        status = reduce_buckets(t, d);
    if (status == CLT_OK)
        status = clt_states_reduce_end(t, d);
    if (status == CLT_OK)
        status = word(t, d);
    return guarded(t, d, status);
}

static clt_status apply_part(void *arg, int d)
{
    const clt_status status = commit(arg, d);
    return guarded(arg, d, status == CLT_OK ? clt_verify(arg, d) : status);
}

/* --- one step -------------------------------------------------------------------------------- */

clt_status clt_step_run(clt_trainer *t, clt_crew_fn part)
{
    return clt_crew_run(t->crew, part, t);
}

static clt_status check_feeds(const clt_trainer *t, const clt_session *session,
                              const clt_feed *feeds, int n_feeds, bool given)
{
    for (int d = 0; d < t->n_devices; d++)
        if (share_of(t, d))
            CLT_TRY(clt_session_check_feeds(session, d, t->offsets, feeds, n_feeds, given));
    return CLT_OK;
}

/* By the weights of this rank's devices; equally, where they have none. */
static clt_status split_own(const clt_trainer *t, int64_t count)
{
    const double *weights = t->shares ? t->shares + t->first : NULL;
    double sum = 0;
    for (int d = 0; weights && d < t->n_devices; d++)
        sum += weights[d];
    return clt_split(count, t->n_devices, sum > 0 ? weights : NULL, t->options.quantum, t->offsets);
}

clt_status clt_step_prepare(clt_trainer *t, clt_session *session, const clt_step_batch *batch)
{
    CLT_TRY(CLT_CHECK_STRUCT(batch, clt_step_batch));
    if (batch->count < 0 || batch->count > t->options.batch || batch->total > t->options.batch ||
        (batch->total > 0 && batch->count > batch->total))
        return clt_fail(
            CLT_INVALID_ARGUMENT, "a batch of %lld of %lld; the trainer was made for 0 to %lld",
            (long long)batch->count, (long long)(batch->total > 0 ? batch->total : batch->count),
            (long long)t->options.batch);
    if (batch->n_wait && t->n_devices > 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a wait list is for one device, not %d",
                        t->n_devices);
    if (batch->offsets) {
        memcpy(t->offsets, batch->offsets, ((size_t)t->n_devices + 1) * sizeof *t->offsets);
        if (t->offsets[0] != 0 || t->offsets[t->n_devices] != batch->count)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "the batch's offsets do not cover its %lld "
                            "samples",
                            (long long)batch->count);
    } else {
        CLT_TRY(split_own(t, batch->count));
    }
    for (int d = 0; d < t->n_devices; d++)
        if (share_of(t, d) < 0 || share_of(t, d) > t->per_device * t->max_micros)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "device %d gets %lld samples; the plan holds %lld", d,
                            (long long)share_of(t, d), (long long)(t->per_device * t->max_micros));
    CLT_TRY(clt_session_check_fetches(session, batch, t->offsets));
    CLT_TRY(check_feeds(t, session, batch->feeds, batch->n_feeds, false));
    t->current = *batch;
    t->batch = &t->current;
    t->given = NULL;
    t->n_given = 0;
    t->session = session;
    t->weights_known = false;
    t->counted = false;
    t->rounds = 0;
    return CLT_OK;
}

static clt_status forward_alone(clt_trainer *t, int d)
{
    for (int m = 0; m < clt_step_rounds(t, d); m++)
        CLT_TRY(forward_micro(t, d, m));
    CLT_TRY(clt_reduce_results(t, d, micros_of(t, d)));
    CLT_TRY(clt_reduce_results_end(t, d));
    CLT_TRY(clt_session_read(t->session, d, t->entry, micros_of(t, d)));
    return clt_device_flush(session_device(t, d)->device);
}

static clt_status forward_alone_part(void *arg, int d)
{
    return guarded(arg, d, forward_alone(arg, d));
}

/* Only the labels tell the weights, and they are on several devices or ranks, or in several
 * micro-batches: forward runs first. */
static clt_status weights_from_forward(clt_trainer *t)
{
    memset(t->sums, 0, (size_t)t->session->n_means * sizeof *t->sums);
    memset(t->weights, 0, (size_t)t->session->n_means * sizeof *t->weights);
    CLT_TRY(clt_step_run(t, forward_alone_part));
    const clt_status status = clt_session_collect(t->session, t->entry, t->sums, t->weights);
    CLT_TRY(clt_lost_note(t, t->session->failed, status));
    memcpy(t->loss_weights, t->weights, (size_t)t->session->n_losses * sizeof *t->weights);
    t->weights_known = true;
    return CLT_OK;
}

static clt_status find_weights(clt_trainer *t)
{
    const double *given = t->current.loss_weights;
    t->weights_known =
        given || clt_session_static_weights(t->session, t->current.total, t->loss_weights);
    if (given)
        memcpy(t->loss_weights, given, (size_t)t->session->n_losses * sizeof *given);
    if (t->weights_known || (t->total == 1 && t->max_micros == 1))
        return CLT_OK;
    return weights_from_forward(t);
}

bool clt_step_stopped(const clt_trainer *t, int entry)
{
    const float *word = t->devices[0].word + CLT_WORD * entry;
    return t->options.guard &&
           (t->options.precision == CLT_F16 ? word[CLT_WORD_STOPPED] != 0 : word[CLT_WORD_OK] == 0);
}

/* At most two steps are queued: waits for the one before the last, and looks at its word. */
static clt_status throttle(clt_trainer *t)
{
    for (int back = 2; back <= CLT_RESULT_RING; back++) {
        const int64_t step = t->steps - back;
        if (step < 0 || t->records[step % CLT_RESULT_RING].step != step)
            continue;
        for (int d = 0; d < t->n_devices; d++)
            CLT_TRY(clt_lost_note(t, d,
                                  clt_session_wait(t->training, d, (int)(step % CLT_RESULT_RING))));
        if (clt_step_stopped(t, (int)(step % CLT_RESULT_RING)))
            return clt_trainer_diagnose(t, step);
        break;
    }
    return CLT_OK;
}

static clt_status begin_step(clt_trainer *t, const clt_step_batch *batch, bool whole)
{
    /* Parts of a step that was not applied are forgotten. */
    t->phase = 0;
    CLT_TRY(throttle(t));
    CLT_TRY(clt_verify_start(t));
    clt_session_forget_given(t->training);
    CLT_TRY(clt_step_prepare(t, t->training, batch));
    if (whole) /* all that backward needs comes with the batch */
        CLT_TRY(check_feeds(t, t->training, batch->feeds, batch->n_feeds, true));
    t->entry = (int)(t->steps % CLT_RESULT_RING);
    clt_heartbeat_step(t->beat, t->steps + 1);
    CLT_TRY(clt_reduce_counts(t));
    CLT_TRY(clt_states_check(t));
    CLT_TRY(clt_segments_rounds(t));
    t->records[t->entry] =
        (clt_step_record){.step = t->steps,
                          .samples = t->current.total,
                          .lr = clt_schedule_rate(&t->options.schedule, t->options.lr, t->steps)};
    for (int d = 0; d < t->n_devices; d++) {
        session_device(t, d)->shares[t->entry] = share_of(t, d);
        session_device(t, d)->firsts[t->entry] = t->current.first + t->offsets[d];
    }
    return find_weights(t);
}

clt_status clt_step_event(const clt_session *session, int entry, struct _cl_event **event)
{
    if (!event)
        return CLT_OK;
    return clt_event_share(session->devices[0].device, session->devices[0].read[entry], event);
}

clt_status clt_step_check_event(const clt_trainer *t, struct _cl_event *const *event)
{
    return !event || t->n_devices == 1
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT, "several devices have no common event");
}

static clt_status end_step(clt_trainer *t, struct _cl_event **event)
{
    t->phase = 0;
    t->votes = t->devices[0].votes;
    if (t->votes & CLT_VOTE_DROP) {
        t->records[t->entry].step = -1;
        return clt_fail(CLT_ABORTED, "step %lld: a rank could not read its samples",
                        (long long)t->steps + 1);
    }
    t->steps++;
    return clt_step_event(t->training, t->entry, event);
}

clt_status clt_trainer_step(clt_trainer *t, const clt_step_batch *batch, struct _cl_event **event)
{
    CLT_TRY(clt_step_check_event(t, event));
    CLT_TRY(begin_step(t, batch, true));
    CLT_TRY(clt_step_run(t, step_part));
    return end_step(t, event);
}

static clt_status need_phase(const clt_trainer *t, int phase, const char *call, const char *before)
{
    return t->phase >= phase ? CLT_OK : clt_fail(CLT_STATE, "%s needs %s before it", call, before);
}

clt_status clt_trainer_forward(clt_trainer *t, const clt_step_batch *batch)
{
    if (t->max_micros > 1)
        return clt_fail(CLT_STATE,
                        "the parts of a step work without micro-batches; this trainer "
                        "was made with accumulate %d%s",
                        t->options.accumulate, t->options.rebalance ? " and rebalance" : "");
    CLT_TRY(begin_step(t, batch, false));
    CLT_TRY(clt_step_run(t, forward_part));
    t->phase = 1;
    return CLT_OK;
}

clt_status clt_trainer_backward(clt_trainer *t)
{
    return clt_trainer_backward_from(t, NULL, 0);
}

clt_status clt_trainer_backward_from(clt_trainer *t, const clt_feed *gradients, int n_gradients)
{
    CLT_TRY(need_phase(t, 1, "clt_trainer_backward", "clt_trainer_forward"));
    CLT_TRY(check_feeds(t, t->training, gradients, n_gradients, true));
    t->given = gradients;
    t->n_given = n_gradients;
    CLT_TRY(clt_step_run(t, backward_part));
    t->phase = 2;
    return CLT_OK;
}

clt_status clt_trainer_reduce(clt_trainer *t)
{
    CLT_TRY(need_phase(t, 2, "clt_trainer_reduce", "clt_trainer_backward"));
    if (t->phase > 2)
        return clt_fail(CLT_STATE, "the gradients are reduced already: clt_trainer_apply comes "
                                   "next, or another forward or backward");
    CLT_TRY(clt_step_run(t, reduce_part));
    t->phase = 3;
    return CLT_OK;
}

clt_status clt_trainer_apply(clt_trainer *t, struct _cl_event **event)
{
    CLT_TRY(clt_step_check_event(t, event));
    CLT_TRY(need_phase(t, 3, "clt_trainer_apply", "clt_trainer_reduce"));
    CLT_TRY(clt_step_run(t, apply_part));
    return end_step(t, event);
}
