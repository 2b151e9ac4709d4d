/* Opens a saved model for the commands that use a model after training. */
#ifndef CLTRAIN_COMMAND_SAVED_SAVED_H
#define CLTRAIN_COMMAND_SAVED_SAVED_H

#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>
#include <jansson.h>

#include "options/options.h"

typedef struct saved {
    char file[4096 + 32];       /* path of the parameters */
    clt_checkpoint *checkpoint; /* NULL if --checkpoint names a .safetensors file */
    clt_tensors *alone;         /* that .safetensors file; NULL if a checkpoint was opened */
    json_t *use;  /* the checkpoint's section "use", see label_names.h; NULL if there is none */
    char *model;  /* --model, or the model that the checkpoint names */
    int averaged; /* take the averages of a checkpoint instead of its parameters */
} saved;

/* Opens parameters: a file, the folder of a step, or the newest step in the folder of a run. *s
 * must be zero before. Call saved_close in any case. Returns an exit code, after a message. */
int saved_open(saved *c, const settings *s);

/* Returns the parameters, which are valid until saved_load. The file stays open, since a run may
 * remove its checkpoint meanwhile. */
const clt_tensors *saved_tensors(const saved *c);

/* Copies the parameters into the store, and closes a .safetensors file. */
clt_status saved_load(saved *c, clt_store *store);

/* Sets the options that decide which parameters the model has, if the command does not set them.
 * *s then borrows from *c. */
void saved_settings(const saved *c, settings *s);

void saved_close(saved *c);

#endif
