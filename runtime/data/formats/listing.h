/* Names in a folder. */
#ifndef CLT_DATA_FORMATS_LISTING_H
#define CLT_DATA_FORMATS_LISTING_H

#include <stdbool.h>

#include <cltrain/status.h>

typedef struct clt_listing {
    char **names; /* in the order of their bytes, whatever the locale */
    int count, room;
} clt_listing;

/* Names in `path` for which `wanted` says so (NULL: all), those that begin with a dot apart. Free
 * the listing also after a failure. */
clt_status clt_listing_read(const char *path, bool (*wanted)(const char *name, void *user),
                            void *user, clt_listing *out);
void clt_listing_free(clt_listing *listing);

/* Whether `name` ends so, in capital letters or not. */
bool clt_ends_in(const char *name, const char *ending);

#endif
