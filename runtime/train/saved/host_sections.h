/* Sections of checkpoints that belong to the host program (clt_trainer_set_section). */
#ifndef CLT_TRAIN_SAVED_HOST_SECTIONS_H
#define CLT_TRAIN_SAVED_HOST_SECTIONS_H

#include "train/core/trainer.h"

/* Copies `count` sections and appends those of the host. *all: free with clt_free; its texts stay
 * those of their owners. */
clt_status clt_host_sections_join(const clt_trainer *trainer, const clt_section *sections,
                                  int count, clt_section **all, int *n_all);

/* Replaces the sections of the host by those of a checkpoint. */
clt_status clt_host_sections_read(clt_trainer *trainer, const clt_checkpoint *checkpoint);

void clt_host_sections_free(clt_trainer *trainer);

#endif
