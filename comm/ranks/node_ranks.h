/*
 * Collectives between the ranks of a node through shared memory. Each rank reduces its own devices'
 * data into a slot, and every rank reduces all slots in the order of the ranks. A chunk needs one
 * synchronisation and no message passing, so any thread may do it at any level of MPI's thread
 * support.
 */
#ifndef CLT_COMM_RANKS_H
#define CLT_COMM_RANKS_H

#include <stdatomic.h>
#include <stddef.h>

#include "comm/core/tasks.h"
#include "comm/core/team.h"

typedef struct clt_ranks clt_ranks;

/* Why a rank ended. The notice is passed on, so that all ranks report the same. */
typedef struct clt_ranks_notice {
    clt_status status;
    int rank; /* number among the ranks of all nodes */
    char text[256];
} clt_ranks_notice;

enum { CLT_RANKS_MOST = 64 };

/* Returns the bytes of memory that `ranks` ranks share. */
size_t clt_ranks_bytes(int ranks);

/* Opens a rank's part. `number` is the number by which messages call this rank. `memory` must begin
 * at a page, be the same for all ranks, be zero before the first rank opens it, and outlive the
 * node. Errors: OUT_OF_MEMORY, UNSUPPORTED (too many ranks). */
clt_status clt_ranks_open(void *memory, int rank, int ranks, int number, clt_ranks **node);

/* Tells the others that this rank takes no further part, and frees its part. Takes NULL. */
void clt_ranks_close(clt_ranks *node);

/* Facts about the request of a run. */
typedef struct clt_ranks_job {
    uint64_t signature; /* hash of the operations; equal on all ranks */
    int64_t sequence;   /* for messages */
    const char *label;  /* for messages */
    clt_comm_kind kind; /* for counts */
    const char *device; /* for messages: the name of this rank's first device; NULL: it has none */
    int timeout_ms;     /* 0: no time-out */
    int grace_ms;       /* waits so much longer, because other ranks know better what is missing */
    int contributors;   /* devices of this rank that are not empty */
    int votes;          /* bits of this rank's devices */
    atomic_bool *aborted; /* ends the waiting when set */
    clt_team *team;
    bool patient; /* may poll for long: no other work needs the core */
    int guests;   /* threads that may join the team; 0: the team has its own threads */
    /* Called now and then while the run waits; a failure ends the run. May be NULL. */
    clt_status (*listen)(void *user);
    void *listener;
} clt_ranks_job;

/* Facts that all ranks learn in a run. */
typedef struct clt_ranks_sum {
    int contributors; /* sum over all ranks */
    int votes;        /* bitwise OR over all ranks */
} clt_ranks_sum;

/*
 * Does the tasks. They must be the same on all ranks except for their pointers, which are a rank's
 * own. Adds the measures of tasks to *sum_squares and *finite, with the same bits on all ranks. One
 * thread at a time may call it, in the same order on all ranks. Errors: MISMATCH (a rank is at
 * another operation), TIMEOUT (the message names the missing ranks), ABORTED (*aborted, or another
 * rank's abort with its message), OUT_OF_MEMORY.
 */
clt_status clt_ranks_run(clt_ranks *node, const clt_ranks_job *job, const clt_task_list *tasks,
                         double *sum_squares, bool *finite, clt_ranks_sum *sum);

/*
 * Calls `take` with every rank's `bytes` bytes, at most CLT_RANKS_SHARE, rank by rank. The data are
 * valid during the call only. Errors: as clt_ranks_run.
 */
enum { CLT_RANKS_SHARE = 256 * 1024 };
clt_status clt_ranks_share(clt_ranks *node, const clt_ranks_job *job, const void *from,
                           size_t bytes,
                           clt_status (*take)(void *user, const void *from, size_t bytes),
                           void *user);

/* Ends the waiting of other ranks. Only the first notice counts. Any thread may call it. */
void clt_ranks_abort(clt_ranks *node, const clt_ranks_notice *notice);

/* Whether another rank of the node has aborted, or ended a run of this rank, and its notice. Any
 * thread may call it. */
bool clt_ranks_heard(const clt_ranks *node, clt_ranks_notice *notice);

/* Fails with ABORTED: a rank ended the run. */
clt_status clt_ranks_ended(const clt_ranks_job *job, const clt_ranks_notice *notice);

/* Waits until all ranks have called it. */
clt_status clt_ranks_barrier(clt_ranks *node, const clt_ranks_job *job);

/* Returns the ranks that had not arrived when this rank last looked: bit r for rank r. Any thread
 * may call it. */
uint64_t clt_ranks_missing(const clt_ranks *node);

/* Fails with TIMEOUT: this rank waited for the ranks in `missing`. */
clt_status clt_ranks_late(const clt_ranks *node, const clt_ranks_job *job, uint64_t missing);

/* The same for ranks of any node: bit r stands for rank numbers[r], and this rank is `own`. */
clt_status clt_ranks_waited(const clt_ranks_job *job, int own, const int *numbers,
                            uint64_t missing);

/* The same with names instead of ranks: "device 0 (NAME)" waited for "device 1 (NAME)". */
clt_status clt_ranks_timeout(const clt_ranks_job *job, const char *waiting, const char *missing);

#endif
