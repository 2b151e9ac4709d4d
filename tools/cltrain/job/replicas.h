/* Replicas that train by themselves: --parallel local=N, --sync-every and --outer. */
#ifndef CLTRAIN_COMMAND_JOB_REPLICAS_H
#define CLTRAIN_COMMAND_JOB_REPLICAS_H

#include <cltrain/local.h>

#include "options/options.h"

struct job;

typedef struct replica_set {
    int total, own; /* of all ranks, and of this one; total 0: there are none;
                       -1: local=*, until the devices are known */
    char mesh[256]; /* of a replica's devices; "": all are dp */
    clt_local_options options;
    clt_store **stores;
    clt_trainer **trainers;
    clt_local *local;
} replica_set;

/* Reads the options, and refuses those that do not go together. Returns an exit code. */
int replicas_read(struct job *j, const settings *s);

/* Makes a store for each replica of this rank. Collective. Returns an exit code. */
int replicas_stores(struct job *j, const settings *s, const clt_store_options *options);

/* Loads the parameters of --init into the other stores. */
clt_status replicas_load(const struct job *j, const settings *s, const char *skip);

/* Makes the trainers, and replicas of them. Collective. */
clt_status replicas_trainers(struct job *j);

/* Whether there are replicas that are synchronised after seconds, not after steps. */
int replicas_by_time(const struct job *j);

/* Returns the samples of a step of the run: --batch, which replicas by time divide into equal
 * batches, rounded up. Without replicas --batch too. */
int64_t replicas_batch(const struct job *j);

/* Prints how replicas are synchronised, and how often they were. */
void replicas_print(const struct job *j);
void replicas_print_end(const struct job *j);

/* Frees everything. `finish`: all ranks came to the same end. */
void replicas_close(struct job *j, int finish);

#endif
