/* Chooses kernel variants and tiles of a trainer's plans. Choices come from the device's tuning
 * record, from measurements made now, or from a checkpoint that froze them. */
#ifndef CLT_TRAIN_SETUP_CHOICES_H
#define CLT_TRAIN_SETUP_CHOICES_H

#include "train/core/session.h"

typedef struct clt_choices {
    int n_devices;
    clt_tuning_record *records;   /* room for one record for each device */
    const clt_tuning_record **of; /* by device; devices of one kind share a record */
    int classes, left;            /* see clt_trainer_tuning */
    bool later;                   /* see clt_trainer_tunes_later */
} clt_choices;

/* Makes the choices for the plans of a graph on the store's devices, with up to `per_run` samples a
 * run. */
clt_status clt_choices_make(const clt_graph *graph, const clt_store *store,
                            const clt_trainer_options *options, int64_t per_run,
                            clt_choices **choices);
void clt_choices_free(clt_choices *choices);

/* Writes the choices of all nodes of the plans of training and evaluation as JSON, in the form of
 * clt_trainer_options.frozen. Free *text with clt_free. */
clt_status clt_choices_to_json(const clt_choices *choices, const clt_session *training,
                               const clt_session *evaluation, char **text);

#endif
