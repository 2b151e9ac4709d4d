/* What a checkpoint says of its model, for the commands that use one after training. */
#ifndef CLTRAIN_COMMAND_SAVED_H
#define CLTRAIN_COMMAND_SAVED_H

#include <cltrain/checkpoint.h>
#include <jansson.h>

#include "options.h"

typedef struct saved {
    char file[4096 + 32];       /* the parameters */
    clt_checkpoint *checkpoint; /* NULL: a .safetensors file alone */
    json_t *use;                /* its section "use", see job_use; NULL: there is none */
    char *model;                /* --model, else what the checkpoint names */
} saved;

/* Finds parameters: a file, a step's folder, or the newest step in a run's folder; *s is zero
 * before. saved_close in any case. Returns an exit code, after a message. */
int saved_open(saved *c, const settings *s);
void saved_close(saved *c);

#endif
