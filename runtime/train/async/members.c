/* Who takes part: workers and other holders join holder 0, and are lost. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/vec.h"
#include "train/async/coordinator.h"

clt_worker_record *clt_coordinator_worker(clt_coordinator *c, uint64_t who)
{
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].who == who)
            return &c->workers[i];
    return NULL;
}

clt_status clt_coordinator_order(clt_coordinator *c, clt_async_message *m)
{
    m->sequence = ++c->orders;
    for (int i = 1; i < c->h->options->holders; i++)
        CLT_TRY(clt_holder_send(c->h->socket, &c->holders[i].peer, m));
    return CLT_OK;
}

clt_status clt_coordinator_lose(clt_coordinator *c, int index, const char *reason)
{
    const clt_worker_record w = c->workers[index];
    memmove(&c->workers[index], &c->workers[index + 1],
            (size_t)(--c->n_workers - index) * sizeof *c->workers);
    const int back = clt_deal_drop(&c->deal, w.who);
    clt_events_add(c->h->events, "lost",
                   "\"who\":\"%016" PRIx64 "\",\"worker\":%d,\"reason\":\"%s\",\"returned\":%d",
                   w.who, w.number, reason, back);
    if (strcmp(reason, "bye"))
        clt_holder_note(c->h, "worker %d is dropped (%s); %d of its batches are dealt again",
                        w.number, reason, back);
    clt_async_message m = {.kind = CLT_MSG_FORGET, .who = w.who};
    return clt_coordinator_order(c, &m);
}

clt_status clt_coordinator_refuse(clt_coordinator *c, const clt_peer *peer, const char *why)
{
    clt_async_message m = {.kind = CLT_MSG_REFUSE};
    snprintf(m.text, sizeof m.text, "%s", why);
    return clt_holder_send(c->h->socket, peer, &m);
}

clt_status clt_coordinator_refuse_lost(clt_coordinator *c, const clt_peer *peer, uint64_t who)
{
    for (int i = 0; i < c->n_replaced; i++)
        if (c->replaced[i] == who)
            return clt_coordinator_refuse(c, peer,
                                          "another process has joined with its number, and has "
                                          "taken its place: each worker needs a --worker of its "
                                          "own");
    return clt_coordinator_refuse(c, peer,
                                  "it was silent or without a gradient for too long, and is "
                                  "dropped: start it again");
}

static bool all_ready(const clt_coordinator *c)
{
    for (int i = 1; i < c->h->options->holders; i++)
        if (!c->holders[i].ready)
            return false;
    return true;
}

/* Tells a worker the endpoints of the other holders. */
static clt_status welcome(clt_coordinator *c, const clt_peer *peer, int number)
{
    clt_async_message m = {.kind = CLT_MSG_WELCOME,
                           .number = number,
                           .hash = (uint64_t)c->keeper.seed,
                           .seed = c->keeper.whole->options.seed,
                           .version = c->h->version};
    clt_str names = {0};
    for (int i = 1; number >= 0 && i < c->h->options->holders; i++)
        clt_str_add(&names, "%s%s", i > 1 ? " " : "", c->holders[i].endpoint);
    const clt_status status =
        names.failed
            ? CLT_OUT_OF_MEMORY
            : clt_holder_send_data(c->h->socket, peer, &m, clt_str_text(&names), names.length);
    clt_str_free(&names);
    return status;
}

clt_status clt_coordinator_hello(clt_coordinator *c, const clt_packet *p,
                                 const clt_async_message *m)
{
    if (m->hash != c->same.model)
        return clt_coordinator_refuse(
            c, &p->peer,
            "it has another model, --precision, --freeze or --servers: give the options of "
            "holder 0");
    if (m->seed != c->same.data)
        return clt_coordinator_refuse(
            c, &p->peer,
            "it has other data, or another --batch, --seq-len, --shuffle, --drop-last, --augment "
            "or --normalize: give the options of holder 0");
    if (m->number < 0 || m->number >= CLT_ASYNC_MOST_WORKERS)
        return clt_coordinator_refuse(c, &p->peer, "its number is not possible");
    if (!all_ready(c))
        return welcome(c, &p->peer, -1);
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].number == m->number && c->workers[i].who != m->who) {
            const uint64_t before = c->workers[i].who;
            CLT_TRY(clt_coordinator_lose(c, i, "it joined anew"));
            CLT_TRY(CLT_PUSH(c->replaced, c->n_replaced, c->replaced_room, before));
            break;
        }
    if (!clt_coordinator_worker(c, m->who)) {
        const clt_worker_record w = {
            .who = m->who, .number = m->number, .heard = clt_clock(), .advanced = clt_clock()};
        CLT_TRY(CLT_PUSH(c->workers, c->n_workers, c->workers_room, w));
        clt_events_add(c->h->events, "join", "\"who\":\"%016" PRIx64 "\",\"worker\":%d", m->who,
                       m->number);
        clt_holder_note(c->h, "worker %d joins (%s)", m->number, m->text);
    }
    return welcome(c, &p->peer, m->number);
}

static clt_status load_holder(clt_coordinator *c, int holder)
{
    const clt_async_layout *l = &c->h->layout;
    const int64_t begin = clt_async_cut(l, holder), own = clt_async_cut(l, holder + 1) - begin;
    float *data = clt_alloc((size_t)(own * (1 + c->keeper.kept)) * sizeof *data);
    CLT_TRY_MEMORY(data);
    memcpy(data, c->first->values + begin, (size_t)own * sizeof *data);
    for (int k = 0; k < c->keeper.kept; k++)
        memcpy(data + own * (1 + k), c->first->kept + k * l->elements + begin,
               (size_t)own * sizeof *data);
    const clt_async_message m = {.kind = CLT_MSG_LOAD, .version = c->h->version};
    const clt_status status =
        clt_holder_send_data(c->h->socket, &c->holders[holder].peer, &m, data,
                             (size_t)(own * (1 + c->keeper.kept)) * sizeof *data);
    clt_free(data);
    return status;
}

clt_status clt_coordinator_join(clt_coordinator *c, const clt_packet *p, const clt_async_message *m)
{
    if (m->number < 1 || m->number >= c->h->options->holders)
        return clt_coordinator_refuse(c, &p->peer, "there is no holder of this number");
    clt_holder_record *r = &c->holders[m->number];
    if (m->hash != c->h->hash)
        return clt_coordinator_refuse(c, &p->peer,
                                      "it has another model, optimizer or number of holders");
    if (r->ready)
        return clt_peer_is(&r->peer, &p->peer)
                   ? CLT_OK
                   : clt_coordinator_refuse(c, &p->peer,
                                            "a holder of this number is there already");
    r->peer = p->peer;
    r->heard = clt_clock();
    snprintf(r->endpoint, sizeof r->endpoint, "%.255s", m->text);
    if (!m->lease)
        return load_holder(c, m->number);
    r->ready = true;
    clt_holder_note(c->h, "holder %d is ready at %s", m->number, r->endpoint);
    if (all_ready(c)) {
        clt_snapshot_destroy(c->first);
        c->first = NULL;
    }
    return CLT_OK;
}

clt_status clt_coordinator_bye(clt_coordinator *c, const clt_async_message *m)
{
    for (int i = 0; i < c->n_workers; i++)
        if (c->workers[i].who == m->who)
            return clt_coordinator_lose(c, i, "bye");
    return CLT_OK;
}
