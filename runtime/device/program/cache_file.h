/* Files of the cache folder: whatever is wrong with one, it counts as absent. */
#ifndef CLT_DEVICE_PROGRAM_CACHE_FILE_H
#define CLT_DEVICE_PROGRAM_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads folder/part/name whole; free *data with clt_free. A 0 byte is added behind the content. */
bool clt_cache_read(const char *folder, const char *part, const char *name, char **data,
                    size_t *bytes);

/* The same for what runs as code. Folder, part and file must belong to this user or root, and
 * nobody else may write to them; clt_cache_check says why that is not so. */
bool clt_cache_read_private(const char *folder, const char *part, const char *name, char **data,
                            size_t *bytes);

/* Writes folder/part/name, making folders as needed: to a file beside it, then renamed, so that
 * readers in other processes see the old file or the new one. False, with errno, if that is not
 * possible. */
bool clt_cache_write(const char *folder, const char *part, const char *name, const void *head,
                     size_t head_bytes, const void *data, size_t bytes);

/* For reading a file, changing it and writing it again: keeps other processes that do the same out
 * of folder/part (made as needed) until clt_cache_unlock. -1, where that cannot be, goes on
 * without: the later file then lacks what the other has. */
int clt_cache_lock(const char *folder, const char *part);
void clt_cache_unlock(int lock);

bool clt_cache_exists(const char *folder, const char *part, const char *name);

/* Removes a damaged file, if there is one. */
void clt_cache_remove(const char *folder, const char *part, const char *name);

/* Removes files of folder/part, those written first, until they have at most `most_bytes` together.
 */
void clt_cache_trim(const char *folder, const char *part, int64_t most_bytes);

#endif
