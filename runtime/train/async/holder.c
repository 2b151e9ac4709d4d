/* Holds a range of the parameters. Holders other than holder 0 do what its orders say. */
#include "train/async/holder.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/vec.h"
#include "data/core/dataset.h"
#include "train/fit/fit.h"

CLT_STRUCT_INIT(clt_async_options, .holders = 1, .silence = 10, .patience = 120)
CLT_STRUCT_INIT(clt_async_worked, )

enum { POLL_MS = 100, MESSAGE_SLACK = 1 << 20 };

int clt_async_is_built(void)
{
    return clt_net_is_built();
}

static clt_status check_trainer(const clt_trainer_options *t)
{
    if (t->zero)
        return clt_fail(CLT_UNSUPPORTED, "asynchronous training divides parameters among holders: "
                                         "leave out zero");
    if (t->virtual_shards)
        return clt_fail(CLT_UNSUPPORTED, "the bits of asynchronous training depend on the order in "
                                         "which gradients come: leave out virtual_shards");
    if (t->optimizer == CLT_MUON)
        return clt_fail(CLT_UNSUPPORTED, "optimizer muon needs whole matrices, and asynchronous "
                                         "training divides parameters among holders: take adamw");
    if (t->average.kind)
        return clt_fail(CLT_UNSUPPORTED, "averages of weights are not built for asynchronous "
                                         "training: leave out average");
    if (t->rebalance)
        return clt_fail(CLT_UNSUPPORTED, "workers of asynchronous training take batches at their "
                                         "own speed: leave out rebalance");
    if (t->world && t->world->ranks > 1)
        return clt_fail(CLT_UNSUPPORTED, "asynchronous training connects its processes itself: "
                                         "start them without mpiexec");
    return CLT_OK;
}

clt_status clt_async_check(const clt_async_options *o, const clt_trainer_options *trainer)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_async_options));
    CLT_TRY(CLT_CHECK_STRUCT(trainer, clt_trainer_options));
    if (o->staleness < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "a staleness of %lld versions is not possible: it must be at least 0",
                        (long long)o->staleness);
    if (o->holders < 1 || o->holders > CLT_ASYNC_MOST_HOLDERS)
        return clt_fail(CLT_INVALID_ARGUMENT, "%d holders are not possible: there must be 1 to %d",
                        o->holders, CLT_ASYNC_MOST_HOLDERS);
    if (!(o->silence > 0) || !(o->patience > 0))
        return clt_fail(CLT_INVALID_ARGUMENT, "silence %g and patience %g must be above 0",
                        o->silence, o->patience);
    return check_trainer(trainer);
}

void clt_holder_note(const clt_holder *h, const char *format, ...)
{
    char line[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (h->options->on_note)
        h->options->on_note(h->options->user, line);
}

void clt_holder_drop(const clt_holder *h, const char *what)
{
    clt_holder_note(h, "%s of another process is dropped: %s", what, clt_error_message());
}

clt_status clt_holder_send_data(clt_socket *socket, const clt_peer *peer,
                                const clt_async_message *m, const void *data, size_t bytes)
{
    uint8_t header[CLT_MSG_MOST];
    const size_t size = clt_async_encode(m, header);
    return clt_socket_send(socket, peer, header, size, data, bytes);
}

clt_status clt_holder_send(clt_socket *socket, const clt_peer *peer, const clt_async_message *m)
{
    return clt_holder_send_data(socket, peer, m, NULL, 0);
}

/* --- parameters and gradients --------------------------------------------------------------- */

clt_status clt_holder_pull(clt_holder *h, const clt_packet *packet, const clt_async_message *m)
{
    const clt_travels what = m->number ? CLT_TRAVELS_FIRST : CLT_TRAVELS_BATCH;
    const float *values;
    size_t used = 0;
    CLT_TRY(clt_rows_read(&h->layout, packet->payload, packet->payload_bytes, &h->rows, &used));
    if (used != packet->payload_bytes)
        return clt_fail(CLT_FORMAT, "a request for parameters has %zu bytes too many",
                        packet->payload_bytes - used);
    CLT_TRY(clt_slice_values(h->slice, &values));
    int64_t count = clt_payload_elements(&h->layout, h->options->number, &h->rows, what);
    clt_payload_pack(&h->layout, h->options->number, &h->rows, what, values, h->message);
    if (h->states) {
        memcpy(h->message + count, h->states, (size_t)h->layout.state_elements * sizeof *h->states);
        count += h->layout.state_elements;
    }
    clt_events_add(h->events, "pull",
                   "\"who\":\"%016" PRIx64 "\",\"sequence\":%lld,\"version\":%lld,\"asked\":%zu,"
                   "\"bytes\":%lld",
                   m->who, (long long)m->sequence, (long long)h->version, packet->payload_bytes,
                   (long long)count * (long long)sizeof(float));
    const clt_async_message answer = {.kind = CLT_MSG_VALUES,
                                      .number = m->number,
                                      .who = m->who,
                                      .sequence = m->sequence,
                                      .version = h->version};
    return clt_holder_send_data(h->socket, &packet->peer, &answer, h->message,
                                (size_t)count * sizeof *h->message);
}

clt_status clt_holder_read_gradient(clt_holder *h, const clt_packet *packet, const uint8_t **rest,
                                    size_t *rest_bytes)
{
    size_t used = 0;
    CLT_TRY(clt_rows_read(&h->layout, packet->payload, packet->payload_bytes, &h->rows, &used));
    const size_t bytes =
        sizeof(float) * (size_t)clt_payload_elements(&h->layout, h->options->number, &h->rows,
                                                     CLT_TRAVELS_GRADIENT);
    if (bytes > packet->payload_bytes - used)
        return clt_fail(CLT_FORMAT, "a gradient has %zu bytes instead of %zu",
                        packet->payload_bytes - used, bytes);
    /* The payload need not be aligned for floats. */
    memcpy(h->message, (const uint8_t *)packet->payload + used, bytes);
    clt_payload_unpack(&h->layout, h->options->number, &h->rows, CLT_TRAVELS_GRADIENT, h->message,
                       true, h->range);
    *rest = (const uint8_t *)packet->payload + used + bytes;
    *rest_bytes = packet->payload_bytes - used - bytes;
    return CLT_OK;
}

/* --- a holder that follows holder 0 --------------------------------------------------------- */

static void forget_staged(clt_holder *h, uint64_t who, int64_t sequence)
{
    int kept = 0;
    for (int i = 0; i < h->n_staged; i++) {
        const clt_staged *s = &h->staged[i];
        if (s->who == who && (sequence < 0 || s->sequence <= sequence))
            clt_free(s->gradient);
        else
            h->staged[kept++] = *s;
    }
    h->n_staged = kept;
}

static bool is_gone(const clt_holder *h, uint64_t who)
{
    for (int i = 0; i < h->n_gone; i++)
        if (h->gone[i] == who)
            return true;
    return false;
}

/* A worker is dropped: what comes of it later is not kept. */
static clt_status forget(clt_holder *h, uint64_t who)
{
    forget_staged(h, who, -1);
    return CLT_PUSH(h->gone, h->n_gone, h->gone_room, who);
}

/* Keeps a gradient until holder 0 decides. A worker has one gradient at a time. */
static clt_status stage(clt_holder *h, const clt_packet *packet, const clt_async_message *m)
{
    const uint8_t *rest;
    size_t rest_bytes;
    CLT_TRY(clt_holder_read_gradient(h, packet, &rest, &rest_bytes));
    if (rest_bytes)
        return clt_fail(CLT_FORMAT, "a gradient has %zu bytes too many", rest_bytes);
    /* Another one may be there if this is a repetition. An older one came late, and is decided. */
    bool late = false;
    for (int i = 0; i < h->n_staged; i++)
        late = late || (h->staged[i].who == m->who && h->staged[i].sequence > m->sequence);
    if (late)
        return CLT_OK;
    forget_staged(h, m->who, -1);
    if (!is_gone(h, m->who)) { /* else holder 0 refuses the gradient */
        clt_staged s = {.who = m->who,
                        .sequence = m->sequence,
                        .gradient = clt_alloc((size_t)h->elements * sizeof *s.gradient)};
        CLT_TRY_MEMORY(s.gradient);
        memcpy(s.gradient, h->range, (size_t)h->elements * sizeof *s.gradient);
        CLT_TRY(CLT_PUSH(h->staged, h->n_staged, h->staged_room, s));
    }
    clt_events_add(h->events, "stage", "\"who\":\"%016" PRIx64 "\",\"sequence\":%lld,\"bytes\":%zu",
                   m->who, (long long)m->sequence, packet->payload_bytes);
    const clt_async_message answer = {
        .kind = CLT_MSG_STAGED, .who = m->who, .sequence = m->sequence};
    return clt_holder_send(h->socket, &packet->peer, &answer);
}

static clt_status apply(clt_holder *h, const clt_async_message *m)
{
    for (int i = 0; i < h->n_staged; i++) {
        const clt_staged *s = &h->staged[i];
        if (s->who != m->who || s->sequence != m->lease)
            continue;
        CLT_TRY(clt_slice_apply(h->slice, s->gradient, m->squares, h->version));
        h->version = m->version;
        clt_events_add(h->events, "apply",
                       "\"who\":\"%016" PRIx64 "\",\"sequence\":%lld,\"version\":%lld", m->who,
                       (long long)m->lease, (long long)m->version);
        forget_staged(h, m->who, m->lease);
        return CLT_OK;
    }
    return clt_fail(CLT_INTERNAL, "holder %d does not have gradient %lld of worker %016" PRIx64,
                    h->options->number, (long long)m->lease, m->who);
}

/* Sends the range, with the optimizer's state, to holder 0. */
static clt_status send_snapshot(clt_holder *h, const clt_async_message *order)
{
    const size_t each = (size_t)h->elements;
    float *all = clt_alloc(each * (size_t)(1 + clt_slice_kept(h->slice)) * sizeof *all);
    CLT_TRY_MEMORY(all);
    clt_status status = clt_slice_save(h->slice, all, all + each);
    const clt_async_message m = {.kind = CLT_MSG_SNAP,
                                 .number = h->options->number,
                                 .sequence = order->sequence,
                                 .lease = order->lease,
                                 .version = h->version};
    CLT_NEXT(status,
             clt_holder_send_data(h->up, NULL, &m, all,
                                  each * (size_t)(1 + clt_slice_kept(h->slice)) * sizeof *all));
    clt_free(all);
    return status;
}

static clt_status join(clt_holder *h, bool ready)
{
    clt_async_message m = {
        .kind = CLT_MSG_JOIN, .number = h->options->number, .hash = h->hash, .lease = ready};
    snprintf(m.text, sizeof m.text, "%s:%d", h->options->host, clt_socket_port(h->socket));
    return clt_holder_send(h->up, NULL, &m);
}

static clt_status load(clt_holder *h, const clt_packet *packet, const clt_async_message *m)
{
    const size_t each = (size_t)h->elements, tensors = (size_t)(1 + clt_slice_kept(h->slice));
    if (packet->payload_bytes != each * tensors * sizeof(float))
        return clt_fail(CLT_MISMATCH, "holder 0 sends %zu bytes for a range of %zu",
                        packet->payload_bytes, each * tensors * sizeof(float));
    float *all = clt_alloc(packet->payload_bytes);
    CLT_TRY_MEMORY(all);
    memcpy(all, packet->payload, packet->payload_bytes);
    const clt_status status = clt_slice_load(h->slice, all, all + each);
    clt_free(all);
    CLT_TRY(status);
    h->version = m->version;
    h->loaded = true;
    return join(h, true);
}

/* Does what a message of holder 0 says. *end: the run is over. */
static clt_status obey(clt_holder *h, const clt_packet *packet, bool *end)
{
    clt_async_message m;
    CLT_TRY(clt_async_decode(packet->header, packet->header_bytes, &m));
    h->heard = clt_clock();
    if (m.kind == CLT_MSG_LOAD)
        return h->loaded ? CLT_OK : load(h, packet, &m);
    if (m.kind == CLT_MSG_REFUSE)
        return clt_fail(CLT_MISMATCH, "holder 0 at %s refuses holder %d: %s", h->options->join,
                        h->options->number, m.text);
    if (m.kind != CLT_MSG_PING && m.kind != CLT_MSG_END && m.sequence != ++h->orders)
        return clt_fail(CLT_ABORTED,
                        "holder %d missed an order of holder 0 (%lld came instead of %lld): the "
                        "connection broke, so go on from the last checkpoint",
                        h->options->number, (long long)m.sequence, (long long)h->orders);
    switch (m.kind) {
    case CLT_MSG_APPLY:
        return apply(h, &m);
    case CLT_MSG_DROP:
        forget_staged(h, m.who, m.lease);
        return CLT_OK;
    case CLT_MSG_FORGET:
        return forget(h, m.who);
    case CLT_MSG_SNAPSHOT:
        return send_snapshot(h, &m);
    case CLT_MSG_END:
        *end = true;
        return m.number ? clt_fail((clt_status)m.number, "holder 0 ended the run: %s", m.text)
                        : CLT_OK;
    default:
        return CLT_OK;
    }
}

/* A worker that has learnt that its gradient is applied pulls at least this version. Its order may
 * be on the way to this holder: the pull is answered when it has come. A repeated pull takes the
 * place of the first, as its connection is the new one. */
static clt_status defer(clt_holder *h, clt_packet *packet, uint64_t who)
{
    for (int i = 0; i < h->n_late; i++) {
        clt_async_message m;
        if (clt_async_decode(h->late[i].header, h->late[i].header_bytes, &m) != CLT_OK ||
            m.who != who)
            continue;
        clt_packet_free(&h->late[i]);
        h->late[i] = *packet;
        *packet = (clt_packet){0};
        return CLT_OK;
    }
    if (h->n_late >= CLT_ASYNC_MOST_WORKERS)
        return clt_fail(CLT_FORMAT, "%d requests wait already", h->n_late);
    CLT_TRY(CLT_PUSH(h->late, h->n_late, h->late_room, *packet));
    *packet = (clt_packet){0};
    return CLT_OK;
}

/* A worker's message that has no proper form harms nobody: it is dropped. */
static void serve(clt_holder *h, clt_packet *packet)
{
    clt_async_message m;
    clt_status status = clt_async_decode(packet->header, packet->header_bytes, &m);
    if (status == CLT_OK && h->loaded && m.kind == CLT_MSG_PULL)
        status = m.version > h->version ? defer(h, packet, m.who) : clt_holder_pull(h, packet, &m);
    else if (status == CLT_OK && h->loaded && m.kind == CLT_MSG_STAGE)
        status = stage(h, packet, &m);
    if (status != CLT_OK)
        clt_holder_drop(h, "a message");
}

/* Serves the pulls that waited, of which some may wait on. */
static void serve_late(clt_holder *h)
{
    const int count = h->n_late;
    for (int i = 0; i < count; i++) {
        clt_packet packet = h->late[i];
        serve(h, &packet);
        clt_packet_free(&packet);
    }
    h->n_late -= count;
    if (h->n_late)
        memmove(h->late, h->late + count, (size_t)h->n_late * sizeof *h->late);
}

static clt_status check_time(clt_holder *h, double began)
{
    const double now = clt_clock();
    if (now - h->checked > 1) /* a pause of this process is not holder 0's silence */
        h->heard += now - h->checked - 1;
    h->checked = now;
    if (now - h->flushed > 1) {
        clt_events_flush(h->events);
        h->flushed = now;
    }
    if (now - h->told > 1) {
        const clt_async_message beat = {.kind = CLT_MSG_BEAT, .number = h->options->number};
        CLT_TRY(h->loaded ? clt_holder_send(h->up, NULL, &beat) : join(h, false));
        h->told = now;
    }
    if (h->loaded && now - h->heard > h->options->silence)
        return clt_fail(CLT_TIMEOUT,
                        "holder 0 at %s has not been heard of for %g s: go on from the last "
                        "checkpoint",
                        h->options->join, h->options->silence);
    if (!h->loaded && now - began > h->options->patience)
        return clt_fail(CLT_TIMEOUT,
                        "holder 0 at %s does not answer within %g s: it is not there, or has "
                        "another secret",
                        h->options->join, h->options->patience);
    return CLT_OK;
}

static clt_status follow(clt_holder *h)
{
    clt_socket *const sockets[] = {h->up, h->socket};
    const double began = clt_clock();
    h->heard = h->checked = began;
    for (bool end = false; !end;) {
        clt_packet packet = {0};
        int which;
        if (h->options->should_stop && h->options->should_stop(h->options->user))
            return clt_fail(CLT_STOPPED, "stopped at version %lld", (long long)h->version);
        CLT_TRY(check_time(h, began));
        CLT_TRY(clt_socket_receive(sockets, 2, POLL_MS, &which, &packet));
        clt_status status = CLT_OK;
        if (which == 0) {
            status = obey(h, &packet, &end);
            serve_late(h);
        } else if (which == 1) {
            serve(h, &packet);
        }
        clt_packet_free(&packet);
        CLT_TRY(status);
    }
    return CLT_OK;
}

/* --- the call ------------------------------------------------------------------------------- */

static uint64_t hash_options(const clt_trainer_options *o, uint64_t hash)
{
    const double numbers[] = {(double)o->optimizer,
                              o->lr,
                              clt_optimizer_momentum(o),
                              o->beta1,
                              o->beta2,
                              o->epsilon,
                              o->weight_decay,
                              (double)o->decoupled,
                              o->alpha,
                              (double)o->centered,
                              o->lr_decay,
                              o->initial_accumulator,
                              (double)o->schedule.kind,
                              (double)o->schedule.every,
                              o->schedule.factor,
                              o->schedule.minimum,
                              (double)o->schedule.total,
                              (double)o->schedule.warmup,
                              o->clip_norm};
    return clt_hash(numbers, sizeof numbers, hash);
}

static clt_status open_holder(clt_holder *h, const clt_graph *graph, clt_device *device)
{
    const clt_async_options *o = h->options;
    CLT_TRY(clt_async_layout_make(graph, o->holders, &h->layout));
    h->hash = hash_options(h->trainer, h->layout.hash);
    CLT_TRY(clt_rows_init(&h->layout, &h->rows));
    CLT_TRY(clt_slice_create(graph, &h->layout, o->number, device, h->trainer, &h->slice));
    h->elements = clt_slice_elements(h->slice);
    h->room = (h->elements + h->layout.state_elements + 1) * (int64_t)sizeof *h->message;
    h->range = clt_calloc((size_t)h->elements + 1, sizeof *h->range);
    h->message = clt_alloc((size_t)h->room);
    CLT_TRY_MEMORY(h->range && h->message);
    CLT_TRY(clt_net_create(o->secret, &h->net));
    /* Rows take no more bytes than the elements of a table, and snapshots go the other way. */
    const int64_t most = (h->layout.elements + h->layout.state_elements) *
                             (2 + CLT_MAX_OPTIMIZER_SLOTS) * (int64_t)sizeof(float) +
                         MESSAGE_SLACK;
    CLT_TRY(clt_socket_listen(h->net, o->listen, most, &h->socket));
    if (o->number)
        CLT_TRY(clt_socket_connect(h->net, o->join, &h->up));
    CLT_TRY(clt_events_open(o->events, o->number, o->resume, &h->events));
    if (o->on_listen)
        o->on_listen(o->user, clt_socket_port(h->socket));
    return CLT_OK;
}

static void close_holder(clt_holder *h)
{
    for (int i = 0; i < h->n_staged; i++)
        clt_free(h->staged[i].gradient);
    for (int i = 0; i < h->n_late; i++)
        clt_packet_free(&h->late[i]);
    clt_socket_close(h->socket);
    clt_socket_close(h->up);
    clt_net_destroy(h->net);
    clt_slice_destroy(h->slice);
    clt_rows_free(&h->rows);
    clt_async_layout_free(&h->layout);
    CLT_FREE(h->range, h->message, h->states, h->staged, h->gone, h->late);
}

/* Returns the address without its port, in *text. */
static const char *host_of(const char *address, char *text, size_t room)
{
    const char *colon = strrchr(address, ':');
    snprintf(text, room, "%.*s", colon ? (int)(colon - address) : 0, address);
    return text;
}

/* Whether an address stands for all of a machine's. */
static bool is_any(const char *host)
{
    return !*host || !strcmp(host, "*") || !strcmp(host, "0.0.0.0") || !strcmp(host, "::") ||
           !strcmp(host, "[::]");
}

clt_status clt_async_hold(const clt_graph *graph, clt_device *device,
                          const clt_trainer_options *options, clt_trainer *whole,
                          clt_dataset *train, clt_dataset *test, const clt_fit_options *fit,
                          const clt_async_options *async)
{
    char host[256];
    CLT_TRY(clt_async_check(async, options));
    clt_async_options own = *async;
    if (!own.listen || !strrchr(own.listen, ':'))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "holder %d needs an address to listen at, as "
                        "0.0.0.0:7000, and has '%s'",
                        own.number, own.listen ? own.listen : "");
    if (own.number < 0 || own.number >= own.holders)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "holder %d is not possible: %d holders have the "
                        "numbers 0 to %d",
                        own.number, own.holders, own.holders - 1);
    if (!own.number != !own.join)
        return clt_fail(CLT_INVALID_ARGUMENT, "holder %d %s", own.number,
                        own.number ? "needs the address of holder 0 (join)"
                                   : "joins nobody: leave out the address of holder 0 (join)");
    if (!own.number && (!whole || !train || !fit))
        return clt_fail(CLT_INVALID_ARGUMENT, "holder 0 needs a trainer of the whole model and the "
                                              "training data");
    if (fit && (fit->validation || fit->n_policies))
        return clt_fail(CLT_UNSUPPORTED,
                        "clt_fit_options.validation and .policies are not built for "
                        "asynchronous training: evaluate the test set instead");
    if (train)
        CLT_TRY(clt_dataset_need_fixed(train, "holders of asynchronous training"));
    if (fit)
        CLT_TRY(clt_fit_refuse_hooks(fit, "clt_async_hold"));
    if (!own.host)
        own.host = host_of(own.listen, host, sizeof host);
    if (own.number && is_any(own.host))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "holder %d listens at %s, which is no address that others can reach: give "
                        "the name by which they reach it (host)",
                        own.number, own.listen);
    clt_holder h = {.options = &own, .trainer = options};
    clt_status status = open_holder(&h, graph, device);
    if (status == CLT_OK)
        status = own.number ? follow(&h) : clt_holder_lead(&h, whole, train, test, fit);
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    const clt_status logged = clt_events_close(h.events);
    close_holder(&h);
    if (status != CLT_OK)
        clt_error_restore(message);
    return status == CLT_OK ? logged : status;
}
