/* A file being written: every byte counted and hashed, every failure noticed, synced at the end. */
#ifndef CLT_CHECKPOINT_OUTFILE_H
#define CLT_CHECKPOINT_OUTFILE_H

#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_outfile clt_outfile;

/* Creates or empties `folder_fd`/`name` (AT_FDCWD: relative to the working folder). */
clt_status clt_outfile_create(int folder_fd, const char *name, clt_outfile **out);

clt_status clt_outfile_write(clt_outfile *file, const void *data, int64_t bytes);

/* Syncs and closes the file and frees the object, whatever is returned. `bytes` and `hash`
 * (XXH3-64 of the content) may be NULL. */
clt_status clt_outfile_finish(clt_outfile *file, int64_t *bytes, uint64_t *hash);

/* Closes and frees without a sync; the file stays. Takes NULL. */
void clt_outfile_abandon(clt_outfile *file);

/* Brings a folder's entries (files created, renamed, removed) to the disk. */
clt_status clt_sync_folder(const char *path);

/* The same for an open folder; `name` is for messages. */
clt_status clt_sync_fd(int folder_fd, const char *name);

#endif
