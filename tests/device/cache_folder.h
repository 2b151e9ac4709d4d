/* A cache folder of a test program, and the device that uses it. Include this after cmocka.h. */
#ifndef TESTS_DEVICE_CACHE_FOLDER_H
#define TESTS_DEVICE_CACHE_FOLDER_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/program/program.h"
#include "device/program/tuning_file.h"

static char folder[256];

static clt_device **devices;
static clt_runtime *runtime;
static int count;

/* Opens a device that stores programs when they are built, on every platform. */
static inline clt_device *open_device(const char *cache_dir)
{
    clt_runtime_options settings;
    clt_runtime_options_init(&settings);
    settings.cache_dir = cache_dir;
    if (clt_runtime_create(&settings, &runtime) != CLT_OK ||
        clt_devices_open(runtime, "all", NULL, &devices, &count) != CLT_OK)
        return NULL;
    devices[0]->quirks &= ~(CLT_QUIRK_NO_BINARIES | CLT_QUIRK_LATE_COMPILE);
    return devices[0];
}

static inline void close_device(void)
{
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    devices = NULL;
    runtime = NULL;
}

/* Returns the number of files in a part of the folder, and the path of one of them. */
static inline int list_files(const char *part, char *name)
{
    char path[600];
    int found = 0;
    snprintf(path, sizeof path, "%s/%s", folder, part);
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        found++;
        if (name)
            snprintf(name, 900, "%s/%s", path, entry->d_name);
    }
    closedir(dir);
    return found;
}

static inline void remove_part(const char *part)
{
    char path[900];
    while (list_files(part, path) > 0)
        assert_int_equal(remove(path), 0);
    snprintf(path, sizeof path, "%s/%s", folder, part);
    rmdir(path);
}

static inline int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/cltrain-cache-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : P_tmpdir);
    return mkdtemp(folder) == NULL;
}

static inline int tear_down(void **state)
{
    (void)state;
    remove_part("programs");
    remove_part("tuning");
    return rmdir(folder);
}

static inline long file_size(const char *name)
{
    struct stat info;
    assert_int_equal(stat(name, &info), 0);
    return (long)info.st_size;
}

/* Counts the entries that are not shipped with the library. */
static inline int own_entries(const clt_tuning_record *record)
{
    int own = 0;
    for (int i = 0; i < record->count; i++)
        own += !record->entries[i].shipped;
    return own;
}

#endif
