/* A worker's connections: requests to the holders, their answers, and a thread that tells holder 0
 * that the worker lives. */
#ifndef CLT_TRAIN_ASYNC_WIRES_H
#define CLT_TRAIN_ASYNC_WIRES_H

#include <pthread.h>

#include "train/async/protocol.h"
#include "train/async/transport.h"
#include <cltrain/async.h>

/* An answer that has come: its header, and the packet while `has` is set. */
typedef struct clt_answer {
    bool has;
    clt_async_message m;
    clt_packet packet;
} clt_answer;

typedef struct clt_wires {
    const clt_async_options *options;
    clt_net *net;
    clt_socket *sockets[CLT_ASYNC_MOST_HOLDERS]; /* by holder */
    int holders;                                 /* connected */
    uint64_t who;
    uint64_t order_seed, dropout_seed; /* as holder 0 says */
    clt_answer deal, decided;
    clt_answer values[CLT_ASYNC_MOST_HOLDERS], staged[CLT_ASYNC_MOST_HOLDERS];
    /* The thread. */
    clt_socket *beat;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool beats, stop;
} clt_wires;

/* Joins holder 0, and connects to the others. `hash`: of model and run. Errors: TIMEOUT, MISMATCH,
 * those of sockets. Call clt_wires_close in any case. */
clt_status clt_wires_open(clt_wires *wires, const clt_async_options *options, uint64_t hash);
void clt_wires_close(clt_wires *wires);

clt_status clt_wires_send(clt_wires *wires, int holder, const clt_async_message *m,
                          const void *data, size_t bytes);

/* Waits until an answer is there. Errors: TIMEOUT, MISMATCH (this worker was dropped), STOPPED,
 * FORMAT. The answer's packet stays until clt_wires_take. */
clt_status clt_wires_await(clt_wires *wires, clt_answer *answer, int holder);

/* Frees the answer. */
void clt_wires_take(clt_answer *answer);

#endif
