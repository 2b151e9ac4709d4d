#include "job/measure_later.h"

#include <stdio.h>
#include <time.h>

#include <cltrain/unstable.h>

#include "text/message.h"

/* Share of the run that measuring may take after it, the least time that is worth beginning, and
 * the most time. */
static const double SHARE = 0.05, LEAST = 0.5, MOST = 10;

void measure_before_long_runs(job *j, const settings *s)
{
    if (!s->tune && !j->options.tune_anew)
        j->options.tune_steps = j->steps > 0 ? j->steps : 1;
}

static int measures_later(const job *j, const settings *s)
{
    return !s->tune && j->trainer && !j->replicas.total && s->async < 0 &&
           j->ranks.world.ranks < 2 && clt_trainer_tunes_later(j->trainer);
}

void print_measuring(const job *j, const settings *s)
{
    int classes, left;
    clt_trainer_tuning(j->trainer, &classes, &left);
    if (left > 0)
        printf("kernels of %d of %d new classes of shapes are left for the next run to measure\n",
               left, classes);
    if (measures_later(j, s))
        printf("this run is too short to repay measuring kernels first: if it takes %.0f s or "
               "more, new shapes are measured after it (--tune SECONDS: before it)\n",
               LEAST / SHARE);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void measure_later_begin(job *j)
{
    j->run_began = seconds_now();
}

void measure_later_end(job *j, const settings *s)
{
    const double share = (seconds_now() - j->run_began) * SHARE;
    if (measures_later(j, s) && share >= LEAST)
        j->measure_later = share < MOST ? share : MOST;
}

void measure_later(job *j, int64_t samples)
{
    int classes, left;
    j->options.tune_seconds = j->measure_later;
    const clt_status status =
        clt_kernels_measure(j->graph, j->store, &j->options, samples, &classes, &left);
    if (status != CLT_OK)
        say("kernels are not measured for later runs: %s", clt_error_message());
    else if (classes > left && !j->silent)
        printf("kernels of %d of %d new classes of shapes were measured for later runs\n",
               classes - left, classes);
}
