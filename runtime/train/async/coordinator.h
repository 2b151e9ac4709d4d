/* Holder 0's knowledge of the others. coordinator.c serves them; members.c knows who they are;
 * begin.c begins and ends the run. */
#ifndef CLT_TRAIN_ASYNC_COORDINATOR_H
#define CLT_TRAIN_ASYNC_COORDINATOR_H

#include "train/async/deal.h"
#include "train/async/holder.h"
#include "train/async/keeper.h"
#include "train/core/trainer.h"

typedef struct clt_worker_record {
    uint64_t who;
    int number;
    double heard;    /* time of its last message */
    double advanced; /* time of its last gradient, or of the first deal after it had none */
    clt_async_message deal, decided; /* the last answers to ASK and PUSH, if they are lost */
} clt_worker_record;

typedef struct clt_holder_record {
    clt_peer peer;
    bool ready;
    double heard;
    char endpoint[256];
} clt_holder_record;

/* Losses of an epoch whose batches are not all applied. */
typedef struct clt_epoch_sum {
    int64_t epoch;
    double loss;
    int64_t samples;
} clt_epoch_sum;

typedef struct clt_coordinator {
    clt_holder *h;
    clt_keeper keeper;
    clt_deal deal;
    clt_async_same same; /* of what workers must have equal */
    clt_worker_record *workers;
    int n_workers, workers_room;
    uint64_t *replaced; /* workers in whose place another process has joined */
    int n_replaced, replaced_room;
    clt_holder_record holders[CLT_ASYNC_MOST_HOLDERS];
    clt_snapshot *first;     /* the version that the run begins with */
    clt_snapshot *snapshots; /* parts are missing */
    clt_epoch_sum *sums;
    int n_sums, sums_room;
    int64_t orders, tickets, discarded, nonfinite;
    double reported, farewell, checked;
    bool ending, stopped;
    bool save_due;    /* a snapshot to save, as soon as no other waits */
    clt_status fatal; /* a failure that must end the run */
} clt_coordinator;

/* Serves until the run is done. */
clt_status clt_coordinator_run(clt_coordinator *coordinator);

/* Returns the worker that calls itself `who`; NULL: it has not joined, or is lost. */
clt_worker_record *clt_coordinator_worker(clt_coordinator *coordinator, uint64_t who);

/* Answer HELLO, JOIN and BYE. */
clt_status clt_coordinator_hello(clt_coordinator *coordinator, const clt_packet *packet,
                                 const clt_async_message *m);
clt_status clt_coordinator_join(clt_coordinator *coordinator, const clt_packet *packet,
                                const clt_async_message *m);
clt_status clt_coordinator_bye(clt_coordinator *coordinator, const clt_async_message *m);

/* Takes back what a worker has, and accepts nothing of it any more. */
clt_status clt_coordinator_lose(clt_coordinator *coordinator, int index, const char *reason);

/* Tells somebody that they cannot take part. */
clt_status clt_coordinator_refuse(clt_coordinator *coordinator, const clt_peer *peer,
                                  const char *why);

/* Tells a worker that is not known any more why. */
clt_status clt_coordinator_refuse_lost(clt_coordinator *coordinator, const clt_peer *peer,
                                       uint64_t who);

/* Sends an order to all other holders. */
clt_status clt_coordinator_order(clt_coordinator *coordinator, clt_async_message *m);

/* Begins a snapshot: its parts are those of this version on all holders, as orders are obeyed one
 * after the other. The log is written first, so that no checkpoint counts a gradient that a killed
 * holder's log does not have. */
clt_status clt_coordinator_begin_snapshot(clt_coordinator *coordinator, int64_t epoch, bool save,
                                          bool last);

/* Adds a holder's range to its snapshot, which is handed over once it is complete. Snapshots are
 * complete in their order, as every holder sends them in order and the last part completes one. */
clt_status clt_coordinator_add_snap(clt_coordinator *coordinator, const clt_packet *packet,
                                    const clt_async_message *m);

/* Returns how many snapshots are incomplete, or wait for the keeper. */
int clt_coordinator_waiting(clt_coordinator *coordinator);

/* Whether a snapshot of this version is to be saved. `complete`: an epoch ends with it, so that
 * there is a snapshot anyway. */
bool clt_coordinator_saves(clt_coordinator *coordinator, bool complete);

/* Writes and reads the state of the deals, a section of checkpoints. Free *text with clt_free. */
clt_status clt_coordinator_deals_text(const clt_deal *deal, char **text);
clt_status clt_coordinator_read_deals(const char *text, int64_t applied, clt_deal *deal);

/* Hashes what of the run a worker must have equal. Errors: those of reading data. */
clt_status clt_async_find_same(const clt_async_layout *layout, const char *reads,
                               clt_dtype precision, clt_dataset *train, int64_t batch,
                               const clt_fit_options *fit, clt_async_same *same);

#endif
