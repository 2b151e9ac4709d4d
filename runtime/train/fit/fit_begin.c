/* Begins a run of clt_fit: finds its data and position, and checks that all ranks agree. */
#include <stdio.h>

#include "base/hash.h"
#include "data/image/augment.h"
#include "data/core/digest.h"
#include "train/fit/fit.h"
#include "train/fit/length.h"
#include "train/saved/reservoir_files.h"
#include "train/step/verify.h"
#include "train/step/states.h"
#include "train/ranks/world.h"
#include "train/step/shards.h"

static bool is_drawn(const clt_dataset *train)
{
    return clt_dataset_kind(train) == CLT_DATA_RESERVOIR;
}

int64_t clt_fit_samples(const clt_fit_run *f)
{
    return is_drawn(f->train) ? f->batch : clt_dataset_count(f->train);
}

clt_status clt_fit_make_source(clt_fit_run *f)
{
    if (is_drawn(f->train))
        return clt_source_create_drawn(f->trainer, f->train, f->options, f->batch,
                                       (uint64_t)f->seed, true, f->total_steps, &f->source);
    return clt_source_create_queued(f->trainer, f->train, f->options, f->batch, f->seed,
                                    f->position, &f->source);
}

clt_status clt_fit_make_balance(clt_fit_run *f)
{
    const clt_trainer *t = f->trainer;
    clt_balance_free(f->balance);
    f->balance = NULL;
    f->rebalance = false;
    f->split = t->shares.weights != NULL;
    /* With fewer samples than a batch, all steps have this smaller size. */
    const int64_t count = clt_fit_samples(f);
    return t->options.rebalance && !f->options->splits
               ? clt_balance_create(&t->all, count < f->batch ? count : f->batch, &f->balance)
               : CLT_OK;
}

/* The data set's name is left out, since files may move. */
void clt_fit_describe_data(clt_trainer *t, const clt_dataset *train, const clt_fit_options *o)
{
    int used =
        is_drawn(train)
            ? snprintf(t->reads, sizeof t->reads, "samples drawn from a reservoir")
            : snprintf(t->reads, sizeof t->reads, "%lld samples, %s",
                       (long long)clt_dataset_count(train), o->shuffle ? "shuffled" : "in order");
    if (o->drop_last && used > 0 && used < (int)sizeof t->reads)
        used += snprintf(t->reads + used, sizeof t->reads - (size_t)used,
                         ", without an epoch's partial last batch");
    if (train->changes && used > 0 && used < (int)sizeof t->reads)
        used += snprintf(t->reads + used, sizeof t->reads - (size_t)used, ", %s", train->changes);
    for (int c = 0; c < o->channels && used > 0 && used < (int)sizeof t->reads; c++)
        used += snprintf(t->reads + used, sizeof t->reads - (size_t)used,
                         ", channel %d less %.9g by %.9g", c, o->mean ? o->mean[c] : 0,
                         o->std ? o->std[c] : 1);
    for (int i = 0; i < train->field_count && used > 0 && used < (int)sizeof t->reads; i++) {
        const clt_data_field *f = &train->fields[i];
        char text[CLT_AUGMENT_TEXT];
        if (f->augmented)
            used += snprintf(t->reads + used, sizeof t->reads - (size_t)used, ", %s: %s", f->name,
                             clt_augment_text(&f->augment, text));
    }
}

static clt_status resume(clt_fit_run *f)
{
    const clt_fit_options *o = f->options;
    const clt_participants *all = &f->trainer->all;
    const bool wanted = o->resume && o->checkpoint_dir;
    const bool together = clt_shards_together(f->trainer);
    if (together)
        CLT_TRY(clt_ranks_compare(all->world, wanted, "wish to resume (resume, checkpoint_dir)"));
    if (!wanted || (all->rank && !together))
        return CLT_OK;
    int64_t seed;
    clt_status status = clt_trainer_restore_with(
        f->trainer, together, o->resume_from ? o->resume_from : o->checkpoint_dir, &f->position,
        &seed);
    if (status == CLT_NOT_FOUND && o->resume_from)
        return status;
    /* A folder without a checkpoint starts a new run. */
    if (status == CLT_NOT_FOUND)
        return CLT_OK;
    CLT_TRY(status);
    if (o->seed >= 0 && o->seed != seed)
        return clt_fail(CLT_MISMATCH,
                        "the checkpoints in %s are of a run with seed %lld, not %lld: leave the "
                        "seed out to go on with it",
                        o->checkpoint_dir, (long long)seed, (long long)o->seed);
    f->seed = seed;
    f->resumed = true;
    return CLT_OK;
}

int64_t clt_fit_schedule_step(const clt_fit_run *f, clt_position position)
{
    return clt_fit_schedule_at(f->options, clt_fit_samples(f), position);
}

/* A new run adds its epochs to the steps that the trainer has made before. A resumed run ends with
 * its last epoch, even if earlier epochs had batches of another size. */
static int64_t find_end(const clt_fit_run *f, int64_t samples)
{
    const clt_fit_options *o = f->options;
    if (o->steps && !o->schedule_batch)
        return o->steps;
    if (!o->steps && !f->resumed)
        return f->trainer->steps + o->epochs * clt_fit_steps_of(o, samples, f->batch);
    return f->trainer->steps + clt_fit_steps_left(o, samples, f->batch, f->position);
}

static uint64_t add_number(uint64_t hash, int64_t number)
{
    return clt_hash(&number, sizeof number, hash);
}

static clt_status digest(clt_dataset *dataset, uint64_t *value)
{
    *value = 0;
    return dataset ? clt_dataset_digest(dataset, value) : CLT_OK;
}

clt_status clt_fit_compare_data(const clt_participants *all, clt_dataset *train, clt_dataset *test,
                                clt_dataset *validation)
{
    uint64_t trained = 0, tested = 0, validated = 0;
    clt_status status = digest(train, &trained);
    CLT_NEXT(status, digest(test, &tested));
    CLT_NEXT(status, digest(validation, &validated));
    CLT_TRY(clt_world_agree(all, status));
    CLT_TRY(clt_ranks_compare(all->world, trained, "content of the training data"));
    CLT_TRY(clt_ranks_compare(all->world, tested, "content of the test data"));
    return clt_ranks_compare(all->world, validated, "content of the validation data");
}

/* Locks the folder before it is read, so that the newest checkpoint stays the newest. */
static clt_status lock(clt_fit_run *f)
{
    const clt_fit_options *o = f->options;
    return o->checkpoint_dir && !o->lock && !f->trainer->all.rank
               ? clt_folder_lock_take(o->checkpoint_dir, &f->lock)
               : CLT_OK;
}

/* What a reservoir cannot do. */
static clt_status check_data(const clt_fit_run *f)
{
    const clt_fit_options *o = f->options;
    const char *wrong = !o->steps           ? "set clt_fit_options.steps"
                        : o->schedule_batch ? "leave clt_fit_options.schedule_batch out"
                        : !o->shuffle       ? "leave clt_fit_options.shuffle at 1, since samples "
                                              "are drawn at random"
                                            : NULL;
    if (f->test)
        CLT_TRY(clt_dataset_need_fixed(f->test, "tests"));
    if (o->validation)
        CLT_TRY(clt_dataset_need_fixed(o->validation, "validations"));
    return !is_drawn(f->train) || !wrong
               ? CLT_OK
               : clt_fail(CLT_INVALID_ARGUMENT, "reservoir '%s' has no epochs: %s",
                          clt_dataset_name(f->train), wrong);
}

/* All ranks begin at rank 0's position, on the same data. */
static clt_status begin_together(clt_fit_run *f, clt_dataset *train)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    clt_status status = check_data(f);
    CLT_NEXT(status, lock(f));
    CLT_TRY(clt_world_agree(&t->all, status));
    CLT_TRY(clt_world_agree(&t->all, resume(f)));
    if (t->all.ranks == 1)
        return CLT_OK;
    uint64_t hash = clt_hash_text(t->reads, 0);
    hash = add_number(hash, clt_fit_samples(f));
    hash = add_number(hash, f->test ? clt_dataset_count(f->test) : 0);
    hash = add_number(add_number(hash, f->batch), o->schedule_batch);
    hash = add_number(hash, o->epochs);
    hash = add_number(hash, o->steps);
    hash = add_number(hash, o->seed);
    hash = add_number(hash, o->checkpoint_dir ? o->checkpoint_every : 0);
    hash = clt_policies_hash(o, hash);
    for (int i = 0; i < o->n_splits; i++) {
        hash = add_number(add_number(hash, o->splits[i].step), o->splits[i].quantum);
        hash = clt_hash(o->splits[i].weights, (size_t)t->all.total * sizeof(double), hash);
    }
    CLT_TRY(clt_ranks_compare(
        t->all.world, hash,
        "run (number of samples, shuffling, normalisation, batch, length, seed, policies or "
        "changes of the split)"));
    CLT_TRY(clt_fit_compare_data(&t->all, train, f->test, o->validation));
    int64_t begin[] = {f->position.epoch, f->position.sample, f->seed, f->resumed,
                       t->reservoir_ranks};
    CLT_TRY(clt_world_tell(&t->all, 0, begin, sizeof begin));
    f->position = (clt_position){begin[0], begin[1]};
    f->seed = begin[2];
    f->resumed = begin[3] != 0;
    t->reservoir_ranks = begin[4];
    CLT_TRY(clt_policies_tell(f));
    t->exchange.vote = t->exchange.votes = 0;
    /* Other ranks need not have the checkpoint from which rank 0 resumes. */
    if (!f->resumed)
        CLT_TRY(clt_verify_start(t));
    return clt_trainer_broadcast(t, 0);
}

/* Gives each rank the samples that its reservoir had at the checkpoint, and lets later checkpoints
 * have samples. */
static clt_status restore_samples(clt_fit_run *f)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    clt_reservoir_file *file = NULL;
    const bool saved = f->resumed && t->reservoir_ranks;
    clt_status status =
        saved ? clt_reservoir_open(t, f->train, o->resume_from ? o->resume_from : o->checkpoint_dir,
                                   t->steps, t->reservoir_ranks, &file)
              : CLT_OK;
    status = saved ? clt_world_agree(&t->all, status) : status;
    CLT_NEXT(status, clt_reservoir_fill(file));
    clt_reservoir_close(file);
    t->reservoir = clt_reservoir_saves(f->train) ? f->train : NULL;
    return status;
}

clt_status clt_fit_begin(clt_fit_run *f, clt_dataset *train)
{
    clt_trainer *t = f->trainer;
    const clt_fit_options *o = f->options;
    const int64_t samples = clt_fit_samples(f);
    CLT_TRY(clt_states_check_batch(t->states, samples < f->batch ? samples : f->batch));
    clt_fit_describe_data(t, train, o);
    t->reservoir = NULL;
    CLT_TRY(begin_together(f, train));
    if (is_drawn(train))
        CLT_TRY(restore_samples(f));
    f->total_steps = find_end(f, samples);
    CLT_TRY(clt_world_agree(&t->all, clt_policies_begin(f)));
    CLT_TRY(clt_fit_make_balance(f));
    return clt_world_agree(&t->all, clt_fit_make_source(f));
}
