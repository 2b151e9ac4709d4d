/* Patterns of names, as users give them. */
#ifndef CLT_BASE_PATTERNS_H
#define CLT_BASE_PATTERNS_H

#include <stdbool.h>

/*
 * Returns whether patterns of fnmatch(3), separated by '|', match `name`. Patterns behind '!'
 * exclude names, whatever the others match. If all patterns exclude, they exclude from all names.
 * "1d" stands for names of at most one dimension, which `narrow` says. NULL and "" match nothing.
 */
bool clt_patterns_match(const char *patterns, const char *name, bool narrow);

#endif
