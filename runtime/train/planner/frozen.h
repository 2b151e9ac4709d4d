/* Stores the division of a run's batches in its checkpoints. */
#ifndef CLT_TRAIN_PLANNER_FROZEN_H
#define CLT_TRAIN_PLANNER_FROZEN_H

#include "train/planner/balance.h"
#include <cltrain/planner.h>

/* Identities of devices, CLT_SPLIT_IDENTITY bytes each. A device can take the place of one in a
 * checkpoint if their identities are equal. */
enum { CLT_SPLIT_IDENTITY = 512 };
void clt_split_identify(clt_device *const *devices, int count, char *identities);

/* Fills all->identities if there are several ranks. `store` holds this process' devices.
 * Collective. */
clt_status clt_split_identities(clt_participants *all, const clt_store *store);

/* Returns the first participant that is of another kind than the first place of its group along an
 * axis; -1: none. Needs the identities. */
int clt_split_differs(const clt_participants *all, const clt_store *store, clt_axis axis);

/* Fails with UNSUPPORTED if the devices of axis tp differ. Places of tp compute parts of the same
 * layers, step by step, and whole values that must have the same bits. */
clt_status clt_split_check_kinds(const clt_participants *all, const clt_store *store);

/* A division, for the section CLT_SECTION_SPLIT. */
typedef struct clt_division {
    const char *identities; /* of `count` devices of all ranks */
    int count;
    const int *begins; /* first devices by rank, and the end; NULL: one rank */
    int ranks;
    const double *weights; /* NULL: equal */
    int64_t quantum;
    int64_t bucket_bytes;             /* the store's */
    int64_t per_device;               /* the trainer's option; saved if there is a history */
    const clt_split_history *history; /* changes so far; NULL: none */
} clt_division;

/* Writes a division as JSON to *text. Free *text with clt_free. */
clt_status clt_split_to_json(const clt_division *division, char **text);

/* Reads the history of a section for `count` devices of `ranks` ranks. *history is NULL if the
 * section has no history for these numbers. Errors: FORMAT, OUT_OF_MEMORY. */
clt_status clt_split_read_history(const char *section, int ranks, int count,
                                  clt_split_history **history);

#endif
