/* Files of the cache folder. A file that cannot be used for any reason counts as absent. */
#ifndef CLT_DEVICE_PROGRAM_CACHE_FILE_H
#define CLT_DEVICE_PROGRAM_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads folder/part/name whole. A 0 byte follows the content. Free *data with clt_free. */
bool clt_cache_read(const char *folder, const char *part, const char *name, char **data,
                    size_t *bytes);

/* Reads a file that will be executed. Folder, part and file must belong to this user or root, and
 * nobody else may write to them. clt_cache_check tells why they are refused. */
bool clt_cache_read_private(const char *folder, const char *part, const char *name, char **data,
                            size_t *bytes);

/* Writes folder/part/name and makes missing folders. Writes a temporary file and renames it, so
 * that other processes read the old file or the new one. Returns false, with errno, on failure. */
bool clt_cache_write(const char *folder, const char *part, const char *name, const void *head,
                     size_t head_bytes, const void *data, size_t bytes);

/* Locks folder/part (made if missing) until clt_cache_unlock, so that processes that read, change
 * and write a file take turns. Returns -1 if locking is not possible. The caller then goes on
 * without a lock, and the later file may lack the changes of the other. */
int clt_cache_lock(const char *folder, const char *part);
void clt_cache_unlock(int lock);

bool clt_cache_exists(const char *folder, const char *part, const char *name);

/* Removes a file, if it exists. */
void clt_cache_remove(const char *folder, const char *part, const char *name);

/* Removes files of folder/part, oldest first, until all together have at most `most_bytes`. */
void clt_cache_trim(const char *folder, const char *part, int64_t most_bytes);

#endif
