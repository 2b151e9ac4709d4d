/*
 * The file with a trainer's position: clt_trainer_options.heartbeat. After a process was killed,
 * the file tells what the process was doing. A launcher also sees in it whether a process still
 * makes progress. The process shares memory with the file, so steps write it without system calls.
 *
 * The file is a clt_heartbeat_record, then `labels` texts of CLT_HEARTBEAT_TEXT bytes each: the
 * names of the buckets, such as "bucket 2 (fc1.weight and 1 more)". Texts end with a 0 byte.
 * Numbers are in the byte order of the machine, without padding. `magic` is written last: without
 * it the file is not ready.
 */
#ifndef CLTRAIN_HEARTBEAT_H
#define CLTRAIN_HEARTBEAT_H

#include <cltrain/export.h>
#include <stdint.h>

CLT_BEGIN_DECLS

#define CLT_HEARTBEAT_MAGIC "cltbeat"

enum { CLT_HEARTBEAT_VERSION = 1, CLT_HEARTBEAT_TEXT = 256 };

/* What a rank is doing. In SETUP, SAVING and WAITING any time may pass between beats. */
typedef enum clt_heartbeat_state {
    CLT_HEARTBEAT_SETUP = 1,      /* until the first step: kernels are compiled and measured */
    CLT_HEARTBEAT_TRAINING = 2,   /* beats as a step begins, and at each bucket */
    CLT_HEARTBEAT_EVALUATING = 3, /* beats at each batch */
    CLT_HEARTBEAT_SAVING = 4,
    CLT_HEARTBEAT_FAILED = 5, /* with `message` */
    CLT_HEARTBEAT_ENDED = 6,  /* the trainer was destroyed, and had not failed */
    CLT_HEARTBEAT_WAITING = 7 /* replicas (clt_local_fit) wait for those of other ranks */
} clt_heartbeat_state;

typedef struct clt_heartbeat_record {
    char magic[8];   /* offset 0; CLT_HEARTBEAT_MAGIC */
    int32_t version; /* 8 */
    int32_t state;   /* 12; a clt_heartbeat_state */
    int32_t rank;    /* 16 */
    int32_t ranks;   /* 20 */
    int64_t pid;     /* 24 */
    int64_t beats;   /* 32; grows with each beat */
    int64_t time;    /* 40; of the last beat: nanoseconds of the host's CLOCK_MONOTONIC */
    int64_t step;    /* 48; 1 is the first, 0: none yet */
    int64_t starts;  /* 56; reductions of buckets that device 0 began since the trainer was made */
    int64_t completes; /* 64; reductions that ended. If fewer, the rank may wait for others */
    int32_t started;   /* 72; bucket of the last reduction that began; -1: none */
    int32_t completed; /* 76; bucket of the last reduction that ended; -1: none */
    int32_t status;    /* 80; FAILED: the clt_status */
    int32_t labels;    /* 84 */
    char host[CLT_HEARTBEAT_TEXT];    /* 88 */
    char message[CLT_HEARTBEAT_TEXT]; /* 344; FAILED: what happened */
} clt_heartbeat_record;               /* 600 bytes */

CLT_END_DECLS

#endif
