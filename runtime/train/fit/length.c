#include "train/fit/length.h"

int64_t clt_fit_steps_of(const clt_fit_options *o, int64_t samples, int64_t batch)
{
    return (samples + (o->drop_last ? 0 : batch - 1)) / batch;
}

int64_t clt_fit_schedule_at(const clt_fit_options *o, int64_t samples, clt_position position)
{
    if (!o->schedule_batch)
        return -1;
    const int64_t per_epoch = clt_fit_steps_of(o, samples, o->schedule_batch);
    const int64_t within = position.sample / o->schedule_batch;
    /* With drop_last, the epoch's rest that such steps leave out counts as the last step. */
    return position.epoch * per_epoch +
           (within < per_epoch || per_epoch < 1 ? within : per_epoch - 1);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Up to the last of the steps that `steps` counts by schedule_batch. */
static int64_t scheduled(const clt_fit_options *o, int64_t samples, int64_t batch,
                         clt_position position)
{
    const int64_t per_epoch = clt_fit_steps_of(o, samples, o->schedule_batch);
    const int64_t own = clt_fit_steps_of(o, samples, batch);
    if (per_epoch < 1) /* an epoch is shorter than a step, and has none */
        return 0;
    const clt_position end = {o->steps / per_epoch, o->steps % per_epoch * o->schedule_batch};
    const int64_t most = clt_fit_steps_of(o, samples - position.sample, batch);
    if (position.epoch > end.epoch ||
        (position.epoch == end.epoch && position.sample >= end.sample))
        return 0;
    if (position.epoch == end.epoch)
        return least((end.sample - position.sample + batch - 1) / batch, most);
    return most + (end.epoch - position.epoch - 1) * own +
           least((end.sample + batch - 1) / batch, own);
}

int64_t clt_fit_steps_left(const clt_fit_options *o, int64_t samples, int64_t batch,
                           clt_position position)
{
    if (o->steps && o->schedule_batch)
        return scheduled(o, samples, batch, position);
    if (position.epoch >= o->epochs)
        return 0;
    return clt_fit_steps_of(o, samples - position.sample, batch) +
           (o->epochs - position.epoch - 1) * clt_fit_steps_of(o, samples, batch);
}
