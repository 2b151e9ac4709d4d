#include "train/async/wires.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

enum { POLL_MS = 100, AGAIN_MS = 200, ANEW_S = 6 };

/* A request is sent again after REPEAT seconds, and the time that it and its answer take on a link
 * of SLOW_LINK bytes a second. Each repetition doubles the wait, up to REPEAT_MOST, so that a
 * holder that is paused or busy does not find many. */
static const double REPEAT = 2, REPEAT_MOST = 60, SLOW_LINK = 4e6;

#ifdef CLT_TESTING
/* CLT_TESTING_LOSSY=SHARE:SEED loses this share of a worker's messages, in both directions. */
static bool is_lost(clt_wires *l)
{
    const char *text = getenv("CLT_TESTING_LOSSY");
    double share;
    unsigned seed;
    if (!text || sscanf(text, "%lf:%u", &share, &seed) != 2)
        return false;
    if (!l->draws)
        l->draws = seed * 2654435761u + (unsigned)l->options->number * 40503u + 1;
    l->draws = l->draws * 1664525u + 1013904223u;
    return (l->draws >> 8) < share * (1 << 24);
}
#else
static bool is_lost(const clt_wires *l)
{
    (void)l;
    return false;
}
#endif

clt_status clt_wires_send(clt_wires *l, int holder, const clt_async_message *m, const void *data,
                          size_t bytes)
{
    uint8_t header[CLT_MSG_MOST];
    const size_t size = clt_async_encode(m, header);
    if (is_lost(l))
        return CLT_OK;
    return clt_socket_send(l->sockets[holder], NULL, header, size, data, bytes);
}

/* Makes a new connection to a holder. ZeroMQ makes one itself if the old one is closed, but not if
 * what came over it was damaged, and late if the other end vanished without a word. */
static clt_status renew(clt_wires *l, int holder)
{
    clt_socket *fresh = NULL;
    CLT_TRY(clt_socket_connect(l->net, l->endpoints[holder], &fresh));
    clt_socket_close(l->sockets[holder]);
    l->sockets[holder] = fresh;
    if (!holder && l->beats) {
        pthread_mutex_lock(&l->lock);
        l->beat_anew = true;
        pthread_mutex_unlock(&l->lock);
    }
    return CLT_OK;
}

clt_status clt_wires_request(clt_wires *l, clt_answer *a, int holder, const clt_async_message *m,
                             const void *data, size_t bytes, size_t back)
{
    if (a->sequence == m->sequence) {
        l->repeated++;
        if (++a->repeats > 1)
            CLT_TRY(renew(l, holder));
        a->wait = a->wait < REPEAT_MOST / 2 ? 2 * a->wait : REPEAT_MOST;
    } else {
        clt_wires_take(a);
        a->sequence = m->sequence;
        a->repeats = 0;
        a->wait = REPEAT + (double)(bytes + back) / SLOW_LINK;
    }
    a->sent = clt_clock();
    return clt_wires_send(l, holder, m, data, bytes);
}

void clt_wires_take(clt_answer *a)
{
    if (a->has)
        clt_packet_free(&a->packet);
    a->has = false;
}

/* Returns the place of an answer; NULL for kinds that a worker does not get here. */
static clt_answer *place_of(clt_wires *l, clt_async_kind kind, int holder)
{
    return kind == CLT_MSG_DEAL      ? &l->deal
           : kind == CLT_MSG_DECIDED ? &l->decided
           : kind == CLT_MSG_VALUES  ? &l->values[holder]
           : kind == CLT_MSG_STAGED  ? &l->staged[holder]
                                     : NULL;
}

/* Puts an answer that has come into its place. The answer to an earlier request, or a second one to
 * the same request, is dropped. */
static clt_status sort(clt_wires *l, int holder, clt_packet *packet)
{
    clt_async_message m;
    clt_status status = clt_async_decode(packet->header, packet->header_bytes, &m);
    const bool lost = status == CLT_OK && is_lost(l);
    if (status == CLT_OK && !lost && m.kind == CLT_MSG_REFUSE)
        status = clt_fail(CLT_MISMATCH, "holder 0 at %s refuses worker %d: %s", l->options->join,
                          l->options->number, m.text);
    clt_answer *a = status == CLT_OK && !lost ? place_of(l, m.kind, holder) : NULL;
    if (!a || a->has || m.who != l->who || m.sequence != a->sequence) {
        clt_packet_free(packet);
        return status;
    }
    a->has = true;
    a->m = m;
    a->packet = *packet;
    return CLT_OK;
}

clt_status clt_wires_await(clt_wires *l, clt_answer *answer, int holder, clt_wires_again *again,
                           void *user)
{
    const double began = clt_clock();
    while (!answer->has) {
        clt_packet packet = {0};
        int which;
        if (l->options->should_stop && l->options->should_stop(l->options->user))
            return clt_fail(CLT_STOPPED, "stopped");
        CLT_TRY(clt_socket_receive(l->sockets, l->holders, POLL_MS, &which, &packet));
        const double now = clt_clock();
        if (which >= 0)
            CLT_TRY(sort(l, which, &packet));
        else if (now - began > l->options->patience)
            return clt_fail(
                CLT_TIMEOUT,
                "worker %d: holder %d (holder 0 is at %s) has not answered for %g s: it "
                "has ended, or cannot be reached",
                l->options->number, holder, l->options->join, l->options->patience);
        else if (now - answer->sent > answer->wait)
            CLT_TRY(again(user, holder));
    }
    return CLT_OK;
}

/* --- joining -------------------------------------------------------------------------------- */

static clt_status say_hello(clt_wires *l, const clt_async_same *same)
{
    clt_async_message m = {.kind = CLT_MSG_HELLO,
                           .number = l->options->number,
                           .who = l->who,
                           .hash = same->model,
                           .seed = same->data};
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    snprintf(m.text, sizeof m.text, "process %ld on %.100s", (long)getpid(), host);
    return clt_wires_send(l, 0, &m, NULL, 0);
}

/* Copies a payload as text. */
static char *text_of(const clt_packet *packet)
{
    char *text = clt_alloc(packet->payload_bytes + 1);
    if (!text)
        return NULL;
    if (packet->payload_bytes)
        memcpy(text, packet->payload, packet->payload_bytes);
    text[packet->payload_bytes] = '\0';
    return text;
}

/* Waits for a WELCOME, and says hello again while holder 0 is not ready. *names: the endpoints of
 * the other holders. Free it with clt_free. */
static clt_status await_welcome(clt_wires *l, const clt_async_same *same, clt_async_message *m,
                                char **names)
{
    const double began = clt_clock();
    double said = began, connected = began;
    CLT_TRY(say_hello(l, same));
    for (;;) {
        clt_packet packet = {0};
        int which;
        if (l->options->should_stop && l->options->should_stop(l->options->user))
            return clt_fail(CLT_STOPPED, "stopped");
        if (clt_clock() - began > l->options->patience)
            return clt_fail(CLT_TIMEOUT,
                            "worker %d: holder 0 at %s does not answer within %g s: it is not "
                            "there, waits for other holders, or has another secret",
                            l->options->number, l->options->join, l->options->patience);
        CLT_TRY(clt_socket_receive(l->sockets, 1, AGAIN_MS, &which, &packet));
        const clt_status status =
            which < 0 ? CLT_OK : clt_async_decode(packet.header, packet.header_bytes, m);
        const bool lost = which >= 0 && is_lost(l);
        const bool welcome =
            which >= 0 && !lost && status == CLT_OK && m->kind == CLT_MSG_WELCOME && m->number >= 0;
        *names = welcome ? text_of(&packet) : NULL;
        clt_packet_free(&packet);
        CLT_TRY(status);
        if (welcome)
            return *names ? CLT_OK : CLT_OUT_OF_MEMORY;
        if (which >= 0 && !lost && m->kind == CLT_MSG_REFUSE)
            return clt_fail(CLT_MISMATCH, "holder 0 at %s refuses worker %d: %s", l->options->join,
                            l->options->number, m->text);
        if (clt_clock() - connected > ANEW_S) {
            connected = clt_clock();
            CLT_TRY(renew(l, 0));
        }
        if (clt_clock() - said > 1e-3 * AGAIN_MS) {
            said = clt_clock();
            CLT_TRY(say_hello(l, same));
        }
    }
}

/* l->names has the endpoints of holders 1 and following, separated by blanks. */
static clt_status connect_others(clt_wires *l)
{
    char *rest = l->names;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        if (l->holders >= l->options->holders)
            return clt_fail(CLT_MISMATCH, "holder 0 at %s has more than %d holders",
                            l->options->join, l->options->holders);
        CLT_TRY(clt_socket_connect(l->net, word, &l->sockets[l->holders]));
        l->endpoints[l->holders++] = word;
    }
    return l->holders == l->options->holders
               ? CLT_OK
               : clt_fail(CLT_MISMATCH, "holder 0 at %s has %d holders, worker %d expects %d",
                          l->options->join, l->holders, l->options->number, l->options->holders);
}

/* --- the sign of life ----------------------------------------------------------------------- */

static void *beat(void *user)
{
    clt_wires *l = user;
    uint8_t header[CLT_MSG_MOST];
    const clt_async_message m = {.kind = CLT_MSG_BEAT, .who = l->who};
    const size_t size = clt_async_encode(&m, header);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        clt_socket *fresh = NULL;
        if (l->beat_anew && clt_socket_connect(l->net, l->options->join, &fresh) == CLT_OK) {
            clt_socket_close(l->beat);
            l->beat = fresh;
            l->beat_anew = false;
        }
        clt_socket_send(l->beat, NULL, header, size, NULL, 0);
        pthread_cond_timedwait(&l->wake, &l->lock, &until);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static clt_status start_beats(clt_wires *l)
{
    CLT_TRY(clt_socket_connect(l->net, l->options->join, &l->beat));
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    const int error = clt_thread_start(&l->thread, beat, l);
    if (error)
        return clt_fail(CLT_OUT_OF_MEMORY, "no thread for the sign of life: %s", strerror(error));
    l->beats = true;
    return CLT_OK;
}

clt_status clt_wires_open(clt_wires *l, const clt_async_options *options,
                          const clt_async_same *same)
{
    clt_async_message m;
    *l = (clt_wires){.options = options};
    if (getrandom(&l->who, sizeof l->who, 0) != (ssize_t)sizeof l->who)
        return clt_fail(CLT_IO, "no random numbers for the name of worker %d", options->number);
    CLT_TRY(clt_net_create(options->secret, &l->net));
    CLT_TRY(clt_socket_connect(l->net, options->join, &l->sockets[0]));
    l->endpoints[0] = options->join;
    l->holders = 1;
    clt_status status = await_welcome(l, same, &m, &l->names);
    if (status == CLT_OK) {
        l->order_seed = m.hash;
        l->dropout_seed = m.seed;
        status = connect_others(l);
    }
    CLT_NEXT(status, start_beats(l));
    return status;
}

void clt_wires_close(clt_wires *l)
{
    if (l->beats) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->wake);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
        pthread_mutex_destroy(&l->lock);
        pthread_cond_destroy(&l->wake);
    }
    clt_wires_take(&l->deal);
    clt_wires_take(&l->decided);
    for (int i = 0; i < l->holders; i++) {
        clt_wires_take(&l->values[i]);
        clt_wires_take(&l->staged[i]);
        clt_socket_close(l->sockets[i]);
    }
    clt_socket_close(l->beat);
    clt_net_destroy(l->net);
    clt_free(l->names);
}
