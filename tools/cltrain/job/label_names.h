/* What a checkpoint says of the data that its model was trained on: the section "use". */
#ifndef CLTRAIN_COMMAND_JOB_LABEL_NAMES_H
#define CLTRAIN_COMMAND_JOB_LABEL_NAMES_H

#include <jansson.h>

#include "job/job.h"

/* Lets the trainer's checkpoints say it. Returns an exit code. */
int use_record(job *j, const settings *s);

/* The job's fields and, unless --normalize says otherwise, its normalisation; `use` must outlive
 * the job. Returns an exit code, after a message that names `file`. */
int use_read(job *j, const settings *s, const json_t *use, const char *file);

/* The name of a class of field "label"; NULL: it has none. */
const char *use_class_name(const json_t *use, int64_t number);

/* A field of what it was trained on; NULL: there is none. After use_read. */
const clt_model_field *use_field(const job *j, const char *name);

/* Tokens of a sample of text; 0: it was no text. After use_read. */
int64_t use_sequence(const job *j);

/* --resize of images:DIR, of which the middle was taken; 0: images were used whole. */
int64_t use_resize(const json_t *use);

#endif
