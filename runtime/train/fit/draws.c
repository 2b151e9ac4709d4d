#include "train/fit/draws.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "data/reservoir/reservoir.h"

/* Two steps may be queued while a third batch is gathered. */
enum { SLOTS = 3 };

/* Ranks without samples tell each other so often whether they have some. */
static const double WAIT_SECONDS = 0.02;

/* What ranks tell each other until all have samples. */
typedef struct told {
    uint8_t ready, stop;
} told;

struct clt_draws {
    clt_trainer *trainer;
    const clt_gather *gather;
    const clt_fit_options *options;
    clt_reservoir *reservoir;
    int64_t batch, end;
    uint64_t seed;
    bool wait;
    bool all; /* all ranks have samples */
    clt_scratch scratch;
    int turn;                                   /* slot of the next batch */
    void *memory[SLOTS][CLT_DATA_MAX_FIELDS];   /* by slot and output */
    clt_feed feeds[SLOTS][CLT_DATA_MAX_FIELDS]; /* likewise */
    int64_t *places, *numbers[SLOTS], first, counts[SLOTS];
    int64_t
        *parts; /* several ranks: the first positions of the parts of a whole batch, and the end */
    int64_t *offsets; /* several ranks: of the last batch, for its step */
    told *told;       /* by rank */
    double waited;
};

clt_status clt_draws_check(const clt_trainer *t, const clt_dataset *reservoir)
{
    if (t->all.ranks == 1)
        return CLT_OK;
    const char *with = clt_participants_have_axes(&t->all) ? "axes of the mesh besides dp"
                       : t->options.virtual_shards         ? "virtual_shards"
                       : t->options.rebalance              ? "rebalance"
                                                           : NULL;
    return !with ? CLT_OK
                 : clt_fail(CLT_UNSUPPORTED,
                            "reservoir '%s' is one of several ranks, which have samples of their "
                            "own: leave out %s, or train on one rank",
                            clt_dataset_name(reservoir), with);
}

/* Returns the samples of a rank's part of a whole batch, and their first position. */
static int64_t part_of(const clt_draws *d, int rank, int64_t *first)
{
    const clt_participants *all = &d->trainer->all;
    *first = all->ranks == 1 ? 0 : d->parts[all->begins[rank]];
    return all->ranks == 1 ? d->batch : d->parts[all->begins[rank + 1]] - *first;
}

static clt_status make_parts(clt_draws *d)
{
    const clt_trainer *t = d->trainer;
    const int parts = clt_participants_parts(&t->all);
    if (t->all.ranks == 1)
        return CLT_OK;
    d->parts = clt_calloc((size_t)parts + 1, sizeof *d->parts);
    d->offsets = clt_calloc((size_t)t->shares.parts + 1, sizeof *d->offsets);
    d->told = clt_calloc((size_t)t->all.ranks, sizeof *d->told);
    CLT_TRY_MEMORY(d->parts && d->offsets && d->told);
    return clt_split(d->batch, parts, t->shares.weights, t->shares.quantum, d->parts);
}

static clt_status make_memory(clt_draws *d, const char *const *names)
{
    int64_t first;
    const size_t most = (size_t)part_of(d, d->trainer->all.rank, &first) + 1;
    d->places = clt_calloc(most, sizeof *d->places);
    CLT_TRY_MEMORY(d->places);
    for (int s = 0; s < SLOTS; s++) {
        d->numbers[s] = clt_calloc(most, sizeof *d->numbers[s]);
        CLT_TRY_MEMORY(d->numbers[s]);
        for (int o = 0; o < d->gather->count; o++) {
            d->memory[s][o] = clt_alloc_pages(most * (size_t)d->gather->outputs[o].bytes);
            CLT_TRY_MEMORY(d->memory[s][o]);
            d->feeds[s][o] = (clt_feed){names[o], -1, CLT_HOST(d->memory[s][o])};
        }
    }
    return clt_scratch_init(&d->scratch, d->gather, (int64_t)most);
}

clt_status clt_draws_create(clt_trainer *trainer, const clt_gather *gather,
                            const char *const *names, const clt_fit_options *options, int64_t batch,
                            uint64_t seed, bool wait, int64_t end, clt_draws **out)
{
    clt_draws *d = CLT_NEW(clt_draws);
    CLT_TRY_MEMORY(d);
    d->trainer = trainer;
    d->gather = gather;
    d->options = options;
    d->batch = batch;
    d->seed = seed;
    d->wait = wait;
    d->end = end;
    clt_status status = clt_reservoir_of(gather->dataset, &d->reservoir);
    CLT_NEXT(status, clt_reservoir_make(gather->dataset));
    CLT_NEXT(status, make_parts(d));
    CLT_NEXT(status, make_memory(d, names));
    if (status != CLT_OK) {
        clt_draws_destroy(d);
        return status;
    }
    *out = d;
    return CLT_OK;
}

void clt_draws_destroy(clt_draws *d)
{
    if (!d)
        return;
    for (int s = 0; s < SLOTS; s++) {
        clt_free(d->numbers[s]);
        for (int o = 0; o < CLT_DATA_MAX_FIELDS; o++)
            clt_free(d->memory[s][o]);
    }
    clt_scratch_free(&d->scratch);
    CLT_FREE(d->places, d->parts, d->offsets, d->told, d);
}

/* Finds whether a rank has samples, or wants to stop although none has. After all ranks had samples
 * they always will, and nothing is exchanged any more. */
static clt_status ask(clt_draws *d, bool stop, bool *any, bool *stops)
{
    const clt_participants *all = &d->trainer->all;
    const bool ready = clt_reservoir_ready(d->reservoir, 0);
    *any = ready || d->all;
    *stops = stop;
    if (all->ranks == 1 || d->all)
        return CLT_OK;
    const told mine = {ready, stop};
    CLT_TRY(all->world->gather(all->world->user, &mine, sizeof mine, d->told));
    *any = *stops = false;
    d->all = true;
    for (int r = 0; r < all->ranks; r++) {
        *any = *any || d->told[r].ready;
        *stops = *stops || d->told[r].stop;
        d->all = d->all && d->told[r].ready;
    }
    return CLT_OK;
}

static clt_status await(clt_draws *d, bool *any)
{
    const clt_fit_options *o = d->options;
    bool stops = false;
    CLT_TRY(ask(d, false, any, &stops));
    if (*any || !d->wait)
        return CLT_OK;
    const double began = clt_clock();
    while (!*any && !stops) {
        clt_heartbeat_state_is(d->trainer->exchange.beat, CLT_HEARTBEAT_WAITING);
        clt_reservoir_ready(d->reservoir, WAIT_SECONDS);
        CLT_TRY(ask(d, o->should_stop && o->should_stop(o->user), any, &stops));
    }
    d->waited += clt_clock() - began;
    return *any ? CLT_OK
                : clt_fail(CLT_STOPPED, "stopped while reservoir '%s' waits for samples",
                           clt_dataset_name(d->gather->dataset));
}

/* Tells the step where this rank's samples are in the batch, whose size depends on which ranks have
 * samples. */
static int64_t place(clt_draws *d, clt_step_batch *step, int64_t *position)
{
    const clt_participants *all = &d->trainer->all;
    const int parts = d->trainer->shares.parts;
    int64_t count = part_of(d, all->rank, position), any;
    if (all->ranks == 1)
        return count;
    for (int r = 0; r < all->ranks; r++) {
        const int64_t theirs = d->all || d->told[r].ready ? part_of(d, r, &any) : 0;
        count = r == all->rank ? theirs : count;
        step->first += r < all->rank ? theirs : 0;
        step->total += theirs;
    }
    for (int i = 0; i <= parts; i++)
        d->offsets[i] = count ? d->parts[all->first_part + i] - d->parts[all->first_part] : 0;
    step->offsets = d->offsets;
    return count;
}

clt_status clt_draws_next(clt_draws *d, clt_source_batch *out)
{
    const int64_t step = d->trainer->steps;
    const int s = d->turn;
    int64_t position, weight = 0;
    bool any;
    *out = (clt_source_batch){.slot = -1};
    clt_step_batch_init(&out->step);
    CLT_TRY(await(d, &any));
    if (!any)
        return CLT_OK;
    d->turn = (s + 1) % SLOTS;
    out->slot = s;
    out->last_of_epoch = step + 1 == d->end;
    out->step.feeds = d->feeds[s];
    out->step.n_feeds = d->gather->count;
    out->step.count = place(d, &out->step, &position);
    d->first = out->step.first;
    d->counts[s] = out->step.count;
    if (!out->step.count)
        return CLT_OK;
    const clt_sample_key key = {d->seed, step};
    if (!clt_reservoir_pin(d->reservoir, d->seed, step, position, out->step.count, d->places,
                           d->numbers[s]))
        return clt_fail(CLT_STATE,
                        "reservoir '%s' has fewer samples than at the last step: restore it "
                        "together with the trainer, on all ranks",
                        clt_dataset_name(d->gather->dataset));
    const clt_status status = clt_gather_run(d->gather, &key, d->places, out->step.count,
                                             d->memory[s], &d->scratch, &weight);
    clt_reservoir_unpin(d->reservoir, d->places, out->step.count);
    return status;
}

int64_t clt_draws_number(const clt_draws *d, int slot, int64_t sample)
{
    return slot >= 0 && sample >= 0 && sample < d->counts[slot] ? d->numbers[slot][sample] : 0;
}

int64_t clt_draws_first(const clt_draws *d)
{
    return d->first;
}

double clt_draws_waited(const clt_draws *d)
{
    return d->waited;
}
