/*
 * Files of TensorBoard: numbers over the steps of a run.
 *
 * The library must have been built with protobuf-c and ISA-L. One thread at a time uses a file.
 */
#ifndef CLTRAIN_EVENTS_H
#define CLTRAIN_EVENTS_H

#include <stdint.h>

#include <cltrain/status.h>

CLT_BEGIN_DECLS

typedef struct clt_event_file clt_event_file;

/*
 * Creates a new file of events in a folder, and the folder if its parent exists. Files that are in
 * the folder already stay: TensorBoard shows all files of a folder as one run. From step
 * `first_step` on it shows this file instead of the older ones; 0 stands for a run that begins.
 *
 * Errors: UNSUPPORTED (built without the libraries), IO.
 */
CLT_API clt_status clt_event_file_create(const char *folder, int64_t first_step,
                                         clt_event_file **file);

/*
 * Adds a number at a step. `tag` is the name of its curve, such as "loss"; a tag "train/loss" is
 * shown in the group "train". The time of the event is the host's clock. Numbers are kept in f32.
 * The file has the event after clt_event_file_flush.
 *
 * Errors: INVALID_ARGUMENT (an empty tag), OUT_OF_MEMORY, IO.
 */
CLT_API clt_status clt_event_file_scalar(clt_event_file *file, const char *tag, int64_t step,
                                         double value);

/* Writes all events to the file. Errors: IO. */
CLT_API clt_status clt_event_file_flush(clt_event_file *file);

/* Closes the file and frees it. Call clt_event_file_flush first to learn of errors. Takes NULL. */
CLT_API void clt_event_file_destroy(clt_event_file *file);

CLT_END_DECLS

#endif
