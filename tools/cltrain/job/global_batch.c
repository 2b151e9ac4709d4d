#include "job/global_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <cltrain/checkpoint.h>

#include "text/message.h"

/* The key in the section "use" of a checkpoint. */
static const char SCALED[] = "scaled";

static int is_scaled(const settings *s)
{
    return s->global_batch && !strcmp(s->global_batch, "scaled");
}

int check_global_batch(const settings *s)
{
    if (s->global_batch && !is_scaled(s) && strcmp(s->global_batch, "fixed") != 0)
        return usage_error("--global-batch %s: must be fixed or scaled", s->global_batch);
    if (is_scaled(s) && s->windows && !strcmp(s->windows, "continued"))
        return usage_error("--global-batch scaled: --windows continued keeps states for each row "
                           "of the batch, whose rows would change; use --global-batch fixed");
    return 0;
}

/* What a rank tells the others. Rank 0 alone needs to have the checkpoint. */
typedef struct told {
    int64_t devices;  /* of this rank, with samples */
    scaled_from from; /* of the checkpoint; all 0: the checkpoint has none */
} told;

scaled_from scaled_begin(const clt_checkpoint *checkpoint)
{
    scaled_from from = {0, 0};
    const clt_section *use = clt_checkpoint_section(checkpoint, "use");
    json_t *all = use ? json_loads(use->text, 0, NULL) : NULL;
    const json_t *scaled = json_object_get(all, SCALED);
    from.batch = json_integer_value(json_object_get(scaled, "batch"));
    from.devices = json_integer_value(json_object_get(scaled, "devices"));
    json_decref(all);
    return from.batch > 0 && from.devices > 0 ? from : (scaled_from){0, 0};
}

/* clt_fit reports a checkpoint that cannot be read. */
static scaled_from read_begin(const job *j)
{
    clt_checkpoint *checkpoint = NULL;
    if (!j->resumed || clt_checkpoint_open(j->resumed, &checkpoint) != CLT_OK)
        return (scaled_from){0, 0};
    const scaled_from from = scaled_begin(checkpoint);
    clt_checkpoint_close(checkpoint);
    return from;
}

static int scale(job *j, const scaled_from *from)
{
    clt_trainer_options *o = &j->options;
    if (from->batch && from->batch != o->batch)
        return usage_error("--batch %lld: the run began with batches of %lld on %lld device%s, "
                           "from which --global-batch scaled computes: give --batch %lld",
                           (long long)o->batch, (long long)from->batch, (long long)from->devices,
                           from->devices == 1 ? "" : "s", (long long)from->batch);
    j->scaled = from->batch ? *from : (scaled_from){o->batch, j->all_devices};
    const double batch =
        (double)j->scaled.batch * (double)j->all_devices / (double)j->scaled.devices;
    if (batch > INT32_MAX)
        return usage_error("--global-batch scaled: %lld devices would have batches of %.0f samples",
                           (long long)j->all_devices, batch);
    o->batch = batch < 1 ? 1 : llround(batch);
    j->rate_factor = (double)o->batch / (double)j->scaled.batch;
    o->lr *= j->rate_factor;
    j->began = j->scaled;
    return 0;
}

/* A job that has shrunk to one device has nothing that zero could divide. */
static void leave_zero(job *j, settings *s)
{
    if (j->all_devices != 1 || s->zero < 1)
        return;
    if (ranks_prints(&j->ranks) && !j->silent)
        printf("one device has the whole state, so --zero %lld divides nothing\n",
               (long long)s->zero);
    s->zero = 0;
    j->options.zero = 0;
}

int job_global_batch(job *j, settings *s)
{
    const clt_world *world = &j->ranks.world;
    if (!s->global_batch)
        return 0;
    told mine = {.devices = j->n_devices - job_owners(s)};
    if (is_scaled(s) && world->rank == 0)
        mine.from = read_begin(j);
    told *all = calloc((size_t)world->ranks, sizeof *all);
    TRY_MEMORY(all);
    *all = mine;
    clt_status status = CLT_OK;
    if (world->ranks > 1)
        status = world->gather(world->user, &mine, sizeof mine, all);
    for (int r = 0; r < world->ranks; r++)
        j->all_devices += all[r].devices;
    const scaled_from from = all[0].from;
    free(all);
    TRY(library_failure(status));
    leave_zero(j, s);
    return is_scaled(s) ? scale(j, &from) : 0;
}
