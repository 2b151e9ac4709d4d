/* Resumes replicas from a checkpoint of local_save.c. Rank 0 reads it. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"
#include "train/local/further.h"
#include "train/local/outer_wire.h"
#include "train/local/run.h"
#include "train/ranks/connect.h"
#include "train/setup/loss_scaling.h"
#include "train/step/shards.h"

/* What rank 0 found in the checkpoint. */
typedef struct found {
    int64_t resumed, step, seed, batches, syncs, fresh;
    uint64_t drawn; /* seed of dropout */
    clt_position position;
    int replicas; /* 0: the run had none */
    int velocity; /* the checkpoint has one that this run needs */
    int wire;     /* residuals are there, and each has its sender in this run, too */
    int stretches;
} found;

static int64_t number_of(const json_t *section, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(section, name));
}

/* Reads the samples that are left of the epoch. */
static clt_status read_left(clt_local_run *run, const json_t *section, const char *path)
{
    const json_t *list = json_object_get(section, "left");
    size_t i;
    const json_t *pair;
    if (list && !clt_local_by_time(run))
        return clt_fail(
            CLT_MISMATCH,
            "%s was written in the middle of an epoch, of which each replica had its "
            "own samples: resume by time (--sync-every 2s), or from a checkpoint at the "
            "end of an epoch",
            path);
    json_array_foreach(list, i, pair)
    {
        const int64_t begin = (int64_t)json_integer_value(json_array_get(pair, 0)),
                      count = (int64_t)json_integer_value(json_array_get(pair, 1));
        if (begin < 0 || count < 1 || begin > clt_dataset_count(run->train) - count)
            return clt_fail(CLT_FORMAT,
                            "%s: the section \"" CLT_SECTION_LOCAL "\" of its state.json names "
                            "samples that the data lacks: resume from another checkpoint",
                            path);
        CLT_TRY(clt_spans_add(&run->left, begin, count));
    }
    return CLT_OK;
}

static clt_status damaged(const clt_checkpoint *checkpoint)
{
    return clt_fail(CLT_FORMAT,
                    "%s: the section \"" CLT_SECTION_LOCAL
                    "\" of its state.json is damaged: resume "
                    "from another checkpoint",
                    clt_checkpoint_path(checkpoint));
}

/* --- 16 bits on the wire --------------------------------------------------------------------- */

/* Reads a list of numbers, one for each rank. */
static clt_status read_numbers(const json_t *list, size_t count, int32_t *numbers)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(list, i);
        const json_int_t number = json_integer_value(one);
        if (!json_is_integer(one) || number < 0 || number > CLT_MOST_DEVICES)
            return CLT_FORMAT;
        numbers[i] = (int32_t)number;
    }
    return CLT_OK;
}

static clt_status add_residual(const clt_local *local, const clt_tensors *from,
                               const clt_tensor *described, const clt_slot *slot)
{
    const clt_tensor *tensor;
    const void *data;
    void *owned = NULL;
    float *sum = local->outer.wire.residuals[0] + clt_outer_place(&local->outer, slot);
    CLT_TRY(clt_tensors_match(from, described, 1, CLT_MATCH_EXTRA));
    CLT_TRY(clt_tensors_find(from, described->name, &tensor));
    CLT_TRY(clt_tensors_load(from, tensor, &data, &owned));
    for (int64_t i = 0; i < slot->bytes / (int64_t)sizeof *sum; i++)
        sum[i] += ((const float *)data)[i];
    clt_free(owned);
    return CLT_OK;
}

/* Replica 0 sends what all others had rounded away, so that nothing is lost. */
static clt_status add_all(const clt_local *local, const clt_checkpoint *checkpoint,
                          const clt_further_wanted *theirs)
{
    clt_further_list list;
    clt_status status = clt_further_list_make(local, theirs, &list);
    for (int n = 0; status == CLT_OK && n < list.count; n++)
        status = add_residual(local, clt_checkpoint_optimizer(checkpoint), &list.tensors[n],
                              list.of[n].slot);
    clt_further_list_free(&list);
    if (status == CLT_OK)
        clt_log(CLT_LOG_WARN,
                "%s was written on other replicas or ranks: what all of them had rounded away "
                "(wire %s) is added to what replica 0 sends next",
                clt_checkpoint_path(checkpoint), clt_dtype_name(local->options.wire));
    return status;
}

/* Whether residuals have the same senders in this run. */
static bool is_same(const clt_local *local, const int32_t *replicas, const int32_t *roundings,
                    size_t ranks, const char *buckets)
{
    char own[24];
    snprintf(own, sizeof own, "%016llx",
             (unsigned long long)clt_buckets_hash(&local->trainers[0]->store->layout));
    bool same = ranks == (size_t)local->all.ranks && !strcmp(own, buckets);
    for (size_t r = 0; same && r < ranks; r++)
        same = replicas[r] == local->begins[r + 1] - local->begins[r] &&
               roundings[r] == local->outer.wire.roundings[r];
    return same;
}

/* Without the object the checkpoint has no residuals, and they begin at zero. */
static clt_status read_wire(const clt_local *local, const json_t *wire,
                            const clt_checkpoint *checkpoint, found *f)
{
    const char *type = json_string_value(json_object_get(wire, "type"));
    const char *own = clt_dtype_name(local->options.wire);
    const json_t *list = json_object_get(wire, "replicas");
    const size_t ranks = json_array_size(list);
    const char *buckets = json_string_value(json_object_get(wire, "buckets"));
    if (!wire)
        return CLT_OK;
    if (type && strcmp(type, own) != 0)
        return clt_fail(CLT_MISMATCH,
                        "%s has residuals of wire %s, this run has wire %s: go on with wire %s, or "
                        "start a new run from its parameters",
                        clt_checkpoint_path(checkpoint), type, own, type);
    int32_t *replicas = clt_calloc(2 * ranks + 1, sizeof *replicas), *roundings = replicas + ranks;
    CLT_TRY_MEMORY(replicas);
    clt_status status = type && buckets ? read_numbers(list, ranks, replicas) : CLT_FORMAT;
    CLT_NEXT(status, read_numbers(json_object_get(wire, "roundings"), ranks, roundings));
    clt_further_wanted theirs = {.inner = 1, .ranks = (int)ranks, .roundings = roundings};
    for (size_t r = 0; status == CLT_OK && r < ranks; r++)
        theirs.sent += replicas[r];
    if (status != CLT_OK || theirs.sent != f->replicas)
        status = damaged(checkpoint);
    else if (is_same(local, replicas, roundings, ranks, buckets))
        f->wire = 1;
    else
        status = add_all(local, checkpoint, &theirs);
    clt_free(replicas);
    return status;
}

/* --- the checkpoint -------------------------------------------------------------------------- */

static clt_status read_section(clt_local_run *run, const clt_checkpoint *checkpoint, found *f,
                               clt_scaling *scalings)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_LOCAL);
    if (!section)
        return CLT_OK;
    json_t *json = json_loads(section->text, 0, NULL);
    const int64_t replicas = number_of(json, "replicas");
    const char *outer = json_string_value(json_object_get(json, "outer"));
    const json_t *scales = json_object_get(json, "scaling");
    clt_status status = CLT_OK;
    if (replicas < 1 || replicas > INT32_MAX || !outer ||
        json_array_size(scales) != (size_t)replicas)
        status = damaged(checkpoint);
    else {
        f->replicas = (int)replicas;
        f->batches = number_of(json, "batches");
        f->syncs = number_of(json, "syncs");
        f->fresh = number_of(json, "fresh");
        const bool kept = strcmp(outer, clt_outer_name(CLT_OUTER_AVERAGE)) != 0;
        f->velocity = kept && run->local->outer.velocity;
        if (kept != (run->local->outer.velocity != NULL))
            clt_log(CLT_LOG_WARN, "%s was written with the outer optimizer %s, this run has %s: %s",
                    clt_checkpoint_path(checkpoint), outer,
                    clt_outer_name(run->local->options.outer.kind),
                    kept ? "its momentum is dropped" : "momentum begins at 0");
        for (int i = 0; replicas == run->local->total && i < run->local->total; i++) {
            const json_t *s = json_array_get(scales, (size_t)i);
            scalings[i] = (clt_scaling){(float)json_number_value(json_array_get(s, 0)),
                                        (int32_t)json_integer_value(json_array_get(s, 1)),
                                        (int32_t)json_integer_value(json_array_get(s, 2))};
            if (!clt_scaling_valid(&scalings[i]))
                status = damaged(checkpoint);
        }
        CLT_NEXT(status, read_left(run, json, clt_checkpoint_path(checkpoint)));
        CLT_NEXT(status, read_wire(run->local, json_object_get(json, "wire"), checkpoint, f));
    }
    json_decref(json);
    return status;
}

static void warn_of_fresh(const clt_local *local, const clt_checkpoint *checkpoint, int replicas)
{
    if (replicas)
        clt_log(CLT_LOG_WARN,
                "%s is of %d replicas, this run has %d: it goes on with the parameters and the "
                "outer optimizer's state; the inner states of all replicas begin anew",
                clt_checkpoint_path(checkpoint), replicas, local->total);
    else
        clt_log(CLT_LOG_WARN,
                "%s is of a run without replicas, this run has %d: it goes on with the "
                "parameters; the states of the inner and outer optimizers begin anew",
                clt_checkpoint_path(checkpoint), local->total);
}

/* Rank 0: restores replica 0, and opens the checkpoint for the rest. */
static clt_status open_first(clt_local_run *run, found *f, clt_scaling *scalings,
                             clt_checkpoint **checkpoint)
{
    clt_local *local = run->local;
    const clt_fit_options *o = run->options;
    const char *path = o->resume_from ? o->resume_from : o->checkpoint_dir;
    clt_status status =
        clt_trainer_restore_with(local->trainers[0], false, path, &f->position, &f->seed);
    if (status == CLT_NOT_FOUND && !o->resume_from) /* a folder without checkpoints: a new run */
        return CLT_OK;
    CLT_TRY(status);
    if (o->seed >= 0 && o->seed != f->seed)
        return clt_fail(CLT_MISMATCH,
                        "the checkpoints in %s are of a run with seed %lld, not %lld: leave the "
                        "seed out to go on with it",
                        o->checkpoint_dir, (long long)f->seed, (long long)o->seed);
    CLT_TRY(clt_checkpoint_open_apart(path, checkpoint));
    CLT_TRY(read_section(run, *checkpoint, f, scalings));
    f->resumed = 1;
    f->step = local->trainers[0]->steps;
    f->drawn = local->trainers[0]->options.seed;
    f->stretches = run->left.n;
    if (f->replicas != local->total) {
        f->fresh = f->step;
        warn_of_fresh(local, *checkpoint, f->replicas);
    }
    return CLT_OK;
}

/* Reads a tensor on rank 0 and gives it to all ranks. */
static clt_status tell_tensor(const clt_local *local, const clt_tensors *from,
                              const clt_tensor *described, int64_t bytes, char *buffer)
{
    const clt_tensor *tensor;
    const void *data;
    void *owned = NULL;
    clt_status status = CLT_OK;
    if (from) {
        status = clt_tensors_match(from, described, 1, CLT_MATCH_EXTRA);
        CLT_NEXT(status, clt_tensors_find(from, described->name, &tensor));
        CLT_NEXT(status, clt_tensors_load(from, tensor, &data, &owned));
        if (status == CLT_OK)
            memcpy(buffer, data, (size_t)bytes);
        clt_free(owned);
    }
    CLT_TRY(clt_world_agree(&local->all, status));
    return clt_local_tell(local, 0, buffer, bytes);
}

/* Sets the inner states of the other replicas, the velocity and the residuals from the checkpoint
 * of rank 0. */
static clt_status load_further(clt_local *local, const clt_checkpoint *checkpoint, const found *f)
{
    const clt_tensors *from = checkpoint ? clt_checkpoint_optimizer(checkpoint) : NULL;
    const clt_further_wanted wanted = {.inner = f->fresh == f->step ? 1 : local->total,
                                       .velocity = f->velocity,
                                       .sent = f->wire ? local->total : 0,
                                       .ranks = f->wire ? local->all.ranks : 0,
                                       .roundings = local->outer.wire.roundings};
    clt_further_list list = {0};
    char *buffer = NULL;
    clt_status status = clt_further_list_make(local, &wanted, &list);
    CLT_NEXT(status, (buffer = clt_alloc((size_t)list.largest)) ? CLT_OK : CLT_OUT_OF_MEMORY);
    status = clt_world_agree(&local->all, status);
    for (int n = 0; status == CLT_OK && n < list.count; n++) {
        status = tell_tensor(local, from, &list.tensors[n], list.of[n].slot->bytes, buffer);
        CLT_NEXT(status, clt_further_set(local, &list.of[n], buffer));
    }
    clt_further_list_free(&list);
    clt_free(buffer);
    return clt_world_agree(&local->all, status);
}

/* Sets the inner states of all replicas of this rank to those of a new trainer. */
static clt_status begin_anew(const clt_local *local)
{
    const clt_buckets *layout = &local->trainers[0]->store->layout;
    const clt_optimizer_rule rule = clt_optimizer_rule_of(&local->trainers[0]->options);
    const clt_optimizer_row *row = clt_optimizer_find(&rule);
    clt_status status = CLT_OK;
    for (int s = 0; s < layout->n_slots; s++) {
        const clt_slot *slot = &layout->slots[s];
        const size_t count = (size_t)slot->bytes / sizeof(float);
        float *values = slot->state ? NULL : clt_calloc(count + 1, sizeof *values);
        if (!slot->state && !values)
            return CLT_OUT_OF_MEMORY;
        for (size_t i = 0; values && i < count; i++)
            values[i] = (float)rule.initial;
        for (int i = 0; values && i < local->own; i++)
            for (int k = 0; k < row->n_slots; k++)
                CLT_NEXT(status, clt_shards_write(local->trainers[i], k, slot, values));
        clt_free(values);
    }
    return status;
}

/* Brings the trainers of this rank to the step of the checkpoint. */
static clt_status set_trainers(clt_local_run *run, const found *f, const clt_scaling *scalings)
{
    const clt_local *local = run->local;
    for (int i = 0; i < local->own; i++) {
        clt_trainer *t = local->trainers[i];
        clt_trainer_set_steps(t, f->step);
        for (int k = 0; k < CLT_RESULT_RING; k++)
            t->results.records[k].step = -1;
        t->options.seed = f->drawn;
        t->fresh = f->fresh;
        if (f->fresh != f->step)
            CLT_TRY(clt_trainer_set_scaling(t, &scalings[local->first + i]));
    }
    return f->fresh == f->step ? begin_anew(local) : CLT_OK;
}

static clt_status tell_stretches(clt_local_run *run, int count)
{
    clt_spans *left = &run->left;
    if (run->local->all.rank)
        CLT_TRY(CLT_RESERVE(left->of, left->n, left->room, count + 1));
    left->n = count;
    return clt_local_tell(run->local, 0, left->of, count * (int64_t)sizeof *left->of);
}

static clt_status take(clt_local_run *run, const clt_checkpoint *checkpoint, found *f,
                       clt_scaling *scalings)
{
    clt_local *local = run->local;
    CLT_TRY(clt_world_tell(&local->all, 0, f, sizeof *f));
    if (!f->resumed)
        return CLT_OK;
    CLT_TRY(clt_local_tell(local, 0, scalings, local->total * (int64_t)sizeof *scalings));
    CLT_TRY(tell_stretches(run, f->stretches));
    CLT_TRY(clt_world_agree(&local->all, set_trainers(run, f, scalings)));
    CLT_TRY(load_further(local, checkpoint, f));
    run->resumed = true;
    run->step = f->step;
    run->seed = f->seed;
    run->position = f->position;
    run->sync = f->syncs;
    /* Batches of replicas by time count in steps of the run. */
    run->batches = f->batches / local->total == f->step ? f->batches : f->step * local->total;
    return clt_outer_adopt(local);
}

clt_status clt_local_resume(clt_local_run *run)
{
    clt_local *local = run->local;
    const clt_fit_options *o = run->options;
    clt_checkpoint *checkpoint = NULL;
    found f = {0};
    clt_scaling *scalings = clt_calloc((size_t)local->total, sizeof *scalings);
    clt_status status = scalings ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; scalings && i < local->total; i++)
        scalings[i] = clt_scaling_begin();
    const bool resumes = o->resume && o->checkpoint_dir;
    if (status == CLT_OK && resumes)
        status = clt_outer_wire_forget(local);
    if (status == CLT_OK && !local->all.rank && resumes)
        status = open_first(run, &f, scalings, &checkpoint);
    status = clt_world_agree(&local->all, status);
    CLT_NEXT(status, take(run, checkpoint, &f, scalings));
    clt_checkpoint_close(checkpoint);
    clt_free(scalings);
    return status;
}
