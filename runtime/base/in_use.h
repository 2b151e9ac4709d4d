/* Objects that a call uses while the program's callbacks run. A callback may free such an object:
 * it is freed when the last call that uses it ends. */
#ifndef CLT_BASE_IN_USE_H
#define CLT_BASE_IN_USE_H

#include <stdatomic.h>
#include <stdbool.h>

/* A member of the object; all zeros at first. The owner counts as a user until it frees. */
typedef struct clt_in_use {
    atomic_int users; /* less one */
    atomic_bool freed;
} clt_in_use;

static inline void clt_in_use_begin(clt_in_use *in_use)
{
    atomic_fetch_add(&in_use->users, 1);
}

/* Ends a use. Returns true if the object must be freed now. */
static inline bool clt_in_use_end(clt_in_use *in_use)
{
    return atomic_fetch_sub(&in_use->users, 1) == 0;
}

/* The owner frees the object. Returns true if it must be freed now. A second time does nothing. */
static inline bool clt_in_use_free(clt_in_use *in_use)
{
    return !atomic_exchange(&in_use->freed, true) && clt_in_use_end(in_use);
}

#endif
