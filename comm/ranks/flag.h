/*
 * A counter in memory that processes share: one raises it, others wait until it has reached a
 * value. It wraps; values less than 2^31 apart are compared rightly. A waiter looks for a
 * while, giving way to other threads, and then sleeps in the kernel.
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

/* Sets the value, which is larger than before, and wakes who waits for it. */
void clt_flag_raise(clt_flag *flag, uint32_t value);

/* Wakes all without a change. */
void clt_flag_wake(clt_flag *flag);

/* Looks that often, a tenth of a microsecond each or more; whether the value was reached. */
bool clt_flag_spin(const clt_flag *flag, uint32_t value, int looks);

/* Sleeps until it may have been reached, some milliseconds at most. */
void clt_flag_wait(const clt_flag *flag, uint32_t value);

/* A point in time; none for 0 ms. */
typedef struct clt_deadline {
    bool set;
    struct timespec at;
} clt_deadline;

clt_deadline clt_deadline_in(int ms);
bool clt_deadline_passed(const clt_deadline *deadline);

#endif
