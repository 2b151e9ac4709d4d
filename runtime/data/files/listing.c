#include "data/files/listing.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/vec.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

clt_status clt_listing_read(const char *path, bool (*wanted)(const char *name, void *user),
                            void *user, clt_listing *out)
{
    *out = (clt_listing){0};
    DIR *dir = opendir(path);
    if (!dir)
        return clt_fail(errno == ENOENT || errno == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                        "%s: cannot be listed: %s", path, strerror(errno));
    clt_status status = CLT_OK;
    errno = 0;
    for (struct dirent *e; status == CLT_OK && (e = readdir(dir)); errno = 0) {
        if (e->d_name[0] == '.' || (wanted && !wanted(e->d_name, user)))
            continue;
        char *copy = clt_strdup(e->d_name);
        status = copy ? CLT_PUSH(out->names, out->count, out->room, copy) : CLT_OUT_OF_MEMORY;
        if (status != CLT_OK)
            clt_free(copy);
    }
    if (status == CLT_OK && errno)
        status = clt_fail(CLT_IO, "%s: cannot be listed: %s", path, strerror(errno));
    closedir(dir);
    if (out->count)
        qsort(out->names, (size_t)out->count, sizeof *out->names, by_name);
    return status;
}

void clt_listing_free(clt_listing *listing)
{
    for (int i = 0; i < listing->count; i++)
        clt_free(listing->names[i]);
    clt_free(listing->names);
    *listing = (clt_listing){0};
}

bool clt_ends_in(const char *name, const char *ending)
{
    const size_t a = strlen(name), b = strlen(ending);
    return a >= b && !strcasecmp(name + a - b, ending);
}
