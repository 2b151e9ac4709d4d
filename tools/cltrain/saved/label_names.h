/* The section "use" of a checkpoint, which describes the data that its model was trained on. */
#ifndef CLTRAIN_COMMAND_SAVED_LABEL_NAMES_H
#define CLTRAIN_COMMAND_SAVED_LABEL_NAMES_H

#include <jansson.h>

#include "job/job.h"

/* Returns the section "use" of this run, or NULL if memory does not suffice. Call it after
 * job_data.
 */
json_t *use_describe(const job *j, const settings *s);

/* Adds the section "use" to the checkpoints of the trainer. Returns an exit code. */
int use_record(job *j, const settings *s);

/* Sets the job's fields from `use`. Also sets its normalisation, unless --normalize was set. `use`
 * must outlive the job. Returns an exit code, after a message that names `file`. */
int use_read(job *j, const settings *s, const json_t *use, const char *file);

/* Returns the name of a class of the field "label", or NULL if it has none. */
const char *use_class_name(const json_t *use, int64_t number);

/* Returns the field of the training data with this name, or NULL. Call use_read first. */
const clt_model_field *use_field(const job *j, const char *name);

/* Returns the tokens of a sample of text, or 0 if the model was trained on other data. Call
 * use_read first. */
int64_t use_sequence(const job *j);

/* Returns mean and deviation by which the target of csv:PATH was normalised; 0 and 1 if there is
 * none. `description` may be NULL. */
void use_target_scale(const char *description, double *mean, double *std);

/* Returns the value of --resize for images:DIR, whose middle part was used. Returns 0 if whole
 * images were used. */
int64_t use_resize(const json_t *use);

#endif
