#include "train/async/transport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

bool clt_peer_is(const clt_peer *peer, const clt_peer *other)
{
    return peer->size == other->size && !memcmp(peer->bytes, other->bytes, peer->size);
}

#if defined(CLT_HAVE_ZMQ) && defined(CLT_HAVE_SODIUM)

#include <pthread.h>
#include <sodium.h>
#include <zmq.h>

#include "base/thread.h"

enum {
    KEY = 32,
    HANDSHAKE_MS = 5000,
    LINGER_MS = 1000,
    HEARTBEAT_MS = 2000, /* finds connections whose other end is gone, so that they are made anew */
    HEARTBEAT_TIMEOUT_MS = 20000,
    MOST_PARTS = 3,
    /* A payload is sent in parts of so many bytes. Only a complete part tells the other end that
     * the connection lives, so a part must pass within HEARTBEAT_TIMEOUT_MS. */
    PART = 1 << 19,
    PART_SLACK = 1 << 10, /* what encryption adds to a part */
    MOST_SOCKETS = 256
};

typedef struct key_pair {
    uint8_t public_key[KEY], secret_key[KEY];
} key_pair;

struct clt_net {
    void *context;
    key_pair holder, client;
    void *door; /* the socket of ZAP (RFC 27), which `doorkeeper` answers */
    pthread_t doorkeeper;
    bool has_doorkeeper;
};

struct clt_socket {
    void *zmq;
    bool listens;
    int port;
    int64_t most; /* bytes of a payload that are received; 0: any number */
};

/* A message: the peer, if the socket listens, the header, and the first part of the payload. */
typedef struct parts {
    zmq_msg_t list[MOST_PARTS];
    int count;
    uint8_t *payload; /* of more than one part; else NULL */
    size_t bytes, room;
} parts;

bool clt_net_is_built(void)
{
    return true;
}

static clt_status failed(const char *what)
{
    return clt_fail(CLT_IO, "%s: %s", what, zmq_strerror(zmq_errno()));
}

/* Derives a pair of keys from the secret. `use`, of 16 characters or more, tells pairs apart. */
static void derive(const char *secret, const char *use, key_pair *pair)
{
    uint8_t seed[crypto_box_SEEDBYTES];
    crypto_generichash(seed, sizeof seed, (const uint8_t *)secret, strlen(secret),
                       (const uint8_t *)use, strlen(use));
    crypto_box_seed_keypair(pair->public_key, pair->secret_key, seed);
    sodium_memzero(seed, sizeof seed);
}

/* --- the doorkeeper: who may connect -------------------------------------------------------- */

enum { ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_KEY };

/* Reads a request of ZAP. Returns whether the client has the job's key. *id is the request's. */
static bool read_request(clt_net *net, char *id, size_t *id_bytes, bool *end)
{
    bool curve = false, known = false;
    int more = 1;
    *id_bytes = 0;
    for (int part = 0; more; part++) {
        zmq_msg_t m;
        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, net->door, 0) < 0) {
            *end = zmq_errno() == ETERM;
            zmq_msg_close(&m);
            return false;
        }
        const size_t size = zmq_msg_size(&m);
        const void *data = zmq_msg_data(&m);
        if (part == ZAP_REQUEST && size <= 255) {
            memcpy(id, data, size);
            *id_bytes = size;
        }
        curve |= part == ZAP_MECHANISM && size == 5 && !memcmp(data, "CURVE", 5);
        known |=
            part == ZAP_KEY && size == KEY && !sodium_memcmp(data, net->client.public_key, KEY);
        more = zmq_msg_more(&m);
        zmq_msg_close(&m);
    }
    return curve && known;
}

static void *answer(void *user)
{
    clt_net *net = user;
    for (bool end = false; !end;) {
        char id[256];
        size_t id_bytes;
        const bool admitted = read_request(net, id, &id_bytes, &end);
        const char *code = admitted ? "200" : "400";
        if (end)
            break;
        zmq_send(net->door, "1.0", 3, ZMQ_SNDMORE);
        zmq_send(net->door, id, id_bytes, ZMQ_SNDMORE);
        zmq_send(net->door, code, 3, ZMQ_SNDMORE);
        zmq_send(net->door, "", 0, ZMQ_SNDMORE);
        zmq_send(net->door, "", 0, ZMQ_SNDMORE);
        zmq_send(net->door, "", 0, 0);
    }
    zmq_close(net->door);
    return NULL;
}

/* The doorkeeper must be there before the first socket listens. */
static clt_status start_doorkeeper(clt_net *net)
{
    net->door = zmq_socket(net->context, ZMQ_REP);
    if (!net->door || zmq_bind(net->door, "inproc://zeromq.zap.01") != 0)
        return failed("no socket to admit clients");
    const int error = clt_thread_start(&net->doorkeeper, answer, net);
    if (error)
        return clt_fail(CLT_OUT_OF_MEMORY, "no thread to admit clients: %s", strerror(error));
    net->has_doorkeeper = true;
    return CLT_OK;
}

clt_status clt_net_create(const char *secret, clt_net **out)
{
    if (!secret || strlen(secret) < CLT_ASYNC_SECRET)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the job's secret has %zu characters: it needs at least %d",
                        secret ? strlen(secret) : 0, CLT_ASYNC_SECRET);
    if (sodium_init() < 0)
        return clt_fail(CLT_IO, "libsodium finds no source of random numbers");
    clt_net *net = CLT_NEW(clt_net);
    CLT_TRY_MEMORY(net);
    derive(secret, "cltrain holder 1", &net->holder);
    derive(secret, "cltrain client 1", &net->client);
    net->context = zmq_ctx_new();
    clt_status status = net->context ? CLT_OK : failed("no sockets");
    CLT_NEXT(status, start_doorkeeper(net));
    if (status != CLT_OK) {
        clt_net_destroy(net);
        return status;
    }
    *out = net;
    return CLT_OK;
}

void clt_net_destroy(clt_net *net)
{
    if (!net)
        return;
    if (!net->has_doorkeeper && net->door)
        zmq_close(net->door);
    if (net->context)
        zmq_ctx_shutdown(net->context);
    if (net->has_doorkeeper)
        pthread_join(net->doorkeeper, NULL);
    if (net->context)
        zmq_ctx_term(net->context);
    sodium_memzero(net, sizeof *net);
    clt_free(net);
}

/* --- sockets -------------------------------------------------------------------------------- */

static bool set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool set_key(void *socket, int option, const uint8_t *key)
{
    return zmq_setsockopt(socket, option, key, KEY) == 0;
}

static clt_status make(clt_net *net, int type, clt_socket **out)
{
    clt_socket *s = CLT_NEW(clt_socket);
    CLT_TRY_MEMORY(s);
    s->zmq = zmq_socket(net->context, type);
    /* No limit of what waits to be sent: a limit would drop messages. */
    if (!s->zmq || !set(s->zmq, ZMQ_LINGER, LINGER_MS) || !set(s->zmq, ZMQ_SNDHWM, 0) ||
        !set(s->zmq, ZMQ_RCVHWM, 0) || !set(s->zmq, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) ||
        !set(s->zmq, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) || !set(s->zmq, ZMQ_IPV6, 1) ||
        !set(s->zmq, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)) {
        const clt_status status = failed("no socket");
        clt_socket_close(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

clt_status clt_socket_listen(clt_net *net, const char *address, int64_t most, clt_socket **out)
{
    clt_socket *s = NULL;
    char text[300], bound[300];
    size_t room = sizeof bound;
    snprintf(text, sizeof text, "tcp://%s", address);
    const int64_t part = most < PART ? most : PART + PART_SLACK;
    CLT_TRY(make(net, ZMQ_ROUTER, &s));
    s->listens = true;
    s->most = most;
    clt_status status = CLT_OK;
    if (!set(s->zmq, ZMQ_CURVE_SERVER, 1) ||
        !set_key(s->zmq, ZMQ_CURVE_SECRETKEY, net->holder.secret_key) ||
        zmq_setsockopt(s->zmq, ZMQ_ZAP_DOMAIN, "cltrain", 7) != 0 ||
        zmq_setsockopt(s->zmq, ZMQ_MAXMSGSIZE, &part, sizeof part) != 0)
        status = failed("no socket that listens");
    else if (zmq_bind(s->zmq, text) != 0)
        status = clt_fail(CLT_IO, "cannot listen at %s: %s", address, zmq_strerror(zmq_errno()));
    else if (zmq_getsockopt(s->zmq, ZMQ_LAST_ENDPOINT, bound, &room) == 0 && strrchr(bound, ':'))
        s->port = atoi(strrchr(bound, ':') + 1);
    if (status != CLT_OK) {
        clt_socket_close(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

int clt_socket_port(const clt_socket *socket)
{
    return socket->port;
}

clt_status clt_socket_connect(clt_net *net, const char *address, clt_socket **out)
{
    clt_socket *s = NULL;
    char text[300];
    snprintf(text, sizeof text, "tcp://%s", address);
    CLT_TRY(make(net, ZMQ_DEALER, &s));
    clt_status status = CLT_OK;
    if (!set_key(s->zmq, ZMQ_CURVE_SERVERKEY, net->holder.public_key) ||
        !set_key(s->zmq, ZMQ_CURVE_PUBLICKEY, net->client.public_key) ||
        !set_key(s->zmq, ZMQ_CURVE_SECRETKEY, net->client.secret_key))
        status = failed("no socket that connects");
    else if (zmq_connect(s->zmq, text) != 0)
        status = clt_fail(CLT_INVALID_ARGUMENT, "%s is no address: it must be HOST:PORT", address);
    if (status != CLT_OK) {
        clt_socket_close(s);
        return status;
    }
    *out = s;
    return CLT_OK;
}

void clt_socket_close(clt_socket *s)
{
    if (s && s->zmq)
        zmq_close(s->zmq);
    clt_free(s);
}

clt_status clt_socket_send(clt_socket *s, const clt_peer *peer, const void *header,
                           size_t header_bytes, const void *payload, size_t payload_bytes)
{
    int sent = 0;
    if (s->listens)
        sent = zmq_send(s->zmq, peer->bytes, peer->size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (sent >= 0)
        sent = zmq_send(s->zmq, header, header_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    const uint8_t *at = payload_bytes ? payload : (const uint8_t *)"";
    size_t left = payload_bytes;
    for (; sent >= 0 && left > PART; left -= PART, at += PART)
        sent = zmq_send(s->zmq, at, PART, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    if (sent >= 0)
        sent = zmq_send(s->zmq, at, left, ZMQ_DONTWAIT);
    return sent >= 0 || zmq_errno() == EAGAIN || zmq_errno() == EHOSTUNREACH
               ? CLT_OK
               : failed("cannot send");
}

static void close_parts(parts *p)
{
    for (int i = 0; i < p->count; i++)
        zmq_msg_close(&p->list[i]);
    CLT_FREE(p->payload);
    *p = (parts){0};
}

/* Appends a part to a payload. Returns whether memory suffices. */
static bool append(parts *p, zmq_msg_t *part)
{
    const size_t more = zmq_msg_size(part);
    if (p->bytes + more > p->room) {
        const size_t room = 2 * (p->bytes + more);
        uint8_t *grown = clt_realloc(p->payload, room);
        if (!grown)
            return false;
        p->payload = grown;
        p->room = room;
    }
    memcpy(p->payload + p->bytes, zmq_msg_data(part), more);
    p->bytes += more;
    return true;
}

/* Receives all parts of a message. Sets p->count to 0 if the message has no form, is too large, or
 * memory does not suffice for it. */
static int receive_parts(clt_socket *s, parts *p)
{
    const int least = s->listens ? 3 : 2;
    int more = 1, received = 0;
    bool good = true;
    *p = (parts){0};
    while (more) {
        zmq_msg_t m;
        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, s->zmq, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&m);
            close_parts(p);
            return -1;
        }
        more = zmq_msg_more(&m);
        if (++received <= least) {
            zmq_msg_init(&p->list[p->count]);
            zmq_msg_move(&p->list[p->count++], &m);
        } else {
            if (received == least + 1)
                good = append(p, &p->list[least - 1]);
            good = good && (!s->most || (int64_t)(p->bytes + zmq_msg_size(&m)) <= s->most) &&
                   append(p, &m);
        }
        zmq_msg_close(&m);
    }
    if (received < least || !good)
        close_parts(p);
    return 0;
}

/* Receives from a socket that has a message. *found: the message has a form. */
static clt_status receive(clt_socket *s, bool *found, clt_packet *out)
{
    parts *p = CLT_NEW(parts);
    CLT_TRY_MEMORY(p);
    *found = false;
    if (receive_parts(s, p) != 0) {
        clt_free(p);
        return zmq_errno() == EAGAIN || zmq_errno() == EINTR ? CLT_OK : failed("cannot receive");
    }
    const int first = s->listens;
    if (!p->count || (s->listens && zmq_msg_size(&p->list[0]) > CLT_PEER_ROOM)) {
        close_parts(p);
        clt_free(p);
        return CLT_OK;
    }
    *out = (clt_packet){.header = zmq_msg_data(&p->list[first]),
                        .header_bytes = zmq_msg_size(&p->list[first]),
                        .payload = p->payload ? p->payload : zmq_msg_data(&p->list[first + 1]),
                        .payload_bytes = p->payload ? p->bytes : zmq_msg_size(&p->list[first + 1]),
                        .parts = p};
    if (s->listens) {
        out->peer.size = zmq_msg_size(&p->list[0]);
        memcpy(out->peer.bytes, zmq_msg_data(&p->list[0]), out->peer.size);
    }
    *found = true;
    return CLT_OK;
}

clt_status clt_socket_receive(clt_socket *const *sockets, int count, int milliseconds, int *which,
                              clt_packet *packet)
{
    zmq_pollitem_t items[MOST_SOCKETS];
    *which = -1;
    if (count > MOST_SOCKETS)
        return clt_fail(CLT_UNSUPPORTED, "%d sockets at once; %d are possible", count,
                        MOST_SOCKETS);
    for (int i = 0; i < count; i++)
        items[i] = (zmq_pollitem_t){.socket = sockets[i]->zmq, .events = ZMQ_POLLIN};
    const int ready = zmq_poll(items, count, milliseconds);
    if (ready < 0)
        return zmq_errno() == EINTR ? CLT_OK : failed("cannot wait for messages");
    for (int i = 0; ready && i < count; i++) {
        bool found = false;
        if (items[i].revents & ZMQ_POLLIN)
            CLT_TRY(receive(sockets[i], &found, packet));
        if (found) {
            *which = i;
            return CLT_OK;
        }
    }
    return CLT_OK;
}

void clt_packet_free(clt_packet *packet)
{
    if (packet->parts)
        close_parts(packet->parts);
    clt_free(packet->parts);
    *packet = (clt_packet){0};
}

#else

bool clt_net_is_built(void)
{
    return false;
}

clt_status clt_net_create(const char *secret, clt_net **net)
{
    (void)secret;
    (void)net;
    return clt_fail(CLT_UNSUPPORTED, "cltrain was built without asynchronous training: install "
                                     "libzmq3-dev and libsodium-dev, and build it again");
}

/* Without a net there are no sockets, so nothing below is ever reached. */
static clt_status unreachable(void)
{
    return clt_fail(CLT_INTERNAL, "a socket without ZeroMQ");
}

void clt_net_destroy(clt_net *net)
{
    (void)net;
}

clt_status clt_socket_listen(clt_net *net, const char *address, int64_t most, clt_socket **socket)
{
    (void)net, (void)address, (void)most, (void)socket;
    return unreachable();
}

int clt_socket_port(const clt_socket *socket)
{
    (void)socket;
    return 0;
}

clt_status clt_socket_connect(clt_net *net, const char *address, clt_socket **socket)
{
    (void)net, (void)address, (void)socket;
    return unreachable();
}

void clt_socket_close(clt_socket *socket)
{
    (void)socket;
}

clt_status clt_socket_send(clt_socket *socket, const clt_peer *peer, const void *header,
                           size_t header_bytes, const void *payload, size_t payload_bytes)
{
    (void)socket, (void)peer, (void)header, (void)header_bytes, (void)payload, (void)payload_bytes;
    return unreachable();
}

clt_status clt_socket_receive(clt_socket *const *sockets, int count, int milliseconds, int *which,
                              clt_packet *packet)
{
    (void)sockets, (void)count, (void)milliseconds, (void)which, (void)packet;
    return unreachable();
}

void clt_packet_free(clt_packet *packet)
{
    (void)packet;
}

#endif
