/* Reports errors. The function that detects an error stores the message; its callers may add a
 * prefix. */
#ifndef CLT_BASE_ERROR_H
#define CLT_BASE_ERROR_H

#include <stddef.h>

#include <cltrain/status.h>

/* Stores the message for this thread and returns `status`, so that `return clt_fail(...)` works. */
clt_status clt_fail(clt_status status, const char *format, ...) CLT_PRINTF(2, 3);

/* Puts text before the stored message ("node conv1: ...") and returns `status`. */
clt_status clt_fail_prefix(clt_status status, const char *format, ...) CLT_PRINTF(2, 3);

/* Fails with INVALID_ARGUMENT unless a caller's struct has the size that this library knows. All
 * public structs that may grow begin with struct_size, which TYPE_init sets. */
#define CLT_CHECK_STRUCT(pointer, type)                                                            \
    clt_check_struct((long long)(pointer)->struct_size, sizeof(type), #type)
clt_status clt_check_struct(long long given, size_t own, const char *type);

/* Defines TYPE_init for a public struct. The arguments after TYPE are the members that do not begin
 * as 0; there may be none. */
#define CLT_STRUCT_INIT(type, ...)                                                                 \
    void type##_init(type *out)                                                                    \
    {                                                                                              \
        *out = (type){.struct_size = sizeof(type), __VA_ARGS__};                                   \
    }

/* Sets the message of this thread, to carry one over from the thread that failed. */
void clt_error_restore(const char *message);

/* Returns the status of `expression` from the calling function unless it is CLT_OK. */
#define CLT_TRY(expression)                                                                        \
    do {                                                                                           \
        clt_status try_status_ = (expression);                                                     \
        if (try_status_ != CLT_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

/* Returns CLT_OUT_OF_MEMORY from the calling function if the pointer, or one of `a && b`, is NULL.
 */
#define CLT_TRY_MEMORY(allocated) CLT_TRY((allocated) ? CLT_OK : CLT_OUT_OF_MEMORY)

/* The next of several steps: evaluates `expression` and stores its status, unless `variable` has
 * the failure of an earlier step. */
#define CLT_NEXT(variable, expression)                                                             \
    do {                                                                                           \
        if ((variable) == CLT_OK)                                                                  \
            (variable) = (expression);                                                             \
    } while (0)

/* Like CLT_TRY, but stores the status in `variable` and jumps to `label`. */
#define CLT_TRY_GOTO(variable, expression, label)                                                  \
    do {                                                                                           \
        (variable) = (expression);                                                                 \
        if ((variable) != CLT_OK)                                                                  \
            goto label;                                                                            \
    } while (0)

#endif
