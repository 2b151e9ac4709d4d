/* Reads a file sequentially and decompresses gzip (RFC 1952, also several members). */
#ifndef CLT_DATA_FILES_READER_H
#define CLT_DATA_FILES_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_reader clt_reader;

/* Opens a file. If the name ends in ".gz", the file must be gzip. Other files are read as they
 * are. */
clt_status clt_reader_open(const char *path, clt_reader **out);

/* Reads exactly `bytes`. FORMAT if the file ends before or its gzip data are corrupt; `what` names
 * the missing part in the message. ABORTED soon after `stop` (may be NULL) became true. */
clt_status clt_reader_read(clt_reader *reader, void *to, int64_t bytes, const char *what,
                           const _Atomic bool *stop);

/* Reads up to `bytes`. *got is 0 at the end of the file, where gzip's checksum was right. */
clt_status clt_reader_some(clt_reader *reader, void *to, int64_t bytes, int64_t *got);

/* Checks that the file ends here, and gzip's checksum. */
clt_status clt_reader_end(clt_reader *reader);

/* Returns an upper limit of the file's decompressed bytes. */
int64_t clt_reader_most_bytes(const clt_reader *reader);

const char *clt_reader_path(const clt_reader *reader);

/* Closes the reader. NULL is allowed. */
void clt_reader_close(clt_reader *reader);

#endif
