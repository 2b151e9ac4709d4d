/* Averages of weights: their exchange with the parameters, and the number of steps in them. */
#ifndef CLT_TRAIN_STEP_AVERAGES_H
#define CLT_TRAIN_STEP_AVERAGES_H

#include "train/core/trainer.h"

/* Copies the averages of a participant to all devices, as clt_trainer_copy_replica. Collective. */
clt_status clt_averages_copy(clt_trainer *trainer, int participant);

/* Sets the number of steps in the averages on all ranks to that of rank `root`. Collective. */
clt_status clt_averages_tell(clt_trainer *trainer, int root);

/* Sets it on the devices of this rank. */
clt_status clt_averages_set(clt_trainer *trainer, int64_t steps);

/* Fails with STATE while the averages are in the place of the parameters. */
clt_status clt_averages_away(const clt_trainer *trainer, const char *what);

/* Writes the options as text, for checkpoints. */
void clt_averages_text(const clt_average *average, char text[96]);

#endif
