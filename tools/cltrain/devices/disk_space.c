#include "devices/disk_space.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cltrain/unstable.h>

#include "text/message.h"

/* Kilobytes that compiling a model's kernels may need, with room to spare. */
enum { LEAST_KB = 8 << 10 };

/* Finds the folder where PoCL keeps compiled kernels, "" if it is not known. */
static void find_pocl_cache(char path[PATH_MAX])
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"POCL_CACHE_DIR", ""},
                  {"XDG_CACHE_HOME", "/pocl/kcache"},
                  {"HOME", "/.cache/pocl/kcache"}};
    *path = '\0';
    for (size_t i = 0; !*path && i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value)
            snprintf(path, PATH_MAX, "%s%s", value, places[i].below);
    }
}

static int has_pocl(const clt_runtime *runtime)
{
    clt_device_info info;
    clt_device_info_init(&info);
    for (int i = 0; i < clt_runtime_device_count(runtime); i++)
        if (clt_runtime_device_info(runtime, i, &info) == CLT_OK &&
            strstr(info.platform, "Portable Computing Language"))
            return 1;
    return 0;
}

void move_pocl_cache(const char *cache_dir)
{
    char path[PATH_MAX];
    const int length = snprintf(path, PATH_MAX, "%s/pocl", cache_dir);
    if (getenv("POCL_CACHE_DIR") || length < 0 || length >= PATH_MAX)
        return;
    mkdir(cache_dir, 0700);
    mkdir(path, 0700);
    /* PoCL executes code from this folder, so others must not be able to write to it. */
    if (clt_cache_check(cache_dir, "pocl") != CLT_OK)
        say("warning: %s; PoCL uses its own folder", clt_error_message());
    else if (access(path, W_OK) == 0)
        setenv("POCL_CACHE_DIR", path, 1);
}

void warn_of_full_caches(const clt_runtime *runtime)
{
    char path[PATH_MAX];
    struct statvfs info;
    if (!has_pocl(runtime))
        return;
    find_pocl_cache(path);
    if (!*path || statvfs(path, &info) != 0)
        return;
    const double left = (double)info.f_bavail * (double)info.f_frsize / 1024;
    if (left < LEAST_KB)
        say("warning: the disk of PoCL's cache folder %s is full (%.0f KB are left): where PoCL "
            "cannot write compiled kernels, it ends the process. Make room, or name another folder "
            "with --cache-dir or POCL_CACHE_DIR",
            path, left);
}
