/* Files of tokens. Samples are read on request: a file may be larger than memory and may change, so
 * it is neither loaded nor mapped. */
#ifndef CLT_DATA_TEXT_TOKENS_H
#define CLT_DATA_TEXT_TOKENS_H

#include <sys/types.h>
#include <time.h>

#include "data/core/kinds.h"

typedef struct clt_shard {
    char *path;
    int fd;       /* -1: opened for each read */
    dev_t device; /* device, inode and time of change identify the file */
    ino_t inode;
    struct timespec changed;
    int64_t bytes, header;  /* of the file; of the header before the tokens */
    int width;              /* bytes of a token: 1, 2 or 4 */
    int64_t count;          /* tokens */
    int64_t begin, end;     /* the tokens of the split */
    int64_t first, windows; /* number of its first sample, and its number of samples */
    int64_t places;         /* starts of random windows in this file and all files before it */
} clt_shard;

typedef struct clt_tokens {
    clt_shard *shards; /* files with samples come first, files without samples last */
    int n_shards, room, n_used;
    bool text; /* every byte is a token */
    clt_windows windows;
    bool tells;         /* the field "continues" exists */
    int64_t rows, each; /* CLT_WINDOWS_CONTINUED: rows of a batch, and windows of a row */
    char changes[64];   /* text: how samples differ between epochs */
    int64_t length, vocabulary;
} clt_tokens;

/* Opens the files of the split that `r` names: a file, a folder or a pattern. *divided: it is one
 * file, whose parts are the splits. Errors name the file. */
clt_status clt_tokens_add_files(clt_tokens *t, const clt_data_request *r, bool *divided);

/* Reads "vocab_size" of NAME.json beside NAME.bin. *size is 0 if there is no such file. */
clt_status clt_tokens_read_vocabulary(const clt_shard *shard, int64_t *size);

/* Closes the files and frees their list. */
void clt_tokens_drop_files(clt_tokens *t);

/* Reads `bytes` at `offset` of the file. IO if the file has become shorter. Several threads may
 * call it at once. */
clt_status clt_shard_read(const clt_shard *shard, int64_t offset, void *to, int64_t bytes);

static inline int64_t clt_token_at(const unsigned char *raw, int width, int64_t i)
{
    const unsigned char *p = raw + width * i;
    return width == 1   ? p[0]
           : width == 2 ? p[0] | p[1] << 8
                        : (int64_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                    (uint32_t)p[3] << 24);
}

#endif
