/* Changes the division of batches while a trainer runs. */
#ifndef CLT_TRAIN_PLANNER_BALANCE_H
#define CLT_TRAIN_PLANNER_BALANCE_H

#include "train/core/exchange.h"
#include "train/ranks/shares.h"

/* Measure a device's forward and backward; called on the device's thread before and after. The time
 * ends at the device's own last gradient, since afterwards the device would wait for others. */
void clt_balance_begin(clt_exchange_device *own);
clt_status clt_balance_end(clt_device *device, clt_exchange_device *own);

/* Returns true if the device's reductions begin only after its backward pass. A CPU may run
 * reductions in its queue and wait there for other devices; that wait would be counted as its own
 * time. Nothing is lost: a CPU hides no reduction, since the same cores sum. If the plan has
 * `collectives`, all devices do the same, because they enter all collectives in the same order. */
bool clt_balance_defers(const clt_trainer_options *options, const clt_caps *caps, bool collectives);

/* --- the policy ------------------------------------------------------------------------------ */

/* Number of steps of a window; the median step counts. */
enum { CLT_BALANCE_WINDOW = 16 };

typedef struct clt_balance {
    int n;            /* participants: the devices of all ranks */
    int64_t batch;    /* samples of a whole step */
    int steps;        /* steps measured in the window */
    double *seconds;  /* [device * window + step], this rank's devices */
    double *middle;   /* median seconds, by participant */
    float *told;      /* [device][participant]: medians gathered by each of this rank's devices */
    int64_t *offsets; /* of the division that the window measured */
    int64_t *shares;  /* by participant */
    double *weights;  /* the result of clt_balance_step */
    int64_t quantum;
} clt_balance;

clt_status clt_balance_create(const clt_participants *all, int64_t batch, clt_balance **balance);
void clt_balance_free(clt_balance *balance);

/* Records a step of `total` samples. `largest` is the trainer's batch. *change becomes true if
 * balance->weights and ->quantum divide whole batches better. Collective: ranks exchange their
 * times once per window, and all find the same result. */
clt_status clt_balance_step(clt_balance *balance, const clt_participants *all,
                            const clt_shares *shares, const clt_exchange *exchange, int64_t largest,
                            int64_t total, bool *change);

/* Fails with INVALID_ARGUMENT if a device has no room for its share of a batch. */
clt_status clt_balance_check_room(const clt_participants *all, const clt_shares *shares,
                                  int64_t batch, const double *weights, int64_t quantum);

/* Finds weights for `batch` from devices that took seconds[d] for shares[d]. Each device gets the
 * samples that it computes in the same time: at least a quantum and at most `most`. Returns false
 * if the slowest device would gain less than a tenth. `offsets` is scratch of n + 1. */
bool clt_balance_find(const int64_t *shares, const double *seconds, int n, int64_t batch,
                      int64_t quantum, int64_t most, int64_t *offsets, double *weights);

/* --- history of changes ---------------------------------------------------------------------- */

/* From step `steps[i]` on (counted from 0), the weights are weights[i * n] to weights[i * n + n -
 * 1]. */
typedef struct clt_split_history {
    int n, count, room;
    int64_t *steps, *quanta;
    double *weights;
} clt_split_history;

clt_status clt_split_history_add(clt_split_history **history, int n, int64_t step,
                                 const double *weights, int64_t quantum);
void clt_split_history_free(clt_split_history *history);

#endif
