/* Saves trainers in checkpoints, and restores them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "train/core/trainer.h"
#include "train/planner/frozen.h"
#include "train/saved/average_files.h"
#include "train/setup/choices.h"
#include "train/saved/host_sections.h"
#include "train/setup/loss_scaling.h"
#include "train/saved/reservoir_files.h"
#include "train/saved/store_files.h"
#include "train/saved/wire_files.h"
#include "train/step/averages.h"
#include "train/step/shards.h"
#include <cltrain/fit.h>

static const clt_optimizer_row *optimizer_of(const clt_trainer *t)
{
    return clt_optimizer_of(&t->options);
}

static clt_status split_to_json(const clt_trainer *t, char **text)
{
    clt_division division = {.identities = t->all.identities,
                             .count = t->all.total,
                             .begins = t->all.ranks > 1 ? t->all.begins : NULL,
                             .ranks = t->all.ranks,
                             /* On a mesh with other axes the weights are not of devices. A run
                              * without offload is to divide batches over all devices. */
                             .weights = clt_participants_have_axes(&t->all) || t->store->owners
                                            ? NULL
                                            : t->shares.weights,
                             .quantum = t->shares.quantum,
                             .bucket_bytes = t->store->bucket_bytes,
                             .per_device = t->shares.per_run,
                             .history = t->history};
    if (t->all.ranks > 1)
        return clt_split_to_json(&division, text);
    const size_t n = (size_t)t->all.own;
    clt_device **devices = clt_calloc(n, sizeof(clt_device *));
    char *identities = clt_calloc(n, CLT_SPLIT_IDENTITY);
    division.identities = identities;
    for (size_t d = 0; devices && d < n; d++)
        devices[d] = t->store->replicas[d].device;
    if (devices && identities)
        clt_split_identify(devices, t->all.own, identities);
    const clt_status status =
        devices && identities ? clt_split_to_json(&division, text) : CLT_OUT_OF_MEMORY;
    CLT_FREE(devices, identities);
    return status;
}

clt_status clt_trainer_set_use(clt_trainer *t, const char *json)
{
    char *copy = json ? clt_strdup(json) : NULL;
    if (json && !copy)
        return CLT_OUT_OF_MEMORY;
    clt_free(t->use);
    t->use = copy;
    return CLT_OK;
}

/* Appends tensors to a list's items. The list's count stays, so the reader does not fetch them. */
static clt_status append(clt_tensor_list *slots, const clt_tensor *items, int count)
{
    clt_tensor *all =
        clt_realloc(slots->items, (size_t)(slots->count + count + 1) * sizeof *slots->items);
    CLT_TRY_MEMORY(all);
    slots->items = all;
    if (count)
        memcpy(all + slots->count, items, (size_t)count * sizeof *items);
    return CLT_OK;
}

/* The tensors of the optimizer's file: those of a list, then more that a caller has. */
typedef struct joined {
    clt_tensor *tensors;
    int count;
    const clt_tensor_list *slots;
    int with_data; /* behind those of `slots` */
    const clt_saved_more *more;
    clt_tensor_reader *reader;
} joined;

static clt_status join(const clt_tensor_list *slots, int with_data, const clt_saved_more *more,
                       clt_tensor_reader *reader, joined *j)
{
    const int n = more ? more->count : 0;
    const int before = slots->count + with_data;
    *j = (joined){NULL, before + n, slots, with_data, more, reader};
    j->tensors = clt_calloc((size_t)j->count + 1, sizeof *j->tensors);
    CLT_TRY_MEMORY(j->tensors);
    for (int i = 0; i < j->count; i++)
        j->tensors[i] = i < before ? slots->items[i] : more->tensors[i - before];
    return CLT_OK;
}

static clt_status fetch_joined(void *user, const clt_tensor *tensor, const void **data)
{
    const joined *j = user;
    if (tensor < j->tensors || tensor >= j->tensors + j->count)
        return clt_tensor_reader_fetch(j->reader, tensor, data);
    const int i = (int)(tensor - j->tensors), before = j->slots->count + j->with_data;
    return i < before ? clt_tensor_reader_fetch(j->reader, &j->slots->items[i], data)
                      : j->more->fetch(j->more->user, &j->more->tensors[i - before], data);
}

static clt_status save(clt_trainer *t, const char *dir, clt_position position, int64_t batch,
                       int64_t seed, int64_t keep, const char *model, const clt_wire_saved *wire,
                       const clt_saved_more *more)
{
    clt_tensor_list values = {0}, slots = {0}, averages = {0};
    clt_tensor_reader reader;
    joined j = {0};
    char *averaged = NULL;
    clt_checkpoint_desc desc;
    clt_checkpoint_desc_init(&desc);
    clt_status status = clt_tensor_reader_make(&t->all, t->store, &reader);
    CLT_NEXT(status, clt_trainer_wait(t));
    CLT_NEXT(status, clt_tensor_list_make(t->store, NULL, &values));
    CLT_NEXT(status, clt_tensor_list_make(t->store, optimizer_of(t), &slots));
    if (t->options.average.kind)
        CLT_NEXT(status, clt_averages_save(t, &averages, &averaged));
    CLT_NEXT(status, append(&slots, wire->items, wire->count));
    CLT_NEXT(status, join(&slots, wire->count, more, &reader, &j));
    reader.lists[0] = &values;
    reader.lists[1] = &slots;
    reader.lists[2] = &averages;
    char dropout_seed[24], shards[24], fresh[24], *choices = NULL, *split = NULL;
    snprintf(dropout_seed, sizeof dropout_seed, "%llu", (unsigned long long)t->options.seed);
    snprintf(shards, sizeof shards, "%lld", (long long)t->options.virtual_shards);
    snprintf(fresh, sizeof fresh, "%lld", (long long)t->fresh);
    CLT_NEXT(status, clt_choices_to_json(t->choices, t->training, t->evaluation, &choices));
    CLT_NEXT(status, split_to_json(t, &split));
    char scaling[96];
    CLT_NEXT(status, clt_scaling_to_json(t->devices[0].update, t->options.precision, scaling,
                                         sizeof scaling));
    clt_str groups = {0};
    clt_store_groups_text(t->store, &groups);
    if (status == CLT_OK && groups.failed)
        status = CLT_OUT_OF_MEMORY;
    enum { ALWAYS = 10, SOMETIMES = 8 }; /* sections that every run has, and others */
    clt_section sections[ALWAYS + SOMETIMES] = {
        {"model", model ? model : "", 0},
        {"optimizer", optimizer_of(t)->name, 0},
        {"dropout_seed", dropout_seed, 0},
        {"reads", t->reads, 0},
        {"groups", clt_str_text(&groups), 0},
        {CLT_SECTION_PRECISION, clt_dtype_name(t->options.precision), 0},
        {CLT_SECTION_SCALING, scaling, 1},
        {CLT_SECTION_FROZEN, choices ? choices : "{}", 1},
        {CLT_SECTION_SPLIT, split ? split : "{}", 1},
        {CLT_SECTION_SHARDS, shards, 0},
    };
    int n_sections = ALWAYS;
    char ranks[24];
    snprintf(ranks, sizeof ranks, "%d", t->all.ranks);
    if (t->reservoir)
        sections[n_sections++] = (clt_section){CLT_SECTION_RESERVOIR, ranks, 0};
    if (wire->section)
        sections[n_sections++] = (clt_section){CLT_SECTION_WIRE, wire->section, 0};
    if (t->use)
        sections[n_sections++] = (clt_section){"use", t->use, 1};
    if (t->deals)
        sections[n_sections++] = (clt_section){CLT_SECTION_ASYNC, t->deals, 1};
    if (averaged)
        sections[n_sections++] = (clt_section){CLT_SECTION_AVERAGE, averaged, 1};
    if (t->policies)
        sections[n_sections++] = (clt_section){CLT_SECTION_POLICIES, t->policies, 1};
    if (t->fresh)
        sections[n_sections++] = (clt_section){CLT_SECTION_FRESH, fresh, 0};
    if (more)
        sections[n_sections++] = (clt_section){CLT_SECTION_LOCAL, more->section, 1};
    desc.run = (clt_run_state){.step = t->steps,
                               .epoch = position.epoch,
                               .batch = batch > 0 ? position.sample / batch : 0,
                               .sample = position.sample,
                               .seed = seed};
    desc.model = values.items;
    desc.model_count = values.count;
    desc.optimizer = j.tensors;
    desc.optimizer_count = j.count;
    desc.average = averages.items;
    desc.average_count = averages.count;
    clt_section *all = NULL;
    int n_all = 0;
    CLT_NEXT(status, clt_host_sections_join(t, sections, n_sections, &all, &n_all));
    desc.sections = all;
    desc.section_count = n_all;
    desc.fetch = fetch_joined;
    desc.fetch_user = &j;
    desc.keep = keep;
    desc.best = t->best_step;
    CLT_NEXT(status, clt_checkpoint_save(dir, &desc));
    clt_tensor_list_free(&values);
    clt_tensor_list_free(&slots);
    clt_tensor_list_free(&averages);
    clt_str_free(&groups);
    CLT_FREE(choices, split, reader.buffer, j.tensors, all, averaged);
    return status;
}

clt_status clt_trainer_save_more(clt_trainer *t, const char *dir, clt_position position,
                                 int64_t batch, int64_t seed, int64_t keep, const char *model,
                                 const clt_saved_more *more)
{
    const clt_wire_saved none = {0}; /* replicas have no 16 bits on the wire */
    return save(t, dir, position, batch, seed, keep, model, &none, more);
}

clt_status clt_trainer_save(clt_trainer *t, const char *dir, clt_position position, int64_t batch,
                            int64_t seed, int64_t keep, const char *model)
{
    return clt_trainer_save_in_run(t, dir, position, batch, seed, keep, model, false);
}

clt_status clt_trainer_save_in_run(clt_trainer *t, const char *dir, clt_position position,
                                   int64_t batch, int64_t seed, int64_t keep, const char *model,
                                   bool apart)
{
    clt_wire_saved wire = {0};
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(clt_averages_away(t, "clt_trainer_save"));
    if (t->reservoir) {
        const clt_status own = clt_reservoir_save(t, dir, keep);
        CLT_TRY(apart ? own : clt_world_agree(&t->all, own));
    }
    clt_status status = clt_wire_collect(t, &wire);
    if (status != CLT_OK)
        ;                             /* on all ranks */
    else if (!clt_shards_together(t)) /* all replicas are equal */
        status =
            t->all.rank ? CLT_OK : save(t, dir, position, batch, seed, keep, model, &wire, NULL);
    else if (t->all.rank)
        status = clt_whole_follow(&t->all, t->store);
    else
        status =
            clt_whole_end(&t->all, save(t, dir, position, batch, seed, keep, model, &wire, NULL));
    clt_wire_saved_free(t, &wire);
    return status;
}

/* --- restoring ------------------------------------------------------------------------------- */

static clt_status load_slot(const clt_participants *leads, clt_trainer *t,
                            const clt_tensors *tensors, const clt_tensor *tensor, int kind,
                            const clt_slot *slot)
{
    const void *data;
    void *owned;
    CLT_TRY(clt_tensors_load(tensors, tensor, &data, &owned));
    const clt_status status = leads ? clt_whole_set(leads, t->store, kind, slot, data)
                                    : clt_shards_write(t, kind, slot, data);
    clt_free(owned);
    return status;
}

static clt_status load_slots(const clt_participants *leads, clt_trainer *t,
                             const clt_tensors *tensors)
{
    for (int i = 0; i < t->store->layout.n_slots; i++) {
        const clt_slot *slot = &t->store->layout.slots[i];
        for (int k = 0; k < optimizer_of(t)->n_slots && !slot->state; k++) {
            char name[512];
            const clt_tensor *tensor;
            if (!clt_store_keeps(t->store, slot, k))
                continue;
            snprintf(name, sizeof name, "%s.%s", slot->name, clt_trainer_slot_name(t, k));
            CLT_TRY(clt_tensors_find(tensors, name, &tensor));
            CLT_TRY(load_slot(leads, t, tensors, tensor, k, slot));
        }
    }
    return CLT_OK;
}

/* Copies the first line in which the texts differ, for a message. */
static void differing_lines(const char *a, const char *b, char *line_a, char *line_b, size_t bytes)
{
    size_t start = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        start = a[i] == '\n' ? i + 1 : start;
    const char *texts[] = {a + start, b + start};
    char *lines[] = {line_a, line_b};
    for (int k = 0; k < 2; k++)
        snprintf(lines[k], bytes, "%.*s", (int)strcspn(texts[k], "\n"),
                 *texts[k] ? texts[k] : "nothing more");
}

/* A checkpoint without the section is older than parameter groups. */
static clt_status match_groups(const clt_trainer *t, const clt_checkpoint *checkpoint)
{
    const clt_section *written = clt_checkpoint_section(checkpoint, "groups");
    char theirs[300], ours[300];
    clt_str own = {0};
    clt_store_groups_text(t->store, &own);
    clt_status status = own.failed ? CLT_OUT_OF_MEMORY : CLT_OK;
    const char *before = written ? written->text : "";
    if (status == CLT_OK && strcmp(before, clt_str_text(&own))) {
        differing_lines(before, clt_str_text(&own), theirs, ours, sizeof ours);
        status = clt_fail(CLT_MISMATCH,
                          "%s was written with other parameter groups: \"%s\" there, \"%s\" in "
                          "this run",
                          clt_checkpoint_path(checkpoint), theirs, ours);
    }
    clt_str_free(&own);
    return status;
}

/* Compares everything before anything is changed. */
static clt_status match_all(clt_trainer *t, const clt_checkpoint *checkpoint)
{
    clt_tensor_list values = {0}, slots = {0};
    clt_wire_saved wire = {0};
    clt_status status = clt_tensor_list_make(t->store, NULL, &values);
    CLT_NEXT(status, clt_tensors_match(clt_checkpoint_model(checkpoint), values.items, values.count,
                                       CLT_MATCH_EXACT));
    const clt_section *written = clt_checkpoint_section(checkpoint, "optimizer");
    const char *own = optimizer_of(t)->name;
    if (status == CLT_OK && written && strcmp(written->text, own))
        status = clt_fail(CLT_MISMATCH, "%s was written with optimizer %s, this run uses %s",
                          clt_checkpoint_path(checkpoint), written->text, own);
    written = clt_checkpoint_section(checkpoint, "reads");
    if (status == CLT_OK && written && *written->text && *t->reads &&
        strcmp(written->text, t->reads))
        status = clt_fail(CLT_MISMATCH,
                          "%s was written by a run on %s, this run is on %s: a new run can start "
                          "from the parameters in model.safetensors",
                          clt_checkpoint_path(checkpoint), written->text, t->reads);
    CLT_NEXT(status, match_groups(t, checkpoint));
    CLT_NEXT(status, clt_wire_expect(t, checkpoint, &wire));
    CLT_NEXT(status, clt_tensor_list_make(t->store, optimizer_of(t), &slots));
    /* Replicas of local SGD have further tensors. */
    const bool local = clt_checkpoint_section(checkpoint, CLT_SECTION_LOCAL) != NULL;
    CLT_NEXT(status, append(&slots, wire.items, wire.count));
    CLT_NEXT(status, clt_tensors_match(clt_checkpoint_optimizer(checkpoint), slots.items,
                                       slots.count + wire.count,
                                       local ? CLT_MATCH_EXTRA : CLT_MATCH_EXACT));
    clt_wire_saved_free(t, &wire);
    clt_tensor_list_free(&values);
    clt_tensor_list_free(&slots);
    return status;
}

static clt_status read_history(const clt_trainer *t, const clt_checkpoint *checkpoint,
                               clt_split_history **history)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_SPLIT);
    *history = NULL;
    return section ? clt_split_read_history(section->text, t->all.ranks, t->all.total, history)
                   : CLT_OK;
}

/* Another number of virtual shards adds in another order. */
static void compare_shards(const clt_trainer *t, const clt_checkpoint *checkpoint)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_SHARDS);
    const int64_t before = section ? strtoll(section->text, NULL, 10) : 0;
    const int64_t now = t->options.virtual_shards;
    if (before == now || t->all.rank != 0)
        return;
    char was[32] = "out virtual shards", is[32] = "none", same[48] = "no virtual shards";
    if (before)
        snprintf(was, sizeof was, " %lld virtual shards", (long long)before);
    if (before)
        snprintf(same, sizeof same, "%lld virtual shards", (long long)before);
    if (now)
        snprintf(is, sizeof is, "%lld", (long long)now);
    clt_log(CLT_LOG_WARN,
            "%s was written with%s, and this run has %s: results are equal to rounding. Take %s to "
            "go on with the same bits",
            clt_checkpoint_path(checkpoint), was, is, same);
}

/* A run of replicas goes on as a run without them. */
static clt_status leave_replicas(const clt_trainer *t, const clt_checkpoint *checkpoint)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_LOCAL);
    if (!section || t->is_replica)
        return CLT_OK;
    if (strstr(section->text, CLT_LOCAL_LEFT))
        return clt_fail(CLT_MISMATCH,
                        "%s was written by replicas in the middle of an epoch, of which each had "
                        "its own samples: resume with replicas that are synchronised by time, or "
                        "from a checkpoint at the end of an epoch",
                        clt_checkpoint_path(checkpoint));
    clt_log(
        CLT_LOG_WARN,
        "%s was written by replicas of local SGD, this run goes on without them: with the "
        "optimizer's state of replica 0, and without that of synchronisations (outer optimizer, "
        "residuals)",
        clt_checkpoint_path(checkpoint));
    return CLT_OK;
}

/* Returns after which step the optimizer's state began. Before they wrote a section for this
 * number, replicas had it among theirs. */
static int64_t read_fresh(const clt_checkpoint *checkpoint)
{
    const clt_section *own = clt_checkpoint_section(checkpoint, CLT_SECTION_FRESH);
    const clt_section *local = clt_checkpoint_section(checkpoint, CLT_SECTION_LOCAL);
    if (own || !local)
        return own ? strtoll(own->text, NULL, 10) : 0;
    json_t *json = json_loads(local->text, 0, NULL);
    const int64_t fresh = (int64_t)json_integer_value(json_object_get(json, "fresh"));
    json_decref(json);
    return fresh;
}

static clt_status read_policies(clt_trainer *t, const clt_checkpoint *checkpoint)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_POLICIES);
    char *copy = section ? clt_strdup(section->text) : NULL;
    CLT_TRY_MEMORY(!section || copy);
    clt_free(t->policies);
    t->policies = copy;
    return CLT_OK;
}

/* Restores an open checkpoint. With `leads`, the other ranks follow rank 0. */
static clt_status restore(clt_trainer *t, const clt_participants *leads,
                          const clt_checkpoint *checkpoint)
{
    clt_scaling scaling;
    clt_split_history *history = NULL;
    compare_shards(t, checkpoint);
    clt_status status = match_all(t, checkpoint);
    CLT_NEXT(status, leave_replicas(t, checkpoint));
    CLT_NEXT(status, clt_scaling_read(t->options.precision, checkpoint, &scaling));
    CLT_NEXT(status, read_history(t, checkpoint, &history));
    CLT_NEXT(status,
             clt_store_load_values(leads, t->store, clt_checkpoint_model(checkpoint), "", NULL));
    CLT_NEXT(status, load_slots(leads, t, clt_checkpoint_optimizer(checkpoint)));
    CLT_NEXT(status, clt_averages_load(t, leads, checkpoint));
    if (status == CLT_OK) {
        const clt_section *dropout_seed = clt_checkpoint_section(checkpoint, "dropout_seed");
        if (dropout_seed)
            t->options.seed = strtoull(dropout_seed->text, NULL, 10);
        t->fresh = read_fresh(checkpoint);
        t->reservoir_ranks = clt_reservoir_ranks(checkpoint);
        status = clt_host_sections_read(t, checkpoint);
        CLT_NEXT(status, read_policies(t, checkpoint));
        clt_split_history_free(t->history);
        t->history = history;
        history = NULL;
        CLT_NEXT(status, clt_trainer_set_scaling(t, &scaling));
    }
    clt_split_history_free(history);
    return status;
}

/* Rank 0 opens the checkpoint. *checkpoint is NULL on the other ranks. */
static clt_status open_first(const clt_trainer *t, bool together, const char *path,
                             clt_checkpoint **checkpoint)
{
    if (!together)
        return clt_checkpoint_open_apart(path, checkpoint);
    const clt_status status = t->all.rank ? CLT_OK : clt_checkpoint_open_apart(path, checkpoint);
    int64_t found = status != CLT_NOT_FOUND;
    CLT_TRY(clt_ranks_agree(t->all.world, found ? status : CLT_OK, &found));
    if (found)
        return CLT_OK;
    return t->all.rank ? clt_fail(CLT_NOT_FOUND, "rank 0 found no checkpoint in %s", path)
                       : CLT_NOT_FOUND;
}

int64_t clt_reservoir_ranks(const clt_checkpoint *checkpoint)
{
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_RESERVOIR);
    return section ? strtoll(section->text, NULL, 10) : 0;
}

/* Opens this rank's file of samples, if the trainer has a reservoir to restore. */
static clt_status open_samples(clt_trainer *t, bool together, const char *path,
                               const clt_checkpoint *checkpoint, clt_reservoir_file **samples)
{
    int64_t at[2] = {0, 0};
    if (!t->reservoir)
        return CLT_OK;
    if (checkpoint) {
        at[0] = clt_checkpoint_run(checkpoint)->step;
        at[1] = clt_reservoir_ranks(checkpoint);
    }
    if (together)
        CLT_TRY(clt_world_tell(&t->all, 0, at, sizeof at));
    return clt_reservoir_open(t, t->reservoir, path, at[0], at[1], samples);
}

clt_status clt_trainer_restore_with(clt_trainer *t, bool together, const char *path,
                                    clt_position *position, int64_t *seed)
{
    clt_checkpoint *checkpoint = NULL;
    clt_reservoir_file *samples = NULL;
    CLT_TRY(clt_step_allowed(t));
    if (t->reporting)
        return clt_fail(CLT_STATE, "clt_fit runs with this trainer: restore it before or after");
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(clt_averages_away(t, "clt_trainer_restore"));
    clt_status status = open_first(t, together, path, &checkpoint);
    if (together && status != CLT_OK) /* on all ranks */
        return status;
    CLT_NEXT(status, open_samples(t, together, path, checkpoint, &samples));
    if (t->reservoir) /* each rank has samples of its own: none restores if one cannot */
        status = clt_world_agree(&t->all, status);
    if (status != CLT_OK) {
        clt_reservoir_close(samples);
        clt_checkpoint_close(checkpoint);
        return status;
    }
    t->restores++;
    t->phase = CLT_PHASE_NONE; /* gradients are those of other parameters */
    t->has_gradients = false;
    status = !checkpoint ? clt_whole_follow(&t->all, t->store)
                         : restore(t, together ? &t->all : NULL, checkpoint);
    if (checkpoint && together)
        status = clt_whole_end(&t->all, status);
    CLT_NEXT(status, clt_wire_restore(t, checkpoint, together));
    if (status == CLT_OK) {
        clt_run_state run = checkpoint ? *clt_checkpoint_run(checkpoint) : (clt_run_state){0};
        if (together) {
            status = clt_world_tell(&t->all, 0, &run, sizeof run);
            CLT_NEXT(status, clt_world_tell(&t->all, 0, &t->fresh, sizeof t->fresh));
        }
        clt_trainer_set_steps(t, run.step);
        /* drop results of steps that the loaded run has not done */
        for (int i = 0; i < CLT_RESULT_RING; i++)
            t->results.records[i].step = -1;
        *position = (clt_position){run.epoch, run.sample};
        *seed = run.seed;
    }
    CLT_NEXT(status, clt_reservoir_fill(samples));
    clt_reservoir_close(samples);
    clt_checkpoint_close(checkpoint);
    return status;
}

clt_status clt_trainer_restore(clt_trainer *t, const char *path, clt_position *position,
                               int64_t *seed)
{
    CLT_TRY(clt_store_check_devices(t->store));
    /* Each rank has residuals of its own, which clt_trainer_broadcast does not send. */
    const bool residuals = t->exchange.wire.dtype != CLT_F32 && t->all.ranks > 1;
    return clt_trainer_restore_with(t, residuals || clt_whole_spread(&t->all, t->store), path,
                                    position, seed);
}
