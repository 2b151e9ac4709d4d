/*
 * The file in which a trainer says where it is: clt_trainer_options.heartbeat. It is memory that
 * the process shares with the file, so that it tells, after a process was killed, what it was at; a
 * launcher also sees there whether a process still goes on. Steps write it without system calls.
 *
 * The file is one clt_heartbeat_record, then `labels` texts of CLT_HEARTBEAT_TEXT bytes each, which
 * end with a zero: the names of the buckets, as "bucket 2 (fc1.weight and 1 more)". In the byte
 * order of the machine, without padding. `magic` is written last: without it the file is not ready.
 */
#ifndef CLTRAIN_HEARTBEAT_H
#define CLTRAIN_HEARTBEAT_H

#include <cltrain/export.h>
#include <stdint.h>

CLT_BEGIN_DECLS

#define CLT_HEARTBEAT_MAGIC "cltbeat"

enum { CLT_HEARTBEAT_VERSION = 1, CLT_HEARTBEAT_TEXT = 256 };

/* What a rank is doing. Between beats of SETUP and SAVING any time may pass. */
typedef enum clt_heartbeat_state {
    CLT_HEARTBEAT_SETUP = 1,      /* until the first step: kernels are compiled and measured */
    CLT_HEARTBEAT_TRAINING = 2,   /* beats as a step begins, and at each bucket */
    CLT_HEARTBEAT_EVALUATING = 3, /* beats at each batch */
    CLT_HEARTBEAT_SAVING = 4,
    CLT_HEARTBEAT_FAILED = 5, /* with `message` */
    CLT_HEARTBEAT_ENDED = 6   /* the trainer was destroyed, and had not failed */
} clt_heartbeat_state;

typedef struct clt_heartbeat_record {
    char magic[8];     /* offset 0; CLT_HEARTBEAT_MAGIC */
    int32_t version;   /* 8 */
    int32_t state;     /* 12; a clt_heartbeat_state */
    int32_t rank;      /* 16 */
    int32_t ranks;     /* 20 */
    int64_t pid;       /* 24 */
    int64_t beats;     /* 32; grows with each beat */
    int64_t time;      /* 40; of the last beat: nanoseconds of the host's CLOCK_MONOTONIC */
    int64_t step;      /* 48; 1 is the first, 0: none yet */
    int64_t starts;    /* 56; reductions of buckets begun since the trainer was made, on device 0 */
    int64_t completes; /* 64; and ended. Fewer: the rank may be waiting for others */
    int32_t started;   /* 72; the bucket of the last one begun, -1: none */
    int32_t completed; /* 76; of the last one ended, -1: none */
    int32_t status;    /* 80; FAILED: the clt_status */
    int32_t labels;    /* 84 */
    char host[CLT_HEARTBEAT_TEXT];    /* 88 */
    char message[CLT_HEARTBEAT_TEXT]; /* 344; FAILED: what happened */
} clt_heartbeat_record;               /* 600 bytes */

CLT_END_DECLS

#endif
