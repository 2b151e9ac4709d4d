/*
 * Internals of reservoirs.
 *
 * A reservoir has `capacity` indices, and more places than indices. A place has room for a sample
 * in the memory of each field. A sample that is pushed gets a number under the lock, and the policy
 * decides its index. It is copied into a free place without the lock. Then the lock is taken again
 * to publish it: the index gets the place, unless a sample of a later number is there already. So
 * what the indices hold does not depend on which thread copies faster.
 *
 * Readers pin places and read them without the lock. A place that was replaced meanwhile becomes
 * free when its last reader unpins it. Nobody waits for a copy of somebody else.
 */
#ifndef CLT_DATA_RESERVOIR_RESERVOIR_H
#define CLT_DATA_RESERVOIR_RESERVOIR_H

#include "data/core/dataset.h"
#include <cltrain/reservoir.h>

typedef struct clt_reservoir_place {
    int32_t readers;
    bool retired; /* replaced, and becomes free with its last reader */
} clt_reservoir_place;

/* What an index holds. */
typedef struct clt_reservoir_entry {
    int64_t place;  /* -1: none yet */
    int64_t number; /* of the sample; 1 is the first */
} clt_reservoir_entry;

typedef struct clt_reservoir {
    clt_reservoir_options options;
    int64_t capacity;

    pthread_mutex_t lock;   /* guards everything below */
    pthread_cond_t arrived; /* the reservoir has `least` samples */
    pthread_cond_t changed; /* a place became free, or a restore is over */
    int64_t restores;       /* how often samples were replaced by those of a file */
    bool restoring;         /* pushes and draws wait */
    bool made;              /* there is memory */
    int64_t places;
    clt_reservoir_entry *entries;
    clt_reservoir_place *states; /* by place */
    int64_t *free;               /* places that are free */
    int64_t n_free;
    int64_t number; /* of the last sample that the policy has seen */
    int64_t begun;  /* indices [0, begun) are decided, though samples may still be copied */
    double *keys;   /* WEIGHTED: by index; the smaller a key, the longer a sample stays */
    int64_t *heap;  /* WEIGHTED: indices, the largest key first */
    _Atomic int64_t kept;
    int64_t seen, replaced, declined, dropped;

    /* For buffers; train/core/reservoir_buffers.c. */
    void *side;
    void (*side_free)(void *side);
} clt_reservoir;

/* Gives the reservoir of a data set. UNSUPPORTED for other data sets. */
clt_status clt_reservoir_of(const clt_dataset *dataset, clt_reservoir **out);

/* clt_dataset_create_reservoir, but for buffers. */
clt_status clt_reservoir_create(const char *name, int64_t capacity,
                                const clt_reservoir_options *options, clt_dataset **out);

/* Allocates the memory, if it is not there yet. No field may be added afterwards. */
clt_status clt_reservoir_make(clt_dataset *dataset);

/* Waits up to `seconds` for the reservoir to have `least` samples. Returns whether it has. Once it
 * has, it always has. */
bool clt_reservoir_ready(clt_reservoir *r, double seconds);

/* --- push.c ------------------------------------------------------------------------------------
 */

/* Checks arrays of a push or a draw against the fields; *count becomes the number of samples.
 * Contents are not read. */
clt_status clt_reservoir_check(const clt_dataset *dataset, const clt_array *fields, int n_fields,
                               int64_t *count);

/* Checks the weights of a push. */
clt_status clt_reservoir_check_weights(const clt_dataset *dataset, const double *weights,
                                       int64_t count);

/* Pushes samples of arrays of the host, which were checked. Checks values first. `before`: samples
 * that this push has taken already, for messages. */
clt_status clt_reservoir_put(clt_dataset *dataset, const clt_array *fields, const double *weights,
                             int64_t count, int64_t before);

/* A view of samples [first, first + count) of an array whose first dimension counts samples. */
clt_array clt_reservoir_slice(const clt_array *array, int64_t first, int64_t count);

/* --- policy.c; the lock is held ----------------------------------------------------------------
 */

/* What the policy decides about the next sample. */
typedef struct clt_reservoir_decision {
    int64_t number, index; /* index -1: the sample is declined */
    double key;
} clt_reservoir_decision;

/* Decides. Changes nothing. */
clt_reservoir_decision clt_reservoir_decide(const clt_reservoir *r, double weight);

/* Carries the decision out: the sample has its number, and the index is the sample's. */
void clt_reservoir_commit(clt_reservoir *r, const clt_reservoir_decision *d);

/* Makes the heap anew from the keys of indices [0, begun). */
void clt_reservoir_order(clt_reservoir *r);

/* --- places.c; the lock is held but in pin and unpin -------------------------------------------
 */

/* Waits until no restore is under way. */
void clt_reservoir_await_restore(clt_reservoir *r);

/* Begins to replace all samples: they go, and so will those that are being pushed. Returns when
 * `count` places are free. The caller publishes the new samples and counters, and then calls
 * clt_reservoir_restored. */
void clt_reservoir_empty(clt_reservoir *r, int64_t count);
void clt_reservoir_restored(clt_reservoir *r);

/* Publishes a copied sample. */
void clt_reservoir_publish(clt_reservoir *r, int64_t index, int64_t number, int64_t place);

/* Gives a place back that no index has. */
void clt_reservoir_release(clt_reservoir *r, int64_t place);

/* Draws samples for positions [first, first + count) of a step and pins their places. Returns false
 * if the reservoir is not ready. `numbers` may be NULL. Takes the lock. */
bool clt_reservoir_pin(clt_reservoir *r, uint64_t seed, int64_t step, int64_t first, int64_t count,
                       int64_t *places, int64_t *numbers);
void clt_reservoir_unpin(clt_reservoir *r, const int64_t *places, int64_t count);

#endif
