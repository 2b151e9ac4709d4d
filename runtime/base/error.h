/* Reporting failures: the first detector stores the message, callers may prefix it. */
#ifndef CLT_BASE_ERROR_H
#define CLT_BASE_ERROR_H

#include <stddef.h>

#include <cltrain/status.h>

/* Stores the message for this thread and returns `status`, so that `return clt_fail(...)` works. */
clt_status clt_fail(clt_status status, const char *format, ...) CLT_PRINTF(2, 3);

/* Puts text before the stored message ("node conv1: ...") and returns `status`. */
clt_status clt_fail_prefix(clt_status status, const char *format, ...) CLT_PRINTF(2, 3);

/* Fails unless a struct of the caller's has the size that this library knows. All public structs
 * that may grow begin with struct_size, which TYPE_init sets: INVALID_ARGUMENT says which. */
#define CLT_CHECK_STRUCT(pointer, type)                                                            \
    clt_check_struct((long long)(pointer)->struct_size, sizeof(type), #type)
clt_status clt_check_struct(long long given, size_t own, const char *type);

/* Carries a message from the thread that failed to the one that reports. */
void clt_error_restore(const char *message);

/* Returns the status of `expression` from the calling function unless it is CLT_OK. */
#define CLT_TRY(expression)                                                                        \
    do {                                                                                           \
        clt_status try_status_ = (expression);                                                     \
        if (try_status_ != CLT_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

/* Same, but jumps to `label` with the status stored in `variable`. */
#define CLT_TRY_GOTO(variable, expression, label)                                                  \
    do {                                                                                           \
        (variable) = (expression);                                                                 \
        if ((variable) != CLT_OK)                                                                  \
            goto label;                                                                            \
    } while (0)

#endif
