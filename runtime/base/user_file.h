/*
 * Opens and reads the users' files. All of the library's readers use these functions. No file is
 * mapped: another process may shorten it meanwhile, and then a mapping raises SIGBUS.
 *
 * Data sets, tensors, checkpoints and vocabularies must be regular files, because their size is
 * needed first. clt_text_open (<cltrain/text.h>) also accepts pipes that the process already has
 * open.
 */
#ifndef CLT_BASE_USER_FILE_H
#define CLT_BASE_USER_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <cltrain/text.h>

/* Opens a regular file for reading and never waits for another process. *bytes is its size. Errors:
 * NOT_FOUND, IO; the message begins with the path. */
clt_status clt_file_open(const char *path, int *fd, int64_t *bytes);

/* Reads exactly `bytes` at `offset`. IO if the file has become shorter. Several threads may call it
 * at once. */
clt_status clt_file_read_at(int fd, const char *path, int64_t offset, void *to, int64_t bytes);

/* Reads a whole regular file of at most `most` bytes; a 0 byte follows the content. Free *text with
 * clt_free. Errors: as clt_file_open; FORMAT for a larger file. */
clt_status clt_file_read_all(const char *path, int64_t most, char **text, size_t *bytes);

#endif
