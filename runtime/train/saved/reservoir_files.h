/*
 * Files with the samples of reservoirs. Each rank writes DIR/reservoirs/rank-R/step-N
 * beside the checkpoints, and reads its own.
 *
 * A file has tensors "samples.K" of bytes: a record for each sample, which is its index, number,
 * key and hash, of 8 bytes each, then its fields. Threads may push while a file is written, so each
 * record tells what is in it. Counters are in the file's metadata.
 */
#ifndef CLT_TRAIN_SAVED_RESERVOIR_FILES_H
#define CLT_TRAIN_SAVED_RESERVOIR_FILES_H

#include "train/core/trainer.h"

/* The section of state.json with the number of ranks that saved reservoirs. */
#define CLT_SECTION_RESERVOIR "reservoir_ranks"

/* Writes this rank's file for the step that is done, and deletes its files of older steps but
 * keep - 1; `keep` 0: none. */
clt_status clt_reservoir_save(const clt_trainer *t, const char *dir, int64_t keep);

/* Returns whether a data set is a reservoir whose samples checkpoints have. */
bool clt_reservoir_saves(const clt_dataset *dataset);

/* Returns how many ranks saved reservoirs with a checkpoint; 0: none did. */
int64_t clt_reservoir_ranks(const clt_checkpoint *checkpoint);

/* An open file whose content was checked. */
typedef struct clt_reservoir_file clt_reservoir_file;

/* Opens this rank's file for a step of a run (`path`: the run's folder, or that of a step), which
 * `ranks` ranks have saved. *out is NULL if `ranks` is 0, or if the reservoir is not to be restored
 * (clt_reservoir_options.save). Errors: MISMATCH (another number of ranks, another reservoir),
 * NOT_FOUND, FORMAT, IO. */
clt_status clt_reservoir_open(const clt_trainer *t, clt_dataset *reservoir, const char *path,
                              int64_t step, int64_t ranks, clt_reservoir_file **out);

/* Replaces the reservoir's samples, counters and random state. NULL: does nothing. Errors:
 * OUT_OF_MEMORY, before anything was replaced. */
clt_status clt_reservoir_fill(const clt_reservoir_file *file);

/* NULL is allowed. */
void clt_reservoir_close(clt_reservoir_file *file);

#endif
