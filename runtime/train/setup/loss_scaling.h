/* What a checkpoint keeps of a run's precision: its name and, in f16, where loss scaling stands. */
#ifndef CLT_TRAIN_SETUP_LOSS_SCALING_H
#define CLT_TRAIN_SETUP_LOSS_SCALING_H

#include "exec/update.h"
#include <cltrain/checkpoint.h>
#include <cltrain/checkpoint.h>

#define CLT_SECTION_PRECISION "precision"
#define CLT_SECTION_SCALING "loss_scaling"

/* The section's JSON: {} but in f16. Waits for the device where that knows alone. */
clt_status clt_scaling_to_json(clt_update *update, clt_dtype precision, char *text, size_t bytes);

/* Where a run in `precision` is to go on. Parameters and optimizer are f32 in all precisions, so
 * that a run may go on in another one: the log says so, and f16 begins with its first scale.
 * Errors: FORMAT.
 */
clt_status clt_scaling_read(clt_dtype precision, const clt_checkpoint *checkpoint,
                            clt_scaling *scaling);

#endif
