/* What a worker and the holders exchange for a batch: parameters and states come, a gradient goes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/async/worker.h"

/* --- parameters ----------------------------------------------------------------------------- */

static clt_status write_devices(const clt_async_worker *w, const clt_slot *slot, int64_t from,
                                int64_t count, const float *data)
{
    for (int d = 0; d < w->trainer->store->n_devices; d++) {
        const clt_replica *r = &w->trainer->store->replicas[d];
        CLT_TRY(clt_replica_write(r, r->values[slot->bucket],
                                  slot->offset + from * (int64_t)sizeof *data,
                                  count * (int64_t)sizeof *data, data));
    }
    return CLT_OK;
}

/* Writes what was pulled to the devices: of tables the rows of the batch. */
static clt_status write_parameters(clt_async_worker *w, clt_travels what)
{
    for (int p = 0; p < w->layout.n_parameters; p++) {
        const clt_async_tensor *t = &w->layout.parameters[p];
        const clt_async_rows *rows = &w->rows.of[p];
        const float *data = w->line + t->begin;
        if (!t->width && (t->trained || what == CLT_TRAVELS_FIRST))
            CLT_TRY(write_devices(w, w->slots[p], 0, t->elements, data));
        for (int i = 0; t->width && i < rows->count; i++)
            CLT_TRY(write_devices(w, w->slots[p], rows->rows[i] * t->width, t->width,
                                  data + rows->rows[i] * t->width));
    }
    for (int s = 0; s < w->layout.n_states; s++)
        CLT_TRY(clt_store_set(w->trainer->store, w->layout.states[s].name,
                              w->states + w->layout.states[s].begin,
                              (size_t)w->layout.states[s].elements * sizeof *w->states));
    return CLT_OK;
}

static size_t pulled_bytes(const clt_async_worker *w, int holder, clt_travels what)
{
    const int64_t states = holder ? 0 : w->layout.state_elements;
    return sizeof(float) *
           (size_t)(clt_payload_elements(&w->layout, holder, &w->rows, what) + states);
}

static clt_status send_pull(void *user, int holder)
{
    clt_async_worker *w = user;
    const clt_async_message *m = &w->pull_request;
    clt_rows_write(&w->layout, &w->rows, w->message);
    return clt_wires_request(
        &w->wires, &w->wires.values[holder], holder, m, w->message,
        clt_rows_bytes(&w->layout, &w->rows),
        pulled_bytes(w, holder, m->number ? CLT_TRAVELS_FIRST : CLT_TRAVELS_BATCH));
}

clt_status clt_worker_ask_parameters(clt_async_worker *w, clt_travels what)
{
    w->pull_request = (clt_async_message){.kind = CLT_MSG_PULL,
                                          .number = what == CLT_TRAVELS_FIRST,
                                          .who = w->wires.who,
                                          .sequence = ++w->sequence,
                                          .version = w->decided};
    for (int h = 0; h < w->wires.holders; h++)
        CLT_TRY(send_pull(w, h));
    return CLT_OK;
}

clt_status clt_worker_take_parameters(clt_async_worker *w, clt_travels what, int64_t *version)
{
    for (int h = 0; h < w->wires.holders; h++) {
        clt_answer *a = &w->wires.values[h];
        CLT_TRY(clt_wires_await(&w->wires, a, h, send_pull, w));
        const size_t bytes = pulled_bytes(w, h, what);
        const size_t states = h ? 0 : (size_t)w->layout.state_elements;
        if (a->packet.payload_bytes != bytes)
            return clt_fail(CLT_FORMAT,
                            "worker %d: holder %d sent %zu bytes of parameters instead of %zu",
                            w->options->number, h, a->packet.payload_bytes, bytes);
        if (bytes)
            memcpy(w->message, a->packet.payload, bytes);
        clt_payload_unpack(&w->layout, h, &w->rows, what, w->message, false,
                           w->line + clt_async_cut(&w->layout, h));
        memcpy(w->states, w->message + bytes / sizeof *w->message - states,
               states * sizeof *w->states);
        *version = !h || a->m.version < *version ? a->m.version : *version;
        clt_wires_take(a);
    }
    return write_parameters(w, what);
}

/* --- the gradient --------------------------------------------------------------------------- */

static clt_status read_gradient(clt_async_worker *w)
{
    for (int p = 0; p < w->layout.n_parameters; p++) {
        const clt_async_tensor *t = &w->layout.parameters[p];
        if (t->trained)
            CLT_TRY(clt_trainer_gradient(w->trainer, 0, t->name, w->line + t->begin,
                                         (size_t)t->elements * sizeof *w->line));
    }
    return CLT_OK;
}

/* Writes the new states behind a gradient; of whole numbers the growth. */
static clt_status add_states(clt_async_worker *w, float *to)
{
    for (int s = 0; s < w->layout.n_states; s++) {
        const clt_async_tensor *t = &w->layout.states[s];
        float *own = to + t->begin;
        const float *old = w->states + t->begin;
        CLT_TRY(clt_store_get(w->trainer->store, t->name, own, (size_t)t->elements * sizeof *own));
        for (int64_t i = 0; t->dtype != CLT_F32 && i < t->elements; i++) {
            uint32_t now, before;
            memcpy(&now, own + i, sizeof now);
            memcpy(&before, old + i, sizeof before);
            now -= before;
            memcpy(own + i, &now, sizeof now);
        }
    }
    return CLT_OK;
}

/* Writes a holder's part of the gradient to w->message. Returns its bytes. */
static size_t pack_gradient(clt_async_worker *w, int holder)
{
    const size_t rows = clt_rows_bytes(&w->layout, &w->rows);
    float *at = w->message + rows / sizeof *at;
    clt_rows_write(&w->layout, &w->rows, w->message);
    clt_payload_pack(&w->layout, holder, &w->rows, CLT_TRAVELS_GRADIENT,
                     w->line + clt_async_cut(&w->layout, holder), at);
    return rows + (size_t)clt_payload_elements(&w->layout, holder, &w->rows, CLT_TRAVELS_GRADIENT) *
                      sizeof *at;
}

#ifdef CLT_TESTING
/* CLT_TESTING_MALFORMED_WORKER=K makes the gradients of worker K too short. */
static bool is_malformed(const clt_async_worker *w)
{
    const char *text = getenv("CLT_TESTING_MALFORMED_WORKER");
    return text && atoi(text) == w->options->number;
}
#endif

static clt_status send_stage(void *user, int holder)
{
    clt_async_worker *w = user;
    const clt_async_message m = {
        .kind = CLT_MSG_STAGE, .who = w->wires.who, .sequence = w->sequence};
    const size_t bytes = pack_gradient(w, holder);
    return clt_wires_request(&w->wires, &w->wires.staged[holder], holder, &m, w->message, bytes, 0);
}

/* The other holders have their parts before holder 0 decides, so that all can apply them. */
static clt_status stage_gradient(clt_async_worker *w)
{
    for (int h = 1; h < w->wires.holders; h++)
        CLT_TRY(send_stage(w, h));
    for (int h = 1; h < w->wires.holders; h++) {
        CLT_TRY(clt_wires_await(&w->wires, &w->wires.staged[h], h, send_stage, w));
        clt_wires_take(&w->wires.staged[h]);
    }
    return CLT_OK;
}

/* Holder 0 decides once, however often the gradient comes. */
static clt_status send_push(void *user, int holder)
{
    clt_async_worker *w = user;
    return clt_wires_request(&w->wires, &w->wires.decided, holder, &w->push_request, w->message,
                             w->push_bytes, 0);
}

clt_status clt_worker_push(clt_async_worker *w, const clt_async_message *deal,
                           const clt_step_result *r, int64_t version, const char *why)
{
    clt_async_message *m = &w->push_request;
    *m = (clt_async_message){.kind = CLT_MSG_PUSH,
                             .number = r->finite != 0,
                             .who = w->wires.who,
                             .sequence = w->sequence,
                             .lease = deal->lease,
                             .version = version,
                             .loss = r->loss,
                             .squares = r->norm * r->norm};
    w->push_bytes = 0;
    snprintf(m->text, sizeof m->text, "%s", why);
    if (r->finite) {
        CLT_TRY(read_gradient(w));
        CLT_TRY(stage_gradient(w));
        w->push_bytes = pack_gradient(w, 0);
        CLT_TRY(add_states(w, w->message + w->push_bytes / sizeof *w->message));
        w->push_bytes += (size_t)w->layout.state_elements * sizeof *w->message;
    }
#ifdef CLT_TESTING
    w->push_bytes = is_malformed(w) ? w->push_bytes / 2 : w->push_bytes;
#endif
    CLT_TRY(send_push(w, 0));
    CLT_TRY(clt_wires_await(&w->wires, &w->wires.decided, 0, send_push, w));
    const clt_async_message answer = w->wires.decided.m;
    clt_wires_take(&w->wires.decided);
    w->decided = answer.version;
    w->worked.applied += answer.number == CLT_PUSH_APPLIED;
    w->worked.discarded += answer.number == CLT_PUSH_DISCARDED;
    w->worked.nonfinite += answer.number == CLT_PUSH_NONFINITE;
    w->worked.samples += answer.number == CLT_PUSH_APPLIED ? deal->count : 0;
    return CLT_OK;
}
