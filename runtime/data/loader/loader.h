/* Internals of a loader. */
#ifndef CLT_DATA_LOADER_LOADER_H
#define CLT_DATA_LOADER_LOADER_H

#include "data/loader/batch.h"
#include "data/loader/order.h"
#include "data/loader/tuner.h"

typedef enum clt_loader_slot_state {
    CLT_SLOT_FREE = 0,
    CLT_SLOT_FILLING, /* threads are gathering its samples */
    CLT_SLOT_READY,
    CLT_SLOT_TAKEN /* the caller reads it */
} clt_loader_slot_state;

typedef struct clt_loader_slot {
    clt_loader_slot_state state;
    int64_t number, epoch, begin, count; /* of the batch */
    int64_t from, to;                    /* positions in the batch that this process reads */
    int64_t tasks, started, finished;    /* pieces of [from, to) */
    clt_order order;
    int64_t weight;
    int64_t *offsets;      /* parts + 1 */
    int64_t *part_weights; /* local_parts */
    int64_t *indices;      /* sample numbers of [from, to) */
    clt_status status;     /* of the failed task with the lowest number */
    int64_t failed_task;
    char message[512];
} clt_loader_slot;

/* Gives a loader its next batch: up to `most` samples from a position on. Sets *claim and returns
 * true, or returns false while nothing may be claimed. Called by the loader's threads, one at a
 * time.
 */
typedef struct clt_loader_claim {
    int64_t epoch, begin, count;
} clt_loader_claim;
typedef bool (*clt_loader_claim_fn)(void *user, int64_t most, clt_loader_claim *claim);

typedef struct clt_loader_thread {
    struct clt_loader *loader;
    int id;
    pthread_t thread;
    clt_scratch scratch;
    int64_t *weights; /* of one task: one for each local part, then one for all other parts */
} clt_loader_thread;

/* Most batches that wait to be begun, of a loader whose batches are dealt. */
enum { CLT_LOADER_DEALT = 4 };

struct clt_loader {
    clt_gather gather;
    clt_loader_desc desc;       /* desc.weights points to `weights` */
    clt_loader_claim_fn claims; /* NULL: batches follow one another from the start position on */
    void *claims_user;
    double *weights;
    int64_t *bounds;   /* desc.bounds points here */
    int64_t *capacity; /* of all parts */
    int64_t chunk;     /* samples of a task */
    void **memory;     /* [slot][local part][output] */
    void **owned;      /* the same places; NULL where the caller gave the memory */
    int places;        /* entries of `memory` and of `owned` */
    clt_loader_slot *slots;
    clt_loader_thread *workers; /* the last one is the thread that takes batches */
    int worker_count;           /* threads that were started */
    bool started;

    /* `lock` guards everything below. */
    pthread_mutex_t lock;
    pthread_cond_t work;  /* a slot was freed, or stop; active threads wait here */
    pthread_cond_t rest;  /* the number of active threads grew, or stop; the others wait here */
    pthread_cond_t ready; /* a batch is complete, or stop */
    bool stop, failed;
    bool dealt; /* batches are those of clt_loader_deal; set before the start */
    struct {
        int64_t epoch, offset, count;
    } deals[CLT_LOADER_DEALT]; /* not begun yet */
    int n_deals;
    bool takes;            /* a thread that takes a batch assembles one */
    bool sleeps;           /* the threads were not told of a free slot */
    bool dry;              /* nothing may be claimed at present */
    int64_t epoch, offset; /* position of the next batch to begin */
    int64_t fill, take;    /* numbers of the next batch to begin, and to hand over */
    clt_status source;     /* error of the data set itself */
    char message[512];

    clt_tuner tuner;
    int64_t window_batches, window_start; /* nanoseconds */
    int64_t wait, busy, window_wait, window_busy;
};

/* Whether the epoch ends at this position: no samples are left, or with drop_last too few for a
 * batch. */
static inline bool clt_loader_epoch_ends(const clt_loader *l, int64_t position)
{
    const int64_t left = l->gather.dataset->count - position;
    return left == 0 || (l->desc.drop_last && left < l->desc.batch);
}

/* Lets a loader with `dealt` assemble positions [offset, offset + count) of an epoch as its next
 * batch. Any thread. Errors: STATE if CLT_LOADER_DEALT batches wait, INVALID_ARGUMENT for positions
 * that the epoch lacks or that are more than a batch. */
clt_status clt_loader_deal(struct clt_loader *loader, int64_t epoch, int64_t offset, int64_t count);

/* Lets `claims` say where each batch begins, instead of one after the other. Call it before the
 * start. When nothing is left, clt_loader_next gives batches with slot -1. */
void clt_loader_set_claims(clt_loader *loader, clt_loader_claim_fn claims, void *user);

/* Asks for claims again after nothing was left. */
void clt_loader_ask_again(clt_loader *loader);

/* Entry function of the loader's threads. */
void *clt_loader_work(void *worker);

#endif
