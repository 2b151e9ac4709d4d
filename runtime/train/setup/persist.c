/* Saves stores and trainers to files, and loads them. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "checkpoint/safetensors.h"
#include "train/core/trainer.h"
#include "train/store/parts.h"
#include "train/step/shards.h"
#include "train/setup/choices.h"
#include "train/planner/frozen.h"
#include "train/setup/loss_scaling.h"
#include <cltrain/checkpoint.h>
#include <cltrain/fit.h>

/* A list of tensors of the store or of optimizer slots. The list owns the names. */
typedef struct tensor_list {
    clt_tensor *items;
    char **names;
    int count;
} tensor_list;

static void list_free(tensor_list *list)
{
    for (int i = 0; list->names && i < list->count; i++)
        clt_free(list->names[i]);
    CLT_FREE(list->names, list->items);
    *list = (tensor_list){0};
}

/* Returns the slots of this optimizer; the store may also have those of another. */
static int slots_of(const clt_trainer *trainer)
{
    return clt_optimizer_find(trainer->options.optimizer)->n_slots;
}

/* Lists the store's own tensors if `optimizer` is NULL; else each slot of each parameter. */
static clt_status list_tensors(const clt_store *store, const clt_trainer *optimizer,
                               tensor_list *list)
{
    const int n_slots = optimizer ? slots_of(optimizer) : 1;
    const size_t room = (size_t)(store->layout.n_slots * n_slots) + 1;
    list->items = clt_calloc(room, sizeof *list->items);
    list->names = clt_calloc(room, sizeof *list->names);
    CLT_TRY_MEMORY(list->items && list->names);
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[store->order[i]];
        if (slot->carried)
            continue;
        for (int k = 0; k < n_slots && !(optimizer && slot->state); k++) {
            char name[512];
            const char *suffix = optimizer ? clt_trainer_slot_name(optimizer, k) : NULL;
            snprintf(name, sizeof name, "%s%s%s", slot->name, suffix ? "." : "",
                     suffix ? suffix : "");
            char *copy = clt_strdup(name);
            CLT_TRY_MEMORY(copy);
            list->names[list->count] = copy;
            CLT_TRY(clt_tensor_init(&list->items[list->count++], copy,
                                    (clt_file_dtype)slot->type.dtype, slot->type.rank,
                                    slot->type.dims, NULL));
        }
    }
    return CLT_OK;
}

/* Reads tensors from the device one at a time, in the file's order. */
typedef struct reader {
    clt_store *store;
    clt_trainer *trainer;
    const tensor_list *model, *optimizer;
    void *buffer;
} reader;

static clt_status fetch(void *user, const clt_tensor *tensor, const void **data)
{
    reader *r = user;
    const clt_slot *slot = clt_buckets_find(&r->store->layout, tensor->name);
    *data = r->buffer;
    if (slot)
        return clt_store_read(r->store, slot, r->buffer);
    for (int k = 0; r->trainer && k < slots_of(r->trainer); k++) {
        const char *suffix = clt_trainer_slot_name(r->trainer, k);
        const size_t length = strlen(tensor->name), tail = strlen(suffix) + 1;
        char name[512];
        if (length <= tail || strcmp(tensor->name + length - tail + 1, suffix))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - tail), tensor->name);
        slot = clt_buckets_find(&r->store->layout, name);
        if (slot)
            return clt_shards_read(r->trainer, k, slot, r->buffer);
    }
    return clt_fail(CLT_INTERNAL, "tensor %s belongs to nothing", tensor->name);
}

static int64_t largest_slot(const clt_store *store)
{
    int64_t bytes = 1;
    for (int i = 0; i < store->layout.n_slots; i++)
        if (store->layout.slots[i].bytes > bytes)
            bytes = store->layout.slots[i].bytes;
    return bytes;
}

clt_status clt_store_save(clt_store *store, const char *path)
{
    tensor_list list = {0};
    reader r = {.store = store, .buffer = clt_alloc((size_t)largest_slot(store))};
    static const char *const metadata[] = {"format", "pt"};
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    clt_status status = r.buffer ? list_tensors(store, NULL, &list) : CLT_OUT_OF_MEMORY;
    desc.tensors = list.items;
    desc.count = list.count;
    desc.metadata = metadata;
    desc.metadata_pairs = 1;
    desc.fetch = fetch;
    desc.fetch_user = &r;
    CLT_NEXT(status, clt_tensors_save(path, &desc));
    list_free(&list);
    clt_free(r.buffer);
    return status;
}

static clt_status split_to_json(const clt_trainer *t, char **text)
{
    clt_division division = {.identities = t->all.identities,
                             .count = t->all.total,
                             .begins = t->all.ranks > 1 ? t->all.begins : NULL,
                             .ranks = t->all.ranks,
                             .weights = t->shares.weights,
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

clt_status clt_trainer_save(clt_trainer *t, const char *dir, clt_position position, int64_t batch,
                            int64_t seed, int64_t keep, const char *model)
{
    CLT_TRY(clt_shards_collect(t, 0));
    if (t->all.rank) /* only rank 0 writes: all replicas are equal */
        return CLT_OK;
    tensor_list values = {0}, slots = {0};
    reader r = {
        .store = t->store, .trainer = t, .buffer = clt_alloc((size_t)largest_slot(t->store))};
    clt_checkpoint_desc desc;
    clt_checkpoint_desc_init(&desc);
    clt_status status = r.buffer ? clt_trainer_wait(t) : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, list_tensors(t->store, NULL, &values));
    CLT_NEXT(status, list_tensors(t->store, t, &slots));
    char dropout_seed[24], *choices = NULL, *split = NULL;
    snprintf(dropout_seed, sizeof dropout_seed, "%llu", (unsigned long long)t->options.seed);
    CLT_NEXT(status, clt_choices_to_json(t->choices, t->training, t->evaluation, &choices));
    CLT_NEXT(status, split_to_json(t, &split));
    char scaling[96];
    CLT_NEXT(status, clt_scaling_to_json(t->devices[0].update, t->options.precision, scaling,
                                         sizeof scaling));
    clt_str groups = {0};
    clt_store_groups_text(t->store, &groups);
    if (status == CLT_OK && groups.failed)
        status = CLT_OUT_OF_MEMORY;
    const clt_section sections[] = {
        {"model", model ? model : "", 0},
        {"optimizer", clt_optimizer_name(t->options.optimizer), 0},
        {"dropout_seed", dropout_seed, 0},
        {"reads", t->reads, 0},
        {"groups", clt_str_text(&groups), 0},
        {CLT_SECTION_PRECISION, clt_dtype_name(t->options.precision), 0},
        {CLT_SECTION_SCALING, scaling, 1},
        {CLT_SECTION_FROZEN, choices ? choices : "{}", 1},
        {CLT_SECTION_SPLIT, split ? split : "{}", 1},
        {"use", t->use ? t->use : "", 1},
    };
    desc.run = (clt_run_state){.step = t->steps,
                               .epoch = position.epoch,
                               .batch = batch > 0 ? position.sample / batch : 0,
                               .sample = position.sample,
                               .seed = seed};
    desc.model = values.items;
    desc.model_count = values.count;
    desc.optimizer = slots.items;
    desc.optimizer_count = slots.count;
    desc.sections = sections;
    desc.section_count = (int)(sizeof sections / sizeof *sections) - !t->use;
    desc.fetch = fetch;
    desc.fetch_user = &r;
    desc.keep = keep;
    CLT_NEXT(status, clt_checkpoint_save(dir, &desc));
    clt_shards_drop(t);
    list_free(&values);
    list_free(&slots);
    clt_str_free(&groups);
    CLT_FREE(choices, split, r.buffer);
    return status;
}

/* PyTorch's counters, such as num_batches_tracked, are I64. */
static clt_status set_converted(clt_store *store, const clt_slot *slot, const clt_tensor *tensor)
{
    const int64_t count = slot->bytes / 4; /* f32 and i32 */
    void *converted = clt_alloc((size_t)slot->bytes);
    CLT_TRY_MEMORY(converted);
    clt_status status = slot->type.dtype == CLT_F32 ? clt_tensor_to_f32(tensor, count, converted)
                                                    : clt_tensor_to_i32(tensor, count, converted);
    CLT_NEXT(status, clt_store_set(store, slot->name, converted, (size_t)slot->bytes));
    clt_free(converted);
    return status;
}

/* `prefix` precedes the names in the file. */
static clt_status load_values(clt_store *store, const clt_tensors *tensors, const char *prefix)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        const clt_tensor *tensor;
        char name[512];
        if (slot->carried)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, slot->name);
        CLT_TRY(clt_tensors_find(tensors, name, &tensor));
        if (slot->type.dtype == CLT_F32 || slot->type.dtype == CLT_I32)
            CLT_TRY(set_converted(store, slot, tensor));
        else
            CLT_TRY(clt_store_set(store, slot->name, tensor->data, (size_t)slot->bytes));
    }
    return CLT_OK;
}

/* Returns the prefix of the names in the file: the model's, if any tensor has it. */
static const char *prefix_of(const clt_store *store, const clt_tensors *tensors)
{
    const char *prefix = store->file_prefix;
    for (int i = 0; prefix && i < clt_tensors_count(tensors); i++)
        if (!strncmp(clt_tensors_at(tensors, i)->name, prefix, strlen(prefix)))
            return prefix;
    return "";
}

static bool is_ignored(const clt_store *store, const char *name)
{
    char pattern[256];
    if (clt_buckets_find(&store->layout, name))
        return false;
    for (const char *next = store->file_ignored; next && *next;) {
        const size_t length = strcspn(next, "|");
        snprintf(pattern, sizeof pattern, "%.*s", (int)length, next);
        if (!fnmatch(pattern, name, 0))
            return true;
        next += length + (next[length] == '|');
    }
    return false;
}

/* Returns the tensor that the model's files may hold a second time under this name, *length bytes
 * long; NULL if there is none. */
static const char *tied_to(const clt_store *store, const char *name, int *length)
{
    if (clt_buckets_find(&store->layout, name))
        return NULL;
    for (const char *next = store->file_ignored; next && *next;) {
        const size_t all = strcspn(next, "|"), left = strcspn(next, "=|");
        if (next[left] == '=' && strlen(name) == left && !strncmp(next, name, left)) {
            *length = (int)(all - left - 1);
            return next + left + 1;
        }
        next += all + (next[all] == '|');
    }
    return NULL;
}

/* Renames the tensors as in the file, and adds tensors of the file that are ignored. */
static clt_status list_as_in_file(const clt_store *store, const clt_tensors *tensors,
                                  const char *prefix, tensor_list *list)
{
    const size_t head = strlen(prefix);
    for (int i = 0; *prefix && i < list->count; i++) {
        char name[512], *copy;
        snprintf(name, sizeof name, "%s%s", prefix, list->names[i]);
        CLT_TRY_MEMORY(copy = clt_strdup(name));
        clt_free(list->names[i]);
        list->names[i] = copy;
        list->items[i].name = copy;
    }
    for (int i = 0; i < clt_tensors_count(tensors); i++) {
        const clt_tensor *tensor = clt_tensors_at(tensors, i);
        const bool prefixed = !strncmp(tensor->name, prefix, head);
        int length = 0;
        const char *original = tied_to(store, tensor->name + (prefixed ? head : 0), &length);
        if (original) {
            char name[512];
            snprintf(name, sizeof name, "%s%.*s", prefix, length, original);
            CLT_TRY(clt_tensors_check_tied(tensors, tensor, name));
        } else if (!prefixed || !is_ignored(store, tensor->name + head))
            continue;
        const size_t room = (size_t)list->count + 2;
        clt_tensor *items = clt_realloc(list->items, room * sizeof *items);
        char **names = items ? clt_realloc(list->names, room * sizeof *names) : NULL;
        list->items = items ? items : list->items;
        list->names = names ? names : list->names;
        char *copy = names ? clt_strdup(tensor->name) : NULL;
        CLT_TRY_MEMORY(copy);
        list->items[list->count] = *tensor;
        list->items[list->count].name = copy;
        list->names[list->count++] = copy;
    }
    return CLT_OK;
}

/* clt_tensors_match accepts any pair of float types. Only conversions to f32 exist, so all others
 * are refused here. */
static clt_status match_types(const clt_store *store, const clt_tensors *tensors,
                              const char *prefix)
{
    for (int i = 0; i < store->layout.n_slots; i++) {
        const clt_slot *slot = &store->layout.slots[i];
        const clt_tensor *tensor;
        char name[512];
        if (slot->carried || slot->type.dtype == CLT_F32 || slot->type.dtype == CLT_I32)
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, slot->name);
        CLT_TRY(clt_tensors_find(tensors, name, &tensor));
        if (tensor->dtype != (clt_file_dtype)slot->type.dtype)
            return clt_fail(CLT_MISMATCH, "tensor %s is %s in the file and %s in the model", name,
                            clt_file_dtype_name(tensor->dtype),
                            clt_file_dtype_name((clt_file_dtype)slot->type.dtype));
    }
    return CLT_OK;
}

clt_status clt_store_load_tensors(clt_store *store, const clt_tensors *tensors)
{
    tensor_list list = {0};
    const char *prefix = prefix_of(store, tensors);
    clt_status status = list_tensors(store, NULL, &list);
    CLT_NEXT(status, list_as_in_file(store, tensors, prefix, &list));
    CLT_NEXT(status, clt_tensors_match(tensors, list.items, list.count,
                                       CLT_MATCH_FLOATS | CLT_MATCH_INTEGERS));
    CLT_NEXT(status, match_types(store, tensors, prefix));
    CLT_NEXT(status, load_values(store, tensors, prefix));
    list_free(&list);
    return status;
}

clt_status clt_store_load(clt_store *store, const char *path)
{
    clt_tensors *tensors;
    CLT_TRY(clt_tensors_open(path, &tensors));
    const clt_status status = clt_store_load_tensors(store, tensors);
    clt_tensors_close(tensors);
    return status;
}

static clt_status load_slots(clt_trainer *t, const clt_tensors *tensors)
{
    for (int i = 0; i < t->store->layout.n_slots; i++) {
        const clt_slot *slot = &t->store->layout.slots[i];
        for (int k = 0; k < slots_of(t) && !slot->state; k++) {
            char name[512];
            const clt_tensor *tensor;
            snprintf(name, sizeof name, "%s.%s", slot->name, clt_trainer_slot_name(t, k));
            CLT_TRY(clt_tensors_find(tensors, name, &tensor));
            CLT_TRY(clt_trainer_slot_set(t, k, slot->name, tensor->data, (size_t)slot->bytes));
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
    tensor_list values = {0}, slots = {0};
    clt_status status = list_tensors(t->store, NULL, &values);
    CLT_NEXT(status, clt_tensors_match(clt_checkpoint_model(checkpoint), values.items, values.count,
                                       CLT_MATCH_EXACT));
    const clt_section *written = clt_checkpoint_section(checkpoint, "optimizer");
    const char *own = clt_optimizer_name(t->options.optimizer);
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
    CLT_NEXT(status, list_tensors(t->store, t, &slots));
    CLT_NEXT(status, clt_tensors_match(clt_checkpoint_optimizer(checkpoint), slots.items,
                                       slots.count, CLT_MATCH_EXACT));
    list_free(&values);
    list_free(&slots);
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

clt_status clt_trainer_restore(clt_trainer *t, const char *path, clt_position *position,
                               int64_t *seed)
{
    clt_checkpoint *checkpoint = NULL;
    CLT_TRY(clt_checkpoint_open(path, &checkpoint));
    clt_scaling scaling;
    clt_split_history *history = NULL;
    clt_status status = match_all(t, checkpoint);
    CLT_NEXT(status, clt_scaling_read(t->options.precision, checkpoint, &scaling));
    CLT_NEXT(status, read_history(t, checkpoint, &history));
    CLT_NEXT(status, load_values(t->store, clt_checkpoint_model(checkpoint), ""));
    CLT_NEXT(status, load_slots(t, clt_checkpoint_optimizer(checkpoint)));
    if (status == CLT_OK) {
        const clt_run_state *run = clt_checkpoint_run(checkpoint);
        const clt_section *dropout_seed = clt_checkpoint_section(checkpoint, "dropout_seed");
        if (dropout_seed)
            t->options.seed = strtoull(dropout_seed->text, NULL, 10);
        clt_trainer_set_steps(t, run->step);
        clt_split_history_free(t->history);
        t->history = history;
        history = NULL;
        /* drop results of steps that the loaded run has not done */
        for (int i = 0; i < CLT_RESULT_RING; i++)
            t->results.records[i].step = -1;
        status = clt_trainer_set_scaling(t, &scaling);
        position->epoch = run->epoch;
        position->sample = run->sample;
        *seed = run->seed;
    }
    clt_split_history_free(history);
    clt_checkpoint_close(checkpoint);
    return status;
}
