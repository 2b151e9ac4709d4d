/*
 * Holder 0: it deals batches, decides on gradients, gives orders to the other holders, and collects
 * snapshots for the keeper. One thread, which never waits for a worker.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/vec.h"
#include "train/async/coordinator.h"

enum {
    POLL_MS = 100,
    MOST_TRIES = 4,        /* of a batch whose gradient is not finite, in f32 and bf16 */
    MOST_TRIES_SCALED = 64 /* in f16, where each try halves the loss scale */
};

/* A worker whose gradient takes so many times options.patience is stuck. */
static const double STUCK = 5;

/* Seconds without a request that the end waits for workers to ask once more, so that they learn of
 * it. */
static const double FAREWELL = 5;

/* --- dealing -------------------------------------------------------------------------------- */

/* A worker asks for the next batch while it computes one. */
enum { MOST_LEASES = 2, MOST_WAITING = 4 /* snapshots, before no more batches are dealt */ };

/* Answers a request that came before: its answer was lost, and is sent again as it was. One before
 * it needs no answer any more. */
static clt_status again(clt_coordinator *c, const clt_packet *p, const clt_worker_record *w,
                        const clt_async_message *m, const clt_async_message *answer)
{
    clt_events_add(c->h->events, "again",
                   "\"who\":\"%016" PRIx64 "\",\"worker\":%d,\"what\":\"%s\",\"sequence\":%lld",
                   w->who, w->number, m->kind == CLT_MSG_ASK ? "ask" : "push",
                   (long long)m->sequence);
    return m->sequence == answer->sequence ? clt_holder_send(c->h->socket, &p->peer, answer)
                                           : CLT_OK;
}

static clt_status ask(clt_coordinator *c, const clt_packet *p, const clt_async_message *m)
{
    clt_worker_record *w = clt_coordinator_worker(c, m->who);
    clt_dealt dealt = CLT_DEAL_END;
    clt_deal_lease lease = {0};
    if (!w)
        return clt_coordinator_refuse_lost(c, &p->peer, m->who);
    if (m->sequence <= w->deal.sequence)
        return again(c, p, w, m, &w->deal);
    const int has = clt_deal_count(&c->deal, m->who);
    if (!has)
        w->advanced = clt_clock();
    if (!c->ending && (has >= MOST_LEASES || clt_coordinator_waiting(c) >= MOST_WAITING))
        dealt = CLT_DEAL_WAIT;
    else if (!c->ending)
        CLT_TRY(clt_deal_next(&c->deal, m->who, &dealt, &lease));
    if (dealt == CLT_DEALT)
        clt_events_add(c->h->events, "deal",
                       "\"who\":\"%016" PRIx64 "\",\"worker\":%d,\"lease\":%lld,\"epoch\":%lld,"
                       "\"offset\":%lld,\"count\":%lld,\"tries\":%d",
                       m->who, w->number, (long long)lease.lease, (long long)lease.batch.epoch,
                       (long long)lease.batch.offset, (long long)lease.batch.count,
                       lease.batch.tries);
    w->deal = (clt_async_message){.kind = CLT_MSG_DEAL,
                                  .number = (int32_t)dealt,
                                  .who = m->who,
                                  .sequence = m->sequence,
                                  .lease = lease.lease,
                                  .epoch = lease.batch.epoch,
                                  .offset = lease.batch.offset,
                                  .count = lease.batch.count};
    return clt_holder_send(c->h->socket, &p->peer, &w->deal);
}

/* --- deciding ------------------------------------------------------------------------------- */

static clt_status report_step(clt_coordinator *c, const clt_worker_record *w,
                              const clt_async_message *m, const clt_deal_batch *batch,
                              int64_t staleness)
{
    const double at = clt_clock();
    const clt_trainer_options *o = c->h->trainer;
    clt_epoch_sum *sum = NULL;
    for (int i = 0; i < c->n_sums; i++)
        if (c->sums[i].epoch == batch->epoch)
            sum = &c->sums[i];
    if (!sum) {
        CLT_TRY(CLT_PUSH(c->sums, c->n_sums, c->sums_room, (clt_epoch_sum){batch->epoch, 0, 0}));
        sum = &c->sums[c->n_sums - 1];
    }
    sum->loss += m->loss * (double)batch->count;
    sum->samples += batch->count;
    const clt_progress progress = {.step = c->h->version,
                                   .epoch = batch->epoch + 1,
                                   .samples = batch->count,
                                   .total_steps = c->deal.total,
                                   .loss = m->loss,
                                   .norm = sqrt(m->squares),
                                   .lr = clt_schedule_rate(&o->schedule, o->lr, c->h->version - 1),
                                   .loss_scale = 1,
                                   .seconds = at - c->keeper.began,
                                   .step_seconds = at - c->reported,
                                   .test_loss = NAN,
                                   .test_metric = NAN,
                                   .val_loss = NAN,
                                   .val_metric = NAN,
                                   .average_test_loss = NAN,
                                   .average_val_loss = NAN,
                                   .asynchronous = 1,
                                   .worker = w->number,
                                   .staleness = staleness,
                                   .discarded = c->discarded};
    c->reported = at;
    if (c->keeper.fit->on_step) {
        pthread_mutex_lock(&c->keeper.report);
        c->keeper.fit->on_step(c->keeper.fit->user, &progress);
        pthread_mutex_unlock(&c->keeper.report);
    }
    return CLT_OK;
}

static clt_status after_apply(clt_coordinator *c, int64_t epoch)
{
    const clt_fit_options *fit = c->keeper.fit;
    const bool done = c->deal.applied >= c->deal.total;
    const bool complete = clt_deal_complete(&c->deal, epoch);
    const bool save = !done && clt_coordinator_saves(c, complete);
    if (complete)
        clt_events_add(c->h->events, "epoch", "\"epoch\":%lld,\"version\":%lld,\"discarded\":%lld",
                       (long long)epoch, (long long)c->h->version, (long long)c->discarded);
    if (complete || save)
        CLT_TRY(clt_coordinator_begin_snapshot(c, complete ? epoch : -1, save, false));
    if (done) {
        CLT_TRY(clt_coordinator_begin_snapshot(c, -1, fit->checkpoint_dir != NULL, true));
        c->ending = true;
    }
    return CLT_OK;
}

/* Takes the states that follow the gradient: the last gradient's values; whole numbers grow by what
 * the worker added to those that it pulled. The worker sends them so. */
static void take_states(clt_holder *h, const uint8_t *data)
{
    for (int s = 0; s < h->layout.n_states; s++) {
        const clt_async_tensor *t = &h->layout.states[s];
        float *own = h->states + t->begin;
        if (t->dtype == CLT_F32) {
            memcpy(own, data, (size_t)t->elements * sizeof *own);
        } else {
            for (int64_t i = 0; i < t->elements; i++) {
                uint32_t sum, more;
                memcpy(&sum, own + i, sizeof sum);
                memcpy(&more, data + i * (int64_t)sizeof more, sizeof more);
                sum += more;
                memcpy(own + i, &sum, sizeof sum);
            }
        }
        data += (size_t)t->elements * sizeof *own;
    }
}

static clt_status apply(clt_coordinator *c, const clt_packet *p, const clt_async_message *m)
{
    clt_holder *h = c->h;
    const uint8_t *rest;
    size_t bytes;
    CLT_TRY(clt_holder_read_gradient(h, p, &rest, &bytes));
    if (bytes != (size_t)h->layout.state_elements * sizeof(float) || !isfinite(m->squares) ||
        m->squares < 0)
        return clt_fail(CLT_FORMAT, "a gradient has states of %zu bytes, and the square %g", bytes,
                        m->squares);
    const clt_status status = clt_slice_apply(h->slice, h->range, m->squares, h->version);
    if (status != CLT_OK) {
        c->fatal = status;
        return status;
    }
    if (h->states)
        take_states(h, rest);
    h->version++;
    clt_async_message apply_order = {.kind = CLT_MSG_APPLY,
                                     .who = m->who,
                                     .lease = m->sequence,
                                     .version = h->version,
                                     .squares = m->squares};
    return clt_coordinator_order(c, &apply_order);
}

/* A gradient that is not finite is computed again, as it may come from old parameters. If it stays
 * so, the run ends. */
static clt_status not_finite(clt_coordinator *c, const clt_async_message *m,
                             const clt_deal_batch *batch)
{
    const int most = c->keeper.whole->options.precision == CLT_F16 ? MOST_TRIES_SCALED : MOST_TRIES;
    c->nonfinite++;
    if (batch->nonfinite + 1 < most || !c->h->trainer->guard) {
        clt_holder_note(c->h,
                        "the gradient of samples %lld to %lld of epoch %lld is not finite "
                        "and is discarded; the samples are dealt again",
                        (long long)batch->offset, (long long)(batch->offset + batch->count - 1),
                        (long long)batch->epoch + 1);
        return CLT_OK;
    }
    c->fatal = CLT_NONFINITE;
    return clt_fail(CLT_NONFINITE,
                    "the gradient of samples %lld to %lld of epoch %lld was not finite %d times: "
                    "%s",
                    (long long)batch->offset, (long long)(batch->offset + batch->count - 1),
                    (long long)batch->epoch + 1, batch->nonfinite + 1, m->text);
}

/* After the snapshot of a stop nothing is applied, so that the last step is that of the checkpoint.
 */
static clt_async_verdict judge(const clt_coordinator *c, const clt_async_message *m,
                               const clt_deal_lease *lease)
{
    if (!lease || c->stopped || m->version > c->h->version)
        return CLT_PUSH_UNKNOWN;
    if (!m->number)
        return CLT_PUSH_NONFINITE;
    return c->h->version - m->version > c->h->options->staleness ? CLT_PUSH_DISCARDED
                                                                 : CLT_PUSH_APPLIED;
}

/* Ends a batch's deal as the verdict says. */
static clt_status settle(clt_coordinator *c, const clt_packet *p, const clt_async_message *m,
                         const clt_deal_lease *lease, clt_async_verdict verdict)
{
    if (verdict == CLT_PUSH_APPLIED) {
        CLT_TRY(apply(c, p, m));
        clt_deal_apply(&c->deal, lease->lease);
        return CLT_OK;
    }
    clt_async_message drop = {.kind = CLT_MSG_DROP, .who = m->who, .lease = m->sequence};
    c->discarded += verdict == CLT_PUSH_DISCARDED;
    CLT_TRY(clt_coordinator_order(c, &drop));
    if (verdict == CLT_PUSH_NONFINITE)
        CLT_TRY(not_finite(c, m, &lease->batch));
    if (lease->lease)
        clt_deal_give_back(&c->deal, lease->lease, verdict == CLT_PUSH_NONFINITE);
    return CLT_OK;
}

/* A worker whose gradients have no form is dropped: its batches are dealt to others. */
static clt_status dismiss(clt_coordinator *c, const clt_packet *p, const clt_worker_record *w)
{
    clt_holder_drop(c->h, "a gradient");
    CLT_TRY(clt_coordinator_lose(c, (int)(w - c->workers), "malformed gradient"));
    return clt_coordinator_refuse(c, &p->peer, "its gradient has not the form that the model has");
}

static clt_status push(clt_coordinator *c, const clt_packet *p, const clt_async_message *m)
{
    clt_worker_record *w = clt_coordinator_worker(c, m->who);
    const clt_deal_lease *out = clt_deal_find(&c->deal, m->who, m->lease);
    if (!w)
        return clt_coordinator_refuse_lost(c, &p->peer, m->who);
    if (m->sequence <= w->decided.sequence)
        return again(c, p, w, m, &w->decided);
    const clt_deal_lease lease = out ? *out : (clt_deal_lease){0};
    const int64_t before = c->h->version;
    const clt_async_verdict verdict = judge(c, m, out);
    const clt_status settled = settle(c, p, m, &lease, verdict);
    if (settled == CLT_FORMAT && !c->fatal)
        return dismiss(c, p, w);
    CLT_TRY(settled);
    w->advanced = clt_clock();
    const int64_t staleness = before > m->version ? before - m->version : 0;
    clt_events_add(c->h->events, "push",
                   "\"who\":\"%016" PRIx64 "\",\"worker\":%d,\"sequence\":%lld,\"lease\":%lld,"
                   "\"epoch\":%lld,\"offset\":%lld,\"count\":%lld,\"pulled\":%lld,\"version\":%lld,"
                   "\"staleness\":%lld,\"bytes\":%zu,\"verdict\":\"%s\"",
                   m->who, w->number, (long long)m->sequence, (long long)m->lease,
                   (long long)lease.batch.epoch, (long long)lease.batch.offset,
                   (long long)lease.batch.count, (long long)m->version, (long long)before,
                   (long long)staleness, p->payload_bytes, clt_async_verdict_name(verdict));
    w->decided = (clt_async_message){.kind = CLT_MSG_DECIDED,
                                     .number = (int32_t)verdict,
                                     .who = m->who,
                                     .sequence = m->sequence,
                                     .version = c->h->version,
                                     .staleness = staleness};
    CLT_TRY(clt_holder_send(c->h->socket, &p->peer, &w->decided));
    if (verdict != CLT_PUSH_APPLIED)
        return CLT_OK;
    CLT_TRY(report_step(c, w, m, &lease.batch, staleness));
    return after_apply(c, lease.batch.epoch);
}

/* --- the loop ------------------------------------------------------------------------------- */

static clt_status handle(clt_coordinator *c, const clt_packet *p, const clt_async_message *m)
{
    clt_worker_record *w = clt_coordinator_worker(c, m->who);
    if (w)
        w->heard = clt_clock();
    if (w && m->kind != CLT_MSG_BEAT)
        c->farewell = clt_clock();
    switch (m->kind) {
    case CLT_MSG_HELLO:
        return clt_coordinator_hello(c, p, m);
    case CLT_MSG_ASK:
        return ask(c, p, m);
    case CLT_MSG_PULL:
        return clt_holder_pull(c->h, p, m);
    case CLT_MSG_PUSH:
        return push(c, p, m);
    case CLT_MSG_BYE:
        return clt_coordinator_bye(c, m);
    case CLT_MSG_JOIN:
        return clt_coordinator_join(c, p, m);
    case CLT_MSG_SNAP:
        return clt_coordinator_add_snap(c, p, m);
    case CLT_MSG_BEAT:
        if (!w && m->number > 0 && m->number < c->h->options->holders &&
            clt_peer_is(&c->holders[m->number].peer, &p->peer))
            c->holders[m->number].heard = clt_clock();
        return CLT_OK;
    default:
        return clt_fail(CLT_FORMAT, "a message of kind %d is not for holder 0", (int)m->kind);
    }
}

/* A message that has no proper form harms nobody. What fails here itself ends the run. */
static clt_status serve(clt_coordinator *c, const clt_packet *p)
{
    clt_async_message m;
    clt_status status = clt_async_decode(p->header, p->header_bytes, &m);
    CLT_NEXT(status, handle(c, p, &m));
    if (status == CLT_OK || c->fatal || status != CLT_FORMAT)
        return status;
    clt_holder_drop(c->h, "a message");
    return CLT_OK;
}

/* A pause of this process, as after SIGSTOP, is nobody else's silence: what they sent meanwhile has
 * not been read yet. */
static void excuse(clt_coordinator *c, double pause)
{
    for (int i = 0; i < c->n_workers; i++) {
        c->workers[i].heard += pause;
        c->workers[i].advanced += pause;
    }
    for (int i = 1; i < c->h->options->holders; i++)
        c->holders[i].heard += pause;
}

static clt_status check_time(clt_coordinator *c)
{
    const double now = clt_clock(), silence = c->h->options->silence;
    if (now - c->checked > 1)
        excuse(c, now - c->checked - 1);
    c->checked = now;
    if (now - c->h->flushed < 0.5)
        return CLT_OK;
    c->h->flushed = now;
    clt_events_flush(c->h->events);
    for (int i = 0; i < c->n_workers; i++)
        if (now - c->workers[i].heard > silence) {
            CLT_TRY(clt_coordinator_lose(c, i, "silent"));
            i--;
        } else if (now - c->workers[i].advanced > STUCK * c->h->options->patience &&
                   clt_deal_count(&c->deal, c->workers[i].who)) {
            CLT_TRY(clt_coordinator_lose(c, i, "stuck"));
            i--;
        }
    const clt_async_message ping = {.kind = CLT_MSG_PING};
    for (int i = 1; i < c->h->options->holders; i++) {
        const clt_holder_record *r = &c->holders[i];
        if (r->ready)
            CLT_TRY(clt_holder_send(c->h->socket, &r->peer, &ping));
        if (r->ready && now - r->heard > silence)
            return clt_fail(CLT_TIMEOUT,
                            "holder %d at %s has not been heard of for %g s, and its part of the "
                            "parameters is gone",
                            i, r->endpoint, silence);
        if (!r->ready && now - c->keeper.began > c->h->options->patience)
            return clt_fail(CLT_TIMEOUT,
                            "holder %d has not joined within %g s: start it with this one's "
                            "address and secret",
                            i, c->h->options->patience);
    }
    return CLT_OK;
}

static bool wants_stop(const clt_coordinator *c)
{
    const clt_fit_options *f = c->keeper.fit;
    const clt_async_options *o = c->h->options;
    return (f->should_stop && f->should_stop(f->user)) ||
           (o->should_stop && o->should_stop(o->user));
}

/* Whether everybody knows of the end and the keeper has all. */
static bool is_over(clt_coordinator *c)
{
    const bool kept = !clt_coordinator_waiting(c);
    if (!kept)
        c->farewell = clt_clock();
    return kept && (!c->n_workers || clt_clock() - c->farewell > FAREWELL);
}

clt_status clt_coordinator_run(clt_coordinator *c)
{
    while (!c->ending || !is_over(c)) {
        clt_packet packet = {0};
        int which;
        CLT_TRY(check_time(c));
        if (!c->ending && wants_stop(c)) {
            c->ending = c->stopped = true;
            CLT_TRY(
                clt_coordinator_begin_snapshot(c, -1, c->keeper.fit->checkpoint_dir != NULL, true));
        }
        if (clt_keeper_has_failed(&c->keeper))
            return CLT_OK; /* its end tells */
        CLT_TRY(clt_socket_receive(&c->h->socket, 1, POLL_MS, &which, &packet));
        const clt_status status = which == 0 ? serve(c, &packet) : CLT_OK;
        clt_packet_free(&packet);
        CLT_TRY(status);
    }
    return c->stopped ? clt_fail(CLT_STOPPED, "stopped after step %lld", (long long)c->h->version)
                      : CLT_OK;
}
