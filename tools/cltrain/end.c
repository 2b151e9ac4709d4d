#include "end.h"

void find_end(job *j, const settings *s, const clt_checkpoint *checkpoint)
{
    const clt_run_state *run = clt_checkpoint_run(checkpoint);
    const int64_t epochs = s->epochs >= 0 ? s->epochs : 1, batch = j->options.batch;
    const int64_t samples = j->train ? clt_dataset_count(j->train) : 0;
    if (s->steps > 0 || run->epoch >= epochs || run->sample >= samples)
        return;
    j->steps = run->step + (samples - run->sample + batch - 1) / batch +
               (epochs - run->epoch - 1) * ((samples + batch - 1) / batch);
}
