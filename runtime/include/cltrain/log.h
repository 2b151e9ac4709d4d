/* The log. The library never prints. It gives its remarks to a callback, if there is one. */
#ifndef CLTRAIN_LOG_H
#define CLTRAIN_LOG_H

#include <cltrain/export.h>

CLT_BEGIN_DECLS

typedef enum clt_log_level {
    CLT_LOG_ERROR = 0,
    CLT_LOG_WARN = 1,
    CLT_LOG_INFO = 2,
    CLT_LOG_DEBUG = 3
} clt_log_level;

/* Receives one line without a newline. Several threads may call it at once. */
typedef void (*clt_log_fn)(void *user, clt_log_level level, const char *line);

/* Sets the callback of the process, and the most detailed level that it gets. NULL: none. Call it
 * before all other functions of the library: it is not thread-safe. */
CLT_API void clt_log_set(clt_log_fn fn, void *user, clt_log_level max_level);

CLT_END_DECLS

#endif
