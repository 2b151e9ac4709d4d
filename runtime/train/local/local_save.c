/* Saves checkpoints of replicas. Rank 0 writes them: model and optimizer of replica 0 as of any
 * trainer, and the tensors of further.h. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "train/local/further.h"
#include "train/local/run.h"
#include "train/setup/loss_scaling.h"

/* Bytes of a message between ranks. */
enum { PIECE = 4 << 20 };

clt_status clt_local_tell(const clt_local *local, int root, void *data, int64_t bytes)
{
    for (int64_t at = 0; local->all.ranks > 1 && at < bytes; at += PIECE)
        CLT_TRY(clt_world_tell(&local->all, root, (char *)data + at,
                               bytes - at < PIECE ? bytes - at : PIECE));
    return CLT_OK;
}

/* --- saving ---------------------------------------------------------------------------------- */

typedef struct saver {
    const clt_local *local;
    clt_further_list list;
    char *buffer;
} saver;

/* Ranks read tensor `number` of the list together, and rank 0 gets it. */
static clt_status collect(const saver *s, int number)
{
    const clt_further *f = &s->list.of[number];
    const int owner = clt_further_rank(s->local, f);
    clt_status status = CLT_OK;
    if (owner == s->local->all.rank)
        status = clt_further_get(s->local, f, s->buffer);
    CLT_TRY(clt_world_agree(&s->local->all, status));
    return owner ? clt_local_tell(s->local, owner, s->buffer, f->slot->bytes) : CLT_OK;
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
    const clt_further *f = &s->list.of[number];
    const bool velocity = f->kind == CLT_FURTHER_VELOCITY;
    *data = velocity ? (const char *)clt_further_velocity(s->local, f->slot) : s->buffer;
    if (velocity)
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

/* The type of parameters on the wire, and everything that decides who has which residual. */
static json_t *wire_to_json(const clt_local *local)
{
    char buckets[24];
    json_t *replicas = json_array(), *roundings = json_array();
    for (int r = 0; r < local->all.ranks; r++) {
        json_array_append_new(replicas, json_integer(local->begins[r + 1] - local->begins[r]));
        json_array_append_new(roundings, json_integer(local->outer.wire.roundings[r]));
    }
    snprintf(buckets, sizeof buckets, "%016llx",
             (unsigned long long)clt_buckets_hash(&local->trainers[0]->store->layout));
    return json_pack("{sssososs}", "type", clt_dtype_name(local->options.wire), "replicas",
                     replicas, "roundings", roundings, "buckets", buckets);
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
    if (json && local->options.wire != CLT_F32)
        json_object_set_new(json, "wire", wire_to_json(local));
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
    const clt_outer_state *o = &local->outer;
    const bool residuals = local->options.wire != CLT_F32;
    const clt_further_wanted wanted = {.inner = local->total,
                                       .velocity = o->velocity != NULL,
                                       .sent = residuals ? local->total : 0,
                                       .ranks = residuals ? local->all.ranks : 0,
                                       .roundings = o->wire.roundings};
    *s = (saver){.local = local};
    CLT_TRY(clt_further_list_make(local, &wanted, &s->list));
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
    clt_further_list_free(&s.list);
    CLT_FREE(s.buffer, scalings);
    return status;
}
