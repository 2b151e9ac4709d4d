#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/outfile.h"

clt_step_name clt_step_name_of(int64_t step)
{
    clt_step_name name = {.step = step};
    snprintf(name.text, sizeof name.text, "step-%08lld", (long long)step);
    return name;
}

bool clt_step_name_parse(const char *text, clt_step_name *out)
{
    clt_step_name name = {0};
    const char *rest = text;
    if (strncmp(rest, CLT_OLD_PREFIX, strlen(CLT_OLD_PREFIX)) == 0) {
        name.displaced = true;
        rest += strlen(CLT_OLD_PREFIX);
    }
    if (strncmp(rest, "step-", 5) != 0)
        return false;
    size_t digits = strspn(rest + 5, "0123456789");
    if (digits == 0 || digits > 18 || rest[5 + digits])
        return false;
    name.step = strtoll(rest + 5, NULL, 10);
    snprintf(name.text, sizeof name.text, "%s", text);
    *out = name;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const clt_step_name *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    if (x->displaced != y->displaced)
        return x->displaced ? 1 : -1;
    return strcmp(x->text, y->text);
}

clt_status clt_folder_list(const char *path, clt_step_name **items, int *count)
{
    DIR *folder = opendir(path);
    if (!folder)
        return clt_fail(errno == ENOENT || errno == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                        "cannot open the folder %s: %s", path, strerror(errno));
    clt_step_name *found = NULL, name;
    int found_count = 0, room = 0;
    clt_status status = CLT_OK;
    struct dirent *entry;
    while (status == CLT_OK && (errno = 0, entry = readdir(folder)))
        if (clt_step_name_parse(entry->d_name, &name))
            status = CLT_PUSH(found, found_count, room, name);
    if (status == CLT_OK && errno)
        status = clt_fail(CLT_IO, "cannot list the folder %s: %s", path, strerror(errno));
    closedir(folder);
    if (status != CLT_OK) {
        clt_free(found);
        return status;
    }
    if (found_count)
        qsort(found, (size_t)found_count, sizeof *found, compare_names);
    *items = found;
    *count = found_count;
    return CLT_OK;
}

/* Makes one folder, and syncs its parent. Otherwise a power cut could lose the new folder with its
 * content. */
static bool make_one(char *path)
{
    struct stat info;
    if (mkdir(path, 0777) != 0)
        return errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    char *slash = strrchr(path, '/');
    if (!slash)
        return clt_sync_folder(".") == CLT_OK;
    char cut = slash[1];
    slash[1] = '\0';
    bool synced = clt_sync_folder(path) == CLT_OK;
    slash[1] = cut;
    return synced;
}

clt_status clt_path_given(const char *path, const char *what)
{
    return path && *path ? CLT_OK : clt_fail(CLT_INVALID_ARGUMENT, "%s needs a path", what);
}

clt_status clt_folder_make(const char *path)
{
    CLT_TRY(clt_path_given(path, "a folder"));
    char *copy = clt_strdup(path);
    CLT_TRY_MEMORY(copy);
    for (size_t end = strlen(copy); end > 1 && copy[end - 1] == '/'; end--)
        copy[end - 1] = '\0';
    bool made = true;
    int error = 0;
    for (char *at = copy + 1; made && *copy && *at; at++) {
        if (*at != '/' || at[-1] == '/')
            continue;
        *at = '\0';
        struct stat info;
        /* A parent may exist without permission to make entries there, so try only to make missing
         * ones. */
        if (stat(copy, &info) != 0)
            made = make_one(copy);
        error = errno;
        *at = '/';
    }
    if (made) {
        made = make_one(copy);
        error = errno;
    }
    clt_free(copy);
    if (made)
        return CLT_OK;
    return clt_fail(CLT_IO, "cannot make the folder %s: %s", path,
                    strerror(error == EEXIST ? ENOTDIR : error));
}

/* Calls `remove_entry` for the entries of a folder whose names begin with `prefix`. */
static bool for_entries(int folder_fd, const char *prefix, bool (*remove_entry)(int, const char *))
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool removed = true;
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            removed &= remove_entry(folder_fd, name);
    }
    closedir(folder);
    return removed;
}

static bool remove_file(int folder_fd, const char *name)
{
    return unlinkat(folder_fd, name, 0) == 0 || errno == ENOENT;
}

bool clt_folder_remove(int folder_fd, const char *name)
{
    /* O_NOFOLLOW: remove a link, not its target. */
    int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return remove_file(folder_fd, name);
    for_entries(fd, "", remove_file);
    close(fd);
    return unlinkat(folder_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

bool clt_folder_clean(int folder_fd, const char *prefix)
{
    return for_entries(folder_fd, prefix, clt_folder_remove);
}
