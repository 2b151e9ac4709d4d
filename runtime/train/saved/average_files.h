/* Averages of weights in checkpoints. */
#ifndef CLT_TRAIN_SAVED_AVERAGE_FILES_H
#define CLT_TRAIN_SAVED_AVERAGE_FILES_H

#include "train/core/trainer.h"
#include "train/saved/store_files.h"

/* Lists the averages if any step is in them, and writes their section. Free both afterwards. */
clt_status clt_averages_save(clt_trainer *trainer, clt_tensor_list *list, char **section);

/* Reads the averages of a checkpoint into the devices: with `leads` on all ranks, else on those of
 * this rank. Without averages of the same kind they begin anew. */
clt_status clt_averages_load(clt_trainer *trainer, const clt_participants *leads,
                             const clt_checkpoint *checkpoint);

#endif
