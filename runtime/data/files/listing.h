/* Lists the names in a folder. */
#ifndef CLT_DATA_FILES_LISTING_H
#define CLT_DATA_FILES_LISTING_H

#include <stdbool.h>

#include <cltrain/status.h>

typedef struct clt_listing {
    char **names; /* sorted by bytes, whatever the locale */
    int count, room;
} clt_listing;

/* Lists the names in `path` that `wanted` accepts (NULL: all). Names that begin with a dot are left
 * out. Free the listing also after a failure. */
clt_status clt_listing_read(const char *path, bool (*wanted)(const char *name, void *user),
                            void *user, clt_listing *out);
void clt_listing_free(clt_listing *listing);

/* Whether `name` ends in `ending`; upper and lower case are the same. */
bool clt_ends_in(const char *name, const char *ending);

#endif
