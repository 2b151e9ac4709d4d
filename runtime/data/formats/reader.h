/* Reads a file from its beginning, decompressing gzip (RFC 1952, several members too) as it goes.
 */
#ifndef CLT_DATA_FORMATS_READER_H
#define CLT_DATA_FORMATS_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

typedef struct clt_reader clt_reader;

/* A file whose name ends in ".gz" must be gzip, any other one is read as it is. */
clt_status clt_reader_open(const char *path, clt_reader **out);

/* Reads exactly `bytes`. FORMAT when the file ends before (`what` says what was to be read) or its
 * gzip data are corrupt; ABORTED soon after `stop` (may be NULL) became true. */
clt_status clt_reader_read(clt_reader *reader, void *to, int64_t bytes, const char *what,
                           const _Atomic bool *stop);

/* Checks that nothing follows what was read, and gzip's checksum. */
clt_status clt_reader_end(clt_reader *reader);

/* An upper limit of the bytes that the whole file can hold, decompressed. */
int64_t clt_reader_most_bytes(const clt_reader *reader);

const char *clt_reader_path(const clt_reader *reader);

/* Takes NULL. */
void clt_reader_close(clt_reader *reader);

#endif
