/*
 * Sockets between the processes of a job: ZeroMQ with CURVE (RFC 26/ZMTP-CURVE), which encrypts and
 * authenticates every message. The keys of holders and of their clients follow from the job's
 * secret (libsodium). A connection without the secret never reaches the program: ZeroMQ drops what
 * is not its protocol, what is encrypted with other keys, and handshakes that stay incomplete for 5
 * s.
 *
 * A payload travels in parts, so that a slow link delivers something before its connection counts
 * as dead. A message is received as a whole.
 *
 * One thread at a time uses a socket. A net may be used by several threads.
 */
#ifndef CLT_TRAIN_ASYNC_TRANSPORT_H
#define CLT_TRAIN_ASYNC_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cltrain/status.h>

/* Fewest characters of a secret. */
enum { CLT_ASYNC_SECRET = 16, CLT_PEER_ROOM = 64 };

typedef struct clt_net clt_net;
typedef struct clt_socket clt_socket;

/* Who sent a message to a listening socket. */
typedef struct clt_peer {
    uint8_t bytes[CLT_PEER_ROOM];
    size_t size;
} clt_peer;

/* Whether two are the same connection. */
bool clt_peer_is(const clt_peer *peer, const clt_peer *other);

/* A received message: a header, and a payload, which may be empty. */
typedef struct clt_packet {
    clt_peer peer;
    const void *header, *payload;
    size_t header_bytes, payload_bytes;
    void *parts; /* what owns the bytes */
} clt_packet;

/* Whether this library was built with sockets. */
bool clt_net_is_built(void);

/* Errors: UNSUPPORTED (built without ZeroMQ or libsodium), INVALID_ARGUMENT (no secret, or one that
 * is too short). Free *net with clt_net_destroy, after its sockets. */
clt_status clt_net_create(const char *secret, clt_net **net);
void clt_net_destroy(clt_net *net);

/* Listens at "ADDRESS:PORT"; port 0 is any free one. A larger payload than `most` bytes is
 * dropped. Errors: IO with the system's reason. */
clt_status clt_socket_listen(clt_net *net, const char *address, int64_t most, clt_socket **socket);

/* Returns the port of a listening socket. */
int clt_socket_port(const clt_socket *socket);

/* Connects to "HOST:PORT", now or as soon as it is there, and again if the connection breaks.
 * Errors: INVALID_ARGUMENT for an address that is none. */
clt_status clt_socket_connect(clt_net *net, const char *address, clt_socket **socket);

/* Closes the socket. What was sent is still delivered, for up to a second. Takes NULL. */
void clt_socket_close(clt_socket *socket);

/* Sends without waiting. A listening socket needs the peer, others have `peer` NULL. A peer that is
 * gone is no error. Errors: IO. */
clt_status clt_socket_send(clt_socket *socket, const clt_peer *peer, const void *header,
                           size_t header_bytes, const void *payload, size_t payload_bytes);

/* Waits up to `milliseconds` for a message to one of the sockets. *which is its index, or -1.
 * Messages that have no form are dropped. Errors: IO. Free the packet with clt_packet_free. */
clt_status clt_socket_receive(clt_socket *const *sockets, int count, int milliseconds, int *which,
                              clt_packet *packet);
void clt_packet_free(clt_packet *packet);

#endif
