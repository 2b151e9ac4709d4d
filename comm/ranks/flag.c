#include "comm/ranks/flag.h"

#include <sched.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Pauses between two system calls. Virtual machines stop a processor that pauses longer. */
enum { PAUSES = 16, SLEEP_MS = 5 };

/* FUTEX_PRIVATE would be wrong, because several processes share the memory. */
static void sleep_while(clt_flag *flag, uint32_t seen)
{
    const struct timespec most = {0, SLEEP_MS * 1000000L};
#ifdef __linux__
    syscall(SYS_futex, (uint32_t *)&flag->value, FUTEX_WAIT, seen, &most, NULL, 0);
#else
    const struct timespec little = {0, 50000};
    (void)most;
    (void)flag;
    (void)seen;
    nanosleep(&little, NULL);
#endif
}

void clt_flag_wake(clt_flag *flag)
{
#ifdef __linux__
    syscall(SYS_futex, (uint32_t *)&flag->value, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#else
    (void)flag;
#endif
}

void clt_flag_raise(clt_flag *flag, uint32_t value)
{
    /* All threads use this order: a sleeper that this load misses sees the new value and does not
     * sleep. */
    atomic_store(&flag->value, value);
    if (atomic_load(&flag->sleepers))
        clt_flag_wake(flag);
}

bool clt_flag_spin(const clt_flag *flag, uint32_t value, int looks)
{
    for (int i = 0; i < looks; i++) {
        if (clt_flag_reached(flag, value))
            return true;
#if defined __x86_64__ || defined __i386__
        __builtin_ia32_pause();
#endif
        if (i % PAUSES == PAUSES - 1)
            sched_yield();
    }
    return clt_flag_reached(flag, value);
}

void clt_flag_wait(const clt_flag *constant, uint32_t value)
{
    clt_flag *flag = (clt_flag *)(uintptr_t)constant;
    atomic_fetch_add(&flag->sleepers, 1);
    const uint32_t seen = atomic_load(&flag->value);
    if ((int32_t)(seen - value) < 0)
        sleep_while(flag, seen);
    atomic_fetch_sub(&flag->sleepers, 1);
}

clt_deadline clt_deadline_in(int ms)
{
    clt_deadline d = {.set = ms > 0};
    clock_gettime(CLOCK_MONOTONIC, &d.at);
    d.at.tv_sec += ms / 1000;
    d.at.tv_nsec += ms % 1000 * 1000000L;
    if (d.at.tv_nsec >= 1000000000L) {
        d.at.tv_sec++;
        d.at.tv_nsec -= 1000000000L;
    }
    return d;
}

bool clt_deadline_passed(const clt_deadline *d)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return d->set && (now.tv_sec > d->at.tv_sec ||
                      (now.tv_sec == d->at.tv_sec && now.tv_nsec >= d->at.tv_nsec));
}
