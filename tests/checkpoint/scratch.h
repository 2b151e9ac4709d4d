/* A folder for one test program's files, and files made by hand. */
#ifndef TESTS_CHECKPOINT_SCRATCH_H
#define TESTS_CHECKPOINT_SCRATCH_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[256];

/* A cmocka group set-up. */
static int scratch_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/cltrain-test-XXXXXX", base ? base : P_tmpdir);
    return mkdtemp(scratch) ? 0 : -1;
}

static void scratch_remove_tree(const char *path)
{
    DIR *folder = opendir(path);
    if (folder) {
        struct dirent *entry;
        while ((entry = readdir(folder))) {
            char inner[1024];
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
            scratch_remove_tree(inner);
        }
        closedir(folder);
        rmdir(path);
    } else {
        unlink(path);
    }
}

/* A cmocka group tear-down. */
static int scratch_remove(void **state)
{
    (void)state;
    scratch_remove_tree(scratch);
    return 0;
}

/* The path of a file in the folder; the last 8 results stay valid. */
static const char *in_scratch(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static void put_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* The content, to be freed. */
static unsigned char *get_file(const char *path, size_t *bytes)
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

#endif
