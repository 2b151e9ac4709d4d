/*
 * Which kernel variants and tiles a trainer's plans take: measured ones, of the device's record or
 * measured now, or those that a checkpoint froze.
 */
#ifndef CLT_TRAIN_SETUP_CHOICES_H
#define CLT_TRAIN_SETUP_CHOICES_H

#include "train/core/trainer.h"

/* Fills trainer->tuning_of, one a device. */
clt_status clt_choices_make(clt_trainer *trainer, const clt_graph *graph);
void clt_choices_free(clt_trainer *trainer);

/* What the trainer's plans took, as the JSON that clt_trainer_options.frozen is. Free with
 * clt_free. */
clt_status clt_choices_to_json(const clt_trainer *trainer, char **text);

#endif
