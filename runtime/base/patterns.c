#include "base/patterns.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* Longer patterns match nothing. Names of tensors are shorter. */
enum { MOST = 512 };

static bool matches_one(const char *pattern, size_t length, const char *name, bool narrow)
{
    char one[MOST];
    if (length >= sizeof one)
        return false;
    snprintf(one, sizeof one, "%.*s", (int)length, pattern);
    return !strcmp(one, "1d") ? narrow : !fnmatch(one, name, 0);
}

bool clt_patterns_match(const char *patterns, const char *name, bool narrow)
{
    bool included = false, includes = false, excluded = false;
    if (!patterns || !*patterns)
        return false;
    for (const char *next = patterns; next;) {
        const size_t length = strcspn(next, "|");
        const bool excludes = *next == '!';
        const bool found = matches_one(next + excludes, length - excludes, name, narrow);
        includes = includes || !excludes;
        included = included || (found && !excludes);
        excluded = excluded || (found && excludes);
        next = next[length] ? next + length + 1 : NULL;
    }
    return (included || !includes) && !excluded;
}
