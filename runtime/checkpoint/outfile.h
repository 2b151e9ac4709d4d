/* A file being written. Every byte is counted and hashed, every error is reported, and the content
 * is synced at the end. */
#ifndef CLT_CHECKPOINT_OUTFILE_H
#define CLT_CHECKPOINT_OUTFILE_H

#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_outfile clt_outfile;

/* Creates or empties `folder_fd`/`name` (AT_FDCWD: relative to the working folder). */
clt_status clt_outfile_create(int folder_fd, const char *name, clt_outfile **out);

clt_status clt_outfile_write(clt_outfile *file, const void *data, int64_t bytes);

/* Syncs and closes the file, and frees the object also after an error. `bytes` and `hash` (XXH3-64
 * of the content) may be NULL. */
clt_status clt_outfile_finish(clt_outfile *file, int64_t *bytes, uint64_t *hash);

/* Closes and frees without a sync. The file is not deleted. NULL is allowed. */
void clt_outfile_abandon(clt_outfile *file);

/* Syncs a folder, so that files created, renamed or removed in it survive a power cut. */
clt_status clt_sync_folder(const char *path);

/* Syncs an open folder; `name` is for messages. */
clt_status clt_sync_fd(int folder_fd, const char *name);

#endif
