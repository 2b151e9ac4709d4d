/*
 * A counter in memory that processes share. One process raises it, others wait until it has reached
 * a value. It wraps, and values less than 2^31 apart are compared correctly. A waiter first polls
 * for a while, yielding to other threads, and then sleeps in the kernel.
 */
#ifndef CLT_COMM_FLAG_H
#define CLT_COMM_FLAG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct clt_flag {
    _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
} clt_flag;

static inline bool clt_flag_reached(const clt_flag *flag, uint32_t value)
{
    return (int32_t)(atomic_load_explicit(&flag->value, memory_order_acquire) - value) >= 0;
}

/* Sets the value, which must be larger than before, and wakes all waiters. */
void clt_flag_raise(clt_flag *flag, uint32_t value);

/* Wakes all waiters without a change of the value. */
void clt_flag_wake(clt_flag *flag);

/* Polls `looks` times, each a tenth of a microsecond or more. Returns whether the value was
 * reached. */
bool clt_flag_spin(const clt_flag *flag, uint32_t value, int looks);

/* Sleeps for some milliseconds at most; ends early if the value may have been reached. */
void clt_flag_wait(const clt_flag *flag, uint32_t value);

/* A point in time. With 0 ms there is none. */
typedef struct clt_deadline {
    bool set;
    struct timespec at;
} clt_deadline;

clt_deadline clt_deadline_in(int ms);
bool clt_deadline_passed(const clt_deadline *deadline);

#endif
