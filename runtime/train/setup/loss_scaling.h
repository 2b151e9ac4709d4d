/* The sections of a checkpoint about a run's precision: its name and, in f16, the state of loss
 * scaling. */
#ifndef CLT_TRAIN_SETUP_LOSS_SCALING_H
#define CLT_TRAIN_SETUP_LOSS_SCALING_H

#include "exec/update/update.h"
#include <cltrain/checkpoint.h>
#include <cltrain/checkpoint.h>

#define CLT_SECTION_PRECISION "precision"
#define CLT_SECTION_SCALING "loss_scaling"

/* Writes the JSON of the section; {} unless the precision is f16. Waits for the device if only the
 * device knows the state. */
clt_status clt_scaling_to_json(clt_update *update, clt_dtype precision, char *text, size_t bytes);

/* Reads the state of loss scaling for a run in `precision`. Parameters and optimizer are f32 in all
 * precisions, so a run may continue in another precision. The log then says so, and f16 begins with
 * its first scale. Errors: FORMAT. */
clt_status clt_scaling_read(clt_dtype precision, const clt_checkpoint *checkpoint,
                            clt_scaling *scaling);

#endif
