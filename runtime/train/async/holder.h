/* The inside of a holder: what all holders do is in holder.c, what only holder 0 does in
 * coordinator.c. */
#ifndef CLT_TRAIN_ASYNC_HOLDER_H
#define CLT_TRAIN_ASYNC_HOLDER_H

#include "exec/replica.h"
#include "train/async/events.h"
#include "train/async/payload.h"
#include "train/async/protocol.h"
#include "train/async/range.h"
#include "train/async/transport.h"
#include <cltrain/async.h>

/* A gradient that waits for the decision of holder 0, in a holder that is another. */
typedef struct clt_staged {
    uint64_t who;
    int64_t sequence;
    float *gradient; /* of the range */
} clt_staged;

typedef struct clt_holder {
    const clt_async_options *options;
    const clt_trainer_options *trainer;
    clt_async_layout layout;
    clt_slice *slice;
    int64_t elements; /* of the range */
    clt_rows rows;
    clt_net *net;
    clt_socket *socket, *up; /* up: to holder 0; NULL in holder 0 */
    clt_events *events;
    uint64_t hash; /* of model and optimizer: equal in all holders */
    int64_t version;
    float *range;       /* scratch: a gradient of the range */
    float *message;     /* scratch: what is sent, or a payload that lies badly */
    int64_t room;       /* bytes of `message` */
    float *states;      /* holder 0: values of all states */
    clt_staged *staged; /* other holders */
    int n_staged, staged_room;
    uint64_t *gone; /* other holders: workers that were dropped, of which nothing is kept */
    int n_gone, gone_room;
    clt_packet *late; /* other holders: pulls of a version that is not there yet */
    int n_late, late_room;
    int64_t orders; /* number of the last order */
    bool loaded;
    double heard, told, flushed; /* times: of holder 0's last message, of this one's last beat */
    double checked;
} clt_holder;

/* Notes a line for the user. */
void clt_holder_note(const clt_holder *holder, const char *format, ...) CLT_PRINTF(2, 3);

/* Sends a message without payload. */
clt_status clt_holder_send(clt_socket *socket, const clt_peer *peer, const clt_async_message *m);

/* Sends a message with a payload. */
clt_status clt_holder_send_data(clt_socket *socket, const clt_peer *peer,
                                const clt_async_message *m, const void *data, size_t bytes);

/* Answers a PULL with this holder's values and version. */
clt_status clt_holder_pull(clt_holder *holder, const clt_packet *packet,
                           const clt_async_message *m);

/* Reads the gradient of this range from a payload into holder->range. *rest is what follows it.
 * Errors: FORMAT. */
clt_status clt_holder_read_gradient(clt_holder *holder, const clt_packet *packet,
                                    const uint8_t **rest, size_t *rest_bytes);

/* A message that does not have the form that it should: noted, and dropped. */
void clt_holder_drop(const clt_holder *holder, const char *what);

/* coordinator.c: the whole of holder 0's work. */
clt_status clt_holder_lead(clt_holder *holder, clt_trainer *whole, clt_dataset *train,
                           clt_dataset *test, const clt_fit_options *fit);

#endif
