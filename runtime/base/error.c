#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cltrain/text.h>

/* Long enough for a compiler's first error lines. The buffer is static, because reporting
 * OUT_OF_MEMORY must not allocate. */
enum { MESSAGE_BYTES = 4096 };

static _Thread_local char message[MESSAGE_BYTES];

const char *clt_status_name(clt_status status)
{
    switch (status) {
#define CLT_STATUS_CASE(name, value, text)                                                         \
    case CLT_##name:                                                                               \
        return #name;
        CLT_STATUS_LIST(CLT_STATUS_CASE)
#undef CLT_STATUS_CASE
    }
    return "UNKNOWN";
}

const char *clt_status_text(clt_status status)
{
    switch (status) {
#define CLT_STATUS_CASE(name, value, text)                                                         \
    case CLT_##name:                                                                               \
        return text;
        CLT_STATUS_LIST(CLT_STATUS_CASE)
#undef CLT_STATUS_CASE
    }
    return "unknown status";
}

const char *clt_error_message(void)
{
    return message;
}

clt_status clt_error_set(clt_status status, const char *text)
{
    return clt_fail(status, "%s", text);
}

clt_status clt_fail(clt_status status, const char *format, ...)
{
    /* The arguments may point into the current message, so format into another buffer. */
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* Names and content of files may have control characters. */
    clt_printable(text, message, sizeof message);
    return status;
}

clt_status clt_check_struct(long long given, size_t own, const char *type)
{
    return given == (long long)own
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT,
                          "%s: its struct_size is %lld, not %zu: set it up with %s_init of the "
                          "library in use",
                          type, given, own, type);
}

clt_status clt_fail_prefix(clt_status status, const char *format, ...)
{
    char text[MESSAGE_BYTES], before[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(before, sizeof before, format, args);
    va_end(args);
    const int64_t used = clt_printable(before, text, sizeof text);
    if (used >= MESSAGE_BYTES)
        return status;
    size_t room = sizeof text - (size_t)used;
    size_t length = strlen(message);
    if (length >= room)
        length = room - 1;
    memcpy(text + used, message, length);
    text[(size_t)used + length] = '\0';
    memcpy(message, text, sizeof message);
    return status;
}

void clt_error_restore(const char *text)
{
    snprintf(message, sizeof message, "%s", text);
}
