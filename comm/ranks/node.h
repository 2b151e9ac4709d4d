/*
 * Collectives between the ranks of a node through memory that they share: each rank reduces its own
 * devices' data into a slot, and every rank reduces the slots of all, in the order of the ranks.
 * One synchronisation a chunk, and no message passing, so that any thread may do it, whatever the
 * level of MPI's thread support.
 */
#ifndef CLT_COMM_RANKS_H
#define CLT_COMM_RANKS_H

#include <stdatomic.h>
#include <stddef.h>

#include "comm/core/tasks.h"
#include "comm/core/team.h"

typedef struct clt_ranks clt_ranks;

/* Why a rank ended; passed on, so that all say the same. */
typedef struct clt_ranks_notice {
    clt_status status;
    int rank; /* among the ranks of all nodes */
    char text[256];
} clt_ranks_notice;

enum { CLT_RANKS_MOST = 64 };

/* Bytes of memory that so many ranks share. */
size_t clt_ranks_bytes(int ranks);

/* `number`: what messages call this rank. `memory` begins at a page, is the same for all ranks and
 * was zero before the first of them opened it; it outlives the node. Errors: OUT_OF_MEMORY,
 * UNSUPPORTED (too many ranks). */
clt_status clt_ranks_open(void *memory, int rank, int ranks, int number, clt_ranks **node);

/* Tells the others that this rank takes no further part. Takes NULL. */
void clt_ranks_close(clt_ranks *node);

/* What a run needs to know of its request. */
typedef struct clt_ranks_job {
    uint64_t signature;   /* of the operations; equal on all ranks */
    int64_t sequence;     /* for messages */
    const char *label;    /* for messages */
    clt_comm_kind kind;   /* for counts */
    const char *device;   /* for messages: the name of this rank's first; NULL: none */
    int timeout_ms;       /* 0: none */
    int grace_ms;         /* waits so much longer, for those who know better what is missing */
    int contributors;     /* devices of this rank that are not empty */
    int votes;            /* bits of this rank's devices */
    atomic_bool *aborted; /* ends the waiting */
    clt_team *team;
    bool patient; /* the waiting thread keeps no other work from its core */
    int guests;   /* threads that may join the team; 0: it has its own */
    /* Asked now and then while the run waits; a failure ends it. NULL: none. */
    clt_status (*listen)(void *user);
    void *listener;
} clt_ranks_job;

/* What the ranks learn of a run together. */
typedef struct clt_ranks_sum {
    int contributors; /* over all ranks */
    int votes;        /* the bitwise or */
} clt_ranks_sum;

/*
 * Does the tasks, which are the same on all ranks but for their pointers: a rank gives those of its
 * own devices. Adds to *sum_squares and *finite what tasks measure, with the same bits on all
 * ranks. One thread at a time, in the same order
 * on all ranks. Errors: MISMATCH (a rank brings something else), TIMEOUT (names the ranks that are
 * missing), ABORTED (*aborted, or another rank's abort with its message), OUT_OF_MEMORY.
 */
clt_status clt_ranks_run(clt_ranks *node, const clt_ranks_job *job, const clt_task_list *tasks,
                         double *sum_squares, bool *finite, clt_ranks_sum *sum);

/*
 * Gives every rank's `bytes` bytes, at most CLT_RANKS_SHARE, to `take`, rank by rank; what it is
 * given is valid for the call. As clt_ranks_run otherwise.
 */
enum { CLT_RANKS_SHARE = 256 * 1024 };
clt_status clt_ranks_share(clt_ranks *node, const clt_ranks_job *job, const void *from,
                           size_t bytes,
                           clt_status (*take)(void *user, const void *from, size_t bytes),
                           void *user);

/* Ends the others' waiting. Any thread; the first notice stays. */
void clt_ranks_abort(clt_ranks *node, const clt_ranks_notice *notice);

/* Whether another rank of the node has aborted, or ended a run of this one; its notice. Any thread.
 */
bool clt_ranks_heard(const clt_ranks *node, clt_ranks_notice *notice);

/* ABORTED: a rank ended the run. */
clt_status clt_ranks_ended(const clt_ranks_job *job, const clt_ranks_notice *notice);

/* Waits until all ranks are here. */
clt_status clt_ranks_barrier(clt_ranks *node, const clt_ranks_job *job);

/* Bit r: rank r had not arrived when this rank last looked, waiting. Any thread. */
uint64_t clt_ranks_missing(const clt_ranks *node);

/* TIMEOUT: this rank waited for those of the bits. */
clt_status clt_ranks_late(const clt_ranks *node, const clt_ranks_job *job, uint64_t missing);

/* The same of any node's: bit r stands for rank numbers[r]; this one is rank `own`. */
clt_status clt_ranks_waited(const clt_ranks_job *job, int own, const int *numbers,
                            uint64_t missing);

/* The same in other words than ranks: "device 0 (NAME)" waited for "device 1 (NAME)". */
clt_status clt_ranks_timeout(const clt_ranks_job *job, const char *waiting, const char *missing);

#endif
