/* A worker's connections: requests to the holders, their answers, and a thread that tells holder 0
 * that the worker lives. A message is lost if its connection breaks: so a request is sent again
 * until its answer is there, from the second repetition on over a new connection. Holders recognise
 * a repeated request by its number. */
#ifndef CLT_TRAIN_ASYNC_WIRES_H
#define CLT_TRAIN_ASYNC_WIRES_H

#include <pthread.h>

#include "train/async/protocol.h"
#include "train/async/transport.h"
#include <cltrain/async.h>

/* A request, and its answer: a header, and the packet while `has` is set. */
typedef struct clt_answer {
    int64_t sequence; /* of the request. Answers to earlier ones are dropped */
    double sent;      /* time of the last request */
    double wait;      /* seconds until it is sent again */
    int repeats;
    bool has;
    clt_async_message m;
    clt_packet packet;
} clt_answer;

typedef struct clt_wires {
    const clt_async_options *options;
    clt_net *net;
    clt_socket *sockets[CLT_ASYNC_MOST_HOLDERS]; /* by holder */
    const char *endpoints[CLT_ASYNC_MOST_HOLDERS];
    char *names; /* owns the endpoints of holders 1 and following */
    int holders; /* connected */
    uint64_t who;
    uint64_t order_seed, dropout_seed; /* as holder 0 says */
    clt_answer deal, decided;
    clt_answer values[CLT_ASYNC_MOST_HOLDERS], staged[CLT_ASYNC_MOST_HOLDERS];
    int64_t repeated; /* requests that were sent again */
    uint32_t draws;   /* state of the random numbers of CLT_TESTING_LOSSY */
    /* The thread. */
    clt_socket *beat;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool beats, stop, beat_anew; /* beat_anew: the thread must connect again */
} clt_wires;

/* Joins holder 0, and connects to the others. `same`: what holder 0 compares. Errors: TIMEOUT,
 * MISMATCH, those of sockets. Call clt_wires_close in any case. */
clt_status clt_wires_open(clt_wires *wires, const clt_async_options *options,
                          const clt_async_same *same);
void clt_wires_close(clt_wires *wires);

/* Sends a message that has no answer. */
clt_status clt_wires_send(clt_wires *wires, int holder, const clt_async_message *m,
                          const void *data, size_t bytes);

/* Sends a request, which has a number of its own (m->sequence), or sends it again. `back`: about
 * how many bytes the answer has. */
clt_status clt_wires_request(clt_wires *wires, clt_answer *answer, int holder,
                             const clt_async_message *m, const void *data, size_t bytes,
                             size_t back);

/* Sends a request to a holder again. */
typedef clt_status clt_wires_again(void *user, int holder);

/* Waits until an answer is there, and repeats its request meanwhile. Errors: TIMEOUT, MISMATCH
 * (this worker was dropped), STOPPED, FORMAT. The answer's packet stays until clt_wires_take. */
clt_status clt_wires_await(clt_wires *wires, clt_answer *answer, int holder, clt_wires_again *again,
                           void *user);

/* Frees the answer. */
void clt_wires_take(clt_answer *answer);

#endif
