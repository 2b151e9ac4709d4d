/*
 * The messages between workers and holders. Pure: bytes to structures and back. A message is a
 * header and, for some kinds, a payload of tensor elements, which the receiver checks against the
 * size that it expects. Everything in a header is bounds-checked when it is decoded.
 *
 *   worker -> holder 0   HELLO, ASK, PUSH, BEAT, BYE
 *   worker -> holder i   PULL, STAGE
 *   holder 0 -> worker   WELCOME, REFUSE, DEAL, DECIDED
 *   holder i -> worker   VALUES, STAGED
 *   holder i -> holder 0 JOIN, SNAP, BEAT
 *   holder 0 -> holder i LOAD, PING, END, and orders: APPLY, DROP, FORGET, SNAPSHOT
 *
 * ASK, PULL, STAGE and PUSH come again if their answers are lost. They then have the same number in
 * `sequence`: a gradient's PULL, STAGE and PUSH have one number, and ASK has its own. DEAL and
 * DECIDED are given once for a number, and sent again as they were.
 *
 * The payload of WELCOME has the endpoints of the other holders, separated by blanks.
 *
 * Orders have numbers without gaps in `sequence`. Their `lease` is the number of the push (APPLY,
 * DROP) or of the snapshot.
 */
#ifndef CLT_TRAIN_ASYNC_PROTOCOL_H
#define CLT_TRAIN_ASYNC_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/status.h>

typedef enum clt_async_kind {
    CLT_MSG_HELLO = 1,
    CLT_MSG_WELCOME,
    CLT_MSG_REFUSE,
    CLT_MSG_ASK,
    CLT_MSG_DEAL,
    CLT_MSG_PULL,
    CLT_MSG_VALUES,
    CLT_MSG_STAGE,
    CLT_MSG_STAGED,
    CLT_MSG_PUSH,
    CLT_MSG_DECIDED,
    CLT_MSG_BEAT,
    CLT_MSG_BYE,
    CLT_MSG_JOIN,
    CLT_MSG_LOAD,
    CLT_MSG_APPLY,
    CLT_MSG_DROP,
    CLT_MSG_FORGET,
    CLT_MSG_SNAPSHOT,
    CLT_MSG_SNAP,
    CLT_MSG_PING,
    CLT_MSG_END,
    CLT_MSG_KINDS
} clt_async_kind;

/* What holder 0 did with a gradient. */
typedef enum clt_async_verdict {
    CLT_PUSH_APPLIED,
    CLT_PUSH_DISCARDED, /* older than the staleness that is allowed */
    CLT_PUSH_NONFINITE,
    CLT_PUSH_UNKNOWN, /* the worker had been dropped, and its batch dealt to another */
    CLT_PUSH_VERDICTS
} clt_async_verdict;

/* A header. Kinds use what they need; the rest is 0. */
typedef struct clt_async_message {
    clt_async_kind kind;
    int32_t number;   /* HELLO, WELCOME: worker; JOIN: holder; DEAL: clt_dealt; DECIDED: verdict;
                         PUSH: 1 if finite */
    uint64_t who;     /* a worker's incarnation */
    uint64_t hash;    /* HELLO, JOIN: of the model; WELCOME: the seed of the data's order */
    uint64_t seed;    /* HELLO: hash of the data; WELCOME: of dropout */
    int64_t sequence; /* of a worker's requests, which an answer repeats; or of orders */
    int64_t lease, epoch, offset, count;
    int64_t version;      /* PULL's answer, PUSH: pulled; APPLY, DECIDED, LOAD: new */
    int64_t staleness;    /* DECIDED */
    double loss, squares; /* PUSH; APPLY: squares, the sum of squares of the whole gradient */
    char text[768];       /* an endpoint, messages, names; ends with a 0 */
} clt_async_message;

/* Hashes of what a worker and holder 0 must have equal. */
typedef struct clt_async_same {
    uint64_t model; /* the graph, what of it is trained, its precision, and the number of holders */
    uint64_t data;  /* content (of a large field, blocks of it), preparation, batch and order */
} clt_async_same;

enum { CLT_MSG_FIXED = 112, CLT_MSG_MOST = CLT_MSG_FIXED + 767 };

/* Writes a header of at most CLT_MSG_MOST bytes. Returns its size. */
size_t clt_async_encode(const clt_async_message *message, uint8_t *bytes);

/* Reads a header. Errors: FORMAT for anything that clt_async_encode cannot have written. */
clt_status clt_async_decode(const void *bytes, size_t size, clt_async_message *message);

const char *clt_async_verdict_name(clt_async_verdict verdict);

#endif
