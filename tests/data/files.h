/* Small IDX files in a temporary folder, for the tests of data/. */
#ifndef CLT_TESTS_DATA_FILES_H
#define CLT_TESTS_DATA_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/cltrain-data-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *const idx_names[] = {
    "train-images-idx3-ubyte",   "train-labels-idx1-ubyte",    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",    "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
};

static inline void remove_files(void)
{
    for (size_t i = 0; i < sizeof idx_names / sizeof *idx_names; i++)
        unlink(path_of(idx_names[i]));
}

static inline int remove_folder(void **state)
{
    (void)state;
    remove_files();
    return rmdir(folder);
}

/* Writes bytes to a file unchanged, whatever its name. */
static inline void spill(const char *name, const void *bytes, size_t count)
{
    /* The file is removed first, since some file systems sync a file that is truncated and
     * rewritten. */
    unlink(path_of(name));
    FILE *f = fopen(path_of(name), "wb");
    if (!f || fwrite(bytes, 1, count, f) != count || fclose(f))
        abort();
}

/* Writes bytes to a file, through gzip if the name ends in .gz. */
static inline void write_file(const char *name, const void *bytes, size_t count)
{
    size_t length = strlen(name);
    if (!strcmp(name + length - 3, ".gz")) {
        unlink(path_of(name));
        gzFile f = gzopen(path_of(name), "wb6");
        if (!f || gzwrite(f, bytes, (unsigned)count) != (int)count || gzclose(f) != Z_OK)
            abort();
        return;
    }
    spill(name, bytes, count);
}

/* Reads the bytes of a file without decompressing them. The caller frees the result. */
static inline unsigned char *slurp(const char *name, size_t *count)
{
    FILE *f = fopen(path_of(name), "rb");
    unsigned char *bytes = malloc(1 << 20);
    if (!f || !bytes)
        abort();
    *count = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

static inline size_t put_header(unsigned char *to, int rank, const uint32_t *dims)
{
    to[0] = to[1] = 0;
    to[2] = 8;
    to[3] = (unsigned char)rank;
    for (int i = 0; i < rank; i++)
        for (int b = 0; b < 4; b++)
            to[4 + 4 * i + b] = (unsigned char)(dims[i] >> (24 - 8 * b));
    return 4 + 4 * (size_t)rank;
}

enum { ROWS = 3, COLUMNS = 5, PIXELS = ROWS * COLUMNS };

static inline unsigned char pixel(int sample, int i)
{
    return (unsigned char)(sample * 31 + i * 7);
}

/* Writes a pair of files with `count` samples. The label of sample s is s % 10. */
static inline void write_pair(const char *images, const char *labels, int count)
{
    unsigned char *bytes = malloc(16 + (size_t)count * PIXELS);
    if (!bytes)
        abort();
    const uint32_t dims[3] = {(uint32_t)count, ROWS, COLUMNS};
    size_t at = put_header(bytes, 3, dims);
    for (int s = 0; s < count; s++)
        for (int i = 0; i < PIXELS; i++)
            bytes[at++] = pixel(s, i);
    write_file(images, bytes, at);
    at = put_header(bytes, 1, dims);
    for (int s = 0; s < count; s++)
        bytes[at++] = (unsigned char)(s % 10);
    write_file(labels, bytes, at);
    free(bytes);
}

#endif
