/*
 * Status codes and error messages.
 *
 * Every function that can fail returns a clt_status. Outputs come last in the argument list and are
 * set only when the function returns CLT_OK. The first function that detects a failure stores a
 * message for the calling thread; callers further up may prefix it with what they were doing.
 */
#ifndef CLTRAIN_STATUS_H
#define CLTRAIN_STATUS_H

#include <cltrain/export.h>

CLT_BEGIN_DECLS

/* One row a status: name, value, meaning. Values are stable: new rows get new values at the end. */
#define CLT_STATUS_LIST(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(INVALID_ARGUMENT, 1, "an argument is out of its range or of the wrong kind")                 \
    X(OUT_OF_MEMORY, 2, "host memory does not suffice")                                            \
    X(OUT_OF_DEVICE_MEMORY, 3, "device memory does not suffice")                                   \
    X(SHAPE, 4, "shapes of operands do not fit together")                                          \
    X(UNSUPPORTED, 5, "valid, but no implementation accepts it here")                              \
    X(NOT_FOUND, 6, "a name, file, device or record does not exist")                               \
    X(IO, 7, "a file cannot be read or written")                                                   \
    X(FORMAT, 8, "a file's content is malformed")                                                  \
    X(OPENCL, 9, "an OpenCL call failed")                                                          \
    X(BUILD, 10, "a kernel does not compile on this device")                                       \
    X(NO_DEVICE, 11, "no platform or no usable device was found")                                  \
    X(STATE, 12, "the object is not in a state that allows the call")                              \
    X(NONFINITE, 13, "a loss, gradient or parameter is NaN or infinite")                           \
    X(MISMATCH, 14, "two things that must agree do not (checkpoint and model, ranks, replicas)")   \
    X(ABORTED, 15, "the operation was aborted by another device, rank or the caller")              \
    X(TIMEOUT, 16, "a deadline passed")                                                            \
    X(DEVICE_LOST, 17, "a device stopped working")                                                 \
    X(INTERNAL, 18, "a bug in this library; please report it")                                     \
    X(STOPPED, 19, "stopped on request, after the state was brought to a consistent point")        \
    X(MPI, 20, "an MPI call failed")                                                               \
    X(BUSY, 21, "another process or run has it in use")

typedef enum clt_status {
#define CLT_STATUS_ENUM(name, value, text) CLT_##name = value,
    CLT_STATUS_LIST(CLT_STATUS_ENUM)
#undef CLT_STATUS_ENUM
} clt_status;

/* The status' name without prefix, as "OUT_OF_MEMORY"; "UNKNOWN" for a value not in the list.
 * A constant string. Thread-safe. */
CLT_API const char *clt_status_name(clt_status status);

/* The meaning of a status in a few words. A constant string. Thread-safe. */
CLT_API const char *clt_status_text(clt_status status);

/* The message of the last failure on the calling thread, one line without a newline; "" if none.
 * It names the file, option, node, shape, device or rank. The string belongs to the library and is
 * valid until the thread's next failing call. */
CLT_API const char *clt_error_message(void);

/* Stores `message` (cut to one line's room) as the calling thread's last failure and returns
 * `status`: for callbacks and builders outside the library that fail with a reason. */
CLT_API clt_status clt_error_set(clt_status status, const char *message);

/* The name nearest to `word` by edit distance (swapped neighbours are one edit), without regard to
 * case, to suggest in a message; NULL if none is near enough (distance at most a third of the word,
 * at least 1). Thread-safe. */
CLT_API const char *clt_nearest(const char *word, const char *const *names, int count);

CLT_END_DECLS

#endif
