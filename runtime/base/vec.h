/*
 * A growable array of any element type, without macros that declare types:
 *
 *     int *items = NULL; int count = 0, room = 0;
 *     CLT_TRY(CLT_PUSH(items, count, room, 42));
 *
 * The three variables belong to the caller, who frees `items` with clt_free.
 */
#ifndef CLT_BASE_VEC_H
#define CLT_BASE_VEC_H

#include "base/alloc.h"
#include "base/error.h"

/* Makes room for `extra` more elements: *items may move, *room may grow. */
clt_status clt_vec_reserve(void **items, int count, int *room, int extra, size_t element_bytes);

#define CLT_RESERVE(items, count, room, extra)                                                     \
    clt_vec_reserve((void **)&(items), (count), &(room), (extra), sizeof *(items))

/* Appends one element; a clt_status. */
#define CLT_PUSH(items, count, room, ...)                                                          \
    (CLT_RESERVE(items, count, room, 1) == CLT_OK ? ((items)[(count)++] = (__VA_ARGS__), CLT_OK)   \
                                                  : CLT_OUT_OF_MEMORY)

#endif
