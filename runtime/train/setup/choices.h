/*
 * Which kernel variants and tiles a trainer's plans take: measured ones, of the device's record or
 * measured now, or those that a checkpoint froze.
 */
#ifndef CLT_TRAIN_SETUP_CHOICES_H
#define CLT_TRAIN_SETUP_CHOICES_H

#include "train/core/session.h"

typedef struct clt_choices {
    int n_devices;
    clt_tuning_record *records;   /* room for one a device */
    const clt_tuning_record **of; /* by device: those of one kind share a record */
    int classes, left;            /* see clt_trainer_tuning */
} clt_choices;

/* For the plans of a graph on the store's devices, of up to `per_run` samples a run. */
clt_status clt_choices_make(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int64_t per_run,
                            clt_choices **choices);
void clt_choices_free(clt_choices *choices);

/* What the plans of training and evaluation took, as the JSON that clt_trainer_options.frozen is.
 * Free with clt_free. */
clt_status clt_choices_to_json(const clt_choices *choices, const clt_session *training,
                               const clt_session *evaluation, char **text);

#endif
