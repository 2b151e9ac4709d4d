/* The division of a run's batches in its checkpoints. */
#ifndef CLT_TRAIN_PLANNER_FROZEN_H
#define CLT_TRAIN_PLANNER_FROZEN_H

#include "train/planner/balance.h"
#include <cltrain/planner.h>

/* What must be the same for a device to take the place of one that a checkpoint names: a text of so
 * many bytes a device. */
enum { CLT_SPLIT_IDENTITY = 512 };
void clt_split_identify(clt_device *const *devices, int count, char *identities);

/* Fills all->identities if there are several ranks. `store` has this process' devices.
 * Collective. */
clt_status clt_split_identities(clt_participants *all, const clt_store *store);

/* A division, for the section CLT_SECTION_SPLIT. */
typedef struct clt_division {
    const char *identities; /* of `count` devices: those of all ranks */
    int count;
    const int *begins; /* by rank, and one more: its first device; NULL: one rank */
    int ranks;
    const double *weights; /* NULL: equal */
    int64_t quantum;
    int64_t bucket_bytes;             /* the store's */
    int64_t per_device;               /* the trainer's, with: */
    const clt_split_history *history; /* how it came to these; NULL: it did not change */
} clt_division;

/* Free with clt_free. */
clt_status clt_split_to_json(const clt_division *division, char **text);

/* The history of a section for `count` devices of so many ranks; NULL if it has none of as many.
 * Errors: FORMAT, OUT_OF_MEMORY. */
clt_status clt_split_read_history(const char *section, int ranks, int count,
                                  clt_split_history **history);

#endif
