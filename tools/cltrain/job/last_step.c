#include "job/last_step.h"

#include <jansson.h>

#include "text/message.h"

/* Returns the steps in which batches of `batch` go through `samples` samples: rounds up, unless
 * partial batches are dropped. */
static int64_t steps_of(const settings *s, int64_t samples, int64_t batch)
{
    return s->drop_last ? samples / batch : samples / batch + (samples % batch != 0);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the steps from a position to the end of --steps, which counts steps of
 * job->scaled.batch. */
static int64_t steps_left(const job *j, const settings *s, int64_t epoch, int64_t sample)
{
    const int64_t samples = clt_dataset_count(j->train), batch = replicas_batch(j);
    const int64_t per_epoch = steps_of(s, samples, j->scaled.batch);
    const int64_t end_epoch = s->steps / per_epoch;
    const int64_t end = s->steps % per_epoch * j->scaled.batch, own = steps_of(s, samples, batch);
    if (epoch > end_epoch || (epoch == end_epoch && sample >= end))
        return 0;
    if (epoch == end_epoch)
        return least((end - sample + batch - 1) / batch, steps_of(s, samples - sample, batch));
    return steps_of(s, samples - sample, batch) + (end_epoch - epoch - 1) * own +
           least((end + batch - 1) / batch, own);
}

int count_steps(job *j, const settings *s)
{
    const int64_t batch = j->scaled.batch > j->options.batch ? j->scaled.batch : j->options.batch;
    const int64_t count = clt_dataset_count(j->train);
    const int64_t per_epoch = steps_of(s, count, batch);
    const int64_t epochs = s->epochs >= 0 ? s->epochs : 1;
    if (!per_epoch)
        return usage_error("--drop-last: no batch is left: --batch is %lld, and there are %lld "
                           "samples",
                           (long long)batch, (long long)count);
    if (epochs > INT64_MAX / per_epoch)
        return usage_error("--epochs %lld: too many: steps do not fit in 63 bits",
                           (long long)epochs);
    j->steps = s->steps > 0 ? s->steps : epochs * steps_of(s, count, j->options.batch);
    if (!j->scaled.batch)
        return 0;
    j->schedule_steps = s->steps > 0 ? s->steps : epochs * steps_of(s, count, j->scaled.batch);
    if (s->steps > 0)
        j->steps = steps_left(j, s, 0, 0);
    return 0;
}

/* --- replicas that are synchronised by time -------------------------------------------------- */

/* Returns the batches of `part` samples that the pieces of an epoch make. */
static int64_t batches_left(const settings *s, const json_t *pieces, int64_t part)
{
    int64_t batches = 0;
    size_t i;
    const json_t *piece;
    json_array_foreach(pieces, i, piece) batches +=
        steps_of(s, json_integer_value(json_array_get(piece, 1)), part);
    return batches;
}

/* Counts the batches of replicas: those of the checkpoint, or none, and those to the end of
 * --epochs. A step of the run is as many batches as there are replicas. */
static void count_batches(job *j, const settings *s, const clt_checkpoint *checkpoint)
{
    const clt_run_state *run = checkpoint ? clt_checkpoint_run(checkpoint) : NULL;
    const clt_section *section = checkpoint ? clt_checkpoint_section(checkpoint, "local") : NULL;
    json_t *replicas = section ? json_loads(section->text, 0, NULL) : NULL;
    const json_t *left = json_object_get(replicas, "left");
    const int64_t epochs = s->epochs >= 0 ? s->epochs : 1, count = j->replicas.total;
    const int64_t samples = clt_dataset_count(j->train), part = replicas_batch(j) / count;
    const int64_t epoch = run ? run->epoch : 0, sample = run ? run->sample : 0;
    int64_t batches = json_integer_value(json_object_get(replicas, "batches"));
    if (run && batches / count != run->step) /* of another number of replicas */
        batches = run->step * count;
    if (epoch < epochs && sample < samples) {
        batches += left ? batches_left(s, left, part) : steps_of(s, samples - sample, part);
        batches += (epochs - epoch - 1) * steps_of(s, samples, part);
        j->steps = batches < count ? 1 : batches / count;
    }
    json_decref(replicas);
}

int count_steps_of_replicas(job *j, const settings *s)
{
    if (!j->train || !replicas_by_time(j))
        return 0;
    const int64_t per_epoch = steps_of(s, clt_dataset_count(j->train), 1);
    if (s->epochs > INT64_MAX / per_epoch)
        return usage_error("--epochs %lld: too many: batches do not fit in 63 bits",
                           (long long)s->epochs);
    if (s->steps > 0 && j->scaled.batch)
        j->steps = steps_left(j, s, 0, 0);
    else if (s->steps <= 0)
        count_batches(j, s, NULL);
    return 0;
}

/* --- resumed runs ---------------------------------------------------------------------------- */

void find_end(job *j, const settings *s, const clt_checkpoint *checkpoint)
{
    if (s->async >=
        0) /* holder 0 counts batches that are dealt again; all holders' schedules agree */
        return;
    const clt_run_state *run = clt_checkpoint_run(checkpoint);
    const int64_t epochs = s->epochs >= 0 ? s->epochs : 1, batch = j->options.batch;
    const int64_t samples = j->train ? clt_dataset_count(j->train) : 0;
    if (s->steps > 0 && j->scaled.batch)
        j->steps = run->step + steps_left(j, s, run->epoch, run->sample);
    if (s->steps > 0 || run->epoch >= epochs || run->sample >= samples)
        return;
    if (replicas_by_time(j)) {
        count_batches(j, s, checkpoint);
        return;
    }
    j->steps = run->step + steps_of(s, samples - run->sample, batch) +
               (epochs - run->epoch - 1) * steps_of(s, samples, batch);
}
