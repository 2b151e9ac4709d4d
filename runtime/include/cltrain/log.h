/* Where the library's remarks go. The library never prints; without a callback remarks are lost. */
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

/* Receives one line without a newline. May be called from any thread, several at once. */
typedef void (*clt_log_fn)(void *user, clt_log_level level, const char *line);

/* Sets the process-wide callback and the most detailed level it gets. NULL: none. Not thread-safe
 * against running library calls: set it first. */
CLT_API void clt_log_set(clt_log_fn fn, void *user, clt_log_level max_level);

CLT_END_DECLS

#endif
