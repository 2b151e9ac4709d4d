/* Steps that clt_fit has enqueued and not reported. Normally the last one only: the host enqueues a
 * step while the device does the one before. Waking the host takes longer than a short
 * step, so several of these are queued, and when they are as many as they may be, the host sleeps
 * until half of them have ended. */
#include <math.h>

#include "train/fit/fit.h"

/* A longer step gains nothing, and the queue shall take a few milliseconds at most. */
static const double short_seconds = 250e-6;

/* The mean of about so many steps decides, and none of them counts for more than `most_seconds`. */
static const double averaged_steps = 16, most_seconds = 10e-3;

void clt_fit_queue_begin(clt_fit_run *f)
{
    f->n_queue = 0;
    f->step_seconds = most_seconds;
}

void clt_fit_queue_time(clt_fit_run *f, double seconds)
{
    f->step_seconds += (fmin(seconds, most_seconds) - f->step_seconds) / averaged_steps;
}

/* Finishes the oldest steps until so many are left. */
static clt_status finish(clt_fit_run *f, int left)
{
    while (f->n_queue > left) {
        CLT_TRY(clt_fit_finish(f, &f->queue[0]));
        f->n_queue--;
        for (int i = 0; i < f->n_queue; i++)
            f->queue[i] = f->queue[i + 1];
    }
    return CLT_OK;
}

clt_status clt_fit_queue_add(clt_fit_run *f, const clt_fit_pending *p)
{
    const int most = f->step_seconds < short_seconds ? clt_source_queue(f->source) : 2;
    const int left = most / 2;
    f->queue[f->n_queue++] = *p;
    if (f->n_queue < most)
        return CLT_OK;
    /* To finish them in order would wake the host for each. */
    CLT_TRY(clt_step_wait(f->trainer, f->queue[f->n_queue - left - 1].step));
    return finish(f, left);
}

clt_status clt_fit_finish_all(clt_fit_run *f)
{
    return finish(f, 0);
}

const clt_fit_pending *clt_fit_queued(const clt_fit_run *f, int64_t step)
{
    for (int i = 0; i < f->n_queue; i++)
        if (f->queue[i].step == step)
            return &f->queue[i];
    return NULL;
}
