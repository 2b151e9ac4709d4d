/*
 * Checkpoints of replicas. Rank 0 writes them: model and optimizer of replica 0 as of any trainer,
 * and beside them the inner states of the other replicas and the outer optimizer's velocity. One
 * tensor at a time comes from another rank.
 */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/vec.h"
#include "checkpoint/safetensors.h"
#include "train/local/run.h"
#include "train/setup/loss_scaling.h"
#include "train/setup/store_files.h"
#include "train/step/shards.h"
#include "train/store/parts.h"

/* Bytes of a message between ranks. */
enum { PIECE = 4 << 20 };

/* Copies bytes of rank `root` to all ranks. */
static clt_status tell_bytes(const clt_local *local, int root, void *data, int64_t bytes)
{
    for (int64_t at = 0; local->all.ranks > 1 && at < bytes; at += PIECE)
        CLT_TRY(clt_world_tell(&local->all, root, (char *)data + at,
                               bytes - at < PIECE ? bytes - at : PIECE));
    return CLT_OK;
}

static int rank_of(const clt_local *local, int replica)
{
    int rank = 0;
    while (replica >= local->begins[rank + 1])
        rank++;
    return rank;
}

/* --- the tensors ----------------------------------------------------------------------------- */

/* A tensor beside those of replica 0. */
typedef struct further {
    int replica; /* 0: the outer optimizer's */
    int kind;    /* the optimizer's slot */
    const clt_slot *slot;
} further;

typedef struct further_list {
    clt_tensor *tensors;
    further *of;
    char (*names)[600];
    int count;
    int64_t largest; /* bytes */
} further_list;

static void free_list(further_list *list)
{
    CLT_FREE(list->tensors, list->of, list->names);
    *list = (further_list){0};
}

static clt_status add(further_list *list, int replica, int kind, const char *kind_name,
                      const clt_slot *slot)
{
    char *name = list->names[list->count];
    if (replica)
        snprintf(name, sizeof *list->names, "replica.%d.%s.%s", replica, slot->name, kind_name);
    else
        snprintf(name, sizeof *list->names, "outer.%s.%s", slot->name, kind_name);
    list->of[list->count] = (further){replica, kind, slot};
    list->largest = slot->bytes > list->largest ? slot->bytes : list->largest;
    return clt_tensor_init(&list->tensors[list->count++], name, (clt_file_dtype)slot->type.dtype,
                           slot->type.rank, slot->type.dims, NULL);
}

/* Lists the inner states of replicas 1 to `replicas` - 1, and the velocity if `outer`. The list is
 * the same on all ranks. */
static clt_status make_list(const clt_local *local, int replicas, bool outer, further_list *list)
{
    const clt_trainer *t = local->trainers[0];
    const clt_buckets *layout = &t->store->layout;
    const clt_optimizer_row *row = clt_optimizer_find(t->options.optimizer);
    const size_t room = (size_t)layout->n_slots * (size_t)((replicas - 1) * row->n_slots + 1) + 1;
    *list = (further_list){.tensors = clt_calloc(room, sizeof *list->tensors),
                           .of = clt_calloc(room, sizeof *list->of),
                           .names = clt_calloc(room, sizeof *list->names),
                           .largest = 1};
    CLT_TRY_MEMORY(list->tensors && list->of && list->names);
    for (int i = 0; i < layout->n_slots; i++) {
        const clt_slot *slot = &layout->slots[i];
        if (slot->state)
            continue;
        for (int r = 1; r < replicas; r++)
            for (int k = 0; k < row->n_slots; k++)
                CLT_TRY(add(list, r, k, row->slots[k], slot));
        if (outer)
            CLT_TRY(add(list, 0, 0, "momentum_buffer", slot));
    }
    return CLT_OK;
}

/* Returns the place of a parameter in the velocity. */
static float *velocity_of(const clt_local *local, const clt_slot *slot)
{
    const clt_outer_state *o = &local->outer;
    int k = 0;
    while (o->floats[k].bucket != slot->bucket)
        k++;
    return o->velocity + o->floats[k].at + slot->offset / (int64_t)sizeof(float);
}

/* Reads a tensor of a replica of this rank. */
static clt_status get_own(const clt_local *local, const further *f, void *data)
{
    const clt_trainer *t = local->trainers[f->replica - local->first];
    return clt_whole_get(&t->all, t->store, f->kind, f->slot, data);
}

/* Sets a tensor of a replica of this rank. */
static clt_status set_own(const clt_local *local, const further *f, const void *data)
{
    return clt_shards_write(local->trainers[f->replica - local->first], f->kind, f->slot, data);
}

/* --- saving ---------------------------------------------------------------------------------- */

typedef struct saver {
    const clt_local *local;
    further_list list;
    char *buffer;
} saver;

/* Ranks read tensor `number` of the list together, and rank 0 gets it. */
static clt_status collect(const saver *s, int number)
{
    const further *f = &s->list.of[number];
    const int owner = rank_of(s->local, f->replica);
    clt_status status = CLT_OK;
    if (owner == s->local->all.rank)
        status = get_own(s->local, f, s->buffer);
    CLT_TRY(clt_world_agree(&s->local->all, status));
    return owner ? tell_bytes(s->local, owner, s->buffer, f->slot->bytes) : CLT_OK;
}

/* Tells the other ranks which tensor comes next; -1: none. */
static clt_status call_ranks(const clt_local *local, int64_t *number)
{
    return clt_world_tell(&local->all, 0, number, sizeof *number);
}

static clt_status fetch(void *user, const clt_tensor *tensor, const void **data)
{
    const saver *s = user;
    int64_t number = tensor - s->list.tensors;
    const further *f = &s->list.of[number];
    *data = f->replica ? s->buffer : (const char *)velocity_of(s->local, f->slot);
    if (!f->replica)
        return CLT_OK;
    CLT_TRY(call_ranks(s->local, &number));
    return collect(s, (int)number);
}

/* Goes on after a failure until rank 0 ends the calls: all ranks come to the next collective
 * together. Returns the first failure. */
static clt_status follow(const saver *s)
{
    clt_status status = CLT_OK;
    char message[1024] = "";
    for (;;) {
        int64_t number;
        CLT_TRY(call_ranks(s->local, &number));
        if (number < 0) {
            if (status != CLT_OK)
                clt_error_restore(message);
            return status;
        }
        const clt_status collected = collect(s, (int)number);
        if (status == CLT_OK && collected != CLT_OK) {
            status = collected;
            snprintf(message, sizeof message, "%s", clt_error_message());
        }
    }
}

/* What is left of the epoch, with batches that replicas have claimed and not trained on; null at
 * the begin of an epoch. */
static json_t *left_to_json(const clt_local_run *run)
{
    json_t *list = json_array();
    for (int k = 0; k < run->left.n; k++)
        json_array_append_new(list, json_pack("[II]", (json_int_t)run->left.of[k].begin,
                                              (json_int_t)run->left.of[k].count));
    for (int i = 0; i < run->local->total; i++)
        for (int k = 0; k < run->told[i].held.n; k++)
            json_array_append_new(list, json_pack("[II]", (json_int_t)run->told[i].held.of[k].begin,
                                                  (json_int_t)run->told[i].held.of[k].count));
    return list;
}

/* The scales of losses of all replicas, in their order. */
static clt_status gather_scalings(const clt_local *local, clt_scaling *of)
{
    const size_t bytes = (size_t)local->most * sizeof *of;
    clt_scaling *own = clt_calloc((size_t)local->most, sizeof *own);
    void *all = NULL;
    clt_status status = own ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < local->own; i++)
        status = clt_update_scaling(local->trainers[i]->devices[0].update, &own[i]);
    status = clt_world_agree(&local->all, status);
    CLT_NEXT(status, clt_ranks_gather(local->all.world, own, bytes, &all));
    for (int r = 0; status == CLT_OK && r < local->all.ranks; r++)
        memcpy(of + local->begins[r], (const char *)all + (size_t)r * bytes,
               (size_t)(local->begins[r + 1] - local->begins[r]) * sizeof *of);
    CLT_FREE(own, all);
    return status;
}

static clt_status section_text(const clt_local_run *run, const clt_scaling *scalings, char **text)
{
    const clt_local *local = run->local;
    const clt_local_options *o = &local->options;
    const int64_t batches = clt_local_by_time(run) ? run->batches : run->step * local->total;
    json_t *scales = json_array();
    for (int i = 0; i < local->total; i++)
        json_array_append_new(scales, json_pack("[fii]", (double)scalings[i].scale,
                                                (int)scalings[i].good, (int)scalings[i].skipped));
    json_t *json =
        json_pack("{sisssfsfsIsfsIsIsIso}", "replicas", local->total, "outer",
                  clt_outer_name(o->outer.kind), "outer_lr", o->outer.lr, "outer_momentum",
                  o->outer.momentum, "every_steps", (json_int_t)o->every_steps, "every_seconds",
                  o->every_seconds, "syncs", (json_int_t)run->sync, "batches", (json_int_t)batches,
                  "fresh", (json_int_t)local->trainers[0]->fresh, "scaling", scales);
    if (json && clt_local_by_time(run) && run->position.sample)
        json_object_set_new(json, "left", left_to_json(run));
    char *dumped = json ? json_dumps(json, JSON_COMPACT) : NULL;
    *text = dumped ? clt_strdup(dumped) : NULL;
    free(dumped);
    json_decref(json);
    return *text ? CLT_OK : CLT_OUT_OF_MEMORY;
}

static clt_status write_checkpoint(clt_local_run *run, saver *s, const clt_scaling *scalings)
{
    const clt_fit_options *o = run->options;
    char *section = NULL;
    CLT_TRY(section_text(run, scalings, &section));
    const clt_saved_more more = {s->list.tensors, s->list.count, fetch, s, section};
    const clt_status status =
        clt_trainer_save_more(run->local->trainers[0], o->checkpoint_dir, run->position, run->batch,
                              run->seed, o->keep, o->model, &more);
    clt_free(section);
    return status;
}

static clt_status prepare(const clt_local *local, saver *s)
{
    *s = (saver){.local = local};
    CLT_TRY(make_list(local, local->total, local->outer.velocity != NULL, &s->list));
    s->buffer = clt_alloc((size_t)s->list.largest);
    return s->buffer ? CLT_OK : CLT_OUT_OF_MEMORY;
}

clt_status clt_local_save(clt_local_run *run)
{
    const clt_local *local = run->local;
    const clt_fit_options *o = run->options;
    saver s;
    if (!o->checkpoint_dir)
        return CLT_OK;
    clt_heartbeat_state_is(local->trainers[0]->exchange.beat, CLT_HEARTBEAT_SAVING);
    if (o->on_checkpoint)
        o->on_checkpoint(o->user);
    clt_scaling *scalings = clt_calloc((size_t)local->total, sizeof *scalings);
    clt_status status = prepare(local, &s);
    CLT_NEXT(status, scalings ? CLT_OK : CLT_OUT_OF_MEMORY);
    status = clt_world_agree(&local->all, status);
    CLT_NEXT(status, gather_scalings(local, scalings));
    if (status == CLT_OK && local->all.rank)
        status = follow(&s);
    else if (status == CLT_OK) {
        int64_t none = -1;
        char message[1024];
        status = write_checkpoint(run, &s, scalings);
        snprintf(message, sizeof message, "%s", clt_error_message());
        const clt_status told = call_ranks(local, &none);
        clt_error_restore(message);
        status = status == CLT_OK ? told : status;
    }
    status = clt_world_agree(&local->all, status);
    free_list(&s.list);
    CLT_FREE(s.buffer, scalings);
    return status;
}

/* --- resuming -------------------------------------------------------------------------------- */

/* What rank 0 found in the checkpoint. */
typedef struct found {
    int64_t resumed, step, seed, batches, syncs, fresh;
    uint64_t drawn; /* seed of dropout */
    clt_position position;
    int replicas; /* 0: the run had none */
    int velocity; /* the checkpoint has one that this run needs */
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
    return tell_bytes(local, 0, buffer, bytes);
}

/* Sets the inner states of the other replicas, and the velocity, from the checkpoint of rank 0. */
static clt_status load_further(clt_local *local, const clt_checkpoint *checkpoint, const found *f)
{
    const clt_tensors *from = checkpoint ? clt_checkpoint_optimizer(checkpoint) : NULL;
    further_list list = {0};
    char *buffer = NULL;
    clt_status status =
        make_list(local, f->fresh == f->step ? 1 : local->total, f->velocity, &list);
    CLT_NEXT(status, (buffer = clt_alloc((size_t)list.largest)) ? CLT_OK : CLT_OUT_OF_MEMORY);
    status = clt_world_agree(&local->all, status);
    for (int n = 0; status == CLT_OK && n < list.count; n++) {
        const further *of = &list.of[n];
        status = tell_tensor(local, from, &list.tensors[n], of->slot->bytes, buffer);
        if (status == CLT_OK && !of->replica)
            memcpy(velocity_of(local, of->slot), buffer, (size_t)of->slot->bytes);
        else if (status == CLT_OK && rank_of(local, of->replica) == local->all.rank)
            status = set_own(local, of, buffer);
    }
    free_list(&list);
    clt_free(buffer);
    return clt_world_agree(&local->all, status);
}

/* Sets the inner states of all replicas of this rank to zero. */
static clt_status begin_anew(const clt_local *local)
{
    const clt_buckets *layout = &local->trainers[0]->store->layout;
    const clt_optimizer_row *row = clt_optimizer_find(local->trainers[0]->options.optimizer);
    clt_status status = CLT_OK;
    for (int s = 0; s < layout->n_slots; s++) {
        const clt_slot *slot = &layout->slots[s];
        char *zeros = slot->state ? NULL : clt_calloc((size_t)slot->bytes + 1, 1);
        if (!slot->state && !zeros)
            return CLT_OUT_OF_MEMORY;
        for (int i = 0; zeros && i < local->own; i++)
            for (int k = 0; k < row->n_slots; k++)
                CLT_NEXT(status, clt_shards_write(local->trainers[i], k, slot, zeros));
        clt_free(zeros);
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
    return tell_bytes(run->local, 0, left->of, count * (int64_t)sizeof *left->of);
}

static clt_status take(clt_local_run *run, const clt_checkpoint *checkpoint, found *f,
                       clt_scaling *scalings)
{
    clt_local *local = run->local;
    CLT_TRY(clt_world_tell(&local->all, 0, f, sizeof *f));
    if (!f->resumed)
        return CLT_OK;
    CLT_TRY(tell_bytes(local, 0, scalings, local->total * (int64_t)sizeof *scalings));
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
    if (status == CLT_OK && !local->all.rank && o->resume && o->checkpoint_dir)
        status = open_first(run, &f, scalings, &checkpoint);
    status = clt_world_agree(&local->all, status);
    CLT_NEXT(status, take(run, checkpoint, &f, scalings));
    clt_checkpoint_close(checkpoint);
    clt_free(scalings);
    return status;
}
