#include "train/planner/host_sum.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/clock.h"

/* A barrier. Threads sleep until the last one arrives, then spin, so that all continue within less
 * than a microsecond. */
typedef struct meeting {
    pthread_barrier_t asleep;
    atomic_uint arrived;
    unsigned members;
} meeting;

static clt_status meeting_open(meeting *m, int members)
{
    m->members = (unsigned)members;
    atomic_init(&m->arrived, 0);
    if (pthread_barrier_init(&m->asleep, NULL, m->members))
        return clt_fail(CLT_OUT_OF_MEMORY, "a barrier of %d threads cannot be made", members);
    return CLT_OK;
}

static void meeting_close(meeting *m)
{
    pthread_barrier_destroy(&m->asleep);
}

/* Spins; for members that arrive at nearly the same time. */
static void meet_awake(meeting *m)
{
    enum { LOOKS = 10000 }; /* after so many spins, the cores may be fewer than the threads */
    const unsigned mine = atomic_fetch_add(&m->arrived, 1);
    const unsigned all = (mine / m->members + 1) * m->members;
    for (int i = 1; (int)(atomic_load(&m->arrived) - all) < 0; i++)
        if (i % LOOKS == 0)
            sched_yield();
}

static void meet(meeting *m)
{
    pthread_barrier_wait(&m->asleep);
    meet_awake(m);
}

struct clt_sum_loop {
    meeting meeting;
    pthread_t helper;
    bool started, stop;
    int64_t count;
    float *a, *b;
};

/* Uses strips of constant length, because every compiler vectorizes them at -O2. */
static void sum_both(float *restrict a, float *restrict b, int64_t count)
{
    enum { STRIP = 64 };
    int64_t i = 0;
    for (; i + STRIP <= count; i += STRIP)
        for (int j = 0; j < STRIP; j++)
            a[i + j] = b[i + j] = a[i + j] + b[i + j];
    for (; i < count; i++)
        a[i] = b[i] = a[i] + b[i];
}

static void fill(float *x, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

/* Each array is written by one thread, as by two devices. Each thread then sums one half of both
 * arrays. */
static double run(clt_sum_loop *loop, int thread)
{
    const int64_t half = loop->count / 2, from = thread ? half : 0;
    fill(thread ? loop->b : loop->a, loop->count, (float)thread);
    meet(&loop->meeting);
    const double began = clt_clock();
    sum_both(loop->a + from, loop->b + from, thread ? loop->count - half : half);
    meet_awake(&loop->meeting);
    return clt_clock() - began;
}

static void *help(void *arg)
{
    clt_sum_loop *loop = arg;
    for (;;) {
        meet(&loop->meeting);
        if (loop->stop)
            return NULL;
        run(loop, 1);
    }
}

clt_status clt_sum_loop_open(int64_t count, clt_sum_loop **out)
{
    clt_sum_loop *loop = CLT_NEW(clt_sum_loop);
    CLT_TRY_MEMORY(loop);
    loop->count = count;
    loop->a = clt_calloc((size_t)count, sizeof *loop->a);
    loop->b = clt_calloc((size_t)count, sizeof *loop->b);
    clt_status status = loop->a && loop->b ? meeting_open(&loop->meeting, 2) : CLT_OUT_OF_MEMORY;
    if (status != CLT_OK) {
        CLT_FREE(loop->a, loop->b, loop);
        return status;
    }
    loop->started = clt_thread_start(&loop->helper, help, loop) == 0;
    if (!loop->started) {
        clt_sum_loop_close(loop);
        return clt_fail(CLT_OUT_OF_MEMORY, "the limit's second thread cannot be started");
    }
    *out = loop;
    return CLT_OK;
}

void clt_sum_loop_close(clt_sum_loop *loop)
{
    if (!loop)
        return;
    loop->stop = true;
    if (loop->started) {
        meet(&loop->meeting);
        pthread_join(loop->helper, NULL);
    }
    meeting_close(&loop->meeting);
    CLT_FREE(loop->a, loop->b, loop);
}

double clt_sum_loop_seconds(clt_sum_loop *loop)
{
    meet(&loop->meeting);
    return run(loop, 0);
}
