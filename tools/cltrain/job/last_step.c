#include "job/last_step.h"

#include "text/message.h"

int count_steps(job *j, const settings *s)
{
    const int64_t batch = j->options.batch, count = clt_dataset_count(j->train);
    const int64_t per_epoch = s->drop_last ? count / batch : 1 + (count - 1) / batch;
    const int64_t epochs = s->epochs >= 0 ? s->epochs : 1;
    if (!per_epoch)
        return usage_error("--drop-last: no batch is left: --batch is %lld, and there are %lld "
                           "samples",
                           (long long)batch, (long long)count);
    if (epochs > INT64_MAX / per_epoch)
        return usage_error("--epochs %lld: too many: steps do not fit in 63 bits",
                           (long long)epochs);
    j->steps = s->steps > 0 ? s->steps : epochs * per_epoch;
    return 0;
}

void find_end(job *j, const settings *s, const clt_checkpoint *checkpoint)
{
    const clt_run_state *run = clt_checkpoint_run(checkpoint);
    const int64_t epochs = s->epochs >= 0 ? s->epochs : 1, batch = j->options.batch;
    const int64_t samples = j->train ? clt_dataset_count(j->train) : 0;
    if (s->steps > 0 || run->epoch >= epochs || run->sample >= samples)
        return;
    /* Rounds up, unless partial batches are dropped. */
    const int64_t more = s->drop_last ? 0 : batch - 1;
    j->steps = run->step + (samples - run->sample + more) / batch +
               (epochs - run->epoch - 1) * ((samples + more) / batch);
}
