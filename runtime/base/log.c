#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include <cltrain/text.h>

static clt_log_fn callback;
static void *callback_user;
static clt_log_level callback_level;

void clt_log_set(clt_log_fn fn, void *user, clt_log_level max_level)
{
    callback = fn;
    callback_user = user;
    callback_level = max_level;
}

void clt_log(clt_log_level level, const char *format, ...)
{
    if (!callback || level > callback_level)
        return;
    char line[1024], shown[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    clt_printable(line, shown, sizeof shown);
    callback(callback_user, level, shown);
}
