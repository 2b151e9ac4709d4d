/* Changing the division of batches while a trainer runs. */
#ifndef CLT_TRAIN_PLANNER_BALANCE_H
#define CLT_TRAIN_PLANNER_BALANCE_H

#include "train/core/exchange.h"
#include "train/ranks/shares.h"

/* Around a device's forward and backward, on its thread: notes what they took, up to its own last
 * gradient. It would wait for the others' next. */
void clt_balance_begin(clt_exchange_device *own);
clt_status clt_balance_end(clt_device *device, clt_exchange_device *own);

/* Whether the device's reductions begin after its backward only: a CPU's may run in its queue, and
 * wait there for the others, whose time would seem to be its own. Nothing is hidden on CPUs anyway,
 * since the same cores add up. If the plan has `collectives`, all devices do so: they come to
 * everything in the same order. */
bool clt_balance_apart(const clt_trainer_options *options, const clt_caps *caps, bool collectives);

/* --- the policy ------------------------------------------------------------------------------ */

/* Steps of which the middle one counts, and the gain that is worth a change. */
enum { CLT_BALANCE_WINDOW = 16 };

typedef struct clt_balance {
    int n;            /* participants: the devices of all ranks */
    int64_t batch;    /* of a whole step */
    int steps;        /* in the window */
    double *seconds;  /* [device * window + step], of this rank's */
    double *middle;   /* by participant */
    float *told;      /* [device][participant]: what each of this rank's devices is told */
    int64_t *offsets; /* of the window's division */
    int64_t *shares;  /* by participant */
    double *weights;  /* what clt_balance_step found */
    int64_t quantum;
} clt_balance;

clt_status clt_balance_create(const clt_participants *all, int64_t batch, clt_balance **balance);
void clt_balance_free(clt_balance *balance);

/* After a step of `total` samples; the trainer's batch is `largest`. *change: balance->weights and
 * ->quantum divide whole batches better. Collective: all ranks find the same, from what they tell
 * each other once a window. */
clt_status clt_balance_step(clt_balance *balance, const clt_participants *all,
                            const clt_shares *shares, const clt_exchange *exchange, int64_t largest,
                            int64_t total, bool *change);

/* INVALID_ARGUMENT if a device had no room for its share of a batch. */
clt_status clt_balance_check_room(const clt_participants *all, const clt_shares *shares,
                                  int64_t batch, const double *weights, int64_t quantum);

/*
 * From devices that took seconds[d] for shares[d]: weights of a division of `batch` in which each
 * device has as much as it does in the same time, at least a quantum and at most `most`. False if
 * the longest device would gain less than a tenth. `offsets` is scratch of n + 1.
 */
bool clt_balance_find(const int64_t *shares, const double *seconds, int n, int64_t batch,
                      int64_t quantum, int64_t most, int64_t *offsets, double *weights);

/* --- what was changed ------------------------------------------------------------------------ */

/* From step `steps[i]` on (0 is the first) the weights are those from i * n on. */
typedef struct clt_split_history {
    int n, count, room;
    int64_t *steps, *quanta;
    double *weights;
} clt_split_history;

clt_status clt_split_history_add(clt_split_history **history, int n, int64_t step,
                                 const double *weights, int64_t quantum);
void clt_split_history_free(clt_split_history *history);

#endif
