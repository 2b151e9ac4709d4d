/* What a checkpoint says of its model, for the commands that use one after training. */
#ifndef CLTRAIN_COMMAND_JOB_SAVED_H
#define CLTRAIN_COMMAND_JOB_SAVED_H

#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>
#include <jansson.h>

#include "options/options.h"

typedef struct saved {
    char file[4096 + 32];       /* the parameters */
    clt_checkpoint *checkpoint; /* NULL: a .safetensors file alone */
    clt_tensors *alone;         /* that file; NULL: a checkpoint */
    json_t *use;                /* its section "use", see job_use; NULL: there is none */
    char *model;                /* --model, else what the checkpoint names */
} saved;

/* Finds parameters: a file, a step's folder, or the newest step in a run's folder; *s is zero
 * before. saved_close in any case. Returns an exit code, after a message. */
int saved_open(saved *c, const settings *s);

/* The parameters, until saved_load. A run may remove its checkpoint meanwhile: the file is not
 * opened again. */
const clt_tensors *saved_tensors(const saved *c);

/* Copies the parameters into the store, and frees the file's. */
clt_status saved_load(saved *c, clt_store *store);
void saved_close(saved *c);

#endif
