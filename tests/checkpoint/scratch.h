/* A temporary folder for the files of a test program, and helpers that write and read files.
 * Include this after cmocka.h. */
#ifndef TESTS_CHECKPOINT_SCRATCH_H
#define TESTS_CHECKPOINT_SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cltrain/status.h>

static char scratch[256];

/* Makes the folder. A cmocka group set-up. */
static inline int scratch_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/cltrain-test-XXXXXX", base ? base : P_tmpdir);
    return mkdtemp(scratch) ? 0 : -1;
}

static inline void scratch_remove_tree(const char *path)
{
    DIR *folder = unlink(path) == 0 ? NULL : opendir(path);
    if (folder) {
        struct dirent *entry;
        while ((entry = readdir(folder))) {
            char *inner;
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            if (asprintf(&inner, "%s/%s", path, entry->d_name) < 0)
                continue;
            scratch_remove_tree(inner);
            free(inner);
        }
        closedir(folder);
        rmdir(path);
    }
}

/* Removes the folder. A cmocka group tear-down. */
static inline int scratch_remove(void **state)
{
    (void)state;
    scratch_remove_tree(scratch);
    return 0;
}

/* Returns the path of a file in the folder. The last 8 results stay valid. */
static inline const char *in_scratch(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline void put_file(const char *path, const void *data, size_t bytes)
{
    /* The file is removed first, since some file systems sync a file that is truncated and
     * rewritten. */
    unlink(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Returns the content of a file, which the caller frees. */
static inline unsigned char *get_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    data[*bytes] = 0;
    fclose(file);
    return data;
}

/* Makes a file of a header and `data_bytes` bytes 0, 1, 2, ... Returns its path. */
static inline const char *put_tensors(const char *header, size_t data_bytes)
{
    const char *path = in_scratch("made.safetensors");
    size_t length = strlen(header), bytes = 8 + length + data_bytes;
    unsigned char *file = calloc(1, bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> (8 * i));
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + length + i] = (unsigned char)i;
    put_file(path, file, bytes);
    free(file);
    return path;
}

static inline void assert_message_has(const char *part)
{
    if (!strstr(clt_error_message(), part))
        fail_msg("'%s' is not in the message '%s'", part, clt_error_message());
    assert_null(strchr(clt_error_message(), '\n'));
}

#endif
